"""Fine-tuning timed: tidybert and transformers on the same examples, order, steps and arguments.

transformers runs as its users run it: its Trainer, its tokenizer, and a collator that pads each
batch to its longest text.  Every measurement is a process of its own, so that its peak memory is
its own and neither side warms the other's caches::

    python -m tidybert.timing.finetuning_speed ours '{"task": "classify", …}'
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tidybert.catalog import find_model
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.finetuning import Callbacks, finetune_examples
from tidybert.inference.forward import run_features
from tidybert.pretraining.throughput import flops_per_token, peak_flops
from tidybert.storage.model_files import CONFIG_FILE, METADATA_FILE
from tidybert.timing.measuring import UNTIMED_STEPS, answer, run_apart, summarize, take_rounds
from tidybert.timing.setting import SIDES
from tidybert.timing.step_clock import (
    MOST_WARM_UP_STEPS,
    StepClock,
    warm_up_steps,
    with_shares,
)
from tidybert.timing.work import FinetuningWork
from tidybert.training.precision import is_mixed
from tidybert.training.reports import StepReport


def measure(side: str, work: FinetuningWork) -> dict[str, Any]:
    """Run one side in a process of its own.

    Returns {"metrics", "seconds" (of training alone), "num_steps", "num_examples",
    "examples_per_second", "step_seconds" (from the end of one step to that of the next, so one
    fewer than steps, and none of profiled steps), "step_examples" (of all steps), "profile" (see
    ``StepClock``), "peak_examples_per_second", "threads", "peak_mib" (of a GPU's memory, if the
    work's device is one)}.
    """
    result: dict[str, Any] = run_apart(
        "tidybert.timing.finetuning_speed", side, asdict(work), work.threads
    )
    return result


def bench_finetuning(
    work: FinetuningWork,
    *,
    sides: Sequence[str] = SIDES,
    steps: int = 40,
    rounds: int = 3,
    report: Callable[[str], None] = lambda _line: None,
) -> dict[str, Any]:
    """Time ``steps`` steps of the work, after a warm-up; a round measures every side once.

    On a GPU the steps after ``warm_up_steps`` are timed, which are more if its clocks were stable
    soon.  With frozen layers it times the second epoch, which has ``steps`` steps.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities
    examples_per_second, seconds_per_step and peak_mib.  Nothing is scored.  ``warm_up_steps`` and
    ``profile`` are each side's in its last round.  ``mfu`` is each side's share of the device's
    peak, with the operations that the tokens without padding need; None where the peak is not
    known.
    """
    device = torch.device(work.device)
    untimed = MOST_WARM_UP_STEPS if device.type == "cuda" else UNTIMED_STEPS
    if work.freeze_layers:
        # The first epoch computes the states that later epochs reuse.
        untimed, work = steps, replace(work, num_examples=steps * work.train_batch_size)
    num_steps = steps + untimed
    # An epoch has at least one step, so this many epochs are enough.
    num_steps += work.profiled_steps
    work = replace(work, dev=None, num_train_epochs=num_steps, max_steps=num_steps)
    all_seconds: dict[str, list[list[float]]] = {side: [] for side in sides}
    found: dict[str, dict[str, Any]] = {}
    warm_up: dict[str, int] = {}

    def one_round(side: str) -> tuple[Mapping[str, float], str]:
        found[side] = measured = measure(side, given)
        first = untimed if work.freeze_layers else warm_up_steps(measured["step_seconds"], device)
        timed = measured["step_seconds"][first - 1 :]
        warm_up[side] = first
        all_seconds[side].append(timed)
        rate = sum(measured["step_examples"][first : first + len(timed)]) / sum(timed)
        return {
            "examples_per_second": rate,
            "seconds_per_step": sum(timed) / len(timed),
            "peak_mib": measured["peak_mib"],
        }, f"{rate:.1f} examples/s"

    with _with_dropout(work) as given:
        summary = summarize(take_rounds(sides, rounds, one_round, report))
    medians = summary["medians"]
    peak = found[sides[0]].get("peak_examples_per_second")
    profiles = {side: one.get("profile") for side, one in found.items()}
    return {
        "work": asdict(work),
        "steps": steps,
        "warm_up_steps": warm_up,
        "rounds": rounds,
        "threads": found[sides[0]]["threads"],
        "step_seconds": all_seconds,
        **summary,
        "mfu": {
            side: one["examples_per_second"] / peak if peak else None
            for side, one in medians.items()
        },
        "profile": with_shares(
            profiles, {side: one["seconds_per_step"] for side, one in medians.items()}
        ),
    }


@contextmanager
def _with_dropout(work: FinetuningWork) -> Iterator[FinetuningWork]:
    """The work on a copy of its MODEL that has the work's dropout, if the work names one."""
    if work.dropout is None:
        yield work
        return
    origin = find_model(work.model).absolute()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for path in origin.iterdir():
            # tidybert.json has the hash of the configuration that changes here.
            if path.name not in (CONFIG_FILE, METADATA_FILE):
                (copy / path.name).symlink_to(path)
        rates = dict.fromkeys(
            ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
            work.dropout,
        )
        config = {**json.loads((origin / CONFIG_FILE).read_text()), **rates}
        (copy / CONFIG_FILE).write_text(json.dumps(config))
        yield replace(work, model=str(copy))


def _run(side: str, given: dict[str, Any]) -> dict[str, Any]:
    work = FinetuningWork.from_dict(given)
    if side == "ours":
        result = _run_ours(work)
    else:
        from tidybert.timing.transformers_side import run_finetuning

        result = run_finetuning(work)
    return {
        **result,
        "examples_per_second": result["num_examples"] / result["seconds"],
        "peak_examples_per_second": peak_examples_per_second(work),
        "threads": torch.get_num_threads(),
    }


def peak_examples_per_second(work: FinetuningWork) -> float | None:
    """The most that the work's device can do by its maker's figures; None where not known.

    None with frozen layers too, because a step then does a part of the work.
    """
    device = torch.device(work.device)
    peak = peak_flops(device, mixed=is_mixed(work.precision, device))
    if peak is None or work.freeze_layers:
        return None
    task, train, _ = work.read()
    directory = ModelDirectory.open(work.model)
    steps = islice(work.batches(len(train)), work.max_steps)
    chosen = [train[index] for batch in steps for index in batch]
    features = task.features(chosen, directory.tokenizer, work.max_seq_length)
    lengths = np.array([len(one.input_ids) for one in features])
    # A token attends to its sequence, so long sequences count for more of attention.
    per_token = flops_per_token(directory.config, (lengths**2).sum() / lengths.sum(), 0.0)
    return float(peak / (per_token * lengths.mean()))


def _run_ours(work: FinetuningWork) -> dict[str, Any]:
    task, train, dev = work.read()
    profiled = work.profiled_steps
    num_timed = work.max_steps - profiled if profiled and work.max_steps else None
    clock = StepClock(torch.device(work.device), num_timed, profiled)
    step_examples: list[int] = []

    def step(done: StepReport) -> None:
        clock.step_ended()
        step_examples.append(done.num_examples)

    trained = finetune_examples(
        task,
        work.model,
        train,
        None,
        work.arguments(),
        max_seq_length=work.max_seq_length,
        device=work.device,
        callbacks=Callbacks(step=step),
    )
    metrics = {}
    if dev:
        features = task.features(dev, trained.tokenizer, work.max_seq_length)
        task.add_labels(features, dev)
        metrics = task.answers(run_features(task, trained.model, features), features, dev).metrics()
    return {
        "metrics": metrics,
        "seconds": trained.result.seconds,
        "num_steps": trained.result.num_steps,
        "num_examples": trained.result.num_examples,
        "step_seconds": clock.step_seconds(),
        "profile": clock.profile(),
        "step_examples": step_examples,
    }


if __name__ == "__main__":
    answer(_run)
