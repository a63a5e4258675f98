"""Predictor.predict takes what programs have: columns of any library, tuples, frames, one text."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidybert.errors import DataError
from tidybert.inference.predictor import AnswerList, Predictor, examples_of
from tidybert.system.terminal import Pace
from tidybert.tasks.classification import Classification
from tidybert.tasks.multiple_choice import MultipleChoice
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tasks.task import AnyTask

TEXTS = ["red", "a cow"]


def series(values: list[Any]) -> Any:
    return pytest.importorskip("pandas").Series(values, index=[7, 3])


COLUMNS: dict[str, Callable[[list[str]], Any]] = {
    "list": list,
    "tuple": tuple,
    "generator": iter,
    "pandas": series,
    "polars": lambda values: pytest.importorskip("polars").Series(values),
    "numpy": np.array,
    "objects": lambda values: np.array(values, dtype=object),
    "arrow": pa.array,
    "chunked arrow": lambda values: pa.chunked_array([values]),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_every_kind(kind: str) -> None:
    made, task = COLUMNS[kind], Classification(["x", "y"])

    assert examples_of(task, made(TEXTS), None, None) == task.from_texts(TEXTS, None)
    pairs = examples_of(task, made(TEXTS), made(["one", "two"]), None)
    assert pairs == task.from_texts(TEXTS, ["one", "two"])


PAIRED: list[tuple[AnyTask, Any]] = [
    (Classification(["x", "y"]), ["one", "two"]),
    (QuestionAnswering(), ["one", "two"]),
    (MultipleChoice(), [["one", "two"], ["three", "four", "five"]]),
]


@pytest.mark.parametrize(("task", "seconds"), PAIRED)
def test_tuples_are_pairs(task: AnyTask, seconds: Any) -> None:
    rows = list(zip(TEXTS, seconds, strict=True))

    assert examples_of(task, rows, None, None) == task.from_texts(TEXTS, seconds)


def test_an_array_of_two_columns_is_pairs() -> None:
    task = Classification(["x", "y"])

    found = examples_of(task, np.array([["red", "one"], ["a cow", "two"]]), None, None)

    assert found == task.from_texts(TEXTS, ["one", "two"])


def test_lists_of_words_are_sentences() -> None:
    (found,) = examples_of(Tagging(["O", "B-x", "I-x"]), [("New", "York")], None, None)

    assert found.words == ("New", "York")


def test_a_frame_gives_its_columns_by_name() -> None:
    frame = pa.table({"text_a": ["red"], "text_b": ["one"], "other": [1]})

    for rows in (frame, frame.to_pylist(), frame.to_pydict()):
        (found,) = examples_of(Classification(["x", "y"]), rows, None, None)
        assert (found.text, found.text_pair) == ("red", "one")

    empty = frame.slice(0, 0)
    assert examples_of(Classification(["x", "y"]), empty, None, None) == []

    with pytest.raises(DataError, match="texts has columns of its own"):
        examples_of(Classification(["x", "y"]), frame, ["one"], None)


def test_one_text_has_one_answer(tiny_run: Path) -> None:
    predictor = Predictor[Any](tiny_run)

    found = predictor.predict("red")

    assert found == predictor.predict(["red"])[0]
    assert isinstance(predictor.predict(["red"]), AnswerList)
    assert predictor.predict([]) == []


def test_answers_join_a_series_by_its_index(tiny_run: Path) -> None:
    predictor, texts = Predictor[Any](tiny_run), series(TEXTS)

    found = predictor.predict(texts).to_pandas()

    assert found.index.tolist() == [7, 3]
    assert found.loc[3, "label"] == predictor.predict(TEXTS[1])["label"]


def test_progress_is_shown_on_request(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor, shown = Predictor[Any](tiny_run), []

    @contextmanager
    def bar(title: str, *, wanted: bool) -> Iterator[Any]:
        yield Pace(lambda *each: shown.append(each[:2]), 0.0) if wanted else None

    monkeypatch.setattr("tidybert.system.terminal.progress_bar", bar)
    quiet = predictor.predict(TEXTS)
    assert not shown

    assert predictor.predict(TEXTS, progress=True) == quiet
    assert shown[-1] == (2, 2)
