"""Everything to measure on a GPU, in less than 25 minutes, and a table of what was found.

    python benchmarks/cuda.py --out cuda.md

Each step is a process of its own with a time limit.  The table is written again after each step, so
a machine that goes away takes nothing along.  Without --data DIR it makes its own corpus.

    python benchmarks/cuda.py --device cpu --tiny --out cuda.md

tries all of it without a GPU.
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidybert.storage.atomic_files import atomic_write_text
from tidybert.system.machine import machine, versions

MOST_SECONDS: Final = 25 * 60
_HERE: Final = Path(__file__).parent
_CHECKS: Final = str(_HERE / "cuda_checks.py")
_BENCH: Final = ("-m", "tidybert", "bench")


@dataclass(frozen=True)
class Step:
    """One row of the table.

    command: what follows python.  limit: seconds.  found: from stdout to what the table says.
    """

    name: str
    command: tuple[str, ...]
    limit: float
    expected: str
    found: Callable[[str], str]


@dataclass(frozen=True)
class Outcome:
    """How a step ended: ``found``, or why nothing was."""

    step: Step
    found: str
    seconds: float
    output: str = ""
    failed: bool = False


def last_line(output: str) -> str:
    """The last line that is not blank."""
    return next((line for line in reversed(output.splitlines()) if line.strip()), "")


def of_bench(quantity: str, unit: str) -> Callable[[str], str]:
    """The figures of ``tidybert bench --json``."""

    def found(output: str) -> str:
        result: dict[str, Any] = json.loads(output)
        ours = result["medians"]["ours"]
        parts = [f"{ours[quantity]:,.0f} {unit}", f"{ours['peak_mib'] / 1024:.1f} GiB"]
        if share := result["mfu"]["ours"]:
            parts.append(f"{share:.1%} of the peak")
        if profile := result["profile"].get("ours"):
            parts.append(f"{profile['share_outside_products']:.0%} outside products")
            if profile["launches"] is not None:
                parts.append(f"{profile['launches']:,.0f} launches")
                parts.append(f"{profile['synchronisations']:,.0f} synchronisations")
        if result["ratios"]:
            parts.append(f"{result['ratios'][quantity]:.2f} times transformers")
        return ", ".join(parts)

    return found


def plan(device: str, tiny: bool, folder: Path, data: Path | None) -> list[Step]:
    """All steps, in the order of what must be right first."""
    size = "tiny" if tiny else "base"
    tokens = 512 if tiny else 32_768
    corpus, model = data or folder / "corpus", str(folder / "model")
    on = ("--device", device, *(("--threads", "1") if device == "cpu" else ()))

    def check(name: str, *flags: object) -> tuple[str, ...]:
        common = ("--device", device, "--folder", folder, "--data", corpus, "--size", size)
        return tuple(map(str, (_CHECKS, name, *common, "--tokens", tokens, *flags)))

    def bench(what: str, *flags: object) -> tuple[str, ...]:
        return tuple(map(str, (*_BENCH, what, *on, "--rounds", 1, "--json", "--profile", *flags)))

    per_step, micro = (512, 256) if tiny else (131_072, 65_536)
    steps = 4 if tiny else 20
    common = ["--size", size, "--data", corpus, "--tokens-per-step", per_step]
    common += ["--micro-batch", micro, "--steps", steps]
    tokens_found = of_bench("tokens_per_second", "tokens/s")
    sides = [("transformers", "")]
    if device != "cpu" and importlib.util.find_spec("flash_attn") is not None:
        sides.append(("transformers-flash", ", with flash-attn"))
    tests = ("-m", "pytest", "-k", "cuda or flash", str(_HERE.parent / "tests" / "modeling"))
    longer = 64 if tiny else 512
    first = [
        Step("corpus, model and texts", check("prepare", *["--tiny"] * tiny), 75, "", last_line),
        Step("tests of kernels", tests, 60, "none fails", last_line),
        Step(
            "kernels against the formula", check("kernels"), 60,
            "errors under 0.06, a rate of 0.1, new lengths as fast as again", last_line,
        ),
        Step(
            "mini in float32, CPU and device", check("losses", "--size", "tiny" if tiny else "mini",
            "--tokens", per_step if tiny else 8_192), 80, "losses equal to 0.001", last_line,
        ),
        *(
            Step(
                f"micro-batch of {tokens:,} at {length}, dropout {dropout}",
                check("micro-batch", "--max-seq-length", length, "--dropout", dropout), 45,
                expected, last_line,
            )
            for length, dropout, expected in (
                (128, 0.0, "60 ms, less than 25 ms to launch, 15 GiB"),
                (128, 0.1, "at most 1.3 times as long as without dropout"),
                (longer, 0.0, "70 ms"),
            )
        ),
    ]  # fmt: skip
    pretraining = [
        Step(
            f"pre-training {size} at {length}, {name}",
            bench("pretrain", *common, "--max-seq-length", length, *flags),
            limit, expected, tokens_found,
        )
        for length, name, flags, limit, expected in (
            (128, "dropout 0", ("--dropout", 0), 90, "600,000 tokens/s, 34% of the peak"),
            (128, "dropout 0.1", ("--dropout", 0.1), 90, "90% of that"),
            (longer, "dropout 0", ("--dropout", 0), 90, "550,000 tokens/s"),
            *[(128, "compiled", ("--dropout", 0, "--compile"), 150, "faster")] * (device != "cpu"),
            *(
                (128, f"beside transformers{how}", ("--dropout", 0, "--against", side), 110, "")
                for side, how in sides
            ),
        )
    ]  # fmt: skip
    finetuning = [
        Step(
            f"fine-tuning {size} beside transformers{how}",
            bench("finetune", "--model", model, "--steps", 2 if tiny else 40, "--against", side),
            90, "at least 2 times", of_bench("examples_per_second", "examples/s"),
        )
        for side, how in sides
    ]  # fmt: skip
    return [
        *first,
        *pretraining,
        Step(
            "the fast recipe, SIGTERM and --resume",
            check("resume", "--steps", 6 if tiny else 60, *(("--tokens", per_step))),
            150, "no recompilation after the first batches, finite losses", last_line,
        ),
        *finetuning,
        Step(
            f"prediction with {size} beside transformers",
            bench("infer", "--model", model, "--texts", folder / "texts.txt", "--against",
            "transformers"),
            # Five processes load PyTorch, two of them transformers too.
            120, "3 times", of_bench("texts_per_second_in_order", "texts/s"),
        ),
    ]  # fmt: skip


def run(step: Step, seconds_left: float) -> Outcome:
    """Run a step for as long as it may take, then kill it with all that it started."""
    limit = min(step.limit, seconds_left)
    if limit <= 0:
        return Outcome(step, "not run: the time is over", 0.0, failed=True)
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            # Without -P this file would be the package "cuda" that PyTorch looks for.
            [sys.executable, "-P", *step.command],
            stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit)
            why = f"failed with status {process.returncode}" if process.returncode else ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            why = f"stopped after {limit:.0f} s"
        seconds = time.monotonic() - begin
        errors.seek(0)
        told = errors.read()
    if why:
        return Outcome(step, f"{why}: {last_line(told)}", seconds, output + told, failed=True)
    try:
        return Outcome(step, step.found(output), seconds, output)
    except (ValueError, KeyError, TypeError) as error:
        return Outcome(step, f"not understood: {error!r}", seconds, output + told, failed=True)


def page(outcomes: Sequence[Outcome], where: str) -> str:
    """The table, and below it the end of each step's output."""
    lines = [where, "", "| step | found | expected | seconds |", "|---|---|---|---|"]
    for each in outcomes:
        cells = (each.step.name, each.found, each.step.expected, f"{each.seconds:.0f}")
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    for each in outcomes:
        lines += ["", f"## {each.step.name}", "", f"`python {' '.join(each.step.command)}`", ""]
        lines += ["```text", each.output[-4000:].strip(), "```"]
    return "\n".join(lines) + "\n"


def described() -> str:
    """The processor and the versions, in a line; the first step tells the GPU's name."""
    cpu, found = machine(), versions("tidybert", "torch", "transformers")
    names = [f"{cpu['cpu']}, {cpu['cores']} cores"]
    return "; ".join([*names, *(f"{name} {number}" for name, number in found.items())])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, to try the script")
    parser.add_argument("--data", type=Path, help="corpus that build-corpus wrote")
    parser.add_argument("--out", type=Path, default=Path("cuda.md"), help="page to write")
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="only steps whose names have a WORD"
    )
    given = parser.parse_args()
    begin, outcomes = time.monotonic(), []
    where = described()
    with tempfile.TemporaryDirectory() as folder:
        steps = plan(given.device, given.tiny, Path(folder), given.data)
        if given.only:
            chosen = [each for each in steps[1:] if any(word in each.name for word in given.only)]
            steps = [*steps[:1], *chosen]
        for step in steps:
            outcomes.append(run(step, MOST_SECONDS - (time.monotonic() - begin)))
            atomic_write_text(given.out, page(outcomes, where))
            print(f"{step.name} ({outcomes[-1].seconds:.0f} s): {outcomes[-1].found}", flush=True)
    if any(each.failed for each in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
