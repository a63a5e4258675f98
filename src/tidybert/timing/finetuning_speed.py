"""Fine-tuning timed: tidybert and transformers on the same examples, order, steps and arguments.

transformers runs as its users run it: its Trainer, its tokenizer, and a collator that pads each
batch to its longest text.  Every measurement is a process of its own, so that its peak memory is
its own and neither side warms the other's caches::

    python -m tidybert.timing.finetuning_speed ours '{"task": "classify", …}'
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from tidybert.finetuning import Callbacks, finetune
from tidybert.inference.forward import run_features
from tidybert.timing.measuring import (
    UNTIMED_STEPS,
    answer,
    run_apart,
    step_times,
    summarize,
    take_rounds,
)
from tidybert.timing.setting import SIDES
from tidybert.timing.work import FinetuningWork
from tidybert.training.trainer import StepReport


def measure(side: str, work: FinetuningWork) -> dict[str, Any]:
    """Run one side in a process of its own.

    Returns {"metrics", "seconds" (of training alone), "num_steps", "num_examples",
    "examples_per_second", "step_seconds" (from the end of one step to that of the next, so one
    fewer than steps), "step_examples" (of all steps), "threads", "peak_mib"}.
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
    """Time ``steps`` steps of the work, after UNTIMED_STEPS; a round measures every side once.

    With frozen layers it times the second epoch, which has ``steps`` steps.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities
    examples_per_second, seconds_per_step and peak_mib.  Nothing is scored.
    """
    untimed = UNTIMED_STEPS
    if work.freeze_layers:
        # The first epoch computes the states that later epochs reuse.
        untimed, work = steps, replace(work, num_examples=steps * work.train_batch_size)
    num_steps = steps + untimed
    # An epoch has at least one step, so this many epochs are enough.
    work = replace(work, dev=None, num_train_epochs=num_steps, max_steps=num_steps)
    all_seconds: dict[str, list[list[float]]] = {side: [] for side in sides}
    threads: dict[str, int] = {}

    def one_round(side: str) -> tuple[Mapping[str, float], str]:
        measured = measure(side, work)
        threads[side] = measured["threads"]
        all_seconds[side].append(measured["step_seconds"][-steps:])
        seconds = sum(all_seconds[side][-1])
        rate = sum(measured["step_examples"][-steps:]) / seconds
        return {
            "examples_per_second": rate,
            "seconds_per_step": seconds / steps,
            "peak_mib": measured["peak_mib"],
        }, f"{rate:.1f} examples/s"

    samples = take_rounds(sides, rounds, one_round, report)
    return {
        "work": asdict(work),
        "steps": steps,
        "untimed_steps": untimed,
        "rounds": rounds,
        "threads": threads[sides[0]],
        "step_seconds": all_seconds,
        **summarize(samples),
    }


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
        "threads": torch.get_num_threads(),
    }


def _run_ours(work: FinetuningWork) -> dict[str, Any]:
    task, train, dev = work.read()
    ends: list[float] = []
    step_examples: list[int] = []

    def step(done: StepReport) -> None:
        ends.append(time.perf_counter())
        step_examples.append(done.num_examples)

    trained = finetune(
        task,
        work.model,
        train,
        None,
        work.arguments(),
        max_seq_length=work.max_seq_length,
        device="cpu",
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
        "step_seconds": step_times(ends),
        "step_examples": step_examples,
    }


if __name__ == "__main__":
    answer(_run)
