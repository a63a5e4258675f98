"""Results that a stopped script continues, and Markdown tables between the marks of a page."""

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.rounds import record, script_parser

Line = dict[str, Any]


class Results:
    """The lines of a JSON lines file, each a measurement with its machine and versions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        self.lines: list[Line] = [json.loads(line) for line in text.splitlines()]

    def take(self, key: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]) -> None:
        """Measure and write a line, if none has this key."""
        if any(key.items() <= line.items() for line in self.lines):
            return
        found = measure()
        self.lines.append({**key, **found, **record()})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.lines[-1]) + "\n")
        short = {name: each for name, each in found.items() if isinstance(each, int | float | str)}
        print(*key.values(), json.dumps(short), flush=True)

    def where(self, **key: Any) -> list[Line]:
        """The lines with these values."""
        return [line for line in self.lines if key.items() <= line.items()]


def results_parser(doc: str | None, name: str | None) -> argparse.ArgumentParser:
    """A parser with --model and --write, and with --out if ``name`` is given."""
    parser = script_parser(doc)
    parser.add_argument("--model", default="minilm")
    if name is not None:
        parser.add_argument(
            "--out", type=Path, default=Path(f"{name}.jsonl"), help="file with a line a measurement"
        )
    parser.add_argument("--write", type=Path, help="page whose table is replaced")
    return parser


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def percent(shares: Sequence[float]) -> str:
    """Mean and standard deviation of shares, in percent; "" for none."""
    values = [100 * share for share in shares]
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}" if values else ""


def show(lines: Sequence[str], page: Path | None, mark: str) -> None:
    """Print a table; with a page, also replace what stands between its marks there."""
    print("\n".join(lines))
    if page is None:
        return
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    text = page.read_text(encoding="utf-8")
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"--write {page}: it has no {begin} with {end} after it")
    page.write_text(before + "\n".join([begin, *lines, end]) + after, encoding="utf-8")
