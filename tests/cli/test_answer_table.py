"""What a row of the table says of each kind of answer."""

from typing import Any

import pytest

from tidybert.files.text_examples import TextExample
from tidybert.tasks.answer import (
    Answered,
    Chosen,
    Classified,
    Embedded,
    FoundEntity,
    LabelSet,
    Scored,
    Tagged,
    TaskAnswer,
)
from tidybert.tasks.multiple_choice import ChoiceExample, MultipleChoice
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tasks.tags.tag_files import TaggedExample
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tasks.task import AnyTask
from tidybert.tasks.text_task import TextTask
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.tasks.vectors.vector_examples import VectorExample

ROME = FoundEntity(type="LOC", text="Rome", start=0, end=4, score=0.5)


@pytest.mark.parametrize(
    ("answer", "cells"),
    [
        (Classified("a", 0.5, {}), {"label": "a", "score": "0.5000"}),
        (LabelSet(["a", "b"], {}), {"labels": "a, b"}),
        (LabelSet([], {}), {"labels": "(none)"}),
        (Scored(1.23456), {"value": "1.235"}),
        (Chosen(1, "yes", 1.0, [0.0, 1.0]), {"choice": "yes", "score": "1.0000"}),
        (Answered("1", "", None, None, 0.25, []), {"answer": "(no answer)", "score": "0.2500"}),
        (Tagged(["Rome"], ["B-LOC"], entities=[ROME]), {"entities": "Rome (LOC)"}),
        (Tagged(["a", "b"], ["X", "Y"], scores=[0.5, 0.5]), {"tags": "X Y"}),
        (Embedded(vector=[0.5, 0.25]), {"vector": "2 numbers"}),
        (Embedded(similarity=0.5), {"similarity": "0.5000"}),
    ],
)
def test_the_cells_of_an_answer(answer: TaskAnswer, cells: dict[str, str]) -> None:
    assert answer.cells() == cells


@pytest.mark.parametrize(
    ("task", "example", "texts"),
    [
        (TextTask, TextExample("a", "b", None, 1), ["a", "b"]),
        (MultipleChoice, ChoiceExample("why", "because", ("x", "y"), None, 1), ["why\nbecause"]),
        (QuestionAnswering, QuestionExample("1", "who?", "he", row=1), ["who?"]),
        (Tagging, TaggedExample(("in", "Rome"), None, 1), ["in Rome"]),
        (SentenceVectors, VectorExample(("a", "b"), None, 1), ["a", "b"]),
    ],
)
def test_the_texts_of_an_example(task: type[AnyTask], example: Any, texts: list[str]) -> None:
    assert [*task.shown(example)] == texts
