"""Pre-training timed: tidybert and transformers on the same instances, in the same order and steps.

transformers runs as its users run it: BertForPreTraining, its Trainer, and its
DataCollatorForLanguageModeling, which masks, over sequences padded to ``max_seq_length``.  Every
measurement is a process of its own::

    python -m tidybert.timing.pretraining_speed ours '{"size": "mini", …}'

Rates count useful tokens: those of the instances, without padding.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidybert.timing.own_process import answer, run_apart
from tidybert.timing.pretraining_work import (
    PretrainingWork,
    arguments_of,
    config_of,
    work_instances,
)
from tidybert.timing.rounds import UNTIMED_STEPS, step_times, summarize, take_rounds
from tidybert.timing.setting import SIDES

if TYPE_CHECKING:
    from tidybert.corpus.token_shards import TokenCorpus
    from tidybert.pretraining.loop import PretrainingReport


def bench_pretraining(
    work: PretrainingWork,
    *,
    sides: Sequence[str] = SIDES,
    rounds: int = 3,
    report: Callable[[str], None] = lambda _line: None,
) -> dict[str, Any]:
    """Time the work's steps after UNTIMED_STEPS; a round measures every side once.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities
    tokens_per_second, seconds_per_step and peak_mib.  ``losses`` are each side's of every step, in
    its last round.  ``mfu`` is each side's share of the device's peak, with the operations that our
    side needs for a token; None where the peak is not known.
    """
    found: dict[str, dict[str, Any]] = {}

    def one_round(side: str) -> tuple[Mapping[str, float], str]:
        found[side] = run_apart(
            "tidybert.timing.pretraining_speed", side, asdict(work), work.threads
        )
        seconds = found[side]["step_seconds"][UNTIMED_STEPS - 1 :]
        rate = sum(found[side]["step_tokens"][UNTIMED_STEPS:]) / sum(seconds)
        return {
            "tokens_per_second": rate,
            "seconds_per_step": statistics.mean(seconds),
            "peak_mib": found[side]["peak_mib"],
        }, f"{rate:,.0f} tokens/s"

    summary = summarize(take_rounds(sides, rounds, one_round, report))
    common = found[sides[0]]
    peak = common["peak_tokens_per_second"]
    return {
        "work": asdict(work),
        "rounds": rounds,
        "threads": common["threads"],
        "losses": {side: one["losses"] for side, one in found.items()},
        "share_of_padding": common["share_of_padding"],
        **summary,
        "mfu": {
            side: medians["tokens_per_second"] / peak if peak else None
            for side, medians in summary["medians"].items()
        },
    }


def _run(side: str, given: dict[str, Any]) -> dict[str, Any]:
    import torch

    from tidybert.pretraining.instances import Position
    from tidybert.pretraining.stream import InstanceStream

    work = PretrainingWork(**given)
    instances = work_instances(work)
    stream = InstanceStream(instances, work.tokens_per_step, work.tokens_per_step)
    position, batches = Position(), []
    for _ in range(work.steps):
        taken = stream.take(position)
        batches.append(instances.take(position, taken.num_sequences)[0])
        position = taken.position
    if side == "ours":
        result = _run_ours(work)
    else:
        from tidybert.timing.transformers_pretraining import run_transformers

        result = run_transformers(work, instances, batches)
    tokens = [int(instances.lengths(places).sum()) for places in batches]
    padded = sum(map(len, batches)) * work.max_seq_length
    return {
        **result,
        "step_tokens": tokens,
        "share_of_padding": 1 - sum(tokens) / padded,
        "peak_tokens_per_second": peak_tokens_per_second(work, instances.corpus),
        "threads": torch.get_num_threads(),
    }


def peak_tokens_per_second(work: PretrainingWork, corpus: "TokenCorpus") -> float | None:
    """The most that the work's device can do by its maker's figures; None where not known."""
    import torch

    from tidybert.pretraining.instance_options import MaskingOptions
    from tidybert.pretraining.throughput import flops_per_token, peak_flops

    peak = peak_flops(torch.device(work.device))
    flops = flops_per_token(
        config_of(work, corpus), work.max_seq_length, MaskingOptions().predicted_share
    )
    return peak and peak / flops


def _run_ours(work: PretrainingWork) -> dict[str, Any]:
    from tidybert.pretraining.instance_options import InstanceOptions
    from tidybert.pretraining.loop import PretrainingCallbacks
    from tidybert.pretraining.pretraining_run import pretrain

    ends: list[float] = []
    losses: list[float] = []

    def step(done: "PretrainingReport") -> None:
        ends.append(time.perf_counter())
        losses.append(done.loss)

    arguments = arguments_of(work)
    with tempfile.TemporaryDirectory() as folder:
        pretrain(
            work.size,
            work.data,
            Path(folder) / "run",
            arguments,
            instances=InstanceOptions(max_seq_length=work.max_seq_length),
            device=work.device,
            callbacks=PretrainingCallbacks(step=step),
        )
    return {"step_seconds": step_times(ends), "losses": losses}


if __name__ == "__main__":
    answer(_run)
