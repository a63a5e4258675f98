"""Time steps of fine-tuning a classifier, 32 texts each.

The other side is transformers' Trainer with dynamic padding, on the same examples in the same
order.  Each measurement is a process of its own.  With --freeze-layers the second epoch is timed,
for which tidybert has kept the frozen layers' states.  Without the data folder (TIDYBERT_DATA, or
../shared/data) the examples are the bundled tickets, not SST-2.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.harness.datasets import sst2_or_tickets
from benchmarks.harness.rounds import SIDES, at_least, check_device, sides_against
from benchmarks.harness.step_clock import MOST_WARM_UP_STEPS, UNTIMED_STEPS, StepClock
from benchmarks.speed.finetune_work import FinetuneWork, with_dropout, work_of
from benchmarks.speed.infer import max_seq_length_for
from benchmarks.speed.training import (
    print_training,
    settings_of,
    time_steps,
    training_parser,
)
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.finetuning_run import Callbacks
from tidybert.finetuning.run_job import run_finetuning
from tidybert.inference.forward import run_features
from tidybert.pretraining.throughput import flops_per_token, peak_flops
from tidybert.training.precision import is_mixed


def bench_finetuning(
    work: FinetuneWork,
    *,
    sides: Sequence[str] = SIDES,
    steps: int = 40,
    rounds: int = 3,
    dropout: float | None = None,
) -> dict[str, Any]:
    """What ``time_steps`` finds in ``steps`` steps of the work after a warm-up; nothing is scored.

    On a GPU more steps are timed if its clocks were stable soon.  With frozen layers it times the
    second epoch, which has ``steps`` steps.
    """
    untimed = UNTIMED_STEPS if work.device == "cpu" else MOST_WARM_UP_STEPS
    if work.freeze_layers:
        # The first epoch computes the states that later epochs reuse.
        untimed, work = steps, replace(work, num_examples=steps * work.train_batch_size)
    # An epoch has at least one step, so this many epochs are enough.
    total = steps + untimed + work.profiled_steps
    work = replace(work, is_scored=False, num_train_epochs=total, max_steps=total)
    with with_dropout(work, dropout) as given:
        result = time_steps(
            measure,
            given,
            "examples",
            sides=sides,
            rounds=rounds,
            untimed=untimed if work.freeze_layers else None,
        )
    return {**result, "steps": steps}


def measure(side: str, given: dict[str, Any]) -> dict[str, Any]:
    """Train and score one side, in the process that was started for it.

    Returns what training.py says, {"metrics", "seconds" (of training only), "num_steps"} too.
    """
    work = FinetuneWork(**given)
    if side == "ours":
        result = _train_ours(work)
    else:
        from benchmarks.speed.transformers_tasks import run_finetuning

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
    task, train, test = work.read()
    profiled = work.profiled_steps
    num_timed = work.max_steps - profiled if profiled and work.max_steps else None
    clock = StepClock(torch.device(work.device), num_timed, profiled)
    counts: list[int] = []

    def step(done: Any) -> None:
        clock.step_ended()
        counts.append(done.num_examples)

    job = FinetuningJob(
        task,
        work.model,
        train,
        None,
        work.arguments(),
        max_seq_length=work.max_seq_length,
        device=work.device,
    )
    trained = run_finetuning(job, Callbacks(step=step))
    return {
        "metrics": metrics_of(trained, task, test) if test else {},
        "seconds": trained.result.seconds,
        "step_seconds": clock.step_seconds(),
        "step_counts": counts,
        "profile": clock.profile(),
    }


def metrics_of(trained: FinetunedModel, task: Any, examples: Sequence[Any]) -> dict[str, Any]:
    """The metrics of our model, with its last weights, in float32."""
    features = task.features(examples, trained.tokenizer, trained.max_seq_length)
    task.add_labels(features, examples)
    outputs = run_features(task, trained.model, features)
    found: dict[str, Any] = task.answers(outputs, features, examples).metrics()
    return found


def main() -> None:
    parser = training_parser(
        __doc__, steps=40, least=1, what="timed steps of 32 texts", dropout=None
    )
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--freeze-layers", type=at_least(0), default=0, help="lowest K layers")
    parser.add_argument("--max-seq-length", type=at_least(8), help="most tokens of a text")
    given = parser.parse_args()
    check_device(given)
    job = sst2_or_tickets()
    work = work_of(
        job,
        given.model,
        num_examples=None,
        learning_rate=5e-5,
        max_seq_length=max_seq_length_for(given.model, given.max_seq_length),
        freeze_layers=given.freeze_layers,
        **settings_of(given),
    )
    # A wrong argument is reported here, before a process would fail with a traceback.
    work.arguments()
    shown = "bfloat16" if is_mixed(given.precision, torch.device(given.device)) else "float32"
    sides = sides_against(given.against, given.device)
    result = bench_finetuning(
        work, sides=sides, steps=given.steps, rounds=given.rounds, dropout=given.dropout
    )
    print_training(
        f"Fine-tuning: {given.steps} steps of {work.train_batch_size} texts of {job}, "
        f"{given.model}, {shown}",
        {"bench": "finetune", "model": given.model, "data": job, **result},
        ("examples/s", "examples_per_second"),
        (),
        given,
    )
