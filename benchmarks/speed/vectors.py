"""Train sentence vectors beside sentence-transformers: time, memory, and the score of both.

    python -m benchmarks vectors stsb --write docs/results.md
    python -m benchmarks vectors squad --train-batch-size 128 --max-steps 4 --cached

Both sides get the same pairs in batches of the same size, the same steps and the same learning
rate; sentence-transformers' side is its trainer as its documentation shows it.  CPU seconds are
those of the training alone; they hardly depend on what else the machine does.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks.harness.datasets import data_folder
from benchmarks.harness.processes import run_apart
from benchmarks.harness.rounds import note
from benchmarks.harness.tables import markdown, show

SIDES: Final = ("ours", "sentence-transformers")
_QUESTIONS: Final = 500
"""Questions of SQuAD to measure on."""
_ARTICLES: Final = 0.8
"""Share of SQuAD's articles to train on."""


def stsb(part: str) -> list[tuple[str, str, float]]:
    """Pairs of STS-B with scores from 0 to 1."""
    (file,) = (data_folder() / "glue" / "STS-B").glob(f"*{part}*.csv")
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    return [(row[5], row[6], float(row[4]) / 5) for row in rows]


def squad(part: str) -> list[tuple[str, str]]:
    """Questions and their paragraphs, of different articles in both parts."""
    file = data_folder() / "squad" / "new_wiki_v1.0.json"
    articles = json.loads(file.read_text(encoding="utf-8"))["data"]
    cut = int(_ARTICLES * len(articles))
    chosen = articles[:cut] if part == "train" else articles[cut:]
    pairs = [
        (asked["question"], paragraph["context"])
        for article in chosen
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
    ]
    order = np.random.default_rng(0).permutation(len(pairs))
    shuffled = [pairs[at] for at in order]
    return shuffled if part == "train" else shuffled[:_QUESTIONS]


DATA: Final[Mapping[str, Any]] = {"stsb": stsb, "squad": squad}


def train(side: str, work: dict[str, Any]) -> dict[str, float]:
    """Train on one side, save into work["out"], and return the seconds of the training."""
    import torch

    torch.set_num_threads(work["threads"])
    pairs = DATA[work["data"]]("train")[: work["train_batch_size"] * (work["max_steps"] or 10**9)]
    return (_ours if side == "ours" else _theirs)(pairs, work)


def _ours(pairs: list[Any], work: dict[str, Any]) -> dict[str, float]:
    import tidybert
    from tidybert.training import loop

    clock: dict[str, float] = {}
    train_all = loop.TrainingLoop.train

    def timed(self: Any) -> Any:
        begin = time.perf_counter(), time.process_time()
        found = train_all(self)
        clock.update(_since(begin))
        return found

    loop.TrainingLoop.train = timed  # type: ignore[method-assign]
    tidybert.finetune(
        pairs,
        "embed",
        work["model"],
        dev=0,
        out=work["out"],
        **{name: work[name] for name in ("train_batch_size", "max_seq_length", "learning_rate")},
        num_train_epochs=1,
        max_steps=work["max_steps"],
        seed=work["seed"],
    )
    return clock


def _theirs(pairs: list[Any], work: dict[str, Any]) -> dict[str, float]:
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer import losses

    from tidybert.catalog import find_model

    model = SentenceTransformer(str(find_model(work["model"])), device="cpu")
    model.max_seq_length = work["max_seq_length"]
    loss: Any = losses.CoSENTLoss(model)
    if len(pairs[0]) == 2:
        cached = losses.CachedMultipleNegativesRankingLoss
        loss = cached(model) if work["cached"] else losses.MultipleNegativesRankingLoss(model)
    columns = dict(zip(("anchor", "positive", "score"), zip(*pairs, strict=True), strict=False))
    arguments = SentenceTransformerTrainingArguments(
        output_dir=work["out"] + "-steps",
        num_train_epochs=1,
        max_steps=work["max_steps"] or -1,
        per_device_train_batch_size=work["train_batch_size"],
        learning_rate=work["learning_rate"],
        warmup_steps=0.1,
        seed=work["seed"],
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    data = Dataset.from_dict({name: list(column) for name, column in columns.items()})
    trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss)
    begin = time.perf_counter(), time.process_time()
    trainer.train()
    found = _since(begin)
    model.save_pretrained(work["out"])
    return found


def _since(begin: tuple[float, float]) -> dict[str, float]:
    seconds, cpu_seconds = time.perf_counter() - begin[0], time.process_time() - begin[1]
    return {"seconds": seconds, "cpu_seconds": cpu_seconds}


def score(model: str, data: str, max_seq_length: int) -> float:
    """Spearman's correlation on STS-B's dev part; nDCG@10 of questions to paragraphs on SQuAD."""
    from tidybert.inference.embedding import Embedder
    from tidybert.metrics.regression_scores import regression_metrics
    from tidybert.metrics.retrieval_scores import mean_scores, rank_relevant, retrieval_scores

    rows = DATA[data]("dev")
    embedder = Embedder(model, normalize=True, max_seq_length=max_seq_length)
    firsts, seconds = (list(dict.fromkeys(row[at] for row in rows)) for at in (0, 1))
    first_of, second_of = (
        dict(zip(texts, embedder.embed(texts), strict=True)) for texts in (firsts, seconds)
    )
    if data == "stsb":
        cosines = [float(first_of[one] @ second_of[other]) for one, other, _ in rows]
        return regression_metrics([row[2] for row in rows], cosines)["spearman"]
    right: dict[str, list[int]] = {}
    for question, paragraph in rows:
        right.setdefault(question, []).append(seconds.index(paragraph))
    found = rank_relevant(
        np.stack([first_of[each] for each in right]),
        np.stack([second_of[each] for each in seconds]),
        list(right.values()),
    )
    return mean_scores(retrieval_scores(found.ranks))["ndcg_at_10"]


def rows_of(given: argparse.Namespace) -> Iterator[list[str]]:
    """A row for the model as it is, and one for each side."""
    metric = "spearman" if given.data == "stsb" else "nDCG@10"
    before = score(given.model, given.data, given.max_seq_length)
    yield ["before", metric, f"{before:.4f}", "", "", "", ""]
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.rounds):
            for side in SIDES if number % 2 == 0 else SIDES[::-1]:
                out = str(Path(folder) / f"{side}-{number}")
                work = {**vars(given), "out": out, "seed": given.seed + number}
                each = run_apart(train, side, work, given.threads)
                each["score"] = score(out, given.data, given.max_seq_length)
                note(f"{side}: {each}")
                found[side].append(each)
    ratio = [
        theirs["cpu_seconds"] / ours["cpu_seconds"]
        for ours, theirs in zip(*found.values(), strict=True)
    ]
    for side, runs in found.items():
        middle = {name: median(each[name] for each in runs) for name in runs[0]}
        yield [
            side,
            metric,
            f"{middle['score']:.4f}",
            f"{middle['seconds']:.1f}",
            f"{middle['cpu_seconds']:.1f}",
            f"{median(ratio):.2f}" if side == "ours" else "1",
            f"{middle['peak_mib']:,.0f}",
        ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--train-batch-size", type=int, default=32)
    parser.add_argument("--max-steps", type=int, help="else one epoch")
    parser.add_argument("--max-seq-length", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--cached", action="store_true", help="their cached loss")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--write", type=Path, help="a page with markers of this table")
    given = parser.parse_args()
    page, given.write = given.write, None
    heads = ["side", "metric", "score", "s", "CPU s", "times as fast", "peak MiB"]
    show(markdown(heads, list(rows_of(given))), page, f"vectors-{given.data}")


if __name__ == "__main__":
    main()
