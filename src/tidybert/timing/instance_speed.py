"""Pre-training's instances timed: how fast they are made, beside how fast a model trains on them.

One side makes steps as training asks for them: pairs drawn and cut, masks drawn, and the sequences
laid end to end in micro-batches of tensors.  The other trains a model on such steps, all of which
lie in memory before its clock starts.  Every measurement is a process of its own::

    python -m tidybert.timing.instance_speed instances '{"size": "mini", …}'
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidybert.timing.own_process import answer, run_apart
from tidybert.timing.pretraining_work import (
    PretrainingWork,
    arguments_of,
    config_of,
    work_instances,
)
from tidybert.timing.rounds import UNTIMED_STEPS, summarize, take_rounds

if TYPE_CHECKING:
    from tidybert.pretraining.stream import InstanceStream

SIDES: Final = ("instances", "training")
_INSTANCES_SECONDS: Final = 2.0
# The default of pre-training's --micro-batch on a CPU and on CUDA.
_MICRO_BATCH_TOKENS: Final = (4096, 32_768)


def bench_instances(
    work: PretrainingWork,
    *,
    rounds: int = 3,
    report: Callable[[str], None] = lambda _line: None,
) -> dict[str, Any]:
    """Time both sides in turn; the model trains the work's steps, and UNTIMED_STEPS do not count.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities
    tokens_per_second and seconds_per_step.  ``seek_seconds`` is the time that the first step of
    another epoch takes to make.
    """
    seeks: list[float] = []
    threads: dict[str, int] = {}

    def one_round(side: str) -> tuple[Mapping[str, float], str]:
        found = run_apart("tidybert.timing.instance_speed", side, asdict(work), work.threads)
        threads[side] = found["threads"]
        if side == "instances":
            seeks.append(found["seek_seconds"])
        values = {name: found[name] for name in ("tokens_per_second", "seconds_per_step")}
        return values, f"{found['tokens_per_second']:,.0f} tokens/s"

    samples = take_rounds(SIDES, rounds, one_round, report)
    return {
        "work": asdict(work),
        "rounds": rounds,
        "threads": threads["instances"],
        **summarize(samples),
        "seek_seconds": statistics.median(seeks),
    }


def _run(side: str, given: dict[str, Any]) -> dict[str, Any]:
    import torch

    from tidybert.pretraining.stream import InstanceStream

    work = PretrainingWork(**given)
    micro = _MICRO_BATCH_TOKENS[work.device.startswith("cuda")]
    stream = InstanceStream(work_instances(work), work.tokens_per_step, micro)
    result = make_steps(stream) if side == "instances" else _train(work, stream)
    return {**result, "threads": torch.get_num_threads()}


def make_steps(stream: "InstanceStream", seconds: float = _INSTANCES_SECONDS) -> dict[str, float]:
    """Take steps of an InstanceStream from its beginning for some seconds, and at least one.

    Returns tokens_per_second (special tokens counted), seconds_per_step, and seek_seconds: the time
    of the first step of the second epoch, which is taken before all others.
    """
    from tidybert.pretraining.instances import Position

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


def _train(work: PretrainingWork, stream: "InstanceStream") -> dict[str, float]:
    import torch

    from tidybert.pretraining.instances import Position
    from tidybert.pretraining.loop import Pretrainer, PretrainingCallbacks
    from tidybert.pretraining.objectives import build_pretraining_model

    position, steps = Position(), []
    for _ in range(work.steps):
        steps.append(stream.take(position))
        position = steps[-1].position

    config = config_of(work, stream.instances.corpus)
    torch.manual_seed(work.seed)
    model = build_pretraining_model("mlm+nsp")(config).to(torch.device(work.device))
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        Pretrainer(
            model,
            lambda step, _position: steps[step],
            arguments_of(work),
            evaluate=lambda _model: {"loss": 0.0},
            run=Path(folder),
            first_position=[],
            fingerprint="",
            callbacks=PretrainingCallbacks(step=lambda _done: ends.append(time.perf_counter())),
        ).train()
    timed = steps[UNTIMED_STEPS:]
    seconds = ends[-1] - ends[UNTIMED_STEPS - 1]
    return {
        "tokens_per_second": sum(step.num_tokens for step in timed) / seconds,
        "seconds_per_step": seconds / len(timed),
    }


if __name__ == "__main__":
    answer(_run)
