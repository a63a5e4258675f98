"""What sentence vectors are trained and measured on, and their score as ``evaluate`` gives it."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.harness.datasets import data_folder, examples_of

_QUESTIONS: Final = 500
"""Questions of SQuAD to measure on."""
_ARTICLES: Final = 0.8
"""Share of SQuAD's articles to train on."""
_PAIRS: Final = 1024

Rows = Sequence[tuple[Any, ...]]


def _shuffled(rows: Rows) -> Rows:
    return [rows[at] for at in np.random.default_rng(0).permutation(len(rows))]


def stsb(part: str) -> Rows:
    """Pairs of STS-B with scores from 0 to 1, in a random order: the file's is by source."""
    (file,) = (data_folder() / "glue" / "STS-B").glob(f"*{part}*.csv")
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    return _shuffled([(row[5], row[6], float(row[4]) / 5) for row in rows])


def squad(part: str) -> Rows:
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
    shuffled = _shuffled(pairs)
    return shuffled if part == "train" else shuffled[:_QUESTIONS]


def banking77(part: str) -> Rows:
    """Questions of BANKING77 with the numbers of their 77 intents, in a random order."""
    names = sorted({one.label for one in examples_of("BANKING77", "train")})
    examples = examples_of("BANKING77", part)
    return _shuffled([(one.text, names.index(one.label)) for one in examples])


def full(part: str) -> Rows:
    """Pairs of random words, each text longer than 128 tokens; nothing to measure on."""
    from tidybert.tokenization import BertTokenizer

    random = np.random.default_rng(0)
    tokens = BertTokenizer.from_pretrained("minilm").vocabulary.tokens[2000:20_000]
    words = [each for each in tokens if each.isalpha()]
    texts = [" ".join(random.choice(words, 140)) for _ in range(2 * _PAIRS)]
    return list(zip(texts[::2], texts[1::2], strict=True)) if part == "train" else []


DATA: Final[Mapping[str, Callable[[str], Rows]]] = {
    "stsb": stsb,
    "squad": squad,
    "banking77": banking77,
    "full": full,
}
METRICS: Final = {"stsb": "spearman", "squad": "ndcg_at_10", "banking77": "map"}


def score(model: str | Path, data: str, max_seq_length: int) -> float:
    """The metric of the data's dev part that ``tidybert evaluate`` gives for a model's vectors."""
    from tidybert.inference.embedding import Embedder
    from tidybert.tasks.labelled_examples import load_data
    from tidybert.tasks.vectors.sentence_vectors import SentenceVectors

    examples = load_data(list(DATA[data]("dev")), "embed")
    embedder, task = Embedder(model, max_seq_length=max_seq_length), SentenceVectors()
    texts = list(dict.fromkeys(text for one in examples for text in one.texts))
    vector_of = dict(zip(texts, embedder.embed(texts), strict=True))
    outputs = [np.stack([vector_of[text] for text in one.texts]) for one in examples]
    features = task.features(examples, embedder.tokenizer, max_seq_length)
    return float(task.answers(outputs, features, examples).metrics()[METRICS[data]])
