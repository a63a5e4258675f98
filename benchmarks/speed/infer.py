"""Time texts to logits, by a classifier with random weights on MODEL.

The other side runs batches of 32 texts, padded to the longest, once in the file's order and once
sorted by length, which leaves almost nothing to pad.  Then texts of 16, 62 and 128 tokens come one
at a time.  Both sides open one directory, and --precision int8 is for both.  Speeds are
measured in one process, peak memory in a process for each side.  On a GPU, processes tokenise
transformers' batches, which go over from pinned memory.  Times end when the logits are in the
host's memory.  Without the data folder (TIDYBERT_DATA, or ../shared/data) the texts are the bundled
tickets.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from benchmarks.harness.datasets import examples_of, sst2_or_tickets
from benchmarks.harness.processes import run_apart
from benchmarks.harness.rounds import (
    SIDES,
    add_device,
    at_least,
    check_device,
    in_turn,
    note,
    print_speed,
    sides_against,
    speed_parser,
    summarize,
)
from benchmarks.harness.step_clock import are_close, profile_once, remarks_of, with_share
from benchmarks.speed.inference_sides import (
    ENGINES,
    SENTENCES,
    Logits,
    Run,
    exported,
    missing_package,
    open_side,
)
from tidybert.catalog import find_model
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.configuration import BertConfig
from tidybert.errors import TidyBertError, UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples
from tidybert.inference.loading import fitting_length
from tidybert.pretraining.throughput import flops_per_token, peak_flops
from tidybert.storage.model_files import CONFIG_FILE
from tidybert.tasks.classification import Classification
from tidybert.tokenization import BertTokenizer

LOGITS_TOLERANCE: Final = 1e-4
_MOST_WARM_UP_RUNS: Final = 10
LONE_TEXTS: Final = (16, 62, 128)
"""Tokens of the texts that are answered one at a time."""
_LONE_CALLS: Final = 20


def bench_inference(
    model: str,
    examples: Sequence[TextExample],
    *,
    sides: Sequence[str] = SIDES,
    rounds: int = 5,
    max_seq_length: int = 128,
    threads: int | None = None,
    device: str = "cpu",
    precision: str = "float32",
    profiled: bool = False,
) -> dict[str, Any]:
    """Texts a second in both orders of the texts, and peak MiB; a round times every side once.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities
    texts_per_second_in_order, texts_per_second_by_length, ms_of_N_tokens_p50 and _p99 (of one text
    of N tokens) and peak_mib (of a process that opens the model and runs the texts once).  With
    ``profiled``, ``profile`` is each side's for all texts in their order.  ``mfu`` is each side's
    share of the device's peak in float32, in that order; None where the peak is not known.

    Raises TidyBertError where the sides' logits in float32 differ by more than LOGITS_TOLERANCE,
    because they have not done the same work, and errors of opening MODEL.
    """
    with tempfile.TemporaryDirectory() as folder, limited_threads(threads) as used_threads:
        directory = Path(folder) / "model"
        save_classifier(model, directory, max_seq_length)
        origin = ModelDirectory.open(directory)
        features = Classification(["0", "1"]).features(examples, origin.tokenizer, max_seq_length)
        lengths = np.array([len(one.input_ids) for one in features])
        given = Path(folder) / "examples.json"
        given.write_text(json.dumps([[one.text, one.text_pair] for one in examples]))
        work = {
            "directory": str(directory),
            "examples": str(given),
            "max_seq_length": max_seq_length,
            "device": device,
            "precision": precision,
            "profiled": profiled,
        }
        if set(sides) & set(ENGINES):
            # An export takes more memory than the model that it writes.
            exported(directory, precision)
        apart = {side: run_apart(run_once, side, work, used_threads) for side in sides}
        samples = {side: {"peak_mib": [float(apart[side]["peak_mib"])]} for side in sides}
        by_length = sorted(range(len(examples)), key=lambda place: -lengths[place])
        orders = {"in_order": examples, "by_length": [examples[place] for place in by_length]}
        runs = {
            side: open_side(side, directory, max_seq_length, device, precision) for side in sides
        }
        lone = texts_of(origin.tokenizer, examples, max_seq_length)
        for run in runs.values():
            _warm_up(run, list(orders.values()), device)
        difference = 0.0
        for number in range(rounds):
            for order, texts in orders.items():
                logits = {}
                for side in in_turn(sides, number):
                    logits[side], seconds = timed(runs[side], texts)
                    assert len(logits[side]) == len(texts)
                    speeds = samples[side].setdefault(f"texts_per_second_{order}", [])
                    speeds.append(len(texts) / seconds)
                difference = max(difference, _difference(logits, precision))
            for size, one in lone.items():
                for side in in_turn(sides, number):
                    for name, value in lone_ms(runs[side], one, size).items():
                        samples[side].setdefault(name, []).append(value)
            note(f"round {number + 1} of {rounds} done")
    summary = summarize(samples)
    rates = {side: one["texts_per_second_in_order"] for side, one in summary["medians"].items()}
    peak = peak_flops(torch.device(device), mixed=False)
    # A third of a training step's operations are those of its forward pass.
    per_token = flops_per_token(origin.config, (lengths**2).sum() / lengths.sum(), 0.0) / 3
    most = peak and peak / (per_token * lengths.mean())
    return {
        "device": device,
        "precision": precision,
        "num_texts": len(examples),
        "num_tokens": int(lengths.sum()),
        "num_truncated": sum(one.truncated for one in features),
        "max_seq_length": max_seq_length,
        "rounds": rounds,
        "threads": used_threads,
        "largest_difference_of_logits": difference if len(sides) > 1 else None,
        **summary,
        "mfu": {side: float(rate / most) if most else None for side, rate in rates.items()},
        "profile": {
            side: with_share(one["profile"], len(examples) / rates[side])
            for side, one in apart.items()
            if one.get("profile")
        },
    }


def timed(run: Run, examples: Sequence[TextExample]) -> tuple[Logits, float]:
    begin = time.perf_counter()
    logits = run(examples)
    return logits, time.perf_counter() - begin


def texts_of(
    tokenizer: BertTokenizer, examples: Sequence[TextExample], max_seq_length: int
) -> dict[int, TextExample]:
    """A text of each number of LONE_TEXTS tokens that fits, from the words of the examples."""
    words = " ".join(one.text for one in examples).split()
    found: dict[int, TextExample] = {}
    taken: list[str] = []
    tokens = 2  # [CLS] and [SEP]
    for size in LONE_TEXTS:
        while words and tokens < size:
            word = words.pop(0)
            count = len(tokenizer.tokenize(word))
            if tokens + count <= size:
                taken.append(word)
                tokens += count
        if tokens == size <= max_seq_length:
            found[size] = TextExample(" ".join(taken), None, None, 1)
    return found


def lone_ms(run: Run, example: TextExample, size: int) -> dict[str, float]:
    """Milliseconds of one text, answered alone: the median and the 99th percentile."""
    run([example])
    seconds = [timed(run, [example])[1] for _ in range(_LONE_CALLS)]
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return {f"ms_of_{size}_tokens_p50": float(p50), f"ms_of_{size}_tokens_p99": float(p99)}


def _warm_up(run: Run, orders: Sequence[Sequence[TextExample]], device: str) -> None:
    """Run once; on a GPU each order until a run takes as long as the one before, or 10 times."""
    if device == "cpu":
        run(orders[0])
        return
    for examples in orders:
        before = 0.0
        for _ in range(_MOST_WARM_UP_RUNS):
            _, seconds = timed(run, examples)
            if are_close(before, seconds):
                break
            before = seconds


def max_seq_length_for(model: str, asked: int | None = None) -> int:
    """``asked``, or for None 128 tokens, or fewer where MODEL has fewer positions.

    Raises UsageError for more than MODEL has positions, and as ``find_model`` does.
    """
    config = BertConfig.from_file(find_model(model) / CONFIG_FILE)
    fitting = fitting_length(config, asked)
    return min(128, fitting) if asked is None else fitting


def save_classifier(model: str, directory: Path, max_seq_length: int) -> None:
    """Save MODEL as a RUN that tells texts of class 0 from texts of class 1, by random weights."""
    origin = ModelDirectory.open(model)
    fitting_length(origin.config, max_seq_length)
    task = Classification(["0", "1"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network, _ = origin.build(task.build_model, new_head=True)
        # Logits spread like a trained head's, so that LOGITS_TOLERANCE is small in comparison.
        nn.init.normal_(network.classifier.weight)
    save_model_directory(
        directory,
        model_state=network.state_dict(),
        config=origin.config,
        tokenizer=origin.tokenizer,
        metadata=ModelMetadata(task.name, task.label_names, max_seq_length),
        architecture=task.architecture,
        problem_type=task.problem_type,
    )


def _difference(logits: Mapping[str, Logits], precision: str) -> float:
    """The largest difference between two sides' logits of the same texts; 0 for one side."""
    ours = logits["ours"]
    # Python's max would ignore a NaN, and a comparison with NaN is false.
    largest = float(np.max([np.abs(ours - other).max() for other in logits.values()]))
    # Each side rounds to int8 in its own way.
    if precision == "float32" and not largest <= LOGITS_TOLERANCE:
        raise TidyBertError(
            f"the sides' logits differ by up to {largest:.2g}, more than {LOGITS_TOLERANCE:g}: "
            "they have not done the same work, so their times say nothing"
        )
    return largest


@contextmanager
def limited_threads(number: int | None) -> Iterator[int]:
    """Give PyTorch this many threads for the block, or its choice; yields their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def run_once(side: str, work: dict[str, Any]) -> dict[str, Any]:
    """Open the model and run the texts once, in a process of its own."""
    texts = json.loads(Path(work["examples"]).read_text())
    examples = [TextExample(text, pair, None, row) for row, (text, pair) in enumerate(texts, 1)]
    run = open_side(
        side, Path(work["directory"]), work["max_seq_length"], work["device"], work["precision"]
    )
    run(examples)
    if not work["profiled"]:
        return {}
    return {"profile": profile_once(lambda: run(examples), torch.device(work["device"]))}


def sides_of(against: str | None) -> tuple[str, ...]:
    """The sides; raises UsageError where the other one is not installed."""
    if against not in (*ENGINES, SENTENCES):
        return sides_against(against)
    package = missing_package(against)
    if package is not None:
        raise UsageError(
            f"{param('against', against)} needs {package}, which is not installed: "
            f"pip install {package}"
        )
    return (SIDES[0], against)


def add_texts(parser: argparse.ArgumentParser) -> None:
    """--model, --texts and --max-seq-length."""
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--texts", metavar="FILE", help="time these texts instead")
    parser.add_argument("--max-seq-length", type=at_least(8), help="most tokens of a text")


def main() -> None:
    parser = speed_parser(__doc__, rounds=5, others=(*SIDES[1:], *ENGINES, SENTENCES))
    add_device(parser)
    add_texts(parser)
    parser.add_argument("--precision", choices=("float32", "int8"), default="float32")
    given = parser.parse_args()
    check_device(given)
    source = given.texts or sst2_or_tickets()
    if given.texts:
        examples = list(read_examples(source, need_label=False))
    else:
        examples = examples_of(source, "dev")
    result = bench_inference(
        given.model,
        examples,
        sides=sides_of(given.against),
        rounds=given.rounds,
        max_seq_length=max_seq_length_for(given.model, given.max_seq_length),
        threads=given.threads,
        device=given.device,
        precision=given.precision,
        profiled=given.profiled,
    )
    cut, difference = result["num_truncated"], result["largest_difference_of_logits"]
    remarks = [f"cut to {result['max_seq_length']} tokens, on every side: {cut:,} texts"]
    if difference is not None:
        remarks.append(f"largest difference of logits: {difference:.1e}")
    print_speed(
        f"Inference: {len(examples):,} texts of {source}, {given.model}, {given.precision}",
        {"bench": "infer", "model": given.model, "data": source, **result},
        {
            "texts/s, in the order given": "texts_per_second_in_order",
            "texts/s, sorted by length": "texts_per_second_by_length",
            **{
                f"ms of one text of {size} tokens, {part}": name
                for size in LONE_TEXTS
                for part in ("p50", "p99")
                if (name := f"ms_of_{size}_tokens_{part}") in result["medians"]["ours"]
            },
            "peak MiB" if given.device == "cpu" else "peak MiB of the GPU": "peak_mib",
        },
        [*remarks, *remarks_of(result, "all texts once", in_full=given.profile)],
        as_json=given.json,
        other=given.against or SIDES[1],
    )
