"""Sentence vectors: trained, computed, searched and indexed, and many files on a cluster."""

import argparse
import json
import lzma
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count, cycle, islice
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final

import numpy as np
import torch

import tidybert
from benchmarks.harness import datasets, script
from tidybert.catalog import find_model
from tidybert.cluster.file_job import run_job
from tidybert.cluster.input_files import input_files
from tidybert.files.reading import ReadReport
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import SUFFIXES
from tidybert.inference.answer_files import Layout, format_of, write_vectors
from tidybert.inference.embedding import Embedder
from tidybert.inference.text_jobs import EmbedJob
from tidybert.modeling.kernels.linear import product
from tidybert.modeling.kernels.threads import map_on_threads
from tidybert.search.index import Index
from tidybert.search.index_files import compact_index, delete_texts, rounded, write_index
from tidybert.search.index_format import INDEX_FILE, read_state, text_batches
from tidybert.search.nearest_vectors import DTYPES, top_k
from tidybert.storage.atomic_files import file_sha256
from tidybert.system.cores import available_cores
from tidybert.system.reporter import Reporter
from tidybert.tasks.labelled_examples import load_data
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.tokenization import BertTokenizer
from tidybert.training import loop

SIDES: Final = ("ours", "sentence-transformers")
_QUESTIONS: Final = 500
"""Questions of SQuAD to measure on."""
_ARTICLES: Final = 0.8
"""Share of SQuAD's articles to train on."""
_PAIRS: Final = 1024

Rows = Sequence[tuple[Any, ...]]


def stsb(part: str) -> Rows:
    """Pairs of STS-B with scores from 0 to 1."""
    examples = datasets.examples_of("STS-B", part)
    return [(one.text, one.text_pair, float(one.label) / 5) for one in examples]


def squad(part: str) -> Rows:
    """Questions and their paragraphs, of different articles in both parts."""
    file = datasets.data_folder() / "squad" / "new_wiki_v1.0.json"
    articles = json.loads(file.read_text(encoding="utf-8"))["data"]
    cut = int(_ARTICLES * len(articles))
    chosen = articles[:cut] if part == "train" else articles[cut:]
    return [
        (asked["question"], paragraph["context"])
        for article in chosen
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
    ]


def banking77(part: str) -> Rows:
    """Questions of BANKING77 with the numbers of their 77 intents."""
    names = sorted({one.label for one in datasets.examples_of("BANKING77", "train")})
    examples = datasets.examples_of("BANKING77", part)
    return [(one.text, names.index(one.label)) for one in examples]


def full(part: str) -> Rows:
    """Pairs of random words, each text longer than 128 tokens; nothing to measure on."""
    random = np.random.default_rng(0)
    tokens = BertTokenizer.from_pretrained("minilm").vocabulary.tokens[2000:20_000]
    words = [each for each in tokens if each.isalpha()]
    texts = [" ".join(random.choice(words, 140)) for _ in range(2 * _PAIRS)]
    return list(zip(texts[::2], texts[1::2], strict=True)) if part == "train" else []


DATA: Final[Mapping[str, Callable[[str], Rows]]] = {
    "stsb": stsb, "squad": squad, "banking77": banking77, "full": full,
}  # fmt: skip
METRICS: Final = {"stsb": "spearman", "squad": "ndcg_at_10", "banking77": "map"}


def rows_of(data: str, part: str) -> Rows:
    """The rows of a part in a random order: that of the files is by source."""
    found = datasets.drawn(DATA[data](part), 10**9, 0)
    return found[:_QUESTIONS] if (data, part) == ("squad", "dev") else found


def score(model: str | Path, data: str, max_seq_length: int) -> float:
    """The metric of the data's dev part that ``tidybert evaluate`` gives for a model's vectors."""
    examples = load_data(list(rows_of(data, "dev")), "embed")
    embedder, task = Embedder(model, max_seq_length=max_seq_length), SentenceVectors()
    texts = list(dict.fromkeys(text for one in examples for text in one.texts))
    vector_of = dict(zip(texts, embedder.embed(texts), strict=True))
    outputs = [np.stack([vector_of[text] for text in one.texts]) for one in examples]
    features = task.features(examples, embedder.tokenizer, max_seq_length)
    return float(task.answers(outputs, features, examples).metrics()[METRICS[data]])


# --- training
def train(side: str, work: dict[str, Any]) -> dict[str, float]:
    """Train on one side, save into work["out"], and return the seconds of the training."""
    torch.set_num_threads(work["threads"])
    rows = rows_of(work["data"], "train")[: work["train_batch_size"] * (work["max_steps"] or 10**9)]
    return (_ours if side == "ours" else _theirs)(rows, work)


def _ours(rows: Rows, work: dict[str, Any]) -> dict[str, float]:
    clock: dict[str, float] = {}
    train_all = loop.TrainingLoop.train

    def timed(self: Any, **given: Any) -> Any:
        work = partial(train_all, self, **given)
        found, clock["seconds"], clock["cpu_seconds"] = script.timed(work)
        return found

    loop.TrainingLoop.train = timed  # type: ignore[method-assign]
    given = ("train_batch_size", "tokens_per_batch", "max_seq_length", "learning_rate", "max_steps")
    tidybert.finetune(
        list(rows), "embed", work["model"], dev=0, out=work["out"], num_train_epochs=1,
        seed=work["seed"], precision=work["precision"],
        **{name: work[name] for name in given if work.get(name) is not None},
    )  # fmt: skip
    return clock


def _theirs(rows: Rows, work: dict[str, Any]) -> dict[str, float]:
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer import losses

    model = SentenceTransformer(str(find_model(work["model"])), device="cpu")
    model.max_seq_length = work["max_seq_length"]
    names: tuple[str, ...] = ("anchor", "positive", "score")
    sampler = "batch_sampler"
    loss: Any = losses.CoSENTLoss(model)
    if work["data"] == "banking77":
        names, sampler = ("sentence", "label"), "group_by_label"
        loss = losses.BatchAllTripletLoss(model)
    elif len(rows[0]) == 2:
        cached = losses.CachedMultipleNegativesRankingLoss
        loss = cached(model) if work["cached"] else losses.MultipleNegativesRankingLoss(model)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=work["out"] + "-steps", num_train_epochs=1, max_steps=work["max_steps"] or -1,
        per_device_train_batch_size=work["train_batch_size"], learning_rate=work["learning_rate"],
        warmup_steps=0.1, batch_sampler=sampler, seed=work["seed"], save_strategy="no",
        report_to=[], use_cpu=True, disable_tqdm=True, bf16=work["both"],
    )  # fmt: skip
    columns = zip(names, zip(*rows, strict=True), strict=False)
    data = Dataset.from_dict({name: list(column) for name, column in columns})
    trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss)
    _, seconds, cpu_seconds = script.timed(trainer.train)
    model.save_pretrained(work["out"])
    return {"seconds": seconds, "cpu_seconds": cpu_seconds}


def trained_rows(given: argparse.Namespace) -> list[list[str]]:
    """A row for the model as it is, and one for each side."""
    metric, sides = METRICS.get(given.data, ""), SIDES[: 2 - given.ours]
    seeds = {side: count(given.seed) for side in sides}
    rows = []
    if metric:
        before = score(given.model, given.data, given.max_seq_length)
        rows.append(["before", metric, f"{before:.4f}", "", "", "", ""])

    def measure(side: str) -> dict[str, float]:
        seed = next(seeds[side])
        out = str(Path(folder) / f"{side}-{seed}")
        work = {**vars(given), "write": None, "out": out, "seed": seed}
        found = script.run_apart(train, side, work, given.threads)
        if metric:
            found["score"] = score(out, given.data, given.max_seq_length)
        return found

    with tempfile.TemporaryDirectory() as folder:
        result = script.take_rounds(sides, given.rounds, measure)
    for side, middle in result["medians"].items():
        scores = result["samples"][side].get("score", [])
        spread = f" ± {stdev(scores):.4f}" if len(scores) > 1 else ""
        row = [side, metric, f"{mean(scores):.4f}{spread}" if scores else ""]
        row += [f"{middle['seconds']:.1f}", f"{middle['cpu_seconds']:.1f}", ""]
        if side == "ours" and not given.ours:
            row[-1] = f"{1 / result['ratios']['seconds']:.2f}"
        rows.append([*row, f"{middle['peak_mib']:,.0f}"])
    return rows


def vectors(parser: argparse.ArgumentParser) -> None:
    """Train sentence vectors beside sentence-transformers: time, memory, and the score of both.

    Both sides get the same data in batches of the same size, the same steps and the same learning
    rate; sentence-transformers' side is its trainer as its documentation shows it.  Seconds are
    those of the training alone.  ``full`` is 1,024 pairs of 128 tokens, to measure memory.
    """
    parser.add_argument("data", choices=DATA)
    script.add_number(parser, "train-batch-size", 32)
    script.add_number(parser, "tokens-per-batch", None, "of our side; else its default")
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--precision", default="float32", help="of our side; float32 or bfloat16")
    parser.add_argument("--both", action="store_true", help="both sides in bfloat16")
    parser.add_argument("--cached", action="store_true", help="their cached loss")
    parser.add_argument("--ours", action="store_true", help="train our side alone")
    script.add_number(parser, "seed", 42, least=0)
    given = script.parse(
        parser, "model max-steps max-seq-length rounds threads write", max_seq_length=128, rounds=1,
        threads=2,
    )  # fmt: skip
    heads = ["side", "metric", "score", "s", "CPU s", "times as fast", "peak MiB"]
    given.precision = "bfloat16" if given.both else given.precision
    table = f"vectors-{given.data}{'-cached' if given.cached else ''}"
    table += "" if given.precision == "float32" else f"-{given.precision}"
    table += "-both" if given.both else ""
    script.show(script.markdown(heads, trained_rows(given)), given.write, table)


# --- embedding

_BATCH: Final = 32
_WAYS: Final = ("in file order", "all at once")


def encode(parser: argparse.ArgumentParser) -> None:
    """Embed sentences beside sentence-transformers' encode, and compare their vectors.

    *All at once* hands over all texts, which both sort by length; *in file order* hands over 32 at
    a time, as a program does that reads a stream.  CPU seconds are of one thread.
    """
    parser.add_argument("--texts", type=script.at_least(1), default=2000)
    given = script.parse(parser, "model rounds")
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    source, texts = datasets.mixed_texts()
    texts = texts[: given.texts]
    other = SentenceTransformer(str(find_model(given.model)), device="cpu")
    sides: dict[str, Callable[[list[str]], Any]] = {
        "tidybert": Embedder(given.model).embed,
        "sentence-transformers": partial(other.encode, batch_size=_BATCH),
    }
    found: dict[str, Any] = {}

    def measure(side: str) -> dict[str, float]:
        rates = {}
        for way, size in zip(_WAYS, (_BATCH, len(texts)), strict=True):
            parts = [texts[at : at + size] for at in range(0, len(texts), size)]
            made: list[Any]
            made, _, seconds = script.timed(partial(list, map(sides[side], parts)))
            found[side], rates[way] = np.concatenate(made), len(texts) / seconds
        return rates

    result = script.take_rounds(tuple(sides), given.rounds, measure)
    ours, theirs = found.values()
    largest = np.abs(ours - theirs).max()
    remarks = [f"{ours.shape[1]} numbers; the largest difference of a number is {largest:.1e}"]
    title = f"{len(texts):,} texts of {source}, texts a CPU second"
    rows = {way: way for way in _WAYS}
    script.print_speed(given, title, result, rows, remarks)


# --- search

WIDTH: Final = 384
TOP_K: Final = 10
QUERIES: Final = (1, 32)
_ASKED: Final = 100
_CHANGES: Final = 10_000


def bench_search(count: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of each search, and of the machine's limits: "wall" and "processor" a round."""

    def random_vectors(count: int, seed: int) -> Any:
        vectors = np.random.default_rng(seed).standard_normal((count, WIDTH), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    vectors, queries = random_vectors(count, 0), random_vectors(max(QUERIES), 1)
    parts, wide = [*map(torch.from_numpy, np.array_split(vectors, 32))], torch.from_numpy(queries)
    # A part that stays in the cache is multiplied again and again.
    small = parts[0][:1024]
    many = [small] * max(1, count // len(small))
    calls: dict[str, Callable[[], Any]] = {
        "reading float32": lambda: list(map_on_threads(torch.sum, parts)),
        f"products, {len(queries)} at once": lambda: list(
            map_on_threads(lambda part: product(part, wide), many)
        ),
    }
    for dtype in DTYPES:
        numbers, scales = rounded(vectors, dtype)
        for m in QUERIES:
            search = partial(top_k, queries[:m], numbers, TOP_K, scales=scales)
            calls[f"{dtype}, {m} at once"] = search

    def measure(name: str) -> dict[str, float]:
        _, wall, used = script.timed(calls[name])
        return {"wall": 1000 * wall, "processor": 1000 * used / torch.get_num_threads()}

    return {**script.take_rounds(list(calls), rounds, measure), "threads": torch.get_num_threads()}


def bench_indexing(model: str, count: int, rounds: int) -> dict[str, Any]:
    """Texts a second of ``index`` and of ``embed``, in turn."""
    source, lines = datasets.wikipedia_lines(count)
    examples = [TextExample(line, None, None, row) for row, line in enumerate(lines, 1)]
    embedder = Embedder(model, normalize=True)
    # Hashing the weights is done once.
    script.note(f"{source}, {embedder.fingerprint[:8]}")

    def measure(side: str) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            file, index = Path(folder) / "vectors.npy", Path(folder) / "index"
            write: Any = partial(write_index, embedder, examples, index, model=model)
            if side == "embed":
                kind = format_of(file, Layout(embedder.dimension, False, "float32"))
                write = partial(write_vectors, embedder, examples, file, kind)
            return {"texts/s": len(examples) / script.timed(write)[1]}

    found = script.take_rounds(("index", "embed"), rounds, measure)
    return {"texts": len(lines), "data": source, **found}


def recalls(model: str) -> dict[str, float]:
    """The share of the ten nearest texts in float32 that each type finds too."""
    embedder = Embedder(model, normalize=True)
    texts, queries = (
        embedder.embed([one.text for one in datasets.examples_of("BANKING77", part)], progress=True)
        for part in ("train", "dev")
    )
    best, _ = top_k(queries, texts, TOP_K)
    found = {}
    for dtype in DTYPES:
        numbers, scales = rounded(texts, dtype)
        positions, _ = top_k(queries, numbers, TOP_K, scales=scales)
        same = [len(np.intersect1d(*pair)) for pair in zip(best, positions, strict=True)]
        found[dtype] = float(np.mean(same)) / TOP_K
    return found


def search_of(directory: Path, rounds: int) -> tuple[str, dict[str, Any], list[str]]:
    """The index's size, ms of a query by signs and exactly, and what else was found, in lines."""
    index = Index.open(directory, precision=Index(directory).settings["precision"])
    assert index.embedder is not None
    asked = datasets.examples_of("2.0", "dev")[:_ASKED]
    queries = index.embedder.embed([one.question for one in asked])
    before = script.memory_mib(field="RssAnon")
    alone = Index(directory)
    alone.nearest(queries[:1], TOP_K)
    beside = script.memory_mib(field="RssAnon") - before
    hits: dict[str, list[Any]] = {}

    def measure(way: str) -> dict[str, float]:
        find = partial(index.nearest, exact=way == "exact")
        each = [script.timed(partial(find, query[None], TOP_K)) for query in queries]
        hits[way] = [[hit.position for hit in found[0]] for found, _, _ in each]
        middle, high = np.quantile([1000 * wall for _, wall, _ in each], [0.5, 0.95])
        used = np.median([1000 * used for _, _, used in each])
        return {"p50": float(middle), "p95": float(high), "processor": float(used)}

    result = script.take_rounds(("signs", "exact"), rounds, measure)
    same = [len(np.intersect1d(*pair)) for pair in zip(*hits.values(), strict=True)]
    lines = [f"recall of ten: {np.mean(same) / TOP_K:.4f}"]
    lines.append(f"{beside:,.0f} MiB beside {index.vectors.nbytes / 2**20:,.0f} MiB of vectors")
    with tempfile.TemporaryDirectory(dir=directory.parent) as folder:
        copy = Path(shutil.copytree(directory, Path(folder) / "index"))
        lines += changes_of(copy, index.embedder)
    return f"{len(index):,} texts, {len(queries)} questions", result, lines


_SETS: Final = {
    "SQuADShifts Wikipedia": "squad/new_wiki_v1.0.json",
    "SQuADShifts Reddit": "squad/reddit_v1.0.json",
    "SQuADShifts Amazon": "squad/amazon_reviews_v1.0.json",
    "DRCD, Chinese": "zh/drcd/dev.json",
}
"""Questions, each of which has one paragraph to be found."""
_PARAGRAPHS: Final = 900
_SEARCHED: Final = 600
WAYS: Final[tuple[Any, ...]] = ("words", "meaning", None)

Search = tuple[list[str], list[tuple[str, int, int]]]
"""Texts, and queries: each with the place of its text, and of itself among them or -1."""


def questions_of(file: str) -> Search:
    """Some of the different paragraphs of a file, and questions about them."""
    content = json.loads((datasets.data_folder() / file).read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {}
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            asked = [each["question"] for each in paragraph["qas"]]
            found.setdefault(paragraph["context"], []).extend(asked)
    chosen = datasets.drawn(list(found.items()), _PARAGRAPHS, 0)
    queries = [(query, at, -1) for at, (_, asked) in enumerate(chosen) for query in asked]
    return [text for text, _ in chosen], datasets.drawn(queries, _SEARCHED, 0)


def paraphrases_of(name: str, least: float) -> Search:
    """All texts of a job, and those with a paraphrase: pairs labelled ``least`` or more."""
    pairs = [one for part in ("train", "dev") for one in datasets.examples_of(name, part)]
    numbers: dict[str, int] = {}
    for one in pairs:
        for text in (one.text, one.text_pair):
            numbers.setdefault(text, len(numbers))
    queries = [
        (one.text, numbers[one.text_pair], numbers[one.text])
        for one in pairs
        if float(one.label) >= least and one.text != one.text_pair
    ]
    return list(numbers), datasets.drawn(queries, _SEARCHED, 0)


def found_by(index: Index, queries: Search, vectors: Any) -> dict[Any, tuple[float, float]]:
    """By way nDCG@10 and recall@10 of queries whose own vectors are given."""
    found = {}
    for by in WAYS:
        ranks = []
        hits = index.find([query for query, _, _ in queries[1]], vectors, TOP_K + 1, by=by)
        for each, (_, wanted, own) in zip(hits, queries[1], strict=True):
            places = [hit.position for hit in each if hit.position != own][:TOP_K]
            ranks.append(places.index(wanted) + 1 if wanted in places else 0)
        gains = [1 / np.log2(rank + 1) if rank else 0.0 for rank in ranks]
        found[by] = float(np.mean(gains)), float(np.mean(np.array(ranks) > 0))
    return found


def fused(model: str) -> list[list[str]]:
    """A row for each set of texts and queries: what words, meaning and both find."""
    made = {name: partial(questions_of, file) for name, file in _SETS.items()}
    made |= {
        "STS-B, 4 of 5 or more": partial(paraphrases_of, "STS-B", 4.0),
        "QQP, paraphrases": partial(paraphrases_of, "QQP subset", 1.0),
    }
    embedder, rows = Embedder(model, normalize=True), []
    for name, make in made.items():
        texts, queries = make()
        examples = [TextExample(text, None, None, row) for row, text in enumerate(texts, 1)]
        with tempfile.TemporaryDirectory() as folder:
            write_index(embedder, examples, Path(folder) / "index", model=model)
            index = Index(Path(folder) / "index")
            asked = embedder.embed([query for query, _, _ in queries])
            found = found_by(index, (texts, queries), asked)
        cells = ["{:.3f}, {:.3f}".format(*found[by]) for by in WAYS]
        rows.append([name, f"{len(queries):,} / {len(texts):,}", *cells])
        script.note(f"{name}: {cells}")
    return rows


def changes_of(directory: Path, embedder: Embedder) -> list[str]:
    """Seconds of each change to an index without ids, and what a reader saw meanwhile, in lines."""
    index = Index(directory)
    step = max(1, len(index) // _CHANGES)
    settings = {name: index.settings[name] for name in ("dtype", "model")}

    def examples() -> Iterator[TextExample]:
        number = count()
        for batch in text_batches(directory, read_state(directory / INDEX_FILE)):
            for each in batch.to_pylist():
                end, columns = " again" * (next(number) % step == 0), json.loads(each["columns"])
                yield TextExample(each["text"] + end, None, None, each["row"], columns=columns)

    chosen = [str(at) for at in range(step // 2, len(index), step)]
    calls: dict[str, Callable[[], Any]] = {
        "replaced": partial(
            write_index, embedder, examples(), directory, replacing=True, **settings
        ),
        "deleted": partial(delete_texts, directory, chosen),
        "compacted": partial(compact_index, directory),
    }
    states, lines, end = [_size(directory)], [], directory.with_name("end")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        reading = pool.submit(_sizes, directory, end)
        try:
            for name, call in calls.items():
                _, wall, used = script.timed(call)
                states.append(_size(directory))
                texts, places = states[-1]
                lines.append(
                    f"{name} in {wall:.1f} s, {used:.1f} s of processor time: {texts:,} texts in "
                    f"{places:,} places"
                )
        finally:
            end.touch()
        seen = reading.result()
    assert set(seen) <= set(states), (seen, states)
    return [*lines, f"a reader opened it {len(seen)} times meanwhile and saw no other state"]


def _size(directory: Path) -> tuple[int, int]:
    """How many texts an index has, and how many places."""
    index = Index(directory)
    return len(index), len(index.vectors)


def _sizes(directory: Path, end: Path) -> list[tuple[int, int]]:
    """What a reader sees that opens an index again and again until ``end`` is there."""
    found = []
    while not end.exists():
        found.append(_size(directory))
    return found


def search(parser: argparse.ArgumentParser) -> None:
    """Time exact search over random vectors, and indexing beside embedding.

    It times ``top_k`` for one query and for 32, of each type, with what the machine reads and
    multiplies beside.  Processor time is divided by the threads.  --texts indexes so many lines of
    Wikipedia and embeds the same into a file, in turn.  --recall counts how many of the ten nearest
    texts of BANKING77 each type still finds.  --index asks an index the questions of SQuAD, by its
    signs and exactly in turn, and then times changes to a copy of it.  --fused finds paragraphs by
    questions and paraphrases by each other, by words, by meaning and by both.
    """
    script.add_number(parser, "vectors", 1_000_000, "random vectors")
    script.add_number(parser, "texts", None, "time indexing so many texts")
    parser.add_argument("--recall", action="store_true", help="count what each type still finds")
    parser.add_argument("--fused", action="store_true", help="rank by words, meaning and both")
    parser.add_argument("--index", type=Path, metavar="DIR", help="search and change this index")
    given = script.parse(parser, "model rounds json", rounds=5)
    if given.index:
        title, result, lines = search_of(given.index, given.rounds)
        names = {f"{name}, ms": name for name in ("p50", "p95", "processor")}
        script.print_speed(given, title, result, names, lines)
    elif given.fused:
        heads = ["nDCG@10, recall@10", "queries / texts", "words", "meaning", "both"]
        print(script.markdown(heads, fused(given.model)))
    elif given.recall:
        print(json.dumps(recalls(given.model)))
    elif given.texts:
        result = bench_indexing(given.model, given.texts, given.rounds)
        title = f"Indexing {result['texts']:,} texts: {result['data']}"
        script.print_speed(given, title, result, {"texts/s": "texts/s"})
    else:
        result = bench_search(given.vectors, given.rounds)
        rows = []
        for name, values in result["samples"].items():
            # Other programs only ever make a figure worse.
            wall, used = values["wall"], values["processor"]
            shown = min(wall), result["medians"][name]["wall"], min(used)
            rows.append([name, *map(script.figure, shown)])
        title = f"{given.vectors:,} vectors of {WIDTH}, top {TOP_K}, milliseconds"
        heads = ["", "best", "median", "processor"]
        script.print_table(given, title, result, heads, rows)


# --- many files on a cluster
@contextmanager
def folder_of(contents: Sequence[str], suffix: str) -> Iterator[Path]:
    """A folder whose folder "in" has these files."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "in").mkdir()
        for number, content in enumerate(contents):
            (root / "in" / f"{number:04}{suffix}").write_text(content)
        yield root


def bench_embedding(given: argparse.Namespace) -> dict[str, Any]:
    """ "rows/s" from the first rows on, their seconds, and MiB of the process or largest worker."""
    _, lines = datasets.wikipedia_lines(given.texts)
    cut = (each[: given.characters] for each in islice(cycle(lines), given.texts))
    rows = [json.dumps({"text": each}) + "\n" for each in cut]
    work = EmbedJob(model=given.model, options={"precision": "float32"})

    def measure(side: str) -> dict[str, float]:
        first: tuple[float, int] | None = None
        begun, most_mib = time.perf_counter(), 0.0

        def advance(num_rows: int) -> None:
            nonlocal first, most_mib
            if num_rows and first is None:
                first = time.perf_counter(), num_rows
            is_ray = side == "local Ray"
            for path in Path("/proc").glob(f"{'[0-9]*' if is_ray else 'self'}/cmdline"):
                # A process may end meanwhile.
                with suppress(OSError):
                    if not is_ray or b"_RayWorker" in path.read_bytes():
                        most_mib = max(most_mib, script.memory_mib(path.parent.name, "VmRSS"))

        with tempfile.TemporaryDirectory(dir=root) as out:
            if side == "one process":
                opened, done = work.load(), 0
                for file in files:
                    source, target = Path(file.path), Path(out) / f"{file.name}{work.suffix}"
                    written = work.write_file(
                        opened, source, target, ReadReport(), Reporter(advance=advance)
                    )
                    done += written.num_texts
            else:
                job = partial(run_job, work, files, Path(out) / "ray", cluster="local")
                done = job(reporter=Reporter(advance=advance)).num_rows
        assert first is not None
        rate = (done - first[1]) / (time.perf_counter() - first[0])
        return {"rows/s": rate, "first rows": first[0] - begun, "MiB": most_mib}

    parts = ["".join(rows[at :: given.files]) for at in range(given.files)]
    with folder_of(parts, ".jsonl") as root:
        files = input_files(str(root / "in"), SUFFIXES)
        # The ratio is the first side's to the second.
        return script.take_rounds(("local Ray", "one process"), given.rounds, measure)


def bench_corpus(given: argparse.Namespace) -> dict[str, Any]:
    """Megabytes of text a second of build-corpus, with a process a core and on Ray."""
    paths = sorted((datasets.data_folder() / "corpus").glob("wiki*.xz"))
    text = b"\n\n".join(lzma.decompress(path.read_bytes()) for path in paths).decode()
    documents = text.split("\n\n")
    parts = ["\n\n".join(documents[at :: given.files]) + "\n" for at in range(given.files)]
    megabytes = sum(len(part.encode()) for part in parts) / 1e6
    shards: set[tuple[str, ...]] = set()

    def measure(side: str) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=root) as folder:
            command = [sys.executable, "-m", "tidybert", "build-corpus", str(root / "in")]
            command += ["--vocab", "minilm", "--out", f"{folder}/corpus", "--quiet"]
            command += ["--cluster", "local"] if side == "local Ray" else []
            _, seconds, _ = script.timed(partial(subprocess.run, command, check=True))
            shards.add(tuple(map(file_sha256, sorted(Path(folder).glob("corpus/train-*")))))
        assert len(shards) == 1, "the shards differ"
        return {"MB/s": megabytes / seconds, "seconds": seconds}

    with folder_of(parts, ".txt") as root:
        alone = f"{available_cores()} processes"
        return script.take_rounds(("local Ray", alone), given.rounds, measure)


def cluster(parser: argparse.ArgumentParser) -> None:
    """Time a job over many files on a local Ray beside one process.

    The first embeds lines of Wikipedia; rates begin with the first rows, so they leave out Ray's
    start and the loading.  With --characters texts are cut, and come again where Wikipedia has
    fewer.  --corpus runs build-corpus on the data folder's Wikipedia, from its start to its end.
    """
    script.add_number(parser, "texts", 20_000, "to embed", least=10)
    script.add_number(parser, "files", 10, "to spread them over")
    script.add_number(parser, "characters", None, "of each text at most")
    parser.add_argument("--corpus", action="store_true", help="time build-corpus")
    given = script.parse(parser, "model rounds json")
    result = bench_corpus(given) if given.corpus else bench_embedding(given)
    what = "build-corpus, equal shards" if given.corpus else f"{given.texts:,} texts"
    rows = {name: name for name in next(iter(result["medians"].values()))}
    script.print_speed(given, f"{what}, {given.files} files", result, rows)
