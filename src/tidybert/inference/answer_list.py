"""AnswerList: the answers to several inputs, as a list and as a frame."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from tidybert.errors import UsageError

A = TypeVar("A")


class AnswerList(list[A]):
    """One answer an input, in order; see ``tidybert.tasks.answer_types`` for their keys."""

    #: The index of a pandas Series or DataFrame that held the inputs; None for other inputs.
    index: Any = None

    def to_pandas(self) -> Any:
        """A flat DataFrame, whose column ``input`` has the place of each row's input, from 0.

        A row an answer, with the scores of classes as score_NAME and the labels given as
        label_NAME, True or False; n_best and the scores of choices are left out.  Of tags a row an
        entity, or a row a word where tags mark none.  Answers to a Series or a DataFrame of pandas
        have its index, so that a column of theirs can join it.

        Raises UsageError where pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise UsageError("to_pandas() needs pandas: pip install pandas") from None
        rows = [row for at, one in enumerate(self) for row in _rows(at, one)]
        if self.index is None or len(self.index) != len(self):
            return pandas.DataFrame(rows)
        return pandas.DataFrame(rows, index=self.index.take([row["input"] for row in rows]))


def _rows(place: int, answer: Any) -> Iterator[dict[str, Any]]:
    if "tags" in answer:
        yield from _tag_rows(place, answer)
        return
    row: dict[str, Any] = {"input": place}
    for name, value in answer.items():
        if isinstance(value, Mapping):
            row |= {f"score_{label}": score for label, score in value.items()}
        elif name == "labels":
            row |= {f"label_{label}": label in value for label in answer["scores"]}
        elif not isinstance(value, list):
            row[name] = value
    yield row


def _tag_rows(place: int, answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if "entities" in answer:
        for each in answer["entities"]:
            yield {"input": place, **each}
        return
    for word, tag, score in zip(answer["words"], answer["tags"], answer["scores"], strict=True):
        yield {"input": place, "word": word, "tag": tag, "score": score}
