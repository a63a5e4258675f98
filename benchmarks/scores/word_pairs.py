"""Compare words by their vectors, and the answers with those of people: WordSim-353, SimLex-999.

    python -m benchmarks word_pairs --models tidybert-small minilm --write docs/explain.md

A pair's similarity is the cosine of its words' vectors; a score is Spearman's correlation with the
mean judgement of people.  Vectors are the word embeddings (a word of several pieces has their
mean), the states of the word alone between [CLS] and [SEP], and the mean of the word's states in
some sentences, layer by layer (Bommasani et al. 2020, "Interpreting pretrained contextualized
representations via reductions to static embeddings").  The sentences are the first of short
Wikipedia articles with 8 to 40 words that have the word in this form.  All rows compare the same
pairs; the script says how many it leaves out because a word has too few sentences.
"""

import lzma
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.harness.datasets import data_folder
from benchmarks.harness.rounds import script_parser
from benchmarks.harness.tables import markdown, show
from tidybert import Embedder
from tidybert.corpus.tokenizing import split_sentences
from tidybert.explain.explained_text import cosine, place_of
from tidybert.explain.layer_states import word_vectors
from tidybert.inference.embedding import TokenVectors
from tidybert.metrics.text_scores import regression_metrics

SETS = {"WordSim-353": "words/EN-WS-353-ALL.txt", "SimLex-999": "words/EN-SIMLEX-999.txt"}
CORPUS = "corpus/wiki-short-00.txt.xz"
LENGTHS = range(8, 41)
# Sentences whose vectors are in memory at once.
CHUNK = 256

Floats = npt.NDArray[np.float32]
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Pair:
    """Two words and the mean judgement of people."""

    first: str
    second: str
    score: float


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a file: two words and a score a line, with tabs between them."""
    lines = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return [Pair(first, second, float(score)) for first, second, score in lines]


def corpus_sentences(path: Path) -> Iterator[str]:
    """The sentences of a corpus, in order."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield from split_sentences(line)


def find_contexts(
    words: Iterable[str], sentences: Iterable[str], count: int
) -> dict[str, list[str]]:
    """The first ``count`` sentences that have each word; fewer where there are no more."""
    found: dict[str, list[str]] = {word: [] for word in words}
    wanted = {word.lower(): word for word in found}
    for sentence in sentences:
        if not wanted:
            break
        present = [each.lower() for each in _WORD.findall(sentence)]
        if len(present) not in LENGTHS:
            continue
        for each in wanted.keys() & set(present):
            contexts = found[wanted[each]]
            contexts.append(sentence)
            if len(contexts) == count:
                del wanted[each]
    return found


def word_vector(word: str, sentence: str, tokens: TokenVectors) -> Floats:
    """(d,): the mean over the pieces of a word's first place in a sentence."""
    start, end = place_of(word, sentence)
    pieces = [
        at
        for at, (side, span) in enumerate(
            zip(tokens.sequence_ids, tokens.offset_mapping, strict=True)
        )
        if side is not None and span[0] < end and span[1] > start
    ]
    found: Floats = tokens.vectors[pieces].mean(0)
    return found


def layer_vectors(embedder: Embedder, contexts: Mapping[str, Sequence[str]]) -> dict[str, Floats]:
    """By word (L + 1, H): the mean over its sentences, in each layer."""
    jobs = [(word, sentence) for word, sentences in contexts.items() for sentence in sentences]
    sums: dict[str, Floats] = {}
    for begin in range(0, len(jobs), CHUNK):
        part = jobs[begin : begin + CHUNK]
        vectors = embedder.embed_tokens([sentence for _, sentence in part])
        for (word, sentence), tokens in zip(part, vectors, strict=True):
            one = word_vector(word, sentence, tokens)
            sums[word] = sums.get(word, np.zeros_like(one)) + one
    layers = len(embedder.layers)
    means = {word: each / np.float32(len(contexts[word])) for word, each in sums.items()}
    return {word: each.reshape(layers, -1) for word, each in means.items()}


def static_vectors(embedder: Embedder, words: Sequence[str]) -> dict[str, Floats]:
    """By word (H,): the mean of its pieces' word embeddings."""
    table = embedder.encoder.word_embeddings.weight.detach().numpy()
    vectors = word_vectors(table, embedder.tokenizer, words)
    return dict(zip(words, vectors, strict=True))


def spearman(pairs: Sequence[Pair], vectors: Mapping[str, Floats]) -> float:
    """Spearman's correlation of the judgements with the cosines of vectors (d,)."""
    cosines = [float(cosine(vectors[one.first], vectors[one.second])) for one in pairs]
    return regression_metrics([one.score for one in pairs], cosines)["spearman"]


def scores(
    model: str, sets: Mapping[str, Sequence[Pair]], contexts: Mapping[str, Sequence[str]]
) -> dict[str, list[float]]:
    """By kind of vector, the score on each set."""
    embedder = Embedder(model, layers="all", device="cpu", precision="float32")
    last = len(embedder.layers) - 1
    static = static_vectors(embedder, list(contexts))
    alone = layer_vectors(embedder, {word: [word] for word in contexts})
    inside = layer_vectors(embedder, contexts)
    kinds = {"word embeddings": static}
    kinds["the word alone, last layer"] = {word: each[last] for word, each in alone.items()}
    for layer in range(last + 1):
        kinds[f"in sentences, layer {layer}"] = {word: each[layer] for word, each in inside.items()}
    return {
        kind: [spearman(pairs, vectors) for pairs in sets.values()]
        for kind, vectors in kinds.items()
    }


def table(names: Sequence[str], found: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    """Markdown rows: a kind of vector of a model, and its scores."""
    rows = [
        ["" if number else model, kind, *(f"{each:.3f}" for each in values)]
        for model, kinds in found.items()
        for number, (kind, values) in enumerate(kinds.items())
    ]
    return markdown(["model", "vectors", *names], rows)


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=["tidybert-small", "minilm"])
    parser.add_argument("--contexts", type=int, default=5, help="sentences for each word")
    parser.add_argument("--write", type=Path, help="page whose table is replaced")
    given = parser.parse_args()
    data = data_folder()
    all_pairs = {name: read_pairs(data / path) for name, path in SETS.items()}
    words = [
        word for pairs in all_pairs.values() for one in pairs for word in (one.first, one.second)
    ]
    contexts = find_contexts(words, corpus_sentences(data / CORPUS), given.contexts)
    full = {word: each for word, each in contexts.items() if len(each) == given.contexts}
    sets = {
        name: [one for one in pairs if one.first in full and one.second in full]
        for name, pairs in all_pairs.items()
    }
    for name, pairs in sets.items():
        print(f"{name}: {len(pairs)} of {len(all_pairs[name])} pairs")
    found = {model: scores(model, sets, full) for model in given.models}
    names = [f"{name}, {len(pairs)} pairs" for name, pairs in sets.items()]
    show(table(names, found), given.write, "word-pairs")
