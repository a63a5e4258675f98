"""Labels that a model does not know: all of them, in one error."""

from collections.abc import Collection, Iterable
from typing import Final

from tidybert.errors import LINE, DataError
from tidybert.files.wording import count_of

SHOWN: Final = 20


def refuse_unknown(noun: str, labels: Iterable[tuple[str, int]], known: Collection[str]) -> None:
    """Raise DataError where a label is not ``known``; it lists SHOWN, the most frequent first.

    Args:
        noun: what a label is to the user: label, tag.
        labels: each label of each example, and the example's line.
        known: the model's, in the order of their ids.
    """
    counts: dict[str, int] = {}
    first_line: dict[str, int] = {}
    for label, line in labels:
        if label not in known:
            counts[label] = counts.get(label, 0) + 1
            first_line.setdefault(label, line)
    if not counts:
        return
    listed = []
    for label in sorted(counts, key=lambda name: -counts[name]):
        times = "" if counts[label] == 1 else f"{counts[label]:,} times, the first "
        listed.append(f"  {label!r}, {times}on {LINE} {first_line[label]}")
    more = [f"  and {len(listed) - SHOWN:,} more"] if listed[SHOWN:] else []
    rest = f" and {len(known) - SHOWN:,} more" if len(known) > SHOWN else ""
    lines = [
        f"{count_of(len(counts), noun)} that the model does not know:",
        *listed[:SHOWN],
        *more,
        f"It knows {len(known):,}: {', '.join(list(known)[:SHOWN])}{rest}",
        f"Spell the {noun}s as it does, or leave these examples out",
    ]
    raise DataError("\n".join(lines))
