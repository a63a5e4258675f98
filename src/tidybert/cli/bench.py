"""``tidybert bench``: time tokenising, inference, training and serving, alone or beside others."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from tidybert.cli.bench_flags import (
    FinetuneFlags,
    InferFlags,
    InstancesFlags,
    PretrainFlags,
    ServeFlags,
    TokenizeFlags,
)
from tidybert.cli.bench_output import cells_of, device_remarks, figure, print_bench
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_line
from tidybert.errors import UsageError
from tidybert.files.read_options import ReadOptions
from tidybert.files.wording import count_of

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Time tokenize, infer, serve, finetune, pretrain or instances, alone or beside others."""
    if context.invoked_subcommand is None:
        print_line(context.get_help())


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

    model = given.model
    sides = sides_against(given.against)
    max_seq_length = max_seq_length_for(model, given.max_seq_length)
    device = given.named_device()
    if given.texts is None:
        _refuse_flags(read)
        source, path, read = _sst2_or_tickets("dev")
    else:
        source = path = given.texts
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
        device=device,
        profiled=given.is_profiled,
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
        given.peak_row(): "peak_mib",
    }
    remarks = [f"largest difference of logits: {difference:.1e}"] if given.against else []
    remarks += device_remarks(result, "all texts once", in_full=given.profile)
    print_bench(
        {"bench": "infer", "model": model, "data": source},
        result,
        as_json=given.json,
        title=f"Inference: {len(examples):,} texts of {source}, {model}, float32",
        rows=cells_of(result, rows),
        remarks=remarks,
    )


@app.command("serve")
@takes(given=ServeFlags, read=ReadOptions)
def serve(*, given: ServeFlags, read: ReadOptions) -> None:
    """Time tidybert serve with 1, 8, 32 and 128 clients that send a text a request.

    The servers classify with random weights on MODEL. The other side is a FastAPI handler around
    transformers' pipeline as its guide for web servers shows it: a text at a time, or with the
    guide's dynamic batching. Beside infinity both servers answer with the embeddings of MODEL. A
    process of its own sends the requests. Without the data folder (TIDYBERT_DATA, or
    ../shared/data) the texts are the bundled tickets.
    """
    from tidybert.files.text_files import read_examples
    from tidybert.timing.serving_speed import CLIENTS, bench_serving
    from tidybert.timing.setting import TICKETS, max_seq_length_for, mixed_texts

    if not Path("/proc/self/stat").exists():
        raise UsageError("tidybert bench serve reads /proc, which this system does not have")
    if given.texts is None:
        _refuse_flags(read)
        source, texts = mixed_texts()
        _note_tickets(source == TICKETS)
    else:
        source = given.texts
        texts = [one.text for one in read_examples(source, read, need_label=False)]
    result = bench_serving(
        given.model,
        texts,
        against=given.against,
        infinity=given.infinity,
        rounds=given.rounds,
        requests=given.requests,
        max_seq_length=max_seq_length_for(given.model, given.max_seq_length),
        threads=given.threads,
        report=note,
    )
    rows = {
        f"{name}, {count_of(number, 'client')}": f"{quantity}_{number}"
        for number in CLIENTS
        for name, quantity in {
            "texts/s": "texts_per_second",
            "p50 ms": "p50_ms",
            "p95 ms": "p95_ms",
            "p99 ms": "p99_ms",
            "CPU ms/text": "cpu_ms_per_text",
        }.items()
    }
    rows |= {"seconds to the first answer": "seconds_to_first_answer", "peak MiB": "peak_mib"}
    cut = f"{result['num_cut']:,} of {result['num_texts']:,} texts"
    remarks = [
        f"cut to {result['max_seq_length']} tokens before they were sent: {cut}",
        f"a core's time that sending took: {result['generators_share_of_a_core']:.1%} at most",
    ]
    if given.against:
        difference = result["largest_difference_of_answers"]
        remarks.append(f"largest difference of answers: {difference:.1e}")
    print_bench(
        {"bench": "serve", "model": given.model, "data": source},
        result,
        as_json=given.json,
        title=f"Serving: {source}, {given.model}, float32, a text a request",
        rows=cells_of(result, rows),
        sides=("tidybert", given.against or ""),
        remarks=remarks,
    )


def _refuse_flags(read: ReadOptions) -> None:
    if read.flags():
        raise UsageError(f"{read.flags()[0]} says how --texts FILE is read; give that file")


def _note_tickets(are_timed: bool) -> None:
    if are_timed:
        note(
            "SST-2 is not in the data folder (TIDYBERT_DATA, or ../shared/data): the bundled "
            "tickets are timed"
        )


def _sst2_or_tickets(split: str) -> tuple[str, str, ReadOptions]:
    from tidybert.timing.setting import TICKETS, sst2_or_tickets

    found = sst2_or_tickets(split)
    _note_tickets(found[0] == TICKETS)
    return found


@app.command("finetune")
@takes(given=FinetuneFlags)
def finetune(*, given: FinetuneFlags) -> None:
    """Time steps of fine-tuning a classifier, 32 texts each.

    The other side is transformers' Trainer with dynamic padding, on the same examples in the same
    order. Each measurement is a process of its own. With --freeze-layers the second epoch is timed,
    for which tidybert has kept the frozen layers' states. Without the data folder (TIDYBERT_DATA,
    or ../shared/data) the examples are the bundled tickets, not SST-2.
    """
    import torch

    from tidybert.timing.finetuning_speed import bench_finetuning
    from tidybert.timing.setting import attention_of, max_seq_length_for, sides_against
    from tidybert.timing.step_clock import PROFILED_STEPS
    from tidybert.timing.work import FinetuningWork
    from tidybert.training.precision import is_mixed

    model, steps, precision = given.model, given.steps, given.precision
    sides = sides_against(given.against, given.device)
    max_seq_length = max_seq_length_for(model, given.max_seq_length)
    device = given.named_device()
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
        dropout=given.dropout,
        device=device,
        attention=attention_of(given.against),
        profiled_steps=PROFILED_STEPS * given.is_profiled,
        threads=given.threads,
    )
    # A wrong argument is reported here, before a process would fail with a traceback.
    work.arguments()
    mixed = is_mixed(precision, torch.device(device))
    result = bench_finetuning(work, sides=sides, steps=steps, rounds=given.rounds, report=note)
    shown = "bfloat16" if mixed else "float32"
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
                given.peak_row(): "peak_mib",
            },
        ),
        remarks=list(device_remarks(result, "a step", in_full=given.profile)),
    )


@app.command("pretrain")
@takes(given=PretrainFlags)
def pretrain(*, given: PretrainFlags) -> None:
    """Time steps of pre-training (masked words and next sentence), in tokens without padding.

    The other side is transformers' BertForPreTraining with its Trainer and its
    DataCollatorForLanguageModeling, on the same instances, padded to --max-seq-length. Without
    --data, a corpus is built of English Wikipedia from the data folder (TIDYBERT_DATA, or
    ../shared/data) or of the bundled tickets, with the vocabulary of minilm.
    """
    from tidybert.configuration import BertConfig
    from tidybert.pretraining.pretraining_arguments import check_lengths
    from tidybert.timing.pretraining_speed import bench_pretraining
    from tidybert.timing.setting import attention_of, sides_against
    from tidybert.timing.step_clock import PROFILED_STEPS
    from tidybert.timing.work import bench_corpus

    sides = sides_against(given.against, given.device)
    with bench_corpus(given.data) as (source, directory):
        work = given.work(
            directory,
            max_seq_length=given.max_seq_length,
            dropout=given.dropout,
            attention=attention_of(given.against),
            profiled_steps=PROFILED_STEPS * given.is_profiled,
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
        given.peak_row(): "peak_mib",
    }
    remarks = [*_remarks(result), *device_remarks(result, "a step", in_full=given.profile)]
    print_bench(
        {"bench": "pretrain", "model": given.size, "data": source},
        result,
        as_json=given.json,
        title=f"Pre-training: {given.size}, {steps}",
        rows=cells_of(result, rows),
        remarks=remarks,
    )


def _remarks(result: Mapping[str, Any]) -> Iterator[str]:
    names = {side: "tidybert" if side == "ours" else side for side in result["losses"]}
    for side, losses in result["losses"].items():
        last = losses[-10:]
        mean = sum(last) / len(last)
        yield f"loss, {names[side]}: {losses[0]:.3f}, mean of the last {len(last)} {mean:.3f}"
    length = result["work"]["max_seq_length"]
    yield f"share of padding at {length} tokens: {result['share_of_padding']:.1%}"


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
