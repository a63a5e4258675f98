"""Time steps of fine-tuning a classifier, 32 texts each.

The other side is transformers' Trainer with dynamic padding, on the same examples in the same
order.  Each measurement is a process of its own.  With --freeze-layers the second epoch is timed,
for which tidybert has kept the frozen layers' states.  Without the data folder (TIDYBERT_DATA, or
../shared/data) the examples are the bundled tickets, not SST-2.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.harness import datasets, script, steps
from benchmarks.speed.finetune_work import FinetuneWork, metrics_of, with_dropout, work_of
from benchmarks.speed.infer import max_seq_length_for
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.pretraining.throughput import flops_per_token, peak_flops
from tidybert.system.reporter import Reporter
from tidybert.training.precision import is_mixed


def bench_finetuning(
    work: FinetuneWork,
    *,
    sides: Sequence[str] = script.SIDES,
    num_steps: int = 40,
    rounds: int = 3,
    dropout: float | None = None,
) -> dict[str, Any]:
    """What ``time_steps`` finds in so many steps of the work after a warm-up; nothing is scored.

    On a GPU more steps are timed if its clocks were stable soon.  With frozen layers it times the
    second epoch, which has as many.
    """
    untimed = steps.UNTIMED_STEPS if work.device == "cpu" else steps.MOST_WARM_UP_STEPS
    if work.freeze_layers:
        # The first epoch computes the states that later epochs reuse.
        untimed = num_steps
        work = replace(work, num_examples=num_steps * work.train_batch_size)
    # An epoch has at least one step, so this many epochs are enough.
    total = num_steps + untimed + work.profiled_steps
    work = replace(work, is_scored=False, num_train_epochs=total, max_steps=total)
    known = untimed if work.freeze_layers else None
    with with_dropout(work, dropout) as given:
        found = steps.time_steps(
            measure, given, "examples", sides=sides, rounds=rounds, untimed=known
        )
    return {**found, "steps": num_steps}


def measure(side: str, given: dict[str, Any]) -> dict[str, Any]:
    """Train and score one side, in the process that was started for it.

    Returns what ``time_steps`` takes, {"metrics", "seconds" (of training only), "num_steps"} too.
    """
    work = FinetuneWork(**given)
    if side == "ours":
        result = _train_ours(work)
    else:
        from benchmarks.speed.transformers_training import run_finetuning

        result = run_finetuning(work)
    return {
        **result,
        "num_steps": len(result["step_counts"]),
        "peak_rate": peak_examples_per_second(work),
        "threads": torch.get_num_threads(),
    }


def peak_examples_per_second(work: FinetuneWork) -> float | None:
    """The most that the work's device can do by its maker's figures; None where not known.

    It counts the operations that tokens without padding need.  None with frozen layers too, because
    a step then does a part of the work.
    """
    device = torch.device(work.device)
    peak = peak_flops(device, mixed=is_mixed(work.precision, device))
    if peak is None or work.freeze_layers:
        return None
    task, train, _ = work.read()
    directory = ModelDirectory.open(work.model)
    chosen = [train[index] for batch in work.batches(len(train)) for index in batch]
    features = task.features(chosen, directory.tokenizer, work.max_seq_length)
    lengths = np.array([len(one.input_ids) for one in features])
    # A token attends to its sequence, so long sequences count for more of attention.
    per_token = flops_per_token(directory.config, (lengths**2).sum() / lengths.sum(), 0.0)
    return float(peak / (per_token * lengths.mean()))


def _train_ours(work: FinetuneWork) -> dict[str, Any]:
    profiled = work.profiled_steps
    num_timed = work.max_steps - profiled if profiled and work.max_steps else None
    clock = steps.StepClock(torch.device(work.device), num_timed, profiled)
    counts: list[int] = []

    def step(done: Any) -> None:
        clock.step_ended()
        counts.append(done.num_examples)

    trained = work.trained(Reporter(step=step))
    _, _, test = work.read()
    metrics = metrics_of(trained, test) if test else {}
    seconds = trained.result.seconds
    return {"metrics": metrics, "seconds": seconds, "step_counts": counts, **clock.found()}


def main(parser: argparse.ArgumentParser) -> None:
    steps.add_training_flags(
        parser, steps=40, least=1, what="timed steps of 32 texts", dropout=None
    )
    script.add_flags(parser, "model max-seq-length")
    parser.add_argument(
        "--freeze-layers", type=script.at_least(0), default=0, help="lowest K layers"
    )
    given = parser.parse_args()
    script.check_device(given)
    job = datasets.sst2_or_tickets()
    work = work_of(
        job,
        given.model,
        num_examples=None,
        learning_rate=5e-5,
        max_seq_length=max_seq_length_for(given.model, given.max_seq_length),
        freeze_layers=given.freeze_layers,
        **steps.settings_of(given),
    )
    # A wrong argument is reported here, before a process would fail with a traceback.
    work.arguments()
    shown = "bfloat16" if is_mixed(given.precision, torch.device(given.device)) else "float32"
    sides = script.sides_against(given.against, given.device)
    result = bench_finetuning(
        work, sides=sides, num_steps=given.steps, rounds=given.rounds, dropout=given.dropout
    )
    steps.print_training(
        f"Fine-tuning: {given.steps} steps of {work.train_batch_size} texts of {job}, "
        f"{given.model}, {shown}",
        {"bench": "finetune", "model": given.model, "data": job, **result},
        "examples",
        (),
        given,
    )
