"""A file of labels that grows while a person labels: its columns, and which of its rows count.

Each answer is a row at the end, and nothing before it is changed: the last row of a text counts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from tidybert.files.columns import DRAWN
from tidybert.files.reading import ReadReport
from tidybert.files.records import CellsRow
from tidybert.files.rows import Problem, Record, count_of

TEXT: Final = ("text",)
PAIR: Final = ("text_a", "text_b")
LABEL: Final = "label"
STATUS: Final = "label_status"
BY: Final = "by"
COLUMNS: Final = (LABEL, STATUS, DRAWN, "row", BY, "at")
"""After the texts: its label, why there is none, how it came to be asked, its line, who and when.

The last one may be cut off by a kill without harm."""
LABELLED: Final = "labelled"
NONE: Final = "none"
SKIPPED: Final = "skipped"
UNDONE: Final = "undone"
ASKED: Final = "asked"
STATUSES: Final = {
    LABELLED: "labelled", NONE: "in none of the classes", SKIPPED: "skipped",
    UNDONE: "taken back", ASKED: "not labelled yet",
}  # fmt: skip
"""What the column says, and what a note says of texts without a label."""


def text_columns(names: Sequence[str]) -> list[int]:
    """Where a file of labels has its texts; nothing for another file."""
    if STATUS not in names or DRAWN not in names or LABEL not in names:
        return []
    found = TEXT if TEXT[0] in names else PAIR
    return [names.index(name) for name in found] if set(found) <= set(names) else []


def text_key(texts: Sequence[str]) -> tuple[str, ...]:
    """What equal texts share, in whatever way a spreadsheet has written their white space."""
    return tuple(" ".join(each.split()) for each in texts)


def wrong_status(said: str) -> str:
    """What is wrong with the row of a text without a label, whose status is another."""
    expected = ", ".join(each for each in STATUSES if each != LABELLED)
    return f"without a label, {STATUS} is {said[:40]!r}; expected {expected}"


def last_rows(
    rows: Iterator[CellsRow | Problem], report: ReadReport, *, keeps_none: bool
) -> Iterator[CellsRow | Problem]:
    """The rows that count of a file of labels, and all rows of another.

    Where votes count, the last row of each person counts.  Where labels are needed, texts without
    one are left out, and the report says how many; ``keeps_none``: a text of no class has labels,
    of which there are none.
    """
    first = next(rows, None)
    if first is None:
        return
    names = [] if isinstance(first, Problem) else [cell.strip() for cell in first[1]]
    texts = [] if report.options.header is False else text_columns(names)
    if not texts:
        yield from chain([first], rows)
        return
    yield first
    label, status = names.index(LABEL), names.index(STATUS)
    people = [names.index(BY)] if report.counts_votes and BY in names else []
    last: dict[tuple[str, ...], CellsRow] = {}
    count = 0
    broken: CellsRow | Problem | None = None
    for row in rows:
        if broken is not None:
            # The reader of cells says what is wrong with it.
            yield broken
        is_whole = not isinstance(row, Problem) and len(row[1]) == len(names)
        broken = None if is_whole else row
        if isinstance(row, Problem) or not is_whole:
            continue
        key = text_key([row[1][at] for at in [*texts, *people]])
        count += 1
        last.pop(key, None)
        last[key] = row
    if isinstance(broken, Problem):
        # A quote that is never closed may have other rows in it.
        advice = "tidybert label takes it off the file, if a kill has cut it off"
        yield Problem(broken.row, f"{broken.message}; {advice}")
    elif broken is not None:
        yield Problem(broken[0], "the last row was cut off as it was written", is_fault=False)
    left_out: Counter[str] = Counter()
    for row in last.values():
        said = row[1][status].strip()
        if row[1][label].strip() or not report.need_label or (keeps_none and said == NONE):
            yield row
        elif said in STATUSES and said != LABELLED:
            left_out[STATUSES[said]] += 1
        else:
            yield Problem(row[0], wrong_status(said))
    if count > len(last):
        replaced = f"a file of labels: {count_of(count - len(last), 'row')} replaced by later ones"
        report.notes.append(f"{replaced} of the same text{' and person' if people else ''}")
    if left_out:
        shown = ", ".join(f"{number:,} {name}" for name, number in left_out.items())
        report.notes.append(f"texts without a label left out: {shown}")


def last_records(
    rows: Iterator[Record | Problem], report: ReadReport, *, keeps_none: bool
) -> Iterator[Record | Problem]:
    """As ``last_rows``, of a file of labels that was turned into objects; all of another."""
    first = next(rows, None)
    names = [] if first is None or isinstance(first, Problem) else list(first[1])
    if first is not None:
        rows = chain([first], rows)
    if not text_columns(names):
        yield from rows
        return
    # By their place: objects of one line share its number.
    records: list[Record] = []
    problems: list[Problem] = []

    def cells() -> Iterator[CellsRow]:
        yield 0, names
        for row in rows:
            if isinstance(row, Problem):
                problems.append(row)
                continue
            records.append(row)
            values = [row[1].get(name) for name in names]
            # pandas gives NaN for what is empty.
            is_empty = [one is None or (isinstance(one, float) and one != one) for one in values]
            yield (
                len(records),
                ["" if no else str(one) for one, no in zip(values, is_empty, strict=True)],
            )

    _names, *counting = last_rows(cells(), report, keeps_none=keeps_none)
    yield from problems
    for row in counting:
        if isinstance(row, Problem):
            yield replace(row, row=records[row.row - 1][0])
        else:
            yield records[row[0] - 1]
