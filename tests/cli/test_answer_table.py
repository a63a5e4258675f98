"""What a row of the table says of each kind of answer."""

from typing import Any

import pytest

from tidybert.cli.answer_table import _cells, asked
from tidybert.files.text_examples import TextExample
from tidybert.tasks.choices.choice_files import ChoiceExample
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tasks.tags.tag_files import TaggedExample


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
    ("example", "text"),
    [
        (TextExample("a", "b", None, 1), "a | b"),
        (ChoiceExample("why", "because", ("x", "y"), None, 1), "why because"),
        (QuestionExample("1", "who?", "he", row=1), "who?"),
        (TaggedExample(("in", "Rome"), None, 1), "in Rome"),
    ],
)
def test_what_an_example_asks(example: Any, text: str) -> None:
    assert asked(example) == text
