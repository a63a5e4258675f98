"""Everything to measure on a GPU, in less than 25 minutes, and a table of what was found.

Each step is a process of its own with a time limit.  The table is written again after each step, so
a machine that goes away takes nothing along.  Without --data DIR it makes its own corpus.  --device
cpu --tiny tries all of it without a GPU.
"""

import argparse
import importlib.util
import json
import math
import os
import signal
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from benchmarks.harness.datasets import wikipedia_lines
from benchmarks.harness.script import ROOT, add_number, markdown, record
from benchmarks.scores.compare import write_random_model
from benchmarks.speed.training import corpus_of
from tidybert.configuration import BertConfig
from tidybert.tokenization import BertTokenizer

MOST_SECONDS: Final = 25 * 60
_VOCABULARY: Final = 30_522


@dataclass(frozen=True)
class Step:
    """One row of the table: what follows python, seconds, and from stdout what the table says."""

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


def of_speed(unit: str) -> Callable[[str], str]:
    """The figures of a speed's --json."""
    quantity = "texts_per_second_in_order" if unit == "texts" else f"{unit}_per_second"

    def found(output: str) -> str:
        result: dict[str, Any] = json.loads(output)
        ours = result["medians"]["ours"]
        parts = [f"{ours[quantity]:,.0f} {unit}/s", f"{ours['peak_mib'] / 1024:.1f} GiB"]
        if "seconds_per_step" in ours:
            parts.append(f"{1e3 * ours['seconds_per_step']:.1f} ms a step")
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
    size, steps, longer = ("tiny", 4, 64) if tiny else ("base", 20, 512)
    micro, half, per_step = (256, 256, 512) if tiny else (32_768, 65_536, 131_072)
    corpus, model = data or folder / "corpus", folder / "model"
    on = ("--device", device, *(("--threads", 1) if device == "cpu" else ()))
    sides = {"transformers": ""}
    if device != "cpu" and importlib.util.find_spec("flash_attn") is not None:
        sides["transformers-flash"] = ", with flash-attn"

    def check(name: str, *flags: object) -> tuple[str, ...]:
        words = ("-m", "benchmarks.speed.cuda", name, folder, "--size", size)
        return tuple(map(str, (*words, "--device", device, *flags)))

    def speed(name: str, *flags: object) -> tuple[str, ...]:
        words = ("-m", "benchmarks", name, *on, "--rounds", 1, "--json", "--profile", *flags)
        return tuple(map(str, words))

    def pretrain(
        name: str, limit: float, expected: str, step_tokens: int, at_once: int, *flags: object
    ) -> Step:
        words = ("--size", size, "--data", corpus, "--steps", steps, *flags)
        words = (*words, "--tokens-per-step", step_tokens, "--micro-batch", at_once)
        return Step(name, speed("pretrain", *words), limit, expected, of_speed("tokens"))

    dropout, none, long = ("--dropout", 0.1), ("--dropout", 0), ("--max-seq-length", longer)
    whole = f"pre-training {size}"
    where = ("modeling", "training/test_trainer.py", "inference/test_answer_precision.py")
    tests = ("-m", "pytest", "-q", "-m", "cuda", *(f"tests/{each}" for each in where))
    return [
        Step("corpus, model and texts", check("prepare", *["--tiny"] * tiny), 75, "", last_line),
        Step("kernels and a training against the CPU", tests, 120, "none fails", last_line),
        pretrain("a micro-batch", 60, "60 ms and the update, 15 GiB", micro, micro, *none),
        pretrain("a micro-batch, dropout 0.1", 60, "at most 1.3 times", micro, micro, *dropout),
        pretrain(f"a micro-batch at {longer}", 60, "70 ms", micro, micro, *none, *long),
        pretrain(whole, 90, "600,000 tokens/s, 34% of the peak", per_step, half, *none),
        pretrain(f"{whole}, dropout 0.1", 90, "90% of that", per_step, half, *dropout),
        pretrain(f"{whole} at {longer}", 90, "550,000 tokens/s", per_step, half, *none, *long),
        *[pretrain(f"{whole}, compiled", 150, "faster", per_step, half, *none, "--compile")]
        * (device != "cpu"),
        *(
            pretrain(f"{whole} beside transformers{how}", 110, "", per_step, half, *none,
                     "--against", side)
            for side, how in sides.items()
        ),
        Step(
            "the fast recipe, SIGTERM and --resume",
            check("resume", "--data", corpus, "--steps", 6 if tiny else 60, "--tokens", per_step),
            150, "no recompilation after the first batches, finite losses", last_line,
        ),
        *(
            Step(
                f"fine-tuning {size} beside transformers{how}",
                speed("finetune", "--model", model, "--steps", steps, "--against", side),
                90, "at least 2 times", of_speed("examples"),
            )
            for side, how in sides.items()
        ),
        Step(
            f"prediction with {size} beside transformers",
            speed("infer", "--model", model, "--texts", folder / "texts.txt",
                  "--against", "transformers"),
            # Five processes load PyTorch, two of them transformers too.
            150, "3 times", of_speed("texts"),
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
            [sys.executable, *step.command],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
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


def page(outcomes: Sequence[Outcome]) -> str:
    """The table, and below it the end of each step's output."""
    rows = [
        (each.step.name, each.found.replace("|", "/"), each.step.expected, f"{each.seconds:.0f}")
        for each in outcomes
    ]
    lines = [json.dumps(record()), "", *markdown(["step", "found", "expected", "seconds"], rows)]
    for each in outcomes:
        lines += ["", f"## {each.step.name}", "", f"`python {' '.join(each.step.command)}`", ""]
        lines += ["```text", each.output[-4000:].strip(), "```"]
    return "\n".join(lines) + "\n"


def main(parser: argparse.ArgumentParser) -> int:
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, to try the script")
    parser.add_argument("--data", type=Path, help="corpus that build-corpus wrote")
    parser.add_argument("--out", type=Path, default=Path("cuda.md"), help="page to write")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORD", help="steps whose names have a WORD"
    )
    given = parser.parse_args()
    begin, outcomes = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        first, *rest = plan(given.device, given.tiny, Path(folder), given.data)
        for step in [first, *(one for one in rest if any(word in one.name for word in given.only))]:
            outcomes.append(run(step, MOST_SECONDS - (time.monotonic() - begin)))
            given.out.write_text(page(outcomes), encoding="utf-8")
            print(f"{step.name} ({outcomes[-1].seconds:.0f} s): {outcomes[-1].found}", flush=True)
    return 1 if any(each.failed for each in outcomes) else 0


# --- the steps that are no speed


def prepare(given: argparse.Namespace) -> str:
    """FOLDER/corpus, FOLDER/model and FOLDER/texts.txt."""
    tokens = list(BertTokenizer.from_pretrained("tidybert-small").vocabulary.tokens)
    known = set(tokens)
    made = ("".join(letters) for letters in product(string.ascii_lowercase, repeat=4))
    tokens += islice((word for word in made if word not in known), _VOCABULARY - len(tokens))
    tokens = tokens[: 2_000 if given.tiny else _VOCABULARY]
    tokenizer = BertTokenizer(tokens)
    source, lines = wikipedia_lines()
    if source == "bundled tickets" or given.tiny:
        source, lines = "words at random", random_lines(tokens, 600 if given.tiny else 60_000)
    corpus_of(lines, tokenizer, given.folder, held_out=0.3 if given.tiny else 0.02)
    texts = lines[: 100 if given.tiny else 2_000]
    (given.folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    config = BertConfig.from_name(given.size, vocab_size=tokenizer.vocab_size)
    write_random_model(given.folder / "model", config, tokenizer, seed=0)
    device = torch.device(given.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return f"{name}; {len(lines):,} lines of {source}, a vocabulary of {tokenizer.vocab_size:,}"


def random_lines(tokens: Sequence[str], number: int) -> list[str]:
    """Paragraphs whose words are as unequal in number as in prose (Zipf's law)."""
    generator = np.random.default_rng(0)
    words = np.array([token for token in tokens if token.isalpha() and token.isascii()])
    generator.shuffle(words)
    shares = 1 / np.arange(2, len(words) + 2)
    lines = []
    for _ in range(number):
        lengths = generator.integers(8, 30, generator.integers(2, 6))
        drawn = iter(generator.choice(words, lengths.sum(), p=shares / shares.sum()).tolist())
        lines.append(" ".join(" ".join(islice(drawn, length)) + "." for length in lengths.tolist()))
    return lines


def resume(given: argparse.Namespace) -> str:
    """The fast recipe; SIGTERM at half the steps; --resume to the end."""
    run: Path = given.folder / "run"
    flags = {
        "recipe": "fast", "data": given.data, "out": run, "device": given.device,
        "max-steps": given.steps, "save-steps": given.steps, "logging-steps": 1,
        "tokens-per-step": given.tokens, "micro-batch": given.tokens // 2,
    }  # fmt: skip
    command = [sys.executable, "-m", "tidybert", "pretrain", given.size]
    command += [word for name, each in flags.items() for word in (f"--{name}", str(each))]
    command += ["--compile"] * (given.device != "cpu")
    log, notes = run / "metrics.jsonl", given.folder / "resume.txt"
    environment = {**os.environ, "TORCH_LOGS": "recompiles"}
    with notes.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)
        while process.poll() is None and len(steps_of(log)) < given.steps // 2:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.wait()
        stopped = len(steps_of(log))
        done = subprocess.run([*command, "--resume"], stdout=stream, stderr=stream, env=environment)
    told = notes.read_text()
    print(told[-3000:])
    steps = steps_of(log)
    numbers = [each["step"] for each in steps]
    if done.returncode or numbers != list(range(1, given.steps + 1)):
        sys.exit(f"resume ended with {done.returncode}, steps {numbers}")
    if not all(math.isfinite(each["loss"]) for each in steps):
        sys.exit("a loss is not finite")
    found = f"stopped at step {stopped}, resumed, {len(steps)} steps in all"
    found += f"; {told.count('Recompiling function')} recompilations in both processes"
    return found + (f"; {steps[-1]['mfu']:.1%} of the peak" if "mfu" in steps[-1] else "")


def steps_of(log: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl that are steps'; a line that is being written does not count."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [each for each in found if "loss" in each]


if __name__ == "__main__":
    # A step that is no speed, as ``plan`` starts it; its last line says what it found.
    parser = argparse.ArgumentParser()
    parser.add_argument("check", choices=("prepare", "resume"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--size", default="base")
    add_number(parser, "tokens", 131_072)
    add_number(parser, "steps", 60)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    print((prepare if given.check == "prepare" else resume)(given))
