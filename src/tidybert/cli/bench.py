"""``tidybert bench``: time tokenising, inference and training, alone or beside transformers."""

from typing import Annotated

import typer

from tidybert.cli.bench_output import (
    figure,
    head,
    mean,
    note_fallback,
    print_foot,
    print_sides,
    print_titled,
)
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json
from tidybert.errors import UsageError
from tidybert.files.read_options import ReadOptions

app = typer.Typer(rich_markup_mode=None)

ModelOption = Annotated[
    str, typer.Option("--model", metavar="MODEL", help="Whose weights and vocabulary are used.")
]
AgainstOption = Annotated[
    str | None,
    typer.Option("--against", metavar="SIDE", help="transformers: time it too, in turn."),
]
RoundsOption = Annotated[
    int, typer.Option("--rounds", metavar="N", min=1, help="Times that each side is measured.")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", min=1, help="PyTorch's, on each side; or its choice."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, with every sample.")
]
PrecisionOption = Annotated[
    str, typer.Option("--precision", help="auto, float32 or bfloat16, on both sides.")
]
# Of the two that pre-train.
SizeOption = Annotated[
    str, typer.Option("--size", metavar="SIZE", help="Of the model, with random weights.")
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="What build-corpus wrote; else a small corpus."),
]
PretrainingStepsOption = Annotated[
    int, typer.Option("--steps", metavar="N", min=4, help="Steps, of which 3 are not timed.")
]
TokensPerStepOption = Annotated[
    int, typer.Option("--tokens-per-step", metavar="N", min=128, help="Tokens of a step.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda or cuda:N.")]


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Time tokenize, infer, finetune or pretrain, alone or beside transformers; or instances."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("tokenize")
def tokenize(
    model: ModelOption = "minilm",
    against: AgainstOption = None,
    rounds: RoundsOption = 5,
    json: JsonOption = False,
) -> None:
    """Time text to ids on one thread, on English Wikipedia.

    Cold is a tokenizer that has seen nothing, running one that has seen other lines, as in the
    midst of a corpus, warm the same lines again. The other side is the tokenizers library, on which
    transformers' tokenizer runs. The text is in the data folder (TIDYBERT_DATA, or ../shared/data);
    without it the bundled tickets are used.
    """
    from tidybert.timing.bench_texts import find_lines
    from tidybert.timing.tokenizer_speed import STATES, bench_tokenization

    source, lines = find_lines()
    result = bench_tokenization(model, lines, repeats=rounds, against=against)
    result = {**head("tokenize", model, source), **result, "rounds": rounds}
    if json:
        print_json(result)
        return
    columns = ["tidybert", *(["tokenizers", "ratio"] if against else [])]
    rows = []
    for state in STATES:
        cells = [result[f"{state}_mb_per_second"]]
        if against:
            cells += [result["against_mb_per_second"], result[f"{state}_ratio"]]
        rows.append((f"MB/s, {state}", *map(figure, cells)))
    title = (
        f"Tokenising {result['lines']:,} lines, {result['megabytes']:.1f} MB: {source}, 1 thread"
    )
    print_titled(title, columns, rows)
    if against:
        print(f"lines whose ids differ: {result['lines_differing']:,}")
    print_foot(result)


@app.command("infer")
@takes(read=ReadOptions)
def infer(
    model: ModelOption = "minilm",
    *,
    texts: Annotated[
        str | None, typer.Option("--texts", metavar="FILE", help="Instead of SST-2 dev.")
    ] = None,
    against: AgainstOption = None,
    rounds: RoundsOption = 5,
    threads: ThreadsOption = None,
    json: JsonOption = False,
    read: ReadOptions,
) -> None:
    """Time texts to logits in float32, by a classifier with random weights on MODEL.

    The other side runs batches of 32 texts, padded to the longest, once in the file's order and
    once sorted by length. SST-2 is read from the data folder (TIDYBERT_DATA, or ../shared/data);
    without it the bundled tickets are used.
    """
    if texts is None and read.flags():
        raise UsageError(f"{read.flags()[0]} says how --texts FILE is read; give that file")

    from tidybert.files.text_files import ReadReport, read_examples
    from tidybert.timing.bench_texts import sst2_or_tickets
    from tidybert.timing.setting import max_seq_length_for, sides_against

    sides = sides_against(against)
    max_seq_length = max_seq_length_for(model)
    if texts is None:
        source, path, read = sst2_or_tickets("dev")
        note_fallback(source)
    else:
        source = path = texts
    report = ReadReport()
    examples = list(read_examples(path, read, need_label=False, report=report))
    for line in report.lines():
        note(line)

    from tidybert.timing.inference_speed import bench_inference

    result = bench_inference(
        model,
        examples,
        sides=sides,
        rounds=rounds,
        max_seq_length=max_seq_length,
        threads=threads,
        report=note,
    )
    if result["num_truncated"]:
        note(
            f"{result['num_truncated']:,} of {len(examples):,} texts were cut to {max_seq_length} "
            "tokens, on every side"
        )
    result = {**head("infer", model, source), **result}
    if json:
        print_json(result)
        return
    lines = [
        ("texts/s, in the order given", "texts_per_second_in_order"),
        ("texts/s, sorted by length", "texts_per_second_by_length"),
        ("peak MiB", "peak_mib"),
    ]
    title = f"Inference: {len(examples):,} texts of {source}, {model}, float32"
    print_sides(result, lines, title)
    if against:
        print(f"largest difference of logits: {result['largest_difference_of_logits']:.1e}")
    print_foot(result)


@app.command("finetune")
def finetune(
    model: ModelOption = "minilm",
    against: AgainstOption = None,
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", min=1, help="Timed steps of 32 texts.")
    ] = 40,
    freeze_layers: Annotated[
        int, typer.Option("--freeze-layers", metavar="K", min=0, help="As finetune has it.")
    ] = 0,
    precision: PrecisionOption = "auto",
    rounds: RoundsOption = 3,
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Time steps of fine-tuning a classifier, 32 texts each.

    The other side is transformers' Trainer with dynamic padding, on the same examples in the same
    order. Each measurement is a process of its own. With --freeze-layers the second epoch of so
    many steps is timed, for which tidybert has kept the frozen layers' states. SST-2 is read from
    the data folder (TIDYBERT_DATA, or ../shared/data); without it the bundled tickets are used.
    """
    from tidybert.timing.bench_texts import sst2_or_tickets
    from tidybert.timing.finetuning_speed import bench_finetuning
    from tidybert.timing.finetuning_work import FinetuningWork, arguments_of
    from tidybert.timing.setting import max_seq_length_for, sides_against

    sides = sides_against(against)
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
        freeze_layers=freeze_layers,
        precision=precision,
        threads=threads,
    )
    # What is wrong in the arguments is told here, and not by a process.
    arguments_of(work)
    result = bench_finetuning(work, sides=sides, steps=steps, rounds=rounds, report=note)
    result = {**head("finetune", model, source), **result}
    if json:
        print_json(result)
        return
    lines = [
        ("examples/s", "examples_per_second"),
        ("seconds a step", "seconds_per_step"),
        ("peak MiB", "peak_mib"),
    ]
    shown = "float32" if precision == "auto" else precision
    title = f"Fine-tuning: {steps} steps of 32 texts of {source}, {model}, {shown}"
    print_sides(result, lines, title)
    print_foot(result)


@app.command("pretrain")
def pretrain(
    size: SizeOption = "mini",
    data: DataOption = None,
    against: AgainstOption = None,
    steps: PretrainingStepsOption = 20,
    tokens_per_step: TokensPerStepOption = 8192,
    rounds: RoundsOption = 3,
    threads: ThreadsOption = None,
    device: DeviceOption = "cpu",
    dropout: Annotated[
        float, typer.Option("--dropout", min=0.0, max=0.9, help="On both sides.")
    ] = 0.1,
    compile: Annotated[
        bool, typer.Option("--compile", help="torch.compile, on both sides.")
    ] = False,
    micro_batch: Annotated[
        str | None,
        typer.Option(
            "--micro-batch",
            metavar="N",
            help="Tokens at once on our side, or auto; the other takes a step at once.",
        ),
    ] = None,
    precision: PrecisionOption = "auto",
    json: JsonOption = False,
) -> None:
    """Time steps of pre-training, masked words and next sentence, in tokens that are no padding.

    The other side is transformers' BertForPreTraining with its Trainer and its
    DataCollatorForLanguageModeling, on the same instances, padded to 128. Without --data, English
    Wikipedia from the data folder (TIDYBERT_DATA, or ../shared/data) or the bundled tickets are
    made into a corpus with the vocabulary of minilm.
    """
    from tidybert.configuration import BertConfig
    from tidybert.pretraining.pretraining_arguments import check_lengths
    from tidybert.timing.pretraining_speed import bench_pretraining
    from tidybert.timing.pretraining_work import PretrainingWork, arguments_of, bench_corpus
    from tidybert.timing.setting import sides_against

    sides = sides_against(against)
    with bench_corpus(data) as (source, directory):
        device = _checked(size, directory, device)
        work = PretrainingWork(
            size,
            directory,
            steps,
            tokens_per_step,
            device=device,
            threads=threads,
            dropout=dropout,
            compile=compile,
            micro_batch=micro_batch,
            precision=precision,
        )
        # What is wrong in the arguments is told here, and not by a process.
        positions = BertConfig.from_name(size).max_position_embeddings
        check_lengths(arguments_of(work), work.max_seq_length, positions)
        result = bench_pretraining(work, sides=sides, rounds=rounds, report=note)
    result = {**head("pretrain", size, source), **result}
    if json:
        print_json(result)
        return
    lines = [
        ("useful tokens/s", "tokens_per_second"),
        ("seconds a step", "seconds_per_step"),
        ("peak MiB", "peak_mib"),
    ]
    title = f"Pre-training: {size}, {steps} steps of {tokens_per_step:,} tokens of {source}"
    print_sides(result, lines, title)
    for side, losses in result["losses"].items():
        name = "tidybert" if side == "ours" else side
        last = losses[-min(10, len(losses)) :]
        print(f"loss, {name}: {losses[0]:.3f}, mean of the last {len(last)} {mean(last):.3f}")
    for side, share in result["mfu"].items():
        if share is not None:
            print(f"share of the peak, {'tidybert' if side == 'ours' else side}: {share:.1%}")
    print(f"share of padding at 128 tokens: {result['share_of_padding']:.1%}")
    print_foot(result)


@app.command("instances")
def instances(
    size: SizeOption = "mini",
    data: DataOption = None,
    steps: PretrainingStepsOption = 20,
    tokens_per_step: TokensPerStepOption = 8192,
    rounds: RoundsOption = 3,
    threads: ThreadsOption = None,
    device: DeviceOption = "cpu",
    json: JsonOption = False,
) -> None:
    """Time how fast pre-training's instances are made, beside how fast a model trains on them.

    Instances are pairs with their masks, in the micro-batches of a step, made for two seconds on
    one thread. Training takes steps that lie in memory before its clock starts. Without --data the
    corpus is that of tidybert bench pretrain.
    """
    from tidybert.timing.instance_speed import SIDES, bench_instances
    from tidybert.timing.pretraining_work import PretrainingWork, bench_corpus

    with bench_corpus(data) as (source, directory):
        device = _checked(size, directory, device)
        work = PretrainingWork(
            size, directory, steps, tokens_per_step, device=device, threads=threads
        )
        result = bench_instances(work, rounds=rounds, report=note)
    result = {**head("instances", size, source), **result}
    if json:
        print_json(result)
        return
    lines = [("tokens/s", "tokens_per_second"), ("seconds a step", "seconds_per_step")]
    title = (
        f"Instances: steps of {tokens_per_step:,} tokens of {source}, and training {size} on them"
    )
    print_sides(result, lines, title, SIDES)
    print(f"the first step of another epoch: {figure(result['seek_seconds'])} s")
    print_foot(result)


def _checked(size: str, directory: str, device: str) -> str:
    """The device that is meant; raises what the processes would raise with a traceback."""
    from tidybert.configuration import BertConfig
    from tidybert.corpus.token_shards import TokenCorpus
    from tidybert.inference.loading import choose_device

    BertConfig.from_name(size)
    TokenCorpus(directory)
    return str(choose_device(device))
