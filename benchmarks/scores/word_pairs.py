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

import argparse
import lzma
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.harness import datasets, script
from tidybert import Embedder
from tidybert.corpus.tokenizing import split_sentences
from tidybert.explain.explained_text import cosine, place_of
from tidybert.explain.layer_states import word_vectors
from tidybert.metrics.text_scores import regression_metrics

SETS = {"WordSim-353": "words/EN-WS-353-ALL.txt", "SimLex-999": "words/EN-SIMLEX-999.txt"}
CORPUS = "corpus/wiki-short-00.txt.xz"
LENGTHS: Final = range(8, 41)
_CHUNK: Final = 256
"""Sentences whose vectors are in memory at once."""

Floats = npt.NDArray[np.float32]
Pair = tuple[str, str, float]
"""Two words and the mean judgement of people."""


def find_contexts(
    words: Iterable[str], sentences: Iterable[str], count: int
) -> dict[str, list[str]]:
    """The first ``count`` sentences that have each word; fewer where there are no more."""
    found: dict[str, list[str]] = {word: [] for word in words}
    wanted = {word.lower(): word for word in found}
    for sentence in sentences:
        if not wanted:
            break
        present = [each.lower() for each in re.findall(r"\w+", sentence)]
        if len(present) not in LENGTHS:
            continue
        for each in wanted.keys() & set(present):
            contexts = found[wanted[each]]
            contexts.append(sentence)
            if len(contexts) == count:
                del wanted[each]
    return found


def layer_vectors(embedder: Embedder, contexts: Mapping[str, Sequence[str]]) -> dict[str, Floats]:
    """By word (L + 1, H): the mean over its sentences and its pieces there, in each layer."""
    jobs = [(word, sentence) for word, sentences in contexts.items() for sentence in sentences]
    sums: dict[str, Floats] = {}
    for begin in range(0, len(jobs), _CHUNK):
        part = jobs[begin : begin + _CHUNK]
        vectors = embedder.embed_tokens([sentence for _, sentence in part])
        for (word, sentence), tokens in zip(part, vectors, strict=True):
            start, end = place_of(word, sentence)
            spans = enumerate(zip(tokens.sequence_ids, tokens.offset_mapping, strict=True))
            pieces = [
                at for at, (side, span) in spans
                if side is not None and span[0] < end and span[1] > start
            ]  # fmt: skip
            sums[word] = sums.get(word, np.float32(0)) + tokens.vectors[pieces].mean(0)
    shape = (len(embedder.layers), -1)
    return {
        word: (each / np.float32(len(contexts[word]))).reshape(shape) for word, each in sums.items()
    }


def static_vectors(embedder: Embedder, words: Sequence[str]) -> dict[str, Floats]:
    """By word (H,): the mean of its pieces' word embeddings."""
    table = embedder.encoder.word_embeddings.weight.detach().numpy()
    return dict(zip(words, word_vectors(table, embedder.tokenizer, words), strict=True))


def spearman(pairs: Sequence[Pair], vectors: Mapping[str, Floats]) -> float:
    """Spearman's correlation of the judgements with the cosines of vectors (d,)."""
    cosines = [float(cosine(vectors[first], vectors[second])) for first, second, _ in pairs]
    return regression_metrics([score for *_, score in pairs], cosines)["spearman"]


def scores(
    model: str, sets: Mapping[str, Sequence[Pair]], contexts: Mapping[str, Sequence[str]]
) -> dict[str, list[float]]:
    """By kind of vector, the score on each set."""
    embedder = Embedder(model, layers="all", device="cpu", precision="float32")
    last = len(embedder.layers) - 1
    alone = layer_vectors(embedder, {word: [word] for word in contexts})
    inside = layer_vectors(embedder, contexts)
    kinds = {"word embeddings": static_vectors(embedder, list(contexts))}
    kinds["the word alone, last layer"] = {word: each[last] for word, each in alone.items()}
    for layer in range(last + 1):
        kinds[f"in sentences, layer {layer}"] = {word: each[layer] for word, each in inside.items()}
    return {
        kind: [spearman(pairs, vectors) for pairs in sets.values()]
        for kind, vectors in kinds.items()
    }


def main(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", default=["tidybert-small", "minilm"])
    parser.add_argument("--contexts", type=int, default=5, help="sentences for each word")
    script.add_flags(parser, "write")
    given = parser.parse_args()
    data, all_pairs = datasets.data_folder(), {}
    for name, path in SETS.items():
        lines = (line.split("\t") for line in (data / path).read_text("utf-8").splitlines())
        all_pairs[name] = [(first, second, float(score)) for first, second, score in lines]
    words = [word for pairs in all_pairs.values() for pair in pairs for word in pair[:2]]
    with lzma.open(data / CORPUS, "rt", encoding="utf-8") as file:
        sentences = chain.from_iterable(map(split_sentences, file))
        contexts = find_contexts(words, sentences, given.contexts)
    full = {word: each for word, each in contexts.items() if len(each) == given.contexts}
    sets = {
        name: [pair for pair in pairs if pair[0] in full and pair[1] in full]
        for name, pairs in all_pairs.items()
    }
    for name, pairs in sets.items():
        print(f"{name}: {len(pairs)} of {len(all_pairs[name])} pairs")
    rows = [
        ["" if number else model, kind, *(f"{each:.3f}" for each in values)]
        for model in given.models
        for number, (kind, values) in enumerate(scores(model, sets, full).items())
    ]
    names = [f"{name}, {len(pairs)} pairs" for name, pairs in sets.items()]
    script.show(script.markdown(["model", "vectors", *names], rows), given.write, "word-pairs")
