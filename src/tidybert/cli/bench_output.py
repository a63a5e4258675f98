"""The output of the benches: a title, a table of medians and ratios, and the machine."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from tidybert.cli.output import MAX_WIDTH, print_json, print_line, print_table


def print_bench(
    head: Mapping[str, str],
    result: Mapping[str, Any],
    *,
    as_json: bool,
    title: str,
    rows: Mapping[str, Sequence[float]],
    sides: Sequence[str] = ("tidybert", "transformers"),
    remarks: Sequence[str] = (),
) -> None:
    """Print what was measured, and where.

    Args:
        head: the bench, its model and its data.
        rows: the cells of the table: one a side, and the ratio where both sides were timed.
        remarks: lines after the table.
    """
    from tidybert.files.wording import count_of
    from tidybert.machine import machine, versions

    where, found = machine(), versions("tidybert", "torch", "transformers", "tokenizers")
    if as_json:
        print_json({**head, "machine": where, "versions": found, **result})
        return
    is_compared = any(len(cells) > 1 for cells in rows.values())
    columns = [*sides, "ratio"] if is_compared else sides[:1]
    # The table's own title would be folded to the width of the columns.
    print_line(_folded(title))
    print_table(
        {"": "left", **dict.fromkeys(columns, "right")},
        [(name, *map(figure, cells)) for name, cells in rows.items()],
    )
    for remark in remarks:
        print_line(remark)
    how = [f"medians of {count_of(result['rounds'], 'round')}"]
    if "threads" in result:
        how.append(count_of(result["threads"], "thread"))
    how.append(f"{where['cpu']}, {count_of(where['cores'], 'core')}")
    print_line(_folded("; ".join(how)))
    # Python's own version would not fit on the line; --json has it.
    shown = (f"{name} {number}" for name, number in found.items() if number and name != "python")
    print_line(_folded(", ".join(shown)))


def cells_of(result: Mapping[str, Any], quantities: Mapping[str, str]) -> dict[str, list[float]]:
    """Rows for ``print_bench``: each named quantity's median by side, and its ratio."""
    rows = {}
    for name, quantity in quantities.items():
        rows[name] = [values[quantity] for values in result["medians"].values()]
        if result["ratios"]:
            rows[name].append(result["ratios"][quantity])
    return rows


def figure(number: float) -> str:
    """Three significant digits, or all before the point."""
    return f"{number:,.0f}" if number >= 99.95 else f"{number:#.3g}"


def _folded(text: str) -> str:
    return fill(text, MAX_WIDTH, break_on_hyphens=False)
