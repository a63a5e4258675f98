"""The output of the benches: a title, a table of medians and ratios, and the machine."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from tidybert.cli.output import MAX_WIDTH, note, print_json, print_table


def with_head(bench: str, model: str, source: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """A result with what was measured, and where."""
    from tidybert.timing.setting import machine, versions

    head = {"bench": bench, "model": model, "data": source}
    return {**head, "machine": machine(), "versions": versions(), **result}


def note_fallback(source: str) -> None:
    if not source.startswith("SST-2"):
        note(
            "SST-2 is not in the data folder (TIDYBERT_DATA, or ../shared/data): the bundled "
            "tickets are timed"
        )


def print_bench(
    result: Mapping[str, Any],
    *,
    as_json: bool,
    title: str,
    lines: Mapping[str, str],
    remarks: Sequence[str] = (),
    sides: Sequence[str] = ("tidybert", "transformers"),
) -> None:
    """Print the median of each side, and with two sides their ratio.

    ``lines`` names the quantity in each line of the table; ``remarks`` follow the table.
    """
    if as_json:
        print_json(result)
        return
    medians, ratios = result["medians"], result["ratios"]
    rows = []
    for name, quantity in lines.items():
        cells = [values[quantity] for values in medians.values()]
        if ratios:
            cells.append(ratios[quantity])
        rows.append((name, *map(figure, cells)))
    print_titled(title, [*sides, "ratio"] if ratios else sides[:1], rows)
    for remark in remarks:
        print(remark)
    print_foot(result)


def print_titled(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    # The table's own title would be folded to the width of the columns.
    print(_folded(title))
    print_table({"": "left", **dict.fromkeys(columns, "right")}, rows)


def print_foot(result: Mapping[str, Any]) -> None:
    """Print the number of rounds, the threads, the processor and the versions."""
    from tidybert.files.wording import count_of

    # Python's own version would not fit on the line; --json has it.
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
