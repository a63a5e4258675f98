"""Files of texts that belong together: pairs, triplets, pairs with scores, texts with labels.

Column names say which: two texts, negatives (``negative``, ``negative_1``, …, or a list), and a
label, which is a score of two texts or the class of one.  The formats are those of texts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tidybert.errors import LINE, DataError
from tidybert.files.example_reader import ExampleReader
from tidybert.files.labels import finite_number
from tidybert.files.raw_rows import Problem
from tidybert.files.read_options import ReadOptions
from tidybert.files.read_report import ReadReport
from tidybert.files.text_files import FORMATS, text_example, text_values
from tidybert.files.wording import count_of, text_problem

# sentence-transformers names them so.
_NEGATIVE: Final = re.compile(r"negatives?(_?[0-9]+)?")
Form = Literal["pairs", "scores", "labels"]
FORM_NAMES: Final = {
    "pairs": "pairs of texts",
    "scores": "pairs of texts with scores",
    "labels": "texts with labels",
}


@dataclass(frozen=True, slots=True)
class VectorExample:
    """Texts that belong together or do not.

    Args:
        texts: one text; or a text, one that belongs to it, and any number that do not.
        label: the class of one text, or the score of two, as the file spells it.
        row: the 1-based line of the file.
    """

    texts: tuple[str, ...]
    label: str | None
    row: int

    @property
    def negatives(self) -> tuple[str, ...]:
        """The texts that do not belong to the first."""
        return self.texts[2:]

    @property
    def score(self) -> float | None:
        """The score of two texts; None where the label is not a finite number."""
        return None if self.label is None else finite_number(self.label)


def form_of(examples: Sequence[VectorExample]) -> Form:
    """What examples hold; DataError where they differ in it.

    Two texts have scores where each label is a finite number and no example has negatives.
    """
    singles = [one for one in examples if len(one.texts) == 1]
    if singles and len(singles) < len(examples):
        raise DataError(
            f"{LINE} {singles[0].row}: a single text, but "
            f"{len(examples) - len(singles):,} of {len(examples):,} examples have two: give each "
            "two, or one"
        )
    if singles:
        return "labels"
    if any(one.negatives for one in examples):
        return "pairs"
    return "pairs" if any(one.score is None for one in examples) else "scores"


def _examples(
    options: ReadOptions, report: ReadReport, *, need_label: bool
) -> Iterator[VectorExample | Problem]:
    """The rows of a file; with ``need_label``, one text alone needs a label."""
    report.reads_together = report.keep_columns = True
    # Pairs have none, but a label that is named must be there.
    report.need_label = need_label and options.label is not None
    for values in text_values(report):
        if isinstance(values, Problem):
            yield values
            continue
        found = text_example(values, report)
        if isinstance(found, Problem):
            yield found
            continue
        negatives = _negatives(found.row, found.columns or {})
        if isinstance(negatives, Problem):
            yield negatives
        elif found.text_pair is not None:
            yield VectorExample((found.text, found.text_pair, *negatives), found.label, found.row)
        elif negatives:
            what = "negatives, and no column of what belongs to the first text, such as positive"
            yield Problem(found.row, what)
        elif need_label and found.label is None:
            yield Problem(
                found.row,
                "one text without a label; give pairs of texts (columns anchor and positive), or "
                "texts with labels",
            )
        else:
            yield VectorExample((found.text,), found.label, found.row)


def _negatives(row: int, columns: Mapping[str, object]) -> list[str] | Problem:
    """The texts of the columns of negatives, which may hold lists; an empty cell has none."""
    texts = []
    for name, cell in columns.items():
        if not _NEGATIVE.fullmatch(name.strip().casefold()):
            continue
        for each in cell if isinstance(cell, list) else [cell]:
            if each is None or each == "":
                continue
            if problem := text_problem(name, each):
                return Problem(row, problem)
            assert isinstance(each, str)
            texts.append(each)
    return texts


def _tuple_names(first: Sequence[object]) -> Sequence[str]:
    """The columns of rows (text, text, …), (text, text, score) or (text, number of a class)."""
    if not isinstance(first[0], str) or (len(first) > 2 and not isinstance(first[1], str)):
        raise DataError(
            f"a row has {count_of(len(first), 'value')}: expected (text, text that belongs to it, "
            "texts that do not …), (text, text, score) or (text, number of its class)"
        )
    if len(first) > 1 and not isinstance(first[1], str):
        return ("text", "label")
    if len(first) == 3 and not isinstance(first[2], str | list | tuple):
        return ("anchor", "positive", "label")
    negatives = [f"negative_{number}" for number in range(1, len(first) - 1)]
    return ("text",) if len(first) == 1 else ("anchor", "positive", *negatives)


read_vectors = ExampleReader(_examples, FORMATS, _tuple_names)
