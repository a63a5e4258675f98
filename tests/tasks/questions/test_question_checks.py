"""What is told of questions before training."""

from typing import Any

import pytest

from tidybert.data.checks import TrainingData
from tidybert.errors import in_python
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.questions.question_features import question_features
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tokenization import BertTokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENIZER = BertTokenizer([*SPECIAL, *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh"), "cab"])


def example(name: str, context: str, answer: str = "", question: str = "a") -> QuestionExample:
    answers = ((answer, context.index(answer)),) if answer else ()
    return QuestionExample(name, question, context, answers, None if answer else True)


def check(train: list[QuestionExample], dev: list[QuestionExample] | None = None) -> Any:
    def features(examples: list[QuestionExample]) -> Any:
        return question_features(
            examples, TOKENIZER, max_seq_length=9, max_query_length=2, doc_stride=2
        )

    task = QuestionAnswering(max_query_length=2, max_answer_length=3)
    return task.check(TrainingData(train, dev, features(train), features(dev or []), 9))


def test_plain_questions_are_told_with_their_windows() -> None:
    report = check([example("x", "a b c d e f", "b"), example("y", "a b", "b")])

    assert (report.errors, report.warnings) == ([], [])
    # Of six words 6 + 5 + 4 spans have three or fewer, of two words 3.
    assert report.facts == [
        "windows, train: 3 windows over the texts of 2 questions",
        "a guess, 3 words of the text or fewer, is right in 20.00% of the training questions",
    ]
    assert report.num_tokens["train"]["max"] == 10
    assert report.num_truncated == {"train": 0}
    assert report.lines()[0] == "2 examples to train"


@pytest.mark.parametrize(
    ("train", "warning"),
    [
        (
            [example("x", "a b", "a", "a b c"), example("y", "a b", "a")],
            "1 train question longer than max_query_length 2 tokens, whose end is cut (id x)",
        ),
        ([example("x", "a b", "a", " ")], "1 train question without a word (id x)"),
        (
            [example(name, "cab b", "ab") for name in "vwxyz"],
            "training answers that begin or end within a token, learned as the tokens that cover",
        ),
        (
            [example("x", "a b c d e", "a b c d")],
            "training answers longer than max_answer_length=3 tokens, which no prediction is: 1 ",
        ),
        (
            [example("x", "aaaaaaaaaaaa b", "aaaaaaaaaaaa")],
            "training answers whole in no window, learned as if there was none (give more max_",
        ),
    ],
)
def test_warnings(train: list[QuestionExample], warning: str) -> None:
    report = check(train)

    assert warning in [told[: len(warning)] for told in map(in_python, report.warnings)]
    assert report.errors == []


@pytest.mark.parametrize(
    ("names", "shown"),
    [("v", "1 of 1 (id v)"), ("vwx", "(ids v, w, x)"), ("vwxyz", "(ids v, w, x and 2 more)")],
)
def test_whose_answers_they_are_is_told(names: str, shown: str) -> None:
    (warning,) = check([example(name, "cab b", "ab") for name in names]).warnings

    assert warning.endswith(shown)


def test_an_answer_with_white_space_around_it_is_not_torn() -> None:
    assert check([example("x", "a b c", " b ")]).warnings == []


def test_questions_without_an_answer() -> None:
    some = [example("x", "a b", "a"), example("y", "c d")]
    every = [example("z", "e f", "f")]

    report = check(some, some)
    assert "questions without an answer: 1 of 2 to train, 1 of 2 to evaluate" in report.facts
    assert "giving none an answer is right in 50.0% of them" in report.facts
    assert len(check(every).facts) == 2
    (warning,) = check(some, every).warnings
    assert in_python(warning).startswith(
        "every dev question has an answer, so null_score_diff_threshold"
    )
    (warning,) = check(every, some).warnings
    assert warning.startswith("no training question is without an answer, so every dev question")
    assert check([example("x", "a")]).errors == [
        "no training question has an answer; there is nothing to learn"
    ]


def test_a_text_on_both_sides() -> None:
    train, dev = [example("x", "a b", "a")], [example("y", "a b", "b"), example("z", "c d", "c")]

    (warning,) = check(train, dev).warnings

    assert warning.startswith(
        "1 dev example of 2 with a text that a training example has too (id y)"
    )


def test_errors() -> None:
    assert check([]).errors == ["the training data hold no example"]
    assert check([example("x", "a", "a")], []).errors == ["the dev data hold no example"]
    # The tokenizer drops a zero-width space.
    (error,) = check([example("x", "a \u200b b", "\u200b")]).errors
    assert error.startswith("1 training answer without a token (id x); the tokenizer drops")
