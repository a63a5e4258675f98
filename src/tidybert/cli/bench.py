"""``tidybert bench``: time tokenising, inference and fine-tuning, alone or beside transformers."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Annotated, Any

import typer

from tidybert.cli.flags import takes
from tidybert.cli.output import MAX_WIDTH, note, print_json, print_table
from tidybert.data.options import ReadOptions
from tidybert.errors import UsageError

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

# What a table shows: a line's name, and the quantity of the result that stands in it.
Lines = Sequence[tuple[str, str]]


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Time tokenize, infer or finetune, alone or beside transformers."""
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
    from tidybert.benchmark.tokenization import STATES, bench_tokenization, find_lines

    source, lines = find_lines()
    result = bench_tokenization(model, lines, repeats=rounds, against=against)
    result = {**_head("tokenize", model, source), **result, "rounds": rounds}
    if json:
        print_json(result)
        return
    columns = ["tidybert", *(["tokenizers", "ratio"] if against else [])]
    rows = []
    for state in STATES:
        cells = [result[f"{state}_mb_per_second"]]
        if against:
            cells += [result["against_mb_per_second"], result[f"{state}_ratio"]]
        rows.append((f"MB/s, {state}", *map(_figure, cells)))
    title = (
        f"Tokenising {result['lines']:,} lines, {result['megabytes']:.1f} MB: {source}, 1 thread"
    )
    _print_table(title, columns, rows)
    if against:
        print(f"lines whose ids differ: {result['lines_differing']:,}")
    _print_foot(result)


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

    from tidybert.benchmark.setting import max_seq_length_for, sides_against, sst2_or_tickets
    from tidybert.data.readers import ReadReport, read_examples

    sides = sides_against(against)
    max_seq_length = max_seq_length_for(model)
    if texts is None:
        source, path, read = sst2_or_tickets("dev")
        _note_fallback(source)
    else:
        source = path = texts
    report = ReadReport()
    examples = list(read_examples(path, read, need_label=False, report=report))
    for line in report.lines():
        note(line)

    from tidybert.benchmark.inference import bench_inference

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
    result = {**_head("infer", model, source), **result}
    if json:
        print_json(result)
        return
    lines = [
        ("texts/s, in the order given", "texts_per_second_in_order"),
        ("texts/s, sorted by length", "texts_per_second_by_length"),
        ("peak MiB", "peak_mib"),
    ]
    title = f"Inference: {len(examples):,} texts of {source}, {model}, float32"
    _print_sides(result, lines, title)
    if against:
        print(f"largest difference of logits: {result['largest_difference_of_logits']:.1e}")
    _print_foot(result)


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
    from tidybert.benchmark.finetuning import FinetuningWork, bench_finetuning
    from tidybert.benchmark.setting import max_seq_length_for, sides_against, sst2_or_tickets

    sides = sides_against(against)
    max_seq_length = max_seq_length_for(model)
    source, path, options = sst2_or_tickets("train")
    _note_fallback(source)
    work = FinetuningWork(
        task="classify",
        model=model,
        train=path,
        dev=None,
        options=options,
        max_seq_length=max_seq_length,
        freeze_layers=freeze_layers,
        threads=threads,
    )
    result = bench_finetuning(work, sides=sides, steps=steps, rounds=rounds, report=note)
    result = {**_head("finetune", model, source), **result}
    if json:
        print_json(result)
        return
    lines = [
        ("examples/s", "examples_per_second"),
        ("seconds a step", "seconds_per_step"),
        ("peak MiB", "peak_mib"),
    ]
    title = f"Fine-tuning: {steps} steps of 32 texts of {source}, {model}, float32"
    _print_sides(result, lines, title)
    _print_foot(result)


@app.command("pretrain")
def pretrain(
    size: Annotated[
        str, typer.Option("--size", metavar="SIZE", help="Of the model, with random weights.")
    ] = "mini",
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DIR", help="What build-corpus wrote; else a small corpus."),
    ] = None,
    against: AgainstOption = None,
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", min=4, help="Steps, of which 3 are not timed.")
    ] = 20,
    tokens_per_step: Annotated[
        int, typer.Option("--tokens-per-step", metavar="N", min=128, help="Tokens of a step.")
    ] = 8192,
    rounds: RoundsOption = 3,
    threads: ThreadsOption = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or cuda:N.")] = "cpu",
    json: JsonOption = False,
) -> None:
    """Time steps of pre-training, masked words and next sentence, in tokens that are no padding.

    The other side is transformers' BertForPreTraining with its Trainer and its
    DataCollatorForLanguageModeling, on the same instances, padded to 128. Without --data, English
    Wikipedia from the data folder (TIDYBERT_DATA, or ../shared/data) or the bundled tickets are
    made into a corpus with the vocabulary of minilm.
    """
    from tidybert.benchmark.pretraining import PretrainingWork, bench_corpus, bench_pretraining
    from tidybert.benchmark.setting import sides_against

    sides = sides_against(against)
    with bench_corpus(data) as (source, directory):
        work = PretrainingWork(
            size, directory, steps, tokens_per_step, device=device, threads=threads
        )
        result = bench_pretraining(work, sides=sides, rounds=rounds, report=note)
    result = {**_head("pretrain", size, source), **result}
    if json:
        print_json(result)
        return
    lines = [
        ("useful tokens/s", "tokens_per_second"),
        ("seconds a step", "seconds_per_step"),
        ("peak MiB", "peak_mib"),
    ]
    title = f"Pre-training: {size}, {steps} steps of {tokens_per_step:,} tokens of {source}"
    _print_sides(result, lines, title)
    for side, losses in result["losses"].items():
        name = "tidybert" if side == "ours" else side
        last = losses[-min(10, len(losses)) :]
        print(f"loss, {name}: {losses[0]:.3f}, mean of the last {len(last)} {_mean(last):.3f}")
    print(f"share of padding at 128 tokens: {result['share_of_padding']:.1%}")
    _print_foot(result)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _head(bench: str, model: str, source: str) -> dict[str, Any]:
    from tidybert.benchmark.setting import machine, versions

    return {
        "bench": bench,
        "model": model,
        "data": source,
        "machine": machine(),
        "versions": versions(),
    }


def _note_fallback(source: str) -> None:
    if not source.startswith("SST-2"):
        note(
            "SST-2 is not in the data folder (TIDYBERT_DATA, or ../shared/data): the bundled "
            "tickets are timed"
        )


def _print_sides(result: Mapping[str, Any], lines: Lines, title: str) -> None:
    """A line a quantity: each side's median, and with two sides their ratio."""
    medians, ratios = result["medians"], result["ratios"]
    columns = ["tidybert", *(["transformers", "ratio"] if ratios else [])]
    rows = []
    for name, quantity in lines:
        cells = [values[quantity] for values in medians.values()]
        if ratios:
            cells.append(ratios[quantity])
        rows.append((name, *map(_figure, cells)))
    _print_table(title, columns, rows)


def _print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    # The table's own title would be folded to the width of the columns.
    print(_folded(title))
    print_table({"": "left", **dict.fromkeys(columns, "right")}, rows)


def _print_foot(result: Mapping[str, Any]) -> None:
    """Where it was measured: rounds, threads, processor, versions."""
    from tidybert.data.examples import count_of

    # Python's own version would not fit the line; --json has it.
    found = {
        name: number for name, number in result["versions"].items() if number and name != "python"
    }
    machine = result["machine"]
    how = [f"medians of {count_of(result['rounds'], 'round')}"]
    if "threads" in result:
        how.append(count_of(result["threads"], "thread"))
    how.append(f"{machine['cpu']}, {count_of(machine['cores'], 'core')}")
    print(_folded("; ".join(how)))
    print(_folded(", ".join(f"{name} {number}" for name, number in found.items())))


def _folded(text: str) -> str:
    return fill(text, MAX_WIDTH, break_on_hyphens=False)


def _figure(number: float) -> str:
    """Three significant digits, or all before the point."""
    return f"{number:,.0f}" if number >= 99.95 else f"{number:#.3g}"
