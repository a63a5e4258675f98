"""Pre-training's instances timed: how fast they are made, beside how fast a model trains on them.

One side makes steps as training asks for them: pairs drawn and cut, masks drawn, and the sequences
laid end to end in micro-batches of tensors.  The other trains a model on such steps, all of which
lie in memory before its clock starts.  Every measurement is a process of its own::

    python -m tidybert.timing.instance_speed instances '{"size": "mini", …}'
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidybert.timing.own_process import answer, run_apart
from tidybert.timing.pretraining_speed import UNTIMED_STEPS, PretrainingWork, arguments_of
from tidybert.timing.setting import in_turn

if TYPE_CHECKING:
    from tidybert.pretraining.stream import InstanceStream

SIDES: Final = ("instances", "training")
_INSTANCES_SECONDS: Final = 2.0
# What pre-training takes where --micro-batch is not given, on a CPU and on CUDA.
_MICRO_BATCH_TOKENS: Final = (4096, 32_768)


def bench_instances(
    work: PretrainingWork,
    *,
    rounds: int = 3,
    report: Callable[[str], None] = lambda _line: None,
) -> dict[str, Any]:
    """Time both sides in turn; the model trains the work's steps, of which UNTIMED_STEPS only run.

    ``samples`` have by side and quantity (tokens_per_second, seconds_per_step) a value a round,
    ``medians`` their medians, and ``ratios`` the medians of instances by training over the rounds.
    ``seek_seconds`` is what the first step of another epoch takes to make.
    """
    samples: dict[str, dict[str, list[float]]] = {side: {} for side in SIDES}
    seeks: list[float] = []
    threads = 0
    for number in range(rounds):
        for side in in_turn(SIDES, number):
            found = run_apart("tidybert.timing.instance_speed", side, asdict(work), work.threads)
            for name in ("tokens_per_second", "seconds_per_step"):
                samples[side].setdefault(name, []).append(found[name])
            seeks += [found["seek_seconds"]] if side == "instances" else []
            threads = found["threads"]
            report(
                f"round {number + 1} of {rounds}: {side} {found['tokens_per_second']:,.0f} tokens/s"
            )
    return {
        "work": asdict(work),
        "rounds": rounds,
        "threads": threads,
        "samples": samples,
        "medians": {
            side: {name: statistics.median(values) for name, values in quantities.items()}
            for side, quantities in samples.items()
        },
        "ratios": {
            name: statistics.median(
                made / trained
                for made, trained in zip(values, samples["training"][name], strict=True)
            )
            for name, values in samples["instances"].items()
        },
        "seek_seconds": statistics.median(seeks),
    }


def _run(side: str, given: dict[str, Any]) -> dict[str, Any]:
    import torch

    from tidybert.corpus.token_shards import TokenCorpus
    from tidybert.pretraining.instance_options import InstanceOptions
    from tidybert.pretraining.instances import PretrainingInstances
    from tidybert.pretraining.stream import InstanceStream

    work = PretrainingWork(**given)
    options = InstanceOptions(max_seq_length=work.max_seq_length)
    instances = PretrainingInstances(TokenCorpus(work.data), options, seed=work.seed)
    micro = _MICRO_BATCH_TOKENS[work.device.startswith("cuda")]
    stream = InstanceStream(instances, work.tokens_per_step, micro)
    result = make_steps(stream) if side == "instances" else _train(work, stream)
    return {**result, "threads": torch.get_num_threads()}


def make_steps(stream: "InstanceStream", seconds: float = _INSTANCES_SECONDS) -> dict[str, float]:
    """Take steps of an InstanceStream from its beginning, for so many seconds and one at least.

    Returns tokens_per_second (special tokens counted), seconds_per_step, and seek_seconds, what the
    first step from the second epoch on took, before all others.
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

    from tidybert.configuration import BertConfig
    from tidybert.pretraining.instances import Position
    from tidybert.pretraining.loop import Pretrainer, PretrainingCallbacks
    from tidybert.pretraining.objectives import build_pretraining_model

    position, steps = Position(), []
    for _ in range(work.steps):
        steps.append(stream.take(position))
        position = steps[-1].position

    corpus = stream.instances.corpus
    config = BertConfig.from_name(work.size, vocab_size=corpus.manifest.vocabulary["vocab_size"])
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
