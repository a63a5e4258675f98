"""Speed: sides in turn, medians over rounds, ratios of the same rounds, one table, one record."""

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidybert.errors import UsageError, param
from tidybert.files.rows import count_of
from tidybert.system.cores import machine, versions

SIDES: Final = ("ours", "transformers")
FLASH_SIDE: Final = "transformers-flash"

Samples = Mapping[str, Mapping[str, Sequence[float]]]
"""By side and by quantity, one value a round."""


def in_turn(sides: Sequence[str], number: int) -> Sequence[str]:
    """The order of the sides in a round: the first side begins even rounds and ends odd ones."""
    return sides if number % 2 == 0 else sides[::-1]


def take_rounds(
    sides: Sequence[str], rounds: int, measure: Callable[[str], tuple[Mapping[str, float], str]]
) -> Samples:
    """Measure every side once a round.

    Args:
        measure: from a side to its values by quantity, and the rate that stderr shows.
    """
    samples: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    for number in range(rounds):
        for side in in_turn(sides, number):
            values, rate = measure(side)
            for name, value in values.items():
                samples[side].setdefault(name, []).append(value)
            note(f"round {number + 1} of {rounds}: {side} {rate}")
    return samples


def summarize(samples: Samples) -> dict[str, Any]:
    """The samples, their medians by side, and the first side's ratios to the second.

    A ratio is the median over the rounds; one side alone has none.
    """
    first, second = [*samples.values(), {}][:2]
    return {
        "samples": samples,
        "medians": {
            side: {name: statistics.median(values) for name, values in quantities.items()}
            for side, quantities in samples.items()
        },
        "ratios": {
            name: statistics.median(
                mine / other for mine, other in zip(first[name], values, strict=True)
            )
            for name, values in second.items()
        },
    }


def record() -> dict[str, Any]:
    """Where something was measured: part of each object of --json and each line of --out."""
    packages = ("tidybert", "torch", "transformers", "tokenizers")
    return {"machine": machine(), "versions": versions(*packages)}


def note(line: str) -> None:
    """Print a line about the course on stderr."""
    print(line, file=sys.stderr, flush=True)


# --- the command line of a speed


def at_least(least: int) -> Callable[[str], int]:
    """The type of a flag with a whole number that is no less."""

    def number(text: str) -> int:
        found = int(text)
        if found < least:
            raise argparse.ArgumentTypeError(f"{text}: expected {least} or more")
        return found

    return number


def script_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is a module's docstring as it stands."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def speed_parser(
    doc: str | None, *, rounds: int = 3, others: Sequence[str] = SIDES[1:]
) -> argparse.ArgumentParser:
    """The flags of every speed."""
    parser = script_parser(doc)
    parser.add_argument("--against", choices=others, help="time this side too, in turn")
    parser.add_argument(
        "--rounds", type=at_least(1), default=rounds, help=f"times per side (default {rounds})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, every sample")
    return parser


def add_device(parser: argparse.ArgumentParser) -> None:
    """--device, --threads and --profile."""
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--threads", type=at_least(1), help="threads of each side on a CPU")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="show the operations that take the most time; a CPU needs --threads 1",
    )


def check_device(given: argparse.Namespace) -> None:
    """Give the device its full name, and raise UsageError for what this machine cannot do."""
    from tidybert.inference.loading import choose_device

    given.device = str(choose_device(given.device))
    if given.profile and given.device == "cpu" and given.threads != 1:
        raise UsageError(
            "--profile on a CPU needs --threads 1: the profiler sees only the first thread"
        )
    # A GPU is always profiled, for the share of the time outside products.
    given.profiled = given.profile or given.device != "cpu"


def sides_against(against: str | None, device: str = "cpu") -> tuple[str, ...]:
    """The sides; raises UsageError where the other one is not installed."""
    if against is None:
        return SIDES[:1]
    for package in ("transformers", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"{param('against', against)} needs {package}, which is not installed: "
                "pip install '.[dev]'"
            )
    if against == FLASH_SIDE and (
        device == "cpu" or importlib.util.find_spec("flash_attn") is None
    ):
        raise UsageError(
            f"{param('against', against)} needs {param('device', 'cuda')} and the package "
            "flash-attn: install it, or compare with transformers"
        )
    return SIDES


def attention_of(against: str | None) -> str:
    """The attn_implementation of transformers' side."""
    return "flash_attention_2" if against == FLASH_SIDE else "sdpa"


# --- what a speed prints


def print_speed(
    title: str,
    result: Mapping[str, Any],
    rows: Mapping[str, str],
    remarks: Sequence[str] = (),
    *,
    as_json: bool,
    other: str = "transformers",
) -> None:
    """Print the medians and ratios of a result of ``summarize``, and where it was measured.

    Args:
        rows: by name of a row, its quantity.
        remarks: lines after the table.
        other: the heading of the second side.
    """
    where = record()
    if as_json:
        print(json.dumps({**result, **where}))
        return
    shown = [["", "tidybert"] if len(result["medians"]) == 1 else ["", "tidybert", other, "ratio"]]
    for name, quantity in rows.items():
        values = [found[quantity] for found in result["medians"].values()]
        if result["ratios"]:
            values.append(result["ratios"][quantity])
        shown.append([name, *map(figure, values)])
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    print(f"{title}\n")
    for first, *cells in shown:
        right = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        print("  ".join([f"{first:<{widths[0]}}", *right]))
    print("", *remarks, sep="\n")
    threads = result.get("threads")
    how = [f"medians of {count_of(result['rounds'], 'round')}"]
    how += [count_of(threads, "thread")] if threads else []
    how.append(f"{where['machine']['cpu']}, {count_of(where['machine']['cores'], 'core')}")
    print("; ".join(how))
    print(", ".join(f"{name} {number}" for name, number in where["versions"].items() if number))


def figure(number: float) -> str:
    """Three significant digits, or all before the point."""
    return f"{number:,.0f}" if number >= 99.95 else f"{number:#.3g}"
