"""The output of the benches: a title, a table of medians and ratios, and the machine."""

from collections.abc import Iterator, Mapping, Sequence
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
    from tidybert.system.machine import machine, versions

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
    # Servers choose their threads by themselves where no number is given.
    if result.get("threads") is not None:
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


def device_remarks(result: Mapping[str, Any], of_what: str, *, in_full: bool) -> Iterator[str]:
    """Lines on the warm-up, the share of the peak, and the profile of ``of_what`` ("a step").

    ``in_full``: also launches, synchronisations and the operations that take the most time.
    """
    for side, number in result.get("warm_up_steps", {}).items():
        yield f"steps before the clock, {_name(side)}: {number}"
    for side, share in result["mfu"].items():
        if share is not None:
            yield f"share of the device's peak, {_name(side)}: {share:.1%}"
    for side, found in result["profile"].items():
        share = found["share_outside_products"]
        yield f"time outside products, {_name(side)}: {share:.1%}"
        if not in_full:
            continue
        if found["launches"] is not None:
            yield (
                f"{of_what}, {_name(side)}: {found['launches']:,.0f} kernel launches, "
                f"{found['synchronisations']:,.0f} synchronisations"
            )
        for name, seconds, calls in found["busiest"]:
            yield f"  {1e3 * seconds:10.3f} ms {calls:8,.0f} times  {name[:50]}"


def _name(side: str) -> str:
    return "tidybert" if side == "ours" else side


def figure(number: float) -> str:
    """Three significant digits, or all before the point."""
    return f"{number:,.0f}" if number >= 99.95 else f"{number:#.3g}"


def _folded(text: str) -> str:
    return fill(text, MAX_WIDTH, break_on_hyphens=False)
