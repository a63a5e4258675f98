"""``tidybert bench``: time tokenising, inference and training, alone or beside transformers."""

from dataclasses import dataclass, field

import typer

from tidybert.cli import bench_flags as flags
from tidybert.cli import bench_pretraining
from tidybert.cli.bench_output import (
    figure,
    note_fallback,
    print_bench,
    print_foot,
    print_titled,
    with_head,
)
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json
from tidybert.errors import UsageError
from tidybert.files.read_options import ReadOptions

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Time tokenize, infer, finetune, pretrain or instances, alone or beside transformers."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@dataclass(frozen=True, kw_only=True)
class TokenizeFlags(flags.ModelFlag, flags.AgainstFlag, flags.RoundsFlags):
    rounds: int = field(default=5, metadata={"min": 1})
    """``--rounds N``: Measure each side this many times."""


@app.command("tokenize")
@takes(given=TokenizeFlags)
def tokenize(
    *,
    given: TokenizeFlags,
) -> None:
    """Time text to ids on one thread, on English Wikipedia.

    A cold tokenizer has seen nothing, a running one has seen other lines, and a warm one the same
    lines. The other side is the tokenizers library, which transformers' tokenizer runs on. Without
    the data folder (TIDYBERT_DATA, or ../shared/data) the text is the bundled tickets.
    """
    from tidybert.timing.bench_texts import find_lines
    from tidybert.timing.tokenizer_speed import STATES, bench_tokenization

    model, against = given.model, given.against
    source, lines = find_lines()
    result = bench_tokenization(model, lines, repeats=given.rounds, against=against)
    result = with_head("tokenize", model, source, {**result, "rounds": given.rounds})
    if given.json:
        print_json(result)
        return
    rows = []
    for state in STATES:
        cells = [result[f"{state}_mb_per_second"]]
        if against:
            cells += [result["against_mb_per_second"], result[f"{state}_ratio"]]
        rows.append((f"MB/s, {state}", *map(figure, cells)))
    print_titled(
        f"Tokenising {result['lines']:,} lines, {result['megabytes']:.1f} MB: {source}, 1 thread",
        ["tidybert", *(["tokenizers", "ratio"] if against else [])],
        rows,
    )
    if against:
        print(f"lines whose ids differ: {result['lines_differing']:,}")
    print_foot(result)


@dataclass(frozen=True, kw_only=True)
class InferFlags(flags.ThreadsFlag, TokenizeFlags):
    texts: str | None = None
    """``--texts FILE``: Time these texts instead of SST-2 dev."""


@app.command("infer")
@takes(given=InferFlags, read=ReadOptions)
def infer(
    *,
    given: InferFlags,
    read: ReadOptions,
) -> None:
    """Time texts to logits in float32, by a classifier with random weights on MODEL.

    The other side runs batches of 32 texts, padded to the longest, once in the file's order and
    once sorted by length. Without the data folder (TIDYBERT_DATA, or ../shared/data) the texts are
    the bundled tickets.
    """
    model, texts = given.model, given.texts
    if texts is None and read.flags():
        raise UsageError(f"{read.flags()[0]} says how --texts FILE is read; give that file")

    from tidybert.files.read_report import ReadReport
    from tidybert.files.text_files import read_examples
    from tidybert.timing.bench_texts import sst2_or_tickets
    from tidybert.timing.setting import max_seq_length_for, sides_against

    sides = sides_against(given.against)
    max_seq_length = max_seq_length_for(model)
    if texts is None:
        source, path, read = sst2_or_tickets("dev")
        note_fallback(source)
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
    print_bench(
        with_head("infer", model, source, result),
        as_json=given.json,
        title=f"Inference: {len(examples):,} texts of {source}, {model}, float32",
        lines={
            "texts/s, in the order given": "texts_per_second_in_order",
            "texts/s, sorted by length": "texts_per_second_by_length",
            "peak MiB": "peak_mib",
        },
        remarks=[f"largest difference of logits: {difference:.1e}"] if given.against else [],
    )


@dataclass(frozen=True, kw_only=True)
class FinetuneFlags(
    flags.ModelFlag, flags.AgainstFlag, flags.PrecisionFlag, flags.ThreadsFlag, flags.RoundsFlags
):
    steps: int = field(default=40, metadata={"min": 1})
    """``--steps N``: Timed steps of 32 texts."""
    freeze_layers: int = field(default=0, metadata={"min": 0})
    """``--freeze-layers K``: Do not train the embeddings and the K lowest layers."""


@app.command("finetune")
@takes(given=FinetuneFlags)
def finetune(
    *,
    given: FinetuneFlags,
) -> None:
    """Time steps of fine-tuning a classifier, 32 texts each.

    The other side is transformers' Trainer with dynamic padding, on the same examples in the same
    order. Each measurement is a process of its own. With --freeze-layers the second epoch is timed,
    for which tidybert has kept the frozen layers' states. Without the data folder (TIDYBERT_DATA,
    or ../shared/data) the examples are the bundled tickets, not SST-2.
    """
    from tidybert.timing.bench_texts import sst2_or_tickets
    from tidybert.timing.finetuning_speed import bench_finetuning
    from tidybert.timing.finetuning_work import FinetuningWork, arguments_of
    from tidybert.timing.setting import max_seq_length_for, sides_against

    model, steps, precision = given.model, given.steps, given.precision
    sides = sides_against(given.against)
    max_seq_length = max_seq_length_for(model)
    source, path, options = sst2_or_tickets("train")
    note_fallback(source)
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
    arguments_of(work)
    result = bench_finetuning(work, sides=sides, steps=steps, rounds=given.rounds, report=note)
    shown = "float32" if precision == "auto" else precision
    print_bench(
        with_head("finetune", model, source, result),
        as_json=given.json,
        title=f"Fine-tuning: {steps} steps of 32 texts of {source}, {model}, {shown}",
        lines={
            "examples/s": "examples_per_second",
            "seconds a step": "seconds_per_step",
            "peak MiB": "peak_mib",
        },
    )


app.command("pretrain")(bench_pretraining.pretrain)
app.command("instances")(bench_pretraining.instances)
