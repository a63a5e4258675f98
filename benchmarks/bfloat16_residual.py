"""Whether losses change where the residual stream is in bfloat16, as CUDA's autocast has it.

    tidybert build-corpus TEXTS --vocab VOCAB --out corpus
    python benchmarks/bfloat16_residual.py corpus --steps 2000 --out bfloat16-residual.jsonl \
        --write benchmarks/NOTES.md

Every run pre-trains a size on a CPU in bfloat16, with the fast recipe but AdamW.  In one kind of
run the residual stream and LayerNorm's output are float32, as a CPU has them.  In the other they
are bfloat16, forward and backward: LayerNorm takes CUDA's path.  The third kind is float32 again,
but its first weights are rounded to bfloat16 once: it shows how far chance alone drives two
trainings apart.  Runs of one seed have the same first weights and the same batches.  Each is one
line of --out, and a stopped trial continues from there.
"""

import argparse
import json
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import torch
from side_by_side import show
from torch import Tensor
from torch.nn import functional

from tidybert.modeling.kernels.layer_norm import LayerNorm
from tidybert.pretraining import pretraining_run
from tidybert.pretraining.instance_options import InstanceOptions
from tidybert.pretraining.objectives import PretrainingModel
from tidybert.pretraining.plan import PretrainingPlan
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.pretraining.pretraining_run import pretrain
from tidybert.pretraining.start import start_from_corpus
from tidybert.system.machine import machine
from tidybert.training.reports import StepReport, TrainingCallbacks

KINDS: Final = ("float32", "bfloat16", "rounded")
LAST: Final = 200
"""A run is measured by the mean loss of this many last steps."""


@contextmanager
def bfloat16_residual() -> Iterator[None]:
    """Within it LayerNorm does on a CPU under autocast what it does on CUDA."""
    before = LayerNorm.forward

    def forward(self: LayerNorm, input: Tensor) -> Tensor:
        if not torch.is_autocast_enabled("cpu"):
            return before(self, input)
        with torch.autocast("cpu", enabled=False):
            weight, bias = self.weight.bfloat16(), self.bias.bfloat16()
            return functional.layer_norm(
                input.bfloat16(), self.normalized_shape, weight, bias, self.eps
            )

    with patch.object(LayerNorm, "forward", forward):
        yield


@contextmanager
def rounded_weights() -> Iterator[None]:
    """Within it a pre-training begins with weights that are rounded to bfloat16 and back."""

    def start(network: PretrainingModel, plan: PretrainingPlan) -> None:
        start_from_corpus(network, plan)
        with torch.no_grad():
            for weight in network.parameters():
                weight.copy_(weight.bfloat16())

    with patch.object(pretraining_run, "start_from_corpus", start):
        yield


_WITHIN: Final[Mapping[str, Callable[[], AbstractContextManager[None]]]] = {
    "float32": nullcontext,
    "bfloat16": bfloat16_residual,
    "rounded": rounded_weights,
}


def trained(
    size: str, corpus: Path, arguments: PretrainingArguments, kind: str
) -> tuple[list[float], float]:
    """The loss of each step, and the seconds of all."""
    losses: list[float] = []

    def step(done: StepReport) -> None:
        losses.append(done.loss)
        if done.step % 100 == 0:
            where = f"seed {arguments.seed}, {kind}, step {done.step}"
            print(f"{where}: {done.loss:.4f}", flush=True)

    with tempfile.TemporaryDirectory() as folder, _WITHIN[kind]():
        result = pretrain(
            size,
            corpus,
            Path(folder) / "run",
            arguments,
            instances=InstanceOptions(max_seq_length=128),
            device="cpu",
            callbacks=TrainingCallbacks(step=step),
        )
    return losses, result.seconds


def measured(
    size: str, corpus: Path, steps: int, tokens_per_step: int, seed: int, kind: str
) -> dict[str, Any]:
    """One run as a line of --out."""
    arguments = PretrainingArguments(
        recipe="fast",
        optimizer="adamw",
        learning_rate=1e-3,
        max_steps=steps,
        tokens_per_step=tokens_per_step,
        seed=seed,
        precision="bfloat16",
        # The losses of training are what is compared.
        eval_steps=steps + 1,
        eval_tokens=512,
        save_steps=steps + 1,
        save_minutes=1e6,
    )
    losses, seconds = trained(size, corpus, arguments, kind)
    last = losses[-min(LAST, max(1, steps // 2)) :]
    return {
        "kind": kind,
        "seed": seed,
        "size": size,
        "num_steps": len(losses),
        "tokens_per_step": tokens_per_step,
        "loss": statistics.mean(last),
        "error": statistics.stdev(last) / math.sqrt(len(last)) if len(last) > 1 else 0.0,
        "seconds": round(seconds, 1),
        "losses": [round(each, 4) for each in losses],
    }


def table(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Markdown rows: a seed's losses, and their differences from the first kind's."""
    lines = [
        (
            "| seed | steps | tokens a step | float32 residual | bfloat16 residual "
            "| float32, first weights rounded | bfloat16 - float32 | rounded - float32 |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    differences: dict[str, list[float]] = {kind: [] for kind in KINDS[1:]}
    for seed in sorted({each["seed"] for each in results}):
        runs = {each["kind"]: each for each in results if each["seed"] == seed}
        known = next(iter(runs.values()))
        cells = [f"{seed}", f"{known['num_steps']:,}", f"{known['tokens_per_step']:,}"]
        cells += [f"{runs[each]['loss']:.4f}" if each in runs else "" for each in KINDS]
        for kind, known_differences in differences.items():
            if kind in runs and KINDS[0] in runs:
                known_differences.append(runs[kind]["loss"] - runs[KINDS[0]]["loss"])
                cells.append(f"{known_differences[-1]:+.4f}")
            else:
                cells.append("")
        lines.append(f"| {' | '.join(cells)} |")
    means = [f"{statistics.mean(each):+.4f}" if each else "" for each in differences.values()]
    lines.append(f"| mean | | | | | | {' | '.join(means)} |")
    return lines


def main() -> None:
    """Run what --out lacks, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("corpus", type=Path, help="corpus from tidybert build-corpus")
    parser.add_argument("--size", default="mini", help="a size, such as mini")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tokens-per-step", type=int, default=512)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("bfloat16-residual.jsonl"))
    parser.add_argument("--write", type=Path, help="write the table between its marks in this file")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    results: list[dict[str, Any]] = []
    if given.out.exists():
        results = [json.loads(line) for line in given.out.read_text().splitlines()]
    done = {(each["seed"], each["kind"]) for each in results}
    for seed in range(1, given.seeds + 1):
        for kind in KINDS:
            if (seed, kind) in done:
                continue
            results.append(
                measured(given.size, given.corpus, given.steps, given.tokens_per_step, seed, kind)
            )
            with given.out.open("a") as file:
                file.write(json.dumps({**results[-1], "machine": machine()}) + "\n")
    show(table(results), given.write, "bfloat16-residual")


if __name__ == "__main__":
    main()
