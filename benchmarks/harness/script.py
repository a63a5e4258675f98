"""What scripts share: flags, sides in turn, medians, results in files, and tables."""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

from tidybert.errors import TidyBertError, UsageError, param
from tidybert.files.rows import count_of
from tidybert.system.cores import machine, versions

SIDES: Final = ("ours", "transformers")
LOADER_WORKERS: Final = 4
"""Processes that make transformers' batches for a GPU; a CPU has no core to spare for them."""

Line = dict[str, Any]
Found = TypeVar("Found")


# --- the command line
def at_least(least: int) -> Callable[[str], int]:
    """The type of a flag with a whole number that is no less."""

    def number(text: str) -> int:
        found = int(text)
        if found < least:
            raise argparse.ArgumentTypeError(f"{text}: expected {least} or more")
        return found

    return number


def _page(text: str) -> Path:
    """The type of a flag with a page that is there: the table comes hours later."""
    if not (page := Path(text)).is_file():
        raise argparse.ArgumentTypeError(f"{text}: no such page; name one with marks for the table")
    return page


_FLAGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "model": {"default": "minilm", "metavar": "MODEL", "help": "default %(default)s"},
    "rounds": {"type": at_least(1), "default": 3, "help": "times per side (default %(default)s)"},
    "json": {"action": "store_true", "help": "print one JSON object, every sample"},
    "out": {"type": Path, "help": "file with a line a measurement (default %(default)s)"},
    "write": {"type": _page, "help": "page whose table is replaced"},
    "seeds": {"type": at_least(1), "default": 3, "help": "default %(default)s"},
    "max-steps": {"type": at_least(1), "help": "train at most this many steps"},
    "max-seq-length": {"type": at_least(8), "help": "most tokens of a text"},
    "texts": {"metavar": "FILE", "help": "time these texts instead"},
    "device": {"default": "cpu", "help": "cpu, cuda or cuda:N"},
    "threads": {"type": at_least(1), "help": "threads of each side on a CPU"},
    "profile": {
        "action": "store_true",
        "help": "show the operations that take the most time; a CPU needs --threads 1",
    },
}


def parse(parser: argparse.ArgumentParser, names: str, **defaults: Any) -> argparse.Namespace:
    """Add flags that several scripts take, some with other defaults, and read the command line."""
    for name in names.split():
        given = dict(_FLAGS[name])
        if name.replace("-", "_") in defaults:
            given["default"] = defaults[name.replace("-", "_")]
        parser.add_argument(f"--{name}", **given)
    return parser.parse_args()


def add_number(
    parser: argparse.ArgumentParser,
    name: str,
    default: int | None = None,
    what: str = "",
    least: int = 1,
) -> None:
    said = what if default is None else f"{what} (default {default})".strip()
    parser.add_argument(f"--{name}", type=at_least(least), default=default, help=said)


def add_against(parser: argparse.ArgumentParser, others: Sequence[str] = SIDES[1:]) -> None:
    parser.add_argument("--against", choices=others, help="time this side too, in turn")


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


def missing(*packages: str) -> str | None:
    """The first package that is not installed, if there is one."""
    absent = (each for each in packages if not importlib.util.find_spec(each.replace("-", "_")))
    return next(absent, None)


def need(against: str, *packages: str) -> None:
    """Raise UsageError for a side whose packages are not all installed."""
    package = missing(*packages)
    if package is not None:
        raise UsageError(
            f"{param('against', against)} needs {package}, which is not installed: "
            f"pip install {package}"
        )


def sides_against(against: str | None) -> tuple[str, ...]:
    """Ours, and transformers where it is asked for; raises UsageError where it cannot run."""
    if against is None:
        return SIDES[:1]
    need(against, "transformers", "accelerate")
    return SIDES


def quiet_transformers() -> Any:
    """transformers, without its messages and progress bars."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


# --- sides in turn
def in_turn(sides: Sequence[str], number: int) -> Sequence[str]:
    """The order of the sides in a round: the first side begins even rounds and ends odd ones."""
    return sides if number % 2 == 0 else sides[::-1]


def take_rounds(
    sides: Sequence[str], rounds: int, measure: Callable[[str], Mapping[str, float]]
) -> dict[str, Any]:
    """Measure the quantities of every side once a round; stderr shows the first of them.

    Returns {"rounds", "samples" (by side and quantity, a value a round), "medians" (of those),
    "ratios" (by quantity, the median of the rounds' ratios of the first side to the second)}.
    """
    samples: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    for number in range(rounds):
        for side in in_turn(sides, number):
            values = measure(side)
            for name, value in values.items():
                samples[side].setdefault(name, []).append(value)
            name, value = next(iter(values.items()))
            note(f"round {number + 1} of {rounds}: {side}, {name} {figure(value)}")
    first, second = [*samples.values(), {}][:2]
    median = statistics.median
    medians = {
        side: {name: median(values) for name, values in quantities.items()}
        for side, quantities in samples.items()
    }
    ratios = {
        name: median(mine / other for mine, other in zip(first[name], values, strict=True))
        for name, values in second.items()
    }
    return {"rounds": rounds, "samples": samples, "medians": medians, "ratios": ratios}


def timed(work: Callable[[], Found]) -> tuple[Found, float, float]:
    """What a call returns, its seconds, and the processor's seconds of this process."""
    begin, used = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - begin, time.process_time() - used


def record() -> dict[str, Any]:
    """Where something was measured: part of each object of --json and each line of --out."""
    packages = ("tidybert", "torch", "transformers", "tokenizers")
    return {"machine": machine(), "versions": versions(*packages)}


def note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Results:
    """The lines of a JSON lines file, each a measurement with its machine and versions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        self.lines: list[Line] = [json.loads(line) for line in text.splitlines()]

    def take(self, key: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]) -> None:
        """Measure and write a line, if none has this key."""
        if self.where(**key):
            return
        found = measure()
        self.lines.append({**key, **found, **record()})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.lines[-1]) + "\n")
        short = {name: each for name, each in found.items() if isinstance(each, int | float | str)}
        print(*key.values(), json.dumps(short), flush=True)

    def where(self, **key: Any) -> list[Line]:
        return [line for line in self.lines if key.items() <= line.items()]


# --- tables
def print_speed(
    given: argparse.Namespace,
    title: str,
    result: Mapping[str, Any],
    rows: Mapping[str, str],
    remarks: Sequence[str] = (),
) -> None:
    """Print the medians and ratios of ``take_rounds``: a row has the quantity of its name."""
    columns = {**result["medians"], **({"ratio": result["ratios"]} if result["ratios"] else {})}
    table = [
        [name, *(figure(each[quantity]) for each in columns.values())]
        for name, quantity in rows.items()
    ]
    heads = [each.replace(SIDES[0], "tidybert") for each in ("", *columns)]
    print_table(given, title, result, heads, table, remarks)


def print_table(
    given: argparse.Namespace,
    title: str,
    result: Mapping[str, Any],
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    remarks: Sequence[str] = (),
) -> None:
    """Print a table and where it was measured; with --json an object with every sample."""
    where = record()
    if getattr(given, "json", False):
        print(json.dumps({"title": title, **result, **where}))
        return
    how = [f"medians of {count_of(result['rounds'], 'round')}"] if "rounds" in result else []
    how += [count_of(result["threads"], "thread")] if result.get("threads") else []
    how.append(f"{where['machine']['cpu']}, {count_of(where['machine']['cores'], 'core')}")
    print(title, "", *markdown(heads, rows), "", *remarks, "; ".join(how), sep="\n")
    print(", ".join(f"{name} {number}" for name, number in where["versions"].items() if number))


def figure(number: float) -> str:
    """Three significant digits, or all before the point."""
    return f"{number:,.0f}" if number >= 99.95 else f"{number:#.3g}"


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
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


# --- processes of their own

ROOT: Final = Path(__file__).parents[2]


def run_apart(
    function: Callable[[str, dict[str, Any]], Mapping[str, Any]],
    side: str,
    work: Mapping[str, Any],
    threads: int | None,
) -> dict[str, Any]:
    """What a module's function returns in another process, which sees one GPU, and "peak_mib"."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # A waiting thread that spins takes the core from the thread that it waits for.
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ, "PYTHONPATH": path}
    environment["TOKENIZERS_PARALLELISM"] = "false"
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    kind, _, number = str(work.get("device", "cpu")).partition(":")
    if kind == "cuda":
        # With several GPUs transformers' Trainer would divide its batches among them.
        seen = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
        at = int(number or 0)
        environment["CUDA_VISIBLE_DEVICES"] = seen[at] if at < len(seen) else str(at)
        work = {**work, "device": "cuda"}
    command = [sys.executable, "-m", "benchmarks.harness.script"]
    command += [function.__module__, function.__name__, side, json.dumps(work)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TidyBertError(f"the {side} side failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def in_environment(python: str, program: str, given: Any) -> Any:
    """Run a program in an environment of other packages; it reads and prints JSON."""
    done = subprocess.run(
        [python, "-c", program], input=json.dumps(given), capture_output=True, text=True
    )
    if done.returncode:
        raise TidyBertError(f"{python} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def gpu_peak_mib() -> float | None:
    """The most that PyTorch's allocator gave out on the GPU so far, in MiB; None without a GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return float(torch.cuda.max_memory_allocated()) / 2**20


def memory_mib(process: int | str = "self", field: str = "VmHWM") -> float:
    """The peak of a process's resident memory in MiB; with "VmRSS" that of now (Linux)."""
    # On Linux ru_maxrss includes the parent's memory at the start; VmHWM does not.
    status = Path(f"/proc/{process}/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def main() -> None:
    """In the process that was started: print what the function returns, as one line of JSON."""
    module, name, side, work = sys.argv[1:]
    with open(os.dup(1), "w") as stream:  # noqa: PTH123
        # transformers also prints to stdout, where only the answer may be.
        os.dup2(2, 1)
        result = getattr(import_module(module), name)(side, json.loads(work))
        peak = gpu_peak_mib() or memory_mib()
        print(json.dumps({**result, "peak_mib": round(peak)}), file=stream)


if __name__ == "__main__":
    main()
