"""Topics of texts whose classes are known: the number found, V-measure, ARI and processor seconds.

    python -m benchmarks topics --bertopic PYTHON --write benchmarks/NOTES.md

The six sets: BANKING77's test part; of it 20 and 40 classes, those with the least hash of the name;
the tickets; TREC's training part; and paragraphs of 200 characters or more of the 40 Wikipedia
articles with the least hash of the title, of those that have 20 such paragraphs, 50 of each at
most.  Seconds are the processor's, from texts to topics.  BERTopic has its defaults and the same
vectors, whose seconds count for it too; texts in no topic count as one more.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score, v_measure_score
from threadpoolctl import threadpool_limits

from benchmarks.harness import datasets, script
from tidybert.inference.embedding import Embedder
from tidybert.unlabelled.topic_tree import TopicTree
from tidybert.unlabelled.topics import Topics

SETS: Final = {
    "BANKING77": ("BANKING77", 77), "20 of its classes": ("BANKING77", 20),
    "40 of its classes": ("BANKING77", 40), "tickets": ("tickets", 3), "TREC": ("TREC", 6),
    "40 articles": ("articles", 40),
}  # fmt: skip
MODELS: Final = ("minilm", "tidybert-small")
_SPEED: Final = "Wikipedia, {:,}"

_BERTOPIC: Final = """
import json, sys, time, numpy as np
from bertopic import BERTopic
given = json.load(sys.stdin)
vectors = np.load(given["vectors"])
began = time.process_time()
found, _ = BERTopic().fit_transform(given["texts"], vectors)
seconds = time.process_time() - began
print(json.dumps({"labels": [int(each) for each in found], "seconds": seconds}))
"""


def labelled_texts(name: str) -> tuple[list[str], list[str]]:
    """The texts of a set, and the class of each."""
    data, classes = SETS[name]
    if data == "articles":
        rows = list(datasets.article_paragraphs(classes))
    else:
        parts = {"BANKING77": ["dev"], "TREC": ["train"]}.get(data, ["train", "dev"])
        rows = [(one.text, str(one.label)) for p in parts for one in datasets.examples_of(data, p)]
    kept = {*sorted({label for _, label in rows}, key=datasets.share_of)[:classes]}
    texts, labels = zip(*(row for row in rows if row[1] in kept), strict=True)
    return list(texts), list(labels)


def measured(name: str, model: str, bertopic: str | None) -> dict[str, Any]:
    """Both sides on one set."""
    texts, labels = labelled_texts(name)
    found: dict[str, Any] = {"texts": len(texts), "classes": len({*labels})}
    for side, (topics, seconds) in _sides(texts, model, bertopic).items():
        found[side] = {
            "number": len({*topics} - {-1}),
            "v_measure": float(v_measure_score(labels, topics)),
            "ari": float(adjusted_rand_score(labels, topics)),
            "left_out": float(np.mean(np.array(topics) == -1)),
            "seconds": seconds,
        }
    return found


def timed(count: int, model: str, bertopic: str | None) -> dict[str, Any]:
    """Both sides on as many lines of Wikipedia, whose topics nobody knows."""
    _, texts = datasets.wikipedia_lines(count)
    sides = _sides(texts, model, bertopic).items()
    found = {
        side: {"number": len({*topics} - {-1}), "seconds": seconds}
        for side, (topics, seconds) in sides
    }
    return {"texts": len(texts), **found}


def _sides(
    texts: Sequence[str], model: str, bertopic: str | None
) -> dict[str, tuple[list[int], float]]:
    """By side the topic of each text, and the processor's seconds."""
    torch.set_num_threads(1)
    with threadpool_limits(1):
        vectors, _, embedding = script.timed(lambda: Embedder(model).embed(texts))

        def ours() -> Topics:
            tree = TopicTree.of(vectors)
            topics = Topics(Embedder(model), texts, range(len(texts)), tree)
            assert topics.topics
            return topics

        topics, _, seconds = script.timed(ours)
    found = {"ours": (topics.labels.tolist(), round(embedding + seconds, 1))}
    if bertopic is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "vectors.npy"
            np.save(path, vectors)
            work = {"texts": list(texts), "vectors": str(path)}
            given = script.in_environment(bertopic, _BERTOPIC, work)
        found["BERTopic"] = (given["labels"], round(embedding + given["seconds"], 1))
    return found


def table(results: script.Results) -> list[str]:
    """Markdown rows: a set, and of each model and side number, V-measure, ARI and seconds."""
    rows = []
    for model in MODELS:
        lines = sorted(results.where(model=model), key=lambda line: "classes" not in line)
        known = [line for line in lines if "classes" in line]
        for line in lines:
            cells = []
            for side in ("ours", "BERTopic"):
                found = line.get(side)
                cells += _cells(found) if found else [""] * 4
            rows.append([model, line["data"], str(line.get("classes", "")), *cells])
        if known:
            means = []
            for side in ("ours", "BERTopic"):
                for key in ("v_measure", "ari"):
                    have = [line[side][key] for line in known if side in line]
                    means.append(f"{statistics.mean(have):.3f}" if have else "")
            rows.append([model, "mean of the sets", "", "", *means[:2], "", "", *means[2:], ""])
    figures = ["number", "V", "ARI", "seconds"]
    heads = ["model", "data", "classes", *figures, *(f"BERTopic's {one}" for one in figures)]
    return script.markdown(heads, rows)


def _cells(found: dict[str, Any]) -> list[str]:
    scores = [f"{found[key]:.3f}" if key in found else "" for key in ("v_measure", "ari")]
    return [f"{found['number']:,}", *scores, f"{found['seconds']:.1f}"]


def topics(parser: argparse.ArgumentParser) -> None:
    """Topics of texts whose classes are known, with one thread, beside BERTopic's defaults."""
    parser.add_argument("--bertopic", metavar="PYTHON", help="of an environment with BERTopic")
    parser.add_argument(
        "--lines", type=int, nargs="*", default=[], help="also time as many lines of Wikipedia"
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    given = script.parse(parser, "out write", out=Path("topics.jsonl"))
    if given.bertopic is None:
        script.note("without BERTopic: --bertopic names the Python of an environment that has it")
    results = script.Results(given.out)
    for model, name in product(given.models, SETS):
        key = {"data": name, "model": model}
        results.take(key, partial(measured, name, model, given.bertopic))
    for count in given.lines:
        key = {"data": _SPEED.format(count), "model": given.models[0]}
        results.take(key, partial(timed, count, given.models[0], given.bertopic))
    script.show(table(results), given.write, "topics")
