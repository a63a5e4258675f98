"""``tidybert bench pretrain`` and ``tidybert bench instances``: time the parts of pre-training."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidybert.cli import bench_flags as flags
from tidybert.cli.bench_output import figure, print_bench, with_head
from tidybert.cli.flags import takes
from tidybert.cli.output import note


@dataclass(frozen=True, kw_only=True)
class PretrainFlags(
    flags.PretrainingFlags,
    flags.AgainstFlag,
    flags.PrecisionFlag,
    flags.ThreadsFlag,
    flags.RoundsFlags,
):
    dropout: float = field(default=0.1, metadata={"min": 0.0, "max": 0.9})
    """Dropout on both sides."""
    compile: bool = False
    """``--compile``: Use torch.compile on both sides."""
    micro_batch: str | None = None
    """``--micro-batch N``: Tokens at once on our side, or auto; the other takes a step."""


@takes(given=PretrainFlags)
def pretrain(
    *,
    given: PretrainFlags,
) -> None:
    """Time steps of pre-training (masked words and next sentence), in tokens without padding.

    The other side is transformers' BertForPreTraining with its Trainer and its
    DataCollatorForLanguageModeling, on the same instances, padded to 128. Without --data, a corpus
    is built of English Wikipedia from the data folder (TIDYBERT_DATA, or ../shared/data) or of the
    bundled tickets, with the vocabulary of minilm.
    """
    from tidybert.configuration import BertConfig
    from tidybert.pretraining.pretraining_arguments import check_lengths
    from tidybert.timing.pretraining_speed import bench_pretraining
    from tidybert.timing.pretraining_work import PretrainingWork, arguments_of, bench_corpus
    from tidybert.timing.setting import sides_against

    size = given.size
    sides = sides_against(given.against)
    with bench_corpus(given.data) as (source, directory):
        device = _checked(size, directory, given.device)
        work = PretrainingWork(
            size,
            directory,
            given.steps,
            given.tokens_per_step,
            device=device,
            threads=given.threads,
            dropout=given.dropout,
            compile=given.compile,
            micro_batch=given.micro_batch,
            precision=given.precision,
        )
        # A wrong argument is reported here, before a process would fail with a traceback.
        positions = BertConfig.from_name(size).max_position_embeddings
        check_lengths(arguments_of(work), work.max_seq_length, positions)
        result = bench_pretraining(work, sides=sides, rounds=given.rounds, report=note)
    print_bench(
        with_head("pretrain", size, source, result),
        as_json=given.json,
        title=f"Pre-training: {size}, {given.steps} {_steps(given, source)}",
        lines={
            "useful tokens/s": "tokens_per_second",
            "seconds a step": "seconds_per_step",
            "peak MiB": "peak_mib",
        },
        remarks=list(_remarks(result)),
    )


def _remarks(result: Mapping[str, Any]) -> Iterator[str]:
    names = {side: "tidybert" if side == "ours" else side for side in result["losses"]}
    for side, losses in result["losses"].items():
        last = losses[-10:]
        mean = sum(last) / len(last)
        yield f"loss, {names[side]}: {losses[0]:.3f}, mean of the last {len(last)} {mean:.3f}"
    for side, share in result["mfu"].items():
        if share is not None:
            yield f"share of the peak, {names[side]}: {share:.1%}"
    yield f"share of padding at 128 tokens: {result['share_of_padding']:.1%}"


@dataclass(frozen=True, kw_only=True)
class InstancesFlags(flags.PretrainingFlags, flags.ThreadsFlag, flags.RoundsFlags):
    pass


@takes(given=InstancesFlags)
def instances(
    *,
    given: InstancesFlags,
) -> None:
    """Time how fast pre-training's instances are made, and how fast a model trains on them.

    Instances are pairs with their masks, in the micro-batches of a step, made for two seconds on
    one thread. The steps to train on are made before the clock starts. Without --data the corpus is
    that of tidybert bench pretrain.
    """
    from tidybert.timing.instance_speed import SIDES, bench_instances
    from tidybert.timing.pretraining_work import PretrainingWork, bench_corpus

    size = given.size
    with bench_corpus(given.data) as (source, directory):
        device = _checked(size, directory, given.device)
        work = PretrainingWork(
            size,
            directory,
            given.steps,
            given.tokens_per_step,
            device=device,
            threads=given.threads,
        )
        result = bench_instances(work, rounds=given.rounds, report=note)
    print_bench(
        with_head("instances", size, source, result),
        as_json=given.json,
        title=f"Instances: {_steps(given, source)}, and training {size} on them",
        lines={"tokens/s": "tokens_per_second", "seconds a step": "seconds_per_step"},
        remarks=[f"the first step of another epoch: {figure(result['seek_seconds'])} s"],
        sides=SIDES,
    )


def _steps(given: flags.PretrainingFlags, source: str) -> str:
    return f"steps of {given.tokens_per_step:,} tokens of {source}"


def _checked(size: str, directory: str, device: str) -> str:
    """The device to use; raises here what would be a traceback in the processes."""
    from tidybert.configuration import BertConfig
    from tidybert.corpus.token_shards import TokenCorpus
    from tidybert.inference.loading import choose_device

    BertConfig.from_name(size)
    TokenCorpus(directory)
    return str(choose_device(device))
