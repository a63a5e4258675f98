"""What the benches print: a title, a table of medians and ratios, and where it was measured."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from tidybert.cli.output import MAX_WIDTH, note, print_table

# What a table shows: a line's name, and the quantity of the result that stands in it.
Lines = Sequence[tuple[str, str]]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def head(bench: str, model: str, source: str) -> dict[str, Any]:
    from tidybert.timing.setting import machine, versions

    return {
        "bench": bench,
        "model": model,
        "data": source,
        "machine": machine(),
        "versions": versions(),
    }


def note_fallback(source: str) -> None:
    if not source.startswith("SST-2"):
        note(
            "SST-2 is not in the data folder (TIDYBERT_DATA, or ../shared/data): the bundled "
            "tickets are timed"
        )


def print_sides(
    result: Mapping[str, Any],
    lines: Lines,
    title: str,
    sides: Sequence[str] = ("tidybert", "transformers"),
) -> None:
    """A line a quantity: each side's median, and with two sides their ratio."""
    medians, ratios = result["medians"], result["ratios"]
    columns = [*sides, "ratio"] if ratios else sides[:1]
    rows = []
    for name, quantity in lines:
        cells = [values[quantity] for values in medians.values()]
        if ratios:
            cells.append(ratios[quantity])
        rows.append((name, *map(figure, cells)))
    print_titled(title, columns, rows)


def print_titled(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    # The table's own title would be folded to the width of the columns.
    print(_folded(title))
    print_table({"": "left", **dict.fromkeys(columns, "right")}, rows)


def print_foot(result: Mapping[str, Any]) -> None:
    """Where it was measured: rounds, threads, processor, versions."""
    from tidybert.files.wording import count_of

    # Python's own version would not fit the line; --json has it.
    found = {
        name: number for name, number in result["versions"].items() if number and name != "python"
    }
    machine = result["machine"]
    how = [f"medians of {count_of(result['rounds'], 'round')}"]
    if "threads" in result:
        how.append(count_of(result["threads"], "thread"))
    how.append(f"{machine['cpu']}, {count_of(machine['cores'], 'core')}")
    print(_folded("; ".join(how)))
    print(_folded(", ".join(f"{name} {number}" for name, number in found.items())))


def _folded(text: str) -> str:
    return fill(text, MAX_WIDTH, break_on_hyphens=False)


def figure(number: float) -> str:
    """Three significant digits, or all before the point."""
    return f"{number:,.0f}" if number >= 99.95 else f"{number:#.3g}"
