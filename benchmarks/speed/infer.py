"""Time texts to logits, by a classifier on MODEL: two sides, or a table of engines."""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from benchmarks.harness import datasets, processes, script, steps
from benchmarks.speed.finetune_work import work_of
from benchmarks.speed.inference_sides import ENGINES, SENTENCES, exported, open_side, packages_of
from tidybert.catalog import find_model
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.configuration import BertConfig
from tidybert.errors import TidyBertError, UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples
from tidybert.inference.loading import fitting_length
from tidybert.modeling.kernels.linear import Int8Linear, largest_weight
from tidybert.modeling.kernels.linear import product as product_of
from tidybert.modeling.kernels.sizes import MOST_ROWS
from tidybert.pretraining.throughput import flops_per_token, peak_flops
from tidybert.storage.model_files import CONFIG_FILE
from tidybert.tasks.classification import Classification
from tidybert.tokenization import BertTokenizer

LOGITS_TOLERANCE: Final = 1e-4
TF32_TOLERANCE: Final = 0.1
"""The same on a GPU, where both sides' products take TF32, each by its own kernels."""
LONE_TEXTS: Final = (16, 62, 128)
"""Tokens of the texts that are answered one at a time."""
_MOST_WARM_UP_RUNS: Final = 10
_LONE_CALLS: Final = 20
_ENGINE_SIDES: Final = (
    "ours", "ours bfloat16", "ours int8", "transformers", "transformers bfloat16", *ENGINES,
    *(f"{engine} int8" for engine in ENGINES if "fused" not in engine), SENTENCES,
)  # fmt: skip


def max_seq_length_for(model: str, asked: int | None = None) -> int:
    """``asked``, or for None 128 tokens, or fewer where MODEL has fewer positions.

    Raises UsageError for more than MODEL has positions, and as ``find_model`` does.
    """
    fitting = fitting_length(BertConfig.from_file(find_model(model) / CONFIG_FILE), asked)
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
        nn.init.normal_(network.get_parameter("classifier.weight"))
    save_model_directory(
        directory,
        model_state=network.state_dict(),
        config=origin.config,
        tokenizer=origin.tokenizer,
        metadata=ModelMetadata(task.name, task.label_names, max_seq_length),
        architecture=task.architecture,
        problem_type=task.problem_type,
    )


# --- a side in a process of its own


def named(side: str, precision: str) -> tuple[str, str]:
    """A side's name, and the precision after it, or else the one that is given."""
    name, _, own = side.partition(" ")
    return name, own or precision


def measured(side: str, work: dict[str, Any]) -> dict[str, Any]:
    """Open a side in this process, and time its groups of texts and the lone ones."""
    texts = json.loads(Path(work["files"]).read_text())
    (name, precision), device = named(side, work["precision"]), work["device"]
    run = open_side(name, Path(work["directory"]), work["max_seq_length"], device, precision)
    found: dict[str, Any] = {}
    for name, group in texts["groups"].items():
        pairs = zip(group["texts"], group["pairs"], strict=True)
        examples = [TextExample(*pair, None, row) for row, pair in enumerate(pairs, 1)]
        if not found:
            run(examples[:1])
            found["seconds_to_first_answer"] = time.time() - work["begun"]
            logits, again = run(examples), partial(run, examples)
        longest = np.argsort(np.negative(group["lengths"]), kind="stable")
        for kind, order in (("in_order", range(len(examples))), ("by_length", longest.tolist())):
            chosen, before = [examples[at] for at in order], 0.0
            # A GPU warms up until a run takes as long as the one before.
            for _ in range(0 if device == "cpu" else _MOST_WARM_UP_RUNS):
                _, seconds, _ = script.timed(partial(run, chosen))
                if steps.are_close(before, seconds):
                    break
                before = seconds
            found[f"{name}_{kind}"] = len(chosen) / script.timed(partial(run, chosen))[1]
    for size, text in texts["lone"].items():
        answer = partial(run, [TextExample(text, None, None, 1)])
        answer()
        times = [1000 * script.timed(answer)[1] for _ in range(_LONE_CALLS)]
        for part in (50, 99):
            found[f"ms_of_{size}_tokens_p{part}"] = float(np.percentile(times, part))
    profile = steps.profile_once(again, torch.device(device)) if work["profiled"] else None
    more = {"profile": profile, "threads": torch.get_num_threads()}
    return {"values": found, "logits": logits.tolist(), **more}


def bench_sides(
    directory: Path,
    groups: Mapping[str, Sequence[TextExample]],
    sides: Sequence[str],
    given: argparse.Namespace,
) -> dict[str, Any]:
    """Each side once a round, in a process of its own.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities
    GROUP_in_order and GROUP_by_length (texts a second), ms_of_N_tokens_p50 and _p99 (of one text
    of N tokens), seconds_to_first_answer (from the start of the process) and peak_mib.  ``found``
    is what each side returned in its last round.  ``lengths`` are the first group's tokens.
    """
    tokenizer, task = BertTokenizer.from_pretrained(directory), Classification(["0", "1"])
    texts: dict[str, Any] = {"groups": {}}
    truncated = []
    for name, examples in groups.items():
        features = task.features(examples, tokenizer, given.max_seq_length)
        truncated.append(sum(one.truncated for one in features))
        texts["groups"][name] = {
            "texts": [one.text for one in examples],
            "pairs": [one.text_pair for one in examples],
            "lengths": [len(one.input_ids) for one in features],
        }
    (first, group), *_ = texts["groups"].items()
    texts["lone"] = lone_texts(tokenizer, group["texts"], given.max_seq_length)
    files = directory.with_name("texts.json")
    files.write_text(json.dumps(texts))
    for side in sides:
        name, precision = named(side, given.precision)
        if name in ENGINES:
            # An export takes more memory than the model that it writes.
            exported(directory, precision)
    found: dict[str, dict[str, Any]] = {}

    def measure(side: str) -> tuple[Mapping[str, float], str]:
        work = {**vars(given), "directory": str(directory), "files": str(files)}
        work["begun"] = time.time()
        found[side] = one = processes.run_apart(measured, side, work, given.threads)
        values = {**one["values"], "peak_mib": one["peak_mib"]}
        return values, f"{values[f'{first}_in_order']:,.0f} texts/s"

    return {
        "rounds": given.rounds,
        **script.summarize(script.take_rounds(sides, given.rounds, measure)),
        "threads": found[sides[0]]["threads"],
        "num_texts": len(group["texts"]),
        "num_truncated": truncated[0],
        "lengths": group["lengths"],
        "found": found,
    }


def lone_texts(
    tokenizer: BertTokenizer, texts: Sequence[str], max_seq_length: int
) -> dict[int, str]:
    """A text of each number of LONE_TEXTS tokens that fits, from the words of the texts."""
    words = " ".join(texts).split()
    found: dict[int, str] = {}
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
            found[size] = " ".join(taken)
    return found


def sizes_of(medians: Mapping[str, Mapping[str, float]]) -> list[int]:
    """Of LONE_TEXTS those that were timed."""
    known = next(iter(medians.values()))
    return [size for size in LONE_TEXTS if f"ms_of_{size}_tokens_p50" in known]


# --- two sides


def bench_inference(
    examples: Sequence[TextExample], sides: Sequence[str], given: argparse.Namespace
) -> dict[str, Any]:
    """What ``bench_sides`` finds of the group "texts_per_second".

    With ``profiled``, ``profile`` is each side's for all texts in their order.  ``mfu`` is each
    side's share of the device's peak in float32, in that order; None where the peak is not known.

    Raises TidyBertError where the sides' logits in float32 differ by more than LOGITS_TOLERANCE
    (on a GPU TF32_TOLERANCE), and errors of opening MODEL.
    """
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "model"
        save_classifier(given.model, directory, given.max_seq_length)
        config = ModelDirectory.open(directory).config
        result = bench_sides(directory, {"texts_per_second": examples}, sides, given)
    found, lengths = result.pop("found"), np.array(result.pop("lengths"))
    rates = {side: one["texts_per_second_in_order"] for side, one in result["medians"].items()}
    peak = peak_flops(torch.device(given.device), mixed=False)
    # A third of a training step's operations are those of its forward pass.
    per_token = flops_per_token(config, (lengths**2).sum() / lengths.sum(), 0.0) / 3
    most = peak and peak / (per_token * lengths.mean())
    tolerance = LOGITS_TOLERANCE if given.device == "cpu" else TF32_TOLERANCE
    # Each side rounds to int8 in its own way.
    limit = tolerance if given.precision == "float32" else math.inf
    same = {name: getattr(given, name) for name in ("device", "precision", "max_seq_length")}
    return {
        **same,
        **result,
        "num_tokens": int(lengths.sum()),
        "largest_difference_of_logits": difference(
            "logits", [one["logits"] for one in found.values()], limit
        ),
        "mfu": {side: float(rate / most) if most else None for side, rate in rates.items()},
        "profile": {
            side: steps.with_share(one["profile"], len(examples) / rates[side])
            for side, one in found.items()
            if one["profile"]
        },
    }


def difference(what: str, answers: Sequence[Any], most: float) -> float | None:
    """The largest difference between two sides' answers to the same texts; None for one side.

    Raises TidyBertError where it is above ``most``, because they have not done the same work.
    """
    if len(answers) < 2:
        return None
    largest = float(np.abs(np.subtract(*answers)).max())
    # A comparison with NaN is false.
    if not largest <= most:
        raise TidyBertError(
            f"the sides' {what} differ by up to {largest:.2g}, more than {most:g}: "
            "they have not done the same work, so their times say nothing"
        )
    return largest


def infer(parser: argparse.ArgumentParser) -> None:
    """Time texts to logits, by a classifier with random weights on MODEL.

    The other side runs batches of 32 texts, padded to the longest, once in the file's order and
    once sorted by length, which leaves almost nothing to pad.  Then texts of 16, 62 and 128 tokens
    come one at a time.  Both sides open one directory, and --precision int8 is for both.  Each
    measurement is a process of its own.  On a GPU, processes tokenise transformers' batches, which
    go over from pinned memory.  Times end when the logits are in the host's memory.  Without the
    data folder (TIDYBERT_DATA, or ../shared/data) the texts are the bundled tickets.
    """
    script.add_against(parser, (*script.SIDES[1:], *ENGINES, SENTENCES))
    flags = "model rounds json device threads profile texts max-seq-length"
    script.add_flags(parser, flags, rounds=5)
    parser.add_argument("--precision", choices=("float32", "bfloat16", "int8"), default="float32")
    given = parser.parse_args()
    script.check_device(given)
    given.max_seq_length = max_seq_length_for(given.model, given.max_seq_length)
    source = given.texts or datasets.sst2_or_tickets()
    if given.texts:
        examples = list(read_examples(source, need_label=False))
    else:
        examples = datasets.examples_of(source, "dev")
    sides = [script.SIDES[0]]
    if given.against is not None:
        script.need(given.against, *packages_of(given.against))
        sides.append(given.against)
    result = bench_inference(examples, sides, given)
    cut, largest = result["num_truncated"], result["largest_difference_of_logits"]
    remarks = [f"cut to {given.max_seq_length} tokens, on every side: {cut:,} texts"]
    remarks += [] if largest is None else [f"largest difference of logits: {largest:.1e}"]
    rows = {
        "texts/s, in the order given": "texts_per_second_in_order",
        "texts/s, sorted by length": "texts_per_second_by_length",
    }
    for size, part in product(sizes_of(result["medians"]), ("p50", "p99")):
        rows[f"ms of one text of {size} tokens, {part}"] = f"ms_of_{size}_tokens_{part}"
    rows["peak MiB" if given.device == "cpu" else "peak MiB of the GPU"] = "peak_mib"
    script.print_speed(
        f"Inference: {len(examples):,} texts of {source}, {given.model}, {given.precision}",
        {"bench": "infer", "model": given.model, "data": source, **result},
        rows,
        [*remarks, *steps.remarks_of(result, "all texts once", in_full=given.profile)],
        as_json=given.json,
        other=given.against or script.SIDES[1],
    )


# --- a table of engines

_LONG_TEXTS: Final = 300
_LONG_CHARACTERS: Final = 700
_COLUMNS: Final = {
    "SST-2": "sst2_in_order", "sorted": "sst2_by_length",
    "Wikipedia": "wikipedia_in_order", "sorted ": "wikipedia_by_length",
}  # fmt: skip
_RATE_WIDTH: Final = 1024
_RATE_BYTES: Final = 2**28


def bench_engines(sides: Sequence[str], given: argparse.Namespace) -> dict[str, Any]:
    """What ``bench_sides`` finds of SST-2 and Wikipedia, each side's "score", and machine_rates.

    A score is the share of dev's labels that are right, of a model that is trained.
    """
    data, length = datasets.sst2_or_tickets(), given.max_seq_length
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "model"
        dev = datasets.examples_of(data, "dev")[: given.num_texts]
        if given.train:
            work = work_of(data, given.model, num_examples=given.train, max_seq_length=length)
            trained = work.trained()
            trained.save(directory)
        else:
            save_classifier(given.model, directory, length)
        lines = [line for line in datasets.wikipedia_lines()[1] if len(line) > _LONG_CHARACTERS]
        long = [TextExample(line, None, None, row) for row, line in enumerate(lines, 1)]
        groups = {"sst2": dev, "wikipedia": long[:_LONG_TEXTS][: given.num_texts]}
        result = bench_sides(directory, groups, sides, given)
    found = result.pop("found")
    if given.train:
        labels = np.array([trained.task.names.index(str(one.label)) for one in dev])
        for side, values in result["medians"].items():
            right = np.array(found[side]["logits"]).argmax(1) == labels
            values["score"] = float(right.mean())
    return {"data": data, "trained_on": given.train, "rates": machine_rates(), **result}


def machine_rates() -> dict[str, float]:
    """The best of eight tries, with PyTorch's number of threads.

    "gflops" of float32 and "int8_gops" (0 without int8) count a multiplication and an addition as
    two; "copied_gb_per_second" counts what a copy reads and what it writes.
    """
    rows, width = 8 * MOST_ROWS, _RATE_WIDTH
    hidden, weight, bias = torch.randn(rows, width), torch.randn(width, width), torch.zeros(width)
    source = torch.ones(_RATE_BYTES, dtype=torch.uint8)
    target = torch.empty_like(source)

    def rate(billions: float, work: Callable[..., object], *given: Any) -> float:
        return billions / min(script.timed(partial(work, *given))[1] for _ in range(8))

    operations = 2e-9 * rows * width**2
    with torch.inference_mode():
        int8 = rate(operations, Int8Linear(weight, bias), hidden) if largest_weight() else 0.0
        return {
            "gflops": rate(operations, product_of, hidden, weight, bias),
            "int8_gops": int8,
            "copied_gb_per_second": rate(2e-9 * _RATE_BYTES, target.copy_, source),
        }


def engines_table(medians: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Markdown: a row a side."""
    sizes = sizes_of(medians)
    rows = []
    for side, values in medians.items():
        shown = {name: script.figure(each) for name, each in values.items()}
        row = [side.replace("ours", "tidybert"), *(shown[each] for each in _COLUMNS.values())]
        both = ([shown[f"ms_of_{size}_tokens_{part}"] for part in ("p50", "p99")] for size in sizes)
        row += [*map(" / ".join, both), shown["seconds_to_first_answer"], shown["peak_mib"]]
        rows.append([*row, f"{100 * values['score']:.1f}" if "score" in values else ""])
    heads = ["", *(name.strip() for name in _COLUMNS), *(f"{size} tokens" for size in sizes)]
    return script.markdown([*heads, "first answer, s", "peak MiB", "score"], rows)


def engines(parser: argparse.ArgumentParser) -> None:
    """One table of engines: speed, time to the first answer, memory and score of one classifier.

    The classifier is MODEL, trained on the first texts of SST-2 (--train 0: not trained, and not
    scored).  Each side opens it in a process of its own, once a round, and answers SST-2's dev part
    and 300 texts of 128 tokens of Wikipedia, in the file's order and sorted by length; then texts
    of 16, 62 and 128 tokens one at a time.  A side that is not installed is left out, and a line
    says so.  text-embeddings-inference is no Python package, so it has no row.  Without the data
    folder (TIDYBERT_DATA, or ../shared/data) the texts are the bundled tickets.
    """
    script.add_flags(parser, "model rounds threads json")
    every = list(_ENGINE_SIDES)
    parser.add_argument("--sides", nargs="+", choices=every, default=every, metavar="SIDE")
    script.add_number(parser, "train", 3200, "texts", least=0)
    script.add_number(parser, "num-texts", None, "of each data set; all by default")
    parser.set_defaults(device="cpu", precision="float32", profiled=False)
    given = parser.parse_args()
    given.max_seq_length = max_seq_length_for(given.model)
    sides = []
    for side in given.sides:
        package = script.missing(*packages_of(named(side, "")[0]))
        if package is None:
            sides.append(side)
        else:
            script.note(f"{side} is left out: it needs {package} (pip install {package})")
    if not sides:
        raise UsageError(f"{param('sides')} names nothing that is installed")
    result = bench_engines(sides, given)
    rates = result["rates"]
    if given.json:
        print(json.dumps({"bench": "engines", "model": given.model, **result, **script.record()}))
        return
    print(f"texts a second of {given.model}; ms of one text, p50 / p99\n")
    print("\n".join(engines_table(result["medians"])))
    print(
        f"\nthe machine: products at {rates['gflops']:,.0f} GFLOP/s in float32 and "
        f"{rates['int8_gops']:,.0f} GOP/s in int8, a copy in memory at "
        f"{rates['copied_gb_per_second']:.1f} GB/s\nmedians of {given.rounds} rounds; "
        f"{result['threads']} threads; torch {torch.__version__}"
    )
