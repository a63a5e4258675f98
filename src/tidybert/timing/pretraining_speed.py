"""Pre-training timed: tidybert and transformers on the same instances, in the same order and steps.

transformers runs as its users run it: BertForPreTraining, its Trainer, and its
DataCollatorForLanguageModeling, which masks, over sequences padded to ``max_seq_length``.  Every
measurement is a process of its own::

    python -m tidybert.timing.pretraining_speed ours '{"size": "mini", …}'

Rates count useful tokens: those of the instances, without padding.

``bench_instances`` times instances alone: how fast they are made, beside how fast a model trains on
them.  One side makes steps as training asks for them: pairs drawn and cut, masks drawn, and the
sequences laid end to end in micro-batches of tensors.  The other trains a model on such steps, all
of which are in memory before its clock starts.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.objectives import build_pretraining_model
from tidybert.pretraining.places import Position
from tidybert.pretraining.pretraining_objective import PretrainingObjective
from tidybert.pretraining.pretraining_run import pretrain
from tidybert.pretraining.stream import InstanceStream
from tidybert.pretraining.throughput import flops_per_token, peak_flops
from tidybert.timing.measuring import UNTIMED_STEPS, answer, run_apart, summarize, take_rounds
from tidybert.timing.setting import SIDES
from tidybert.timing.step_clock import StepClock, warm_up_steps, with_shares
from tidybert.timing.work import PretrainingWork
from tidybert.training.loop import TrainingLoop
from tidybert.training.precision import is_mixed
from tidybert.training.reports import StepReport, TrainingCallbacks

_MODULE: Final = "tidybert.timing.pretraining_speed"
INSTANCE_SIDES: Final = ("instances", "training")
_INSTANCES_SECONDS: Final = 2.0
# The default of pre-training's --micro-batch on a CPU and on CUDA.
_MICRO_BATCH_TOKENS: Final = (4096, 32_768)


def bench_pretraining(
    work: PretrainingWork,
    *,
    sides: Sequence[str] = SIDES,
    rounds: int = 3,
    report: Callable[[str], None] = lambda _line: None,
) -> dict[str, Any]:
    """Time the work's steps after ``warm_up_steps``; a round measures every side once.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities
    tokens_per_second, seconds_per_step and peak_mib.  ``losses`` are each side's of every step, in
    its last round, as are ``warm_up_steps`` and ``profile``.  ``mfu`` is each side's share of the
    device's peak, with the operations that our side needs for a token; None where the peak is not
    known.
    """
    device = torch.device(work.device)
    warm_up: dict[str, int] = {}
    found: dict[str, dict[str, Any]] = {}

    def one_round(side: str) -> tuple[Mapping[str, float], str]:
        found[side] = run_apart(_MODULE, side, asdict(work), work.threads)
        warm_up[side] = first = warm_up_steps(found[side]["step_seconds"], device)
        seconds = found[side]["step_seconds"][first - 1 :]
        rate = sum(found[side]["step_tokens"][first : first + len(seconds)]) / sum(seconds)
        return {
            "tokens_per_second": rate,
            "seconds_per_step": statistics.mean(seconds),
            "peak_mib": found[side]["peak_mib"],
        }, f"{rate:,.0f} tokens/s"

    summary = summarize(take_rounds(sides, rounds, one_round, report))
    common = found[sides[0]]
    peak = common["peak_tokens_per_second"]
    profiles = {side: one.get("profile") for side, one in found.items()}
    medians = summary["medians"]
    return {
        "work": asdict(work),
        "rounds": rounds,
        "threads": common["threads"],
        "losses": {side: one["losses"] for side, one in found.items()},
        "share_of_padding": common["share_of_padding"],
        **summary,
        "mfu": {
            side: one["tokens_per_second"] / peak if peak else None for side, one in medians.items()
        },
        "warm_up_steps": warm_up,
        "profile": with_shares(
            profiles, {side: one["seconds_per_step"] for side, one in medians.items()}
        ),
    }


def bench_instances(
    work: PretrainingWork, *, rounds: int = 3, report: Callable[[str], None] = lambda _line: None
) -> dict[str, Any]:
    """Time both sides in turn; the model trains the work's steps, and UNTIMED_STEPS do not count.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities
    tokens_per_second and seconds_per_step.  ``seek_seconds`` is the time that the first step of
    another epoch takes to make.
    """
    made: list[dict[str, Any]] = []

    def one_round(side: str) -> tuple[Mapping[str, float], str]:
        found = run_apart(_MODULE, side, asdict(work), work.threads)
        if side == "instances":
            made.append(found)
        values = {name: found[name] for name in ("tokens_per_second", "seconds_per_step")}
        return values, f"{found['tokens_per_second']:,.0f} tokens/s"

    samples = take_rounds(INSTANCE_SIDES, rounds, one_round, report)
    return {
        "work": asdict(work),
        "rounds": rounds,
        "threads": made[-1]["threads"],
        **summarize(samples),
        "seek_seconds": statistics.median(found["seek_seconds"] for found in made),
    }


def _run(side: str, given: dict[str, Any]) -> dict[str, Any]:
    measure = _run_instances if side in INSTANCE_SIDES else _run_training
    return {**measure(side, PretrainingWork(**given)), "threads": torch.get_num_threads()}


def _run_training(side: str, work: PretrainingWork) -> dict[str, Any]:
    instances = work.instances()
    stream = InstanceStream(instances, work.tokens_per_step, work.tokens_per_step)
    position, batches = Position(), []
    for _ in range(work.num_steps):
        taken = stream.take(position)
        batches.append(instances.take(position, taken.num_sequences)[0])
        position = taken.position
    if side == "ours":
        result = _run_ours(work)
    else:
        from tidybert.timing.transformers_side import run_pretraining

        result = run_pretraining(work, instances, batches)
    tokens = [int(instances.lengths(places).sum()) for places in batches]
    padded = sum(map(len, batches)) * work.max_seq_length
    return {
        **result,
        "step_tokens": tokens,
        "share_of_padding": 1 - sum(tokens) / padded,
        "peak_tokens_per_second": peak_tokens_per_second(work, instances.corpus),
    }


def peak_tokens_per_second(work: PretrainingWork, corpus: TokenCorpus) -> float | None:
    """The most that the work's device can do by its maker's figures; None where not known."""
    device = torch.device(work.device)
    peak = peak_flops(device, mixed=is_mixed(work.precision, device))
    flops = flops_per_token(
        work.config(corpus), work.max_seq_length, MaskingOptions().predicted_share
    )
    return peak and peak / flops


def _run_ours(work: PretrainingWork) -> dict[str, Any]:
    clock = StepClock(torch.device(work.device), work.steps, work.profiled_steps)
    losses: list[float] = []

    def step(done: StepReport) -> None:
        clock.step_ended()
        losses.append(done.loss)

    with tempfile.TemporaryDirectory() as folder:
        pretrain(
            work.size,
            work.data,
            Path(folder) / "run",
            work.arguments(),
            instances=InstanceOptions(max_seq_length=work.max_seq_length),
            device=work.device,
            callbacks=TrainingCallbacks(step=step),
        )
    return {"step_seconds": clock.step_seconds(), "profile": clock.profile(), "losses": losses}


def _run_instances(side: str, work: PretrainingWork) -> dict[str, Any]:
    micro = _MICRO_BATCH_TOKENS[work.device.startswith("cuda")]
    stream = InstanceStream(work.instances(), work.tokens_per_step, micro)
    return make_steps(stream) if side == "instances" else _train(work, stream)


def make_steps(stream: InstanceStream, seconds: float = _INSTANCES_SECONDS) -> dict[str, float]:
    """Take steps of an InstanceStream from its beginning for some seconds, and at least one.

    Returns tokens_per_second (special tokens counted), seconds_per_step, and seek_seconds: the time
    of the first step of the second epoch, which is taken before all others.
    """
    begun = time.perf_counter()
    stream.take(Position(epoch=1))
    seek_seconds = time.perf_counter() - begun
    position, num_tokens, num_steps, passed = Position(), 0, 0, 0.0
    begun = time.perf_counter()
    while passed < seconds:
        taken = stream.take(position)
        position = taken.position
        num_tokens += taken.num_tokens
        num_steps += 1
        passed = time.perf_counter() - begun
    return {
        "tokens_per_second": num_tokens / passed,
        "seconds_per_step": passed / num_steps,
        "seek_seconds": seek_seconds,
    }


def _train(work: PretrainingWork, stream: InstanceStream) -> dict[str, float]:
    position, steps = Position(), []
    for _ in range(work.steps):
        steps.append(stream.take(position))
        position = steps[-1].position

    config = work.config(stream.instances.corpus)
    torch.manual_seed(work.seed)
    model = build_pretraining_model("mlm+nsp")(config).to(torch.device(work.device))
    clock = StepClock(torch.device(work.device))
    with tempfile.TemporaryDirectory() as folder:
        objective = PretrainingObjective(
            model,
            lambda step, _position: steps[step],
            work.arguments(),
            evaluate=lambda _model: {"loss": 0.0},
            first_position=[],
        )
        TrainingLoop(
            objective,
            run=Path(folder),
            callbacks=TrainingCallbacks(step=lambda _done: clock.step_ended()),
        ).train()
    timed = steps[UNTIMED_STEPS:]
    seconds = sum(clock.step_seconds()[UNTIMED_STEPS - 1 :])
    return {
        "tokens_per_second": sum(step.num_tokens for step in timed) / seconds,
        "seconds_per_step": seconds / len(timed),
    }


if __name__ == "__main__":
    answer(_run)
