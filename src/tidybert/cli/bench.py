"""``tidybert bench``: time tokenising, inference and training, alone or beside transformers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from tidybert.cli import shared_flags as flags
from tidybert.cli.bench_output import cells_of, figure, print_bench
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_line
from tidybert.errors import UsageError
from tidybert.files.read_options import ReadOptions

if TYPE_CHECKING:
    from tidybert.timing.work import PretrainingWork

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Time tokenize, infer, finetune, pretrain or instances, alone or beside transformers."""
    if context.invoked_subcommand is None:
        print_line(context.get_help())


@dataclass(frozen=True, kw_only=True)
class RoundsFlags:
    rounds: int = field(default=3, metadata={"min": 1})
    """``--rounds N``: Measure each side this many times."""
    json: bool = False
    """``--json``: Print one JSON object, with every sample."""


@dataclass(frozen=True, kw_only=True)
class AgainstFlag:
    against: str | None = None
    """``--against SIDE``: ``transformers``: time it too, in turn."""


@dataclass(frozen=True, kw_only=True)
class ModelFlag:
    model: str = "minilm"
    """``--model MODEL``: Model to time, with its vocabulary."""


@dataclass(frozen=True, kw_only=True)
class PrecisionFlag:
    precision: str = "auto"
    """``auto``, float32 or bfloat16, on both sides."""


@dataclass(frozen=True, kw_only=True)
class TokenizeFlags(ModelFlag, AgainstFlag, RoundsFlags):
    rounds: int = field(default=5, metadata={"min": 1})
    """``--rounds N``: Measure each side this many times."""


@app.command("tokenize")
@takes(given=TokenizeFlags)
def tokenize(*, given: TokenizeFlags) -> None:
    """Time text to ids on one thread, on English Wikipedia.

    A cold tokenizer has seen nothing, a running one has seen other lines, and a warm one the same
    lines. The other side is the tokenizers library, which transformers' tokenizer runs on. Without
    the data folder (TIDYBERT_DATA, or ../shared/data) the text is the bundled tickets.
    """
    from tidybert.timing.setting import find_lines
    from tidybert.timing.tokenizer_speed import STATES, bench_tokenization

    source, lines = find_lines()
    result = bench_tokenization(given.model, lines, repeats=given.rounds, against=given.against)
    rows = {f"MB/s, {state}": [result[f"{state}_mb_per_second"]] for state in STATES}
    remarks = []
    if given.against:
        for state, cells in zip(STATES, rows.values(), strict=True):
            cells += [result["against_mb_per_second"], result[f"{state}_ratio"]]
        remarks = [f"lines whose ids differ: {result['lines_differing']:,}"]
    size = f"{result['lines']:,} lines, {result['megabytes']:.1f} MB"
    print_bench(
        {"bench": "tokenize", "model": given.model, "data": source},
        {**result, "rounds": given.rounds},
        as_json=given.json,
        title=f"Tokenising {size}: {source}, 1 thread",
        rows=rows,
        sides=("tidybert", "tokenizers"),
        remarks=remarks,
    )


@dataclass(frozen=True, kw_only=True)
class InferFlags(flags.ThreadsFlag, TokenizeFlags):
    texts: str | None = None
    """``--texts FILE``: Time these texts instead of SST-2 dev."""


@app.command("infer")
@takes(given=InferFlags, read=ReadOptions)
def infer(*, given: InferFlags, read: ReadOptions) -> None:
    """Time texts to logits in float32, by a classifier with random weights on MODEL.

    The other side runs batches of 32 texts, padded to the longest, once in the file's order and
    once sorted by length. Without the data folder (TIDYBERT_DATA, or ../shared/data) the texts are
    the bundled tickets.
    """
    from tidybert.files.read_report import ReadReport
    from tidybert.files.text_files import read_examples
    from tidybert.timing.setting import max_seq_length_for, sides_against

    model, texts = given.model, given.texts
    if texts is None and read.flags():
        raise UsageError(f"{read.flags()[0]} says how --texts FILE is read; give that file")
    sides = sides_against(given.against)
    max_seq_length = max_seq_length_for(model)
    if texts is None:
        source, path, read = _sst2_or_tickets("dev")
    else:
        source = path = texts
    report = ReadReport()
    examples = list(read_examples(path, read, need_label=False, report=report))
    note(*report.lines(str))

    from tidybert.timing.inference_speed import bench_inference

    result = bench_inference(
        model,
        examples,
        sides=sides,
        rounds=given.rounds,
        max_seq_length=max_seq_length,
        threads=given.threads,
        report=note,
    )
    if result["num_truncated"]:
        note(
            f"{result['num_truncated']:,} of {len(examples):,} texts were cut to {max_seq_length} "
            "tokens, on every side"
        )
    difference = result["largest_difference_of_logits"]
    rows = {
        "texts/s, in the order given": "texts_per_second_in_order",
        "texts/s, sorted by length": "texts_per_second_by_length",
        "peak MiB": "peak_mib",
    }
    print_bench(
        {"bench": "infer", "model": model, "data": source},
        result,
        as_json=given.json,
        title=f"Inference: {len(examples):,} texts of {source}, {model}, float32",
        rows=cells_of(result, rows),
        remarks=[f"largest difference of logits: {difference:.1e}"] if given.against else [],
    )


def _sst2_or_tickets(split: str) -> tuple[str, str, ReadOptions]:
    from tidybert.timing.setting import TICKETS, sst2_or_tickets

    found = sst2_or_tickets(split)
    if found[0] == TICKETS:
        note(
            "SST-2 is not in the data folder (TIDYBERT_DATA, or ../shared/data): the bundled "
            "tickets are timed"
        )
    return found


@dataclass(frozen=True, kw_only=True)
class FinetuneFlags(ModelFlag, AgainstFlag, PrecisionFlag, flags.ThreadsFlag, RoundsFlags):
    steps: int = field(default=40, metadata={"min": 1})
    """``--steps N``: Timed steps of 32 texts."""
    freeze_layers: int = field(default=0, metadata={"min": 0})
    """``--freeze-layers K``: Do not train the embeddings and the K lowest layers."""


@app.command("finetune")
@takes(given=FinetuneFlags)
def finetune(*, given: FinetuneFlags) -> None:
    """Time steps of fine-tuning a classifier, 32 texts each.

    The other side is transformers' Trainer with dynamic padding, on the same examples in the same
    order. Each measurement is a process of its own. With --freeze-layers the second epoch is timed,
    for which tidybert has kept the frozen layers' states. Without the data folder (TIDYBERT_DATA,
    or ../shared/data) the examples are the bundled tickets, not SST-2.
    """
    from tidybert.timing.finetuning_speed import bench_finetuning
    from tidybert.timing.setting import max_seq_length_for, sides_against
    from tidybert.timing.work import FinetuningWork

    model, steps, precision = given.model, given.steps, given.precision
    sides = sides_against(given.against)
    max_seq_length = max_seq_length_for(model)
    source, path, options = _sst2_or_tickets("train")
    work = FinetuningWork(
        task="classify",
        model=model,
        train=path,
        dev=None,
        options=options,
        max_seq_length=max_seq_length,
        freeze_layers=given.freeze_layers,
        precision=precision,
        threads=given.threads,
    )
    # A wrong argument is reported here, before a process would fail with a traceback.
    work.arguments()
    result = bench_finetuning(work, sides=sides, steps=steps, rounds=given.rounds, report=note)
    shown = "float32" if precision == "auto" else precision
    print_bench(
        {"bench": "finetune", "model": model, "data": source},
        result,
        as_json=given.json,
        title=f"Fine-tuning: {steps} steps of 32 texts of {source}, {model}, {shown}",
        rows=cells_of(
            result,
            {
                "examples/s": "examples_per_second",
                "seconds a step": "seconds_per_step",
                "peak MiB": "peak_mib",
            },
        ),
    )


@dataclass(frozen=True, kw_only=True)
class InstancesFlags(flags.ThreadsFlag, RoundsFlags):
    size: str = "mini"
    """``--size SIZE``: Size of the model, with random weights."""
    data: str | None = None
    """``--data DIR``: Corpus that build-corpus wrote. If not set: a small one."""
    steps: int = field(default=20, metadata={"min": 4})
    """``--steps N``: Steps to take; 3 are not timed."""
    tokens_per_step: int = field(default=8192, metadata={"min": 128})
    """``--tokens-per-step N``: Tokens in each step."""
    device: str = "cpu"
    """Device to compute on: cpu, cuda or cuda:N."""

    def work(self, directory: str, **more: Any) -> "PretrainingWork":
        """The work on a corpus; raises here what would be a traceback in the processes."""
        from tidybert.configuration import BertConfig
        from tidybert.corpus.token_shards import TokenCorpus
        from tidybert.inference.loading import choose_device
        from tidybert.timing.work import PretrainingWork

        BertConfig.from_name(self.size)
        TokenCorpus(directory)
        return PretrainingWork(
            self.size,
            directory,
            self.steps,
            self.tokens_per_step,
            device=str(choose_device(self.device)),
            threads=self.threads,
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class PretrainFlags(InstancesFlags, AgainstFlag, PrecisionFlag):
    dropout: float = field(default=0.1, metadata={"min": 0.0, "max": 0.9})
    """Dropout on both sides."""
    compile: bool = False
    """``--compile``: Use torch.compile on both sides."""
    micro_batch: str | None = None
    """``--micro-batch N``: Tokens at once on our side, or auto; the other takes a step."""


@app.command("pretrain")
@takes(given=PretrainFlags)
def pretrain(*, given: PretrainFlags) -> None:
    """Time steps of pre-training (masked words and next sentence), in tokens without padding.

    The other side is transformers' BertForPreTraining with its Trainer and its
    DataCollatorForLanguageModeling, on the same instances, padded to 128. Without --data, a corpus
    is built of English Wikipedia from the data folder (TIDYBERT_DATA, or ../shared/data) or of the
    bundled tickets, with the vocabulary of minilm.
    """
    from tidybert.configuration import BertConfig
    from tidybert.pretraining.pretraining_arguments import check_lengths
    from tidybert.timing.pretraining_speed import bench_pretraining
    from tidybert.timing.setting import sides_against
    from tidybert.timing.work import bench_corpus

    sides = sides_against(given.against)
    with bench_corpus(given.data) as (source, directory):
        work = given.work(
            directory,
            dropout=given.dropout,
            compile=given.compile,
            micro_batch=given.micro_batch,
            precision=given.precision,
        )
        positions = BertConfig.from_name(given.size).max_position_embeddings
        check_lengths(work.arguments(), work.max_seq_length, positions)
        result = bench_pretraining(work, sides=sides, rounds=given.rounds, report=note)
    steps = f"{given.steps} steps of {given.tokens_per_step:,} tokens of {source}"
    rows = {
        "useful tokens/s": "tokens_per_second",
        "seconds a step": "seconds_per_step",
        "peak MiB": "peak_mib",
    }
    print_bench(
        {"bench": "pretrain", "model": given.size, "data": source},
        result,
        as_json=given.json,
        title=f"Pre-training: {given.size}, {steps}",
        rows=cells_of(result, rows),
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


@app.command("instances")
@takes(given=InstancesFlags)
def instances(*, given: InstancesFlags) -> None:
    """Time how fast pre-training's instances are made, and how fast a model trains on them.

    Instances are pairs with their masks, in the micro-batches of a step, made for two seconds on
    one thread. The steps to train on are made before the clock starts. Without --data the corpus is
    that of tidybert bench pretrain.
    """
    from tidybert.timing.pretraining_speed import INSTANCE_SIDES, bench_instances
    from tidybert.timing.work import bench_corpus

    with bench_corpus(given.data) as (source, directory):
        result = bench_instances(given.work(directory), rounds=given.rounds, report=note)
    steps = f"steps of {given.tokens_per_step:,} tokens of {source}"
    rows = {"tokens/s": "tokens_per_second", "seconds a step": "seconds_per_step"}
    print_bench(
        {"bench": "instances", "model": given.size, "data": source},
        result,
        as_json=given.json,
        title=f"Instances: {steps}, and training {given.size} on them",
        rows=cells_of(result, rows),
        sides=INSTANCE_SIDES,
        remarks=[f"the first step of another epoch: {figure(result['seek_seconds'])} s"],
    )
