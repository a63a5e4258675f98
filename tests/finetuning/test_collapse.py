"""One answer to everything, or nothing found anywhere, is told of a model."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.train import collapsed_to
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.multiple_choice import ChoiceExample, MultipleChoice
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tasks.regression import Regression
from tidybert.tasks.tags.tag_files import TaggedExample
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tokenization import BertTokenizer

Examples = Callable[..., list[TextExample]]
NAMES = ("animal", "colour")


SENTENCES = (
    TextExample("the red", None, "colour", 1, ("warm", "dark")),
    TextExample("a cat", None, "animal", 2, ()),
)
TAGGED = (
    TaggedExample(("the", "red"), ("O", "B-colour"), 1),
    TaggedExample(("a", "cat", "is"), ("O", "O", "O"), 2),
)
SCORED = (TextExample("the red", None, "1", 1), TextExample("a cat", None, "0", 2))
QUESTIONS = (
    QuestionExample("1", "the red", "a red cat", (("cat", 6),), False, 1),
    QuestionExample("2", "the red", "the old dog", (), True, 2),
)
CHOICES = (
    ChoiceExample("the red", "", ("yes", "no"), 0, 1),
    ChoiceExample("a cat", "", ("no", "yes"), 0, 2),
)


@pytest.mark.parametrize(
    ("task", "examples", "rows", "expected"),
    [
        (Classification(NAMES), SENTENCES, [[[0, 1]], [[0, 1]]], "colour"),
        (Classification(NAMES), SENTENCES, [[[0, 1]], [[1, 0]]], None),
        # Nothing else was there to be found.
        (Classification(NAMES), SENTENCES[:1], [[[0, 1]]], None),
        (MultiLabelClassification(("dark", "warm")), SENTENCES, [[[-1, -1]]] * 2, "(none)"),
        (MultiLabelClassification(("dark", "warm")), SENTENCES, [[[1, -1]]] * 2, "dark"),
        (MultiLabelClassification(("dark", "warm")), SENTENCES, [[[1, -1]], [[-1, -1]]], None),
        (Regression(), SCORED, [[[2.5]], [[2.5]]], "2.5"),
        (Regression(), SCORED, [[[2.5]], [[2.6]]], None),
        (
            Tagging(("O", "B-colour")),
            TAGGED,
            [[[1, 0]] * 4, [[1, 0]] * 5],
            "no entity",
        ),
        (Tagging(("O", "B-colour")), TAGGED, [[[0, 1]] * 4, [[1, 0]] * 5], None),
        (
            QuestionAnswering(no_answers=True, max_query_length=4),
            QUESTIONS,
            [[[9, 9]] + [[0, 0]] * 7] * 2,
            "no answer",
        ),
        (
            QuestionAnswering(no_answers=True, max_query_length=4),
            QUESTIONS,
            [[[9, 9]] + [[0, 0]] * 7, [[0, 0]] * 7 + [[9, 9]]],
            None,
        ),
        (MultipleChoice(), CHOICES, [[[1], [0]], [[0], [1]]], "yes"),
        (MultipleChoice(), CHOICES, [[[1], [0]], [[1], [0]]], None),
    ],
)
def test_one_answer_to_everything_is_a_collapse(
    task: Any, examples: Any, rows: Any, expected: str | None, tiny_model: Path
) -> None:
    features = task.features(examples, BertTokenizer.from_pretrained(tiny_model), 16)
    task.add_labels(features, examples)
    outputs = [np.array(each, dtype=np.float32) for each in rows]

    assert collapsed_to(task.answers(outputs, features, examples)) == expected


def test_one_other_answer_among_many_is_no_collapse(tiny_model: Path) -> None:
    task, examples = Classification(NAMES), SENTENCES * 100
    features = task.features(examples, BertTokenizer.from_pretrained(tiny_model), 16)
    task.add_labels(features, examples)
    outputs = [np.array([[0, 1]], dtype=np.float32)] * 200

    assert collapsed_to(task.answers(outputs, features, examples)) == "colour"
    outputs[-1] = np.array([[1, 0]], dtype=np.float32)
    assert collapsed_to(task.answers(outputs, features, examples)) is None


def test_a_model_that_collapsed_says_so(
    toy: Callable[..., FinetunedModel], toy_examples: Examples
) -> None:
    train = [replace(one, label="animal") for one in toy_examples(59)] + toy_examples(60)[:1]

    assert toy(train=train, max_steps=4).collapsed == "animal"
    assert toy(dev=None, max_steps=1).collapsed is None
