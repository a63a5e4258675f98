"""Time texts to logits, by a classifier on MODEL, and texts to ids.

transformers, ONNX Runtime and OpenVINO run batches of 32 texts, padded to the longest; the last two
run transformers' model, exported to ONNX.  In int8 both run what ``quantize_dynamic`` makes, with a
scale a channel of weights and one a batch of activations.  sentence-transformers makes vectors of
[CLS], which go through the classifier's last layers here.
"""

import argparse
import copy
import json
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from benchmarks.harness import datasets, script, steps
from benchmarks.speed.training import max_seq_length_for, work_of
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.errors import TidyBertError, UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples
from tidybert.inference.forward import answering_in, run_features
from tidybert.inference.predictor import Predictor
from tidybert.tasks.classification import Classification
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import UNK_TOKEN

BATCH_SIZE: Final = 32
"""The other sides' batches; ours are cut by tokens."""
ENGINES: Final = ("onnxruntime", "openvino")
SENTENCES: Final = "sentence-transformers"
_PRECISIONS: Final = {
    "transformers": ("float32", "bfloat16"),
    "onnxruntime": ("float32", "int8"),
    "openvino": ("float32", "bfloat16", "int8"),
    SENTENCES: ("float32", "bfloat16"),
}
_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")

Logits = npt.NDArray[np.float32]
Run = Callable[[Sequence[TextExample]], Logits]
"""From examples to their logits (B, 2), in the order given."""


def save_classifier(model: str, directory: Path, max_seq_length: int) -> None:
    """Save MODEL as a RUN that tells texts of class 0 from texts of class 1, by random weights."""
    origin, task = ModelDirectory.open(model), Classification(["0", "1"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network, _ = origin.build(task.build_model, new_head=True)
        # Logits spread like a trained head's, so that a small difference is small in comparison.
        nn.init.normal_(network.get_parameter("classifier.weight"))
    save_model_directory(
        directory, model_state=network.state_dict(), config=origin.config,
        tokenizer=origin.tokenizer,
        metadata=ModelMetadata(task.name, task.label_names, max_seq_length),
        architecture=task.architecture, problem_type=task.problem_type,
    )  # fmt: skip


def open_side(
    side: str, directory: Path, max_seq_length: int, device: str = "cpu", precision: str = "float32"
) -> Run:
    """Open the model on a side; UsageError for a precision that the side lacks."""
    if side == "ours":
        return _open_ours(directory, max_seq_length, device, precision)
    if precision not in _PRECISIONS[side]:
        raise UsageError(
            f"{param('precision', precision)}: {side} has no {precision} here; use "
            f"{param('against', 'onnxruntime' if precision == 'int8' else 'transformers')}"
        )
    if side == "transformers":
        return _open_transformers(directory, max_seq_length, device, precision)
    if side == SENTENCES:
        return _open_sentences(directory, max_seq_length, precision)
    return _open_engine(side, directory, max_seq_length, precision)


def packages_of(side: str) -> tuple[str, ...]:
    """The packages that a side needs."""
    known = {"ours": (), "transformers": ("transformers",), SENTENCES: (SENTENCES,)}
    return known.get(side, ("transformers", "onnx", "onnxruntime", side))


def _open_ours(directory: Path, max_seq_length: int, device: str, precision: str) -> Run:
    predictor = Predictor(
        directory, device=device, precision=cast(Any, precision), max_seq_length=max_seq_length
    )

    def run(examples: Sequence[TextExample]) -> Logits:
        tokenizer = predictor.tokenizer
        if len(examples) > 1:
            # A copy has an empty cache, as if it had seen no text.  Emptying takes longer than a
            # text alone, which comes to a program that runs.
            tokenizer = copy.copy(tokenizer)
        features = predictor.task.features(examples, tokenizer, max_seq_length)
        return np.concatenate(
            run_features(predictor.task, predictor.model, features, precision=predictor.precision)
        )

    return run


def _encoder_of(
    directory: Path, max_seq_length: int, tensors: str
) -> Callable[..., dict[str, Any]]:
    """transformers' tokenizer for a batch of examples."""
    tokenizer = script.quiet_transformers().AutoTokenizer.from_pretrained(directory)

    def encode(batch: Sequence[TextExample]) -> dict[str, Any]:
        pairs = [one.text_pair for one in batch]
        encoded = tokenizer(
            [one.text for one in batch], pairs if pairs[0] is not None else None, padding=True,
            truncation=True, max_length=max_seq_length, return_tensors=tensors,
        )  # fmt: skip
        return dict(encoded)

    return encode


def _open_transformers(directory: Path, max_seq_length: int, device: str, precision: str) -> Run:
    import transformers

    encode = _encoder_of(directory, max_seq_length, "pt")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        directory, attn_implementation="sdpa"
    )
    model.eval().to(device)
    on_gpu = device != "cpu"

    @cache
    def batches(number: int) -> torch.utils.data.DataLoader[Any]:
        # Its processes are started once for each order of the texts.
        return torch.utils.data.DataLoader(
            given[number],  # type: ignore[arg-type]
            batch_size=BATCH_SIZE,
            collate_fn=encode,
            num_workers=script.LOADER_WORKERS if on_gpu else 0,
            persistent_workers=on_gpu,
            pin_memory=on_gpu,
        )

    given: dict[int, Sequence[TextExample]] = {}

    def run(examples: Sequence[TextExample]) -> Logits:
        given[id(examples)] = examples
        parts = []
        with answering_in(precision, torch.device(device)):
            for encoded in batches(id(examples)):
                moved = {name: each.to(device, non_blocking=True) for name, each in encoded.items()}
                parts.append(model(**moved).logits)
        logits: Logits = torch.cat(parts).float().cpu().numpy()
        return logits

    return run


def _open_sentences(directory: Path, max_seq_length: int, precision: str) -> Run:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformers = script.quiet_transformers()
    model = Transformer(str(directory), max_seq_length=max_seq_length)
    vectors = Pooling(model.get_embedding_dimension(), pooling_mode="cls")
    encoder = SentenceTransformer(modules=[model, vectors], device="cpu")
    if precision == "bfloat16":
        encoder.bfloat16()
    whole = transformers.AutoModelForSequenceClassification.from_pretrained(directory).eval()
    pooler, classifier = whole.bert.pooler, whole.classifier
    del whole

    def run(examples: Sequence[TextExample]) -> Logits:
        first = encoder.encode(
            [one.text for one in examples], batch_size=BATCH_SIZE, convert_to_tensor=True
        )
        with torch.inference_mode():
            logits: Logits = classifier(pooler(first[:, None].float())).numpy()
        return logits

    return run


def _open_engine(side: str, directory: Path, max_seq_length: int, precision: str) -> Run:
    encode, path = _encoder_of(directory, max_seq_length, "np"), exported(directory, precision)
    compute: Callable[[dict[str, Any]], Any]
    if side == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        compute = partial(session.run, ["logits"])
    else:
        import openvino

        settings = {"PERFORMANCE_HINT": "LATENCY"}
        if precision != "bfloat16":
            # By default it multiplies in bfloat16 where the processor can.
            settings["INFERENCE_PRECISION_HINT"] = "f32"
        settings["INFERENCE_NUM_THREADS"] = str(torch.get_num_threads())
        compiled = openvino.Core().compile_model(path, "CPU", settings)
        compute = lambda batch: list(compiled(batch).values())  # noqa: E731

    def run(examples: Sequence[TextExample]) -> Logits:
        parts = []
        for start in range(0, len(examples), BATCH_SIZE):
            batch = encode(examples[start : start + BATCH_SIZE])
            parts.append(compute({name: batch[name].astype(np.int64) for name in _INPUTS})[0])
        return np.concatenate(parts)

    return run


def exported(directory: Path, precision: str) -> Path:
    """transformers' model of a directory as ONNX, beside it; exported once."""
    path = directory / "transformers.onnx"
    if not path.exists():
        import transformers

        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            directory, attn_implementation="eager"
        ).eval()
        ids = torch.ones(2, 9, dtype=torch.long)
        axes = {name: {0: "batch", 1: "length"} for name in _INPUTS}
        with warnings.catch_warnings(action="ignore"):
            torch.onnx.export(
                model, (ids, ids, 0 * ids), path,
                input_names=list(_INPUTS), output_names=["logits"],
                dynamic_axes={**axes, "logits": {0: "batch"}}, opset_version=17, dynamo=False,
            )  # fmt: skip
    if precision != "int8":
        return path
    rounded = directory / "transformers-int8.onnx"
    if not rounded.exists():
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(path, rounded, per_channel=True)
    return rounded


# --- a side in a process of its own

LOGITS_TOLERANCE: Final = 1e-4
TF32_TOLERANCE: Final = 0.1
"""The same on a GPU, where both sides' products take TF32, each by its own kernels."""
LONE_TEXTS: Final = (16, 62, 128)
"""Tokens of the texts that are answered one at a time."""
_MOST_WARM_UP_RUNS: Final = 10
_LONE_CALLS: Final = 20
_ENGINE_SIDES: Final = (
    "ours", "ours bfloat16", "ours int8",
    *(
        f"{name} {each}".removesuffix(" float32")
        for name, kinds in _PRECISIONS.items() for each in kinds
    ),
)  # fmt: skip


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
    clock = steps.StepClock(torch.device(device), 1, 1)
    for _ in range(2 * work["profiled"]):
        again()
        clock.step_ended()
    more = {"profile": clock.found()["profile"], "threads": torch.get_num_threads()}
    return {"values": found, "logits": logits.tolist(), **more}


def bench_sides(
    directory: Path,
    groups: Mapping[str, Sequence[TextExample]],
    sides: Sequence[str],
    given: argparse.Namespace,
) -> dict[str, Any]:
    """What ``take_rounds`` finds of the sides, each of them in a process of its own.

    GROUP_in_order and GROUP_by_length are texts a second; ``lengths`` are of the first group.
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
    group = next(iter(texts["groups"].values()))
    texts["lone"] = lone_texts(tokenizer, group["texts"], given.max_seq_length)
    files = directory.with_name("texts.json")
    files.write_text(json.dumps(texts))
    for side in sides:
        name, precision = named(side, given.precision)
        if name in ENGINES:
            # An export takes more memory than the model that it writes.
            exported(directory, precision)
    found: dict[str, dict[str, Any]] = {}

    def measure(side: str) -> Mapping[str, float]:
        work = {**vars(given), "directory": str(directory), "files": str(files)}
        work["begun"] = time.time()
        found[side] = one = script.run_apart(measured, side, work, given.threads)
        return {**one["values"], "peak_mib": one["peak_mib"]}

    return {
        **script.take_rounds(sides, given.rounds, measure), "threads": found[sides[0]]["threads"],
        "num_texts": len(group["texts"]), "num_truncated": truncated[0],
        "lengths": group["lengths"], "found": found,
    }  # fmt: skip


def lone_texts(
    tokenizer: BertTokenizer, texts: Sequence[str], max_seq_length: int
) -> dict[int, str]:
    """A text of each number of LONE_TEXTS tokens that fits, from the words of the texts."""
    words = iter(" ".join(texts).split())
    found: dict[int, str] = {}
    taken: list[str] = []
    tokens = 2  # [CLS] and [SEP]
    for size in LONE_TEXTS:
        while tokens < size and (word := next(words, None)):
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
    """What ``bench_sides`` finds; TidyBertError where the sides' logits differ in float32."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "model"
        save_classifier(given.model, directory, given.max_seq_length)
        config = ModelDirectory.open(directory).config
        result = bench_sides(directory, {"texts_per_second": examples}, sides, given)
    found, device = result.pop("found"), torch.device(given.device)
    rates = {side: one["texts_per_second_in_order"] for side, one in result["medians"].items()}
    peak = steps.peak_texts_per_second(config, result.pop("lengths"), device, mixed=False)
    tolerance = LOGITS_TOLERANCE if given.device == "cpu" else TF32_TOLERANCE
    # Each side rounds to int8 in its own way.
    limit = tolerance if given.precision == "float32" else math.inf
    same = {name: getattr(given, name) for name in ("device", "precision", "max_seq_length")}
    return {
        **same,
        **result,
        "largest_difference_of_logits": difference(
            "logits", [one["logits"] for one in found.values()], limit
        ),
        # A third of a training step's operations are those of its forward pass.
        "mfu": {side: rate / (3 * peak) if peak else None for side, rate in rates.items()},
        "profile": steps.profiles_of(
            found, {side: len(examples) / rate for side, rate in rates.items()}
        ),
    }


def difference(what: str, answers: Sequence[Any], most: float) -> float | None:
    """The largest difference between two sides' answers, at most ``most``; None for one side."""
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

    The other side runs batches of 32 texts, once in the file's order and once sorted by length,
    which leaves almost nothing to pad.  Then texts of 16, 62 and 128 tokens come one at a time.
    --precision int8 is for both.  On a GPU, processes tokenise transformers' batches, which go over
    from pinned memory.  Times end when the logits are in the host's memory.
    """
    script.add_against(parser, (*script.SIDES[1:], *ENGINES, SENTENCES))
    flags = "model rounds json device threads profile texts max-seq-length"
    parser.add_argument("--precision", choices=("float32", "bfloat16", "int8"), default="float32")
    given = script.parse(parser, flags, rounds=5)
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
    remarks += steps.remarks_of(result, "all texts once", in_full=given.profile)
    title = f"Inference: {len(examples):,} texts of {source}, {given.model}, {given.precision}"
    script.print_speed(given, title, result, rows, remarks)


# --- a table of engines

_LONG_TEXTS: Final = 300
_LONG_CHARACTERS: Final = 700
_COLUMNS: Final = {
    "SST-2": "sst2_in_order", "sorted": "sst2_by_length",
    "Wikipedia": "wikipedia_in_order", "sorted ": "wikipedia_by_length",
}  # fmt: skip


def bench_engines(sides: Sequence[str], given: argparse.Namespace) -> dict[str, Any]:
    """What ``bench_sides`` finds; with a trained model also "score", the share of right labels."""
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
    return {"data": data, "trained_on": given.train, **result}


def engines(parser: argparse.ArgumentParser) -> None:
    """One table of engines: speed, time to the first answer, memory and score of one classifier.

    The classifier is MODEL, trained on the first texts of SST-2 (--train 0: not trained, and not
    scored).  Each side answers SST-2's dev part and 300 texts of 128 tokens of Wikipedia, in the
    file's order and sorted by length; then texts of 16, 62 and 128 tokens one at a time.
    """
    every = list(_ENGINE_SIDES)
    parser.add_argument("--sides", nargs="+", choices=every, default=every, metavar="SIDE")
    script.add_number(parser, "train", 3200, "texts", least=0)
    script.add_number(parser, "num-texts", None, "of each data set; all by default")
    parser.set_defaults(device="cpu", precision="float32", profiled=False)
    given = script.parse(parser, "model rounds threads json")
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
    sizes, rows = sizes_of(result["medians"]), []
    for side, values in result["medians"].items():
        shown = {name: script.figure(each) for name, each in values.items()}
        row = [side.replace("ours", "tidybert"), *(shown[each] for each in _COLUMNS.values())]
        both = ([shown[f"ms_of_{size}_tokens_{part}"] for part in ("p50", "p99")] for size in sizes)
        row += [*map(" / ".join, both), shown["seconds_to_first_answer"], shown["peak_mib"]]
        rows.append([*row, f"{100 * values['score']:.1f}" if "score" in values else ""])
    heads = ["", *(name.strip() for name in _COLUMNS), *(f"{size} tokens" for size in sizes)]
    heads += ["first answer, s", "peak MiB", "score"]
    title = f"texts a second of {given.model}; ms of one text, p50 / p99"
    script.print_table(given, title, result, heads, rows)


# --- texts to ids

STATES: Final = ("cold", "running", "warm")
_TIMED_SHARE: Final = 4


def bench_tokenization(
    model: str, lines: Sequence[str], *, rounds: int, against: str | None
) -> dict[str, Any]:
    """Megabytes of UTF-8 a second, ids only; the last quarter of the lines is timed."""
    tokenizer = BertTokenizer.from_pretrained(model)
    sides = ("ours", *(["tokenizers"] if against else []))
    reference: Any = _reference(tokenizer) if against else None
    start = len(lines) - max(1, len(lines) // _TIMED_SHARE)
    earlier, lines = lines[:start], lines[start:]
    megabytes = sum(len(line.encode()) for line in lines) / 1e6
    ids: dict[str, Any] = {}

    def rate(side: str, encode: Callable[..., Any]) -> float:
        ids[side], seconds, _ = script.timed(partial(encode, lines, add_special_tokens=False))
        return megabytes / seconds

    def measure(side: str) -> dict[str, float]:
        if side != "ours":
            return dict.fromkeys(STATES, rate(side, reference.encode_batch_fast))
        # A copy has an empty cache.
        cold, running = copy.copy(tokenizer), copy.copy(tokenizer)
        rates = {state: rate(side, cold.encode_batch) for state in ("cold", "warm")}
        running.encode_batch(earlier, add_special_tokens=False)
        return {**rates, "running": rate(side, running.encode_batch)}

    found = script.take_rounds(sides, rounds, measure)
    pairs = zip(ids["ours"], ids["tokenizers"], strict=True) if against else ()
    return {
        **found, "threads": 1, "lines": len(lines), "lines_seen_before": len(earlier),
        "megabytes": megabytes,
        "lines_differing": sum(mine.tolist() != other.ids for mine, other in pairs),
    }  # fmt: skip


def _reference(tokenizer: BertTokenizer) -> Any:
    """Hugging Face's fast tokenizer with our vocabulary and settings, on one thread."""
    # The library reads both when it first works: the first turns its threads off, the second leaves
    # one to any part that would start them anyway.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    ids = {token: index for index, token in enumerate(tokenizer.vocabulary.tokens)}
    pieces = models.WordPiece(vocab=ids, unk_token=UNK_TOKEN, max_input_chars_per_word=100)
    reference = Tokenizer(pieces)
    reference.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=tokenizer.tokenize_chinese_chars,
        strip_accents=tokenizer.strip_accents, lowercase=tokenizer.do_lower_case,
    )  # fmt: skip
    reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return reference


def tokenize(parser: argparse.ArgumentParser) -> None:
    """Time text to ids on one thread, on English Wikipedia.

    A cold tokenizer has seen nothing, a running one has seen other lines (as in the middle of a
    corpus), and a warm one the same lines.  The other side is the tokenizers library, which
    transformers' tokenizer runs on, by its fastest way.
    """
    script.add_against(parser)
    given = script.parse(parser, "model rounds json", rounds=5)
    source, lines = datasets.wikipedia_lines()
    result = bench_tokenization(given.model, lines, rounds=given.rounds, against=given.against)
    title = f"Tokenising {result['lines']:,} lines, {result['megabytes']:.1f} MB: {source}"
    remarks = [f"lines whose ids differ: {result['lines_differing']:,}"] if given.against else []
    rows = {f"MB/s, {state}": state for state in STATES}
    script.print_speed(given, title, result, rows, remarks)
