"""What a row of the table says of each kind of answer."""

from typing import Any

import pytest

from tidybert.cli.answer_table import _cells
from tidybert.files.text_examples import TextExample
from tidybert.tasks.choices.choice_files import ChoiceExample
from tidybert.tasks.choices.multiple_choice import MultipleChoice
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tasks.tags.tag_files import TaggedExample
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tasks.task import AnyTask
from tidybert.tasks.text_task import TextTask
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.tasks.vectors.vector_examples import VectorExample


@pytest.mark.parametrize(
    ("answer", "cells"),
    [
        ({"label": "a", "score": 0.5, "scores": {}}, {"label": "a", "score": "0.5000"}),
        ({"labels": ["a", "b"], "scores": {}}, {"labels": "a, b"}),
        ({"labels": [], "scores": {}}, {"labels": "(none)"}),
        ({"value": 1.23456}, {"value": "1.235"}),
        ({"choice": 1, "text": "yes", "score": 1.0}, {"choice": "yes", "score": "1.0000"}),
        ({"answer": "", "score": 0.25}, {"answer": "(no answer)", "score": "0.2500"}),
        ({"entities": [{"text": "Rome", "type": "LOC"}]}, {"entities": "Rome (LOC)"}),
        ({"words": ["a"], "tags": ["X", "Y"]}, {"tags": "X Y"}),
    ],
)
def test_the_cells_of_an_answer(answer: dict[str, Any], cells: dict[str, str]) -> None:
    assert _cells(answer) == cells


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
