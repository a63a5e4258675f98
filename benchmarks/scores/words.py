"""What models know of words: words masked in sentences, pairs of words, and vocabularies."""

import argparse
import json
import lzma
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness import datasets, script
from tidybert import Embedder, MaskFiller
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.corpus.documents import read_documents
from tidybert.corpus.screening import HeldOut
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.corpus.tokenizing import split_sentences
from tidybert.errors import WeightsError
from tidybert.explain.explained_text import cosine, place_of
from tidybert.metrics.text_scores import regression_metrics
from tidybert.modeling import BertForPreTraining, Rows
from tidybert.tokenization import BasicTokenizer, BertTokenizer, Vocabulary
from tidybert.tokenization.learning.vocabulary_training import (
    WordCounts,
    measure_fit,
    train_vocabulary,
)
from tidybert.tokenization.vocabulary import UNK_TOKEN

SENTENCES: Final = Path(__file__).with_name("cloze.jsonl")


@dataclass(frozen=True)
class Sentence:
    """A text with one [MASK], its accepted words, and its kind."""

    text: str
    answers: Sequence[str]
    kind: str


@dataclass(frozen=True)
class Answer:
    """A model's answer: the rank of the best accepted word, and the words that it cannot answer."""

    sentence: Sentence
    rank: int | None
    not_one_piece: Sequence[str]


def read_sentences() -> list[Sentence]:
    return [Sentence(**json.loads(line)) for line in SENTENCES.read_text("utf-8").splitlines()]


def answered(filler: MaskFiller, sentences: Iterable[Sentence]) -> list[Answer]:
    """The model's answer to each sentence; a rank is 1 for the first, and None without any."""
    answers = []
    for sentence in sentences:
        pieces = {word: filler.tokenizer.tokenize(word) for word in sentence.answers}
        whole = [found[0] for found in pieces.values() if len(found) == 1 and found[0] != UNK_TOKEN]
        lost = [word for word, found in pieces.items() if len(found) > 1 or found[0] == UNK_TOKEN]
        (filled,) = filler.fill([sentence.text], top_k=filler.tokenizer.vocab_size)
        (mask,) = filled["masks"]
        words = [each["word"] for each in mask["words"]]
        rank = min((words.index(piece) + 1 for piece in whole), default=None)
        answers.append(Answer(sentence, rank, lost))
    return answers


def figures(answers: Sequence[Answer]) -> dict[str, float]:
    """The counts of answers, of each rank, and the mean reciprocal rank."""
    ranks = [one.rank or float("inf") for one in answers]
    within = {"first": 1, "first 5": 5, "first 10": 10}
    counts = {name: sum(rank <= most for rank in ranks) for name, most in within.items()}
    return {"sentences": len(ranks), **counts, "MRR": statistics.mean(1 / rank for rank in ranks)}


def cloze_table(answers: Sequence[Answer]) -> list[str]:
    """Markdown rows: the figures of each kind, in the order of the sentences, and of all."""
    rows = []
    for kind in (*dict.fromkeys(one.sentence.kind for one in answers), "all"):
        some = [one for one in answers if kind in (one.sentence.kind, "all")]
        *counts, mean = figures(some).values()
        rows.append([kind, *map(str, counts), f"{mean:.3f}"])
    return script.markdown(["kind", *figures(answers)], rows)


def lost_words(answers: Sequence[Answer]) -> str:
    """The words that the model cannot answer."""
    lost = [word for one in answers for word in one.not_one_piece]
    closed = sum(one.rank is None for one in answers)
    more = f" ({', '.join(lost)}); {closed} sentences have no other" if lost else ""
    return f"not a single piece of the vocabulary: {len(lost)} accepted words{more}"


def cloze(parser: argparse.ArgumentParser) -> None:
    """Ask a pre-trained model for the missing words of a hundred sentences.

    cloze.jsonl has twenty sentences of each kind, with their accepted words.  A sentence's rank is
    that of its best accepted word among all pieces of the vocabulary.  A sentence whose words are
    no single pieces counts as missed.
    """
    parser.add_argument("model", metavar="MODEL", help="a model with a masked-LM head")
    given = script.parse(parser, "write")
    answers = answered(MaskFiller(given.model, device="cpu"), read_sentences())
    script.show(cloze_table(answers), given.write, "cloze")
    print(lost_words(answers))


# --- tokens of held-out text

SHARE: Final = 0.15
MOST_TOKENS: Final = 128
_BATCH: Final = 64

Ids = npt.NDArray[np.int64]


def masked(ids: Ids, mask: int, numbers: np.random.Generator) -> tuple[Ids, Ids]:
    """The (N,) places drawn, without the ends, and the sequence with each one masked (N, T)."""
    count = max(1, round(SHARE * (len(ids) - 2)))
    places = 1 + numbers.choice(len(ids) - 2, size=count, replace=False)
    rows = np.repeat(ids[None], count, 0)
    rows[np.arange(count), places] = mask
    return places, rows


def named(model: ModelDirectory, given: list[str]) -> Iterator[bool]:
    """Of each token drawn from the texts, whether the likeliest one is right."""
    network, report = model.build(BertForPreTraining)
    if report.new:
        raise WeightsError(f"{model} lacks {', '.join(report.new)}: name a pre-trained MODEL")
    network.eval()
    tokenizer, numbers = model.tokenizer, np.random.default_rng(0)
    for text in given:
        ids = np.array(tokenizer.encode(text, max_seq_length=MOST_TOKENS).input_ids)
        if len(ids) == 2:
            continue
        places, rows = masked(ids, tokenizer.mask_token_id, numbers)
        for at in range(0, len(rows), _BATCH):
            some, part = places[at : at + _BATCH], rows[at : at + _BATCH]
            wanted = torch.from_numpy(some + len(ids) * np.arange(len(part)))
            with torch.inference_mode():
                found = network(Rows.from_lists(part.tolist()), masked_lm_positions=wanted)
            yield from (found.prediction_logits.argmax(-1).numpy() == ids[some]).tolist()


def masked_tokens(parser: argparse.ArgumentParser) -> None:
    """How many tokens of held-out text a model names, masked one at a time.

    The text is the held-out part of a corpus, in sequences of at most 128 of its tokens.  Of each
    15% of the tokens are drawn, and each is masked alone.  Models with different vocabularies name
    different tokens, so such rows compare roughly.
    """
    parser.add_argument("corpus", type=Path, metavar="CORPUS", help="what build-corpus wrote")
    parser.add_argument("--models", nargs="+", default=["tidybert-small"])
    script.add_number(parser, "num-texts", 400)
    given = script.parse(parser, "write")
    corpus, numbers = TokenCorpus(given.corpus, "held-out"), np.random.default_rng(0)
    ends = corpus.document_ends(np.arange(corpus.num_documents))
    starts = numbers.integers(ends[-1], size=given.num_texts)
    last = np.minimum(starts + MOST_TOKENS - 2, ends[np.searchsorted(ends, starts, "right")])
    read = [corpus.tokenizer().decode(ids.tolist()) for ids in corpus.tokens(starts, last)]
    rows = []
    for name in given.models:
        found = list(named(ModelDirectory.open(name), read))
        rows.append([Path(name).name, f"{len(found):,}", f"{100 * np.mean(found):.1f}"])
    table = script.markdown(["model", "tokens", "right, percent"], rows)
    script.show(table, given.write, "masked_tokens")


# --- pairs of words

SETS = {"WordSim-353": "words/EN-WS-353-ALL.txt", "SimLex-999": "words/EN-SIMLEX-999.txt"}
CORPUS = "corpus/wiki-short-00.txt.xz"
LENGTHS: Final = range(8, 41)

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
    found = {}
    for word, sentences in contexts.items():
        sums = 0.0
        for sentence, tokens in zip(sentences, embedder.embed_tokens(sentences), strict=True):
            start, end = place_of(word, sentence)
            spans = enumerate(zip(tokens.sequence_ids, tokens.offset_mapping, strict=True))
            pieces = [
                at for at, (side, span) in spans
                if side is not None and span[0] < end and span[1] > start
            ]  # fmt: skip
            sums = sums + tokens.vectors[pieces].mean(0)
        found[word] = (sums / np.float32(len(sentences))).reshape(len(embedder.layers), -1)
    return found


def spearman(pairs: Sequence[Pair], vectors: Mapping[str, Floats]) -> float:
    """Spearman's correlation of the judgements with the cosines of vectors (d,)."""
    cosines = [float(cosine(vectors[first], vectors[second])) for first, second, _ in pairs]
    return regression_metrics([score for *_, score in pairs], cosines)["spearman"]


def kinds_of_vectors(
    model: str, contexts: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, dict[str, Floats]]]:
    """Each kind of vector, and by word (H,)."""
    embedder = Embedder(model, layers="all", device="cpu", precision="float32")
    table = embedder.encoder.word_embeddings.weight.detach().numpy()
    pieces = embedder.tokenizer.encode_batch(list(contexts), add_special_tokens=False)
    static = np.stack([table[ids].mean(0) for ids in pieces])
    yield "word embeddings", dict(zip(contexts, static, strict=True))
    alone = layer_vectors(embedder, {word: [word] for word in contexts})
    yield "the word alone, last layer", {word: each[-1] for word, each in alone.items()}
    inside = layer_vectors(embedder, contexts)
    for layer in range(len(embedder.layers)):
        yield f"in sentences, layer {layer}", {word: each[layer] for word, each in inside.items()}


def word_pairs(parser: argparse.ArgumentParser) -> None:
    """Compare words by their vectors, and the answers with those of people: WordSim, SimLex.

    A score is Spearman's correlation of cosines with the mean judgement of people.  Vectors are the
    word embeddings, the states of the word alone, and the mean of its states in the first sentences
    of Wikipedia that have it, layer by layer (Bommasani et al. 2020, "Interpreting pretrained
    contextualized representations via reductions to static embeddings").
    """
    parser.add_argument("--models", nargs="+", default=["tidybert-small", "minilm"])
    script.add_number(parser, "contexts", 5, "sentences for each word")
    given = script.parse(parser, "write")
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
        [model, kind, *(f"{spearman(pairs, vectors):.3f}" for pairs in sets.values())]
        for model in given.models
        for kind, vectors in kinds_of_vectors(model, full)
    ]
    names = [f"{name}, {len(pairs)} pairs" for name, pairs in sets.items()]
    script.show(script.markdown(["model", "vectors", *names], rows), given.write, "word-pairs")


# --- vocabularies

SIZES: Final = (4000, 8000, 16000, 30522)


def theirs(files: Sequence[str], held_out: float, size: int) -> Vocabulary:
    """What the library learns by default."""
    from tokenizers import BertWordPieceTokenizer

    documents = HeldOut(held_out).rest(read_documents(files))
    lines = (line for document in documents for line in document)
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(lines, vocab_size=size, show_progress=False)
    ids = tokenizer.get_vocab()
    return Vocabulary(sorted(ids, key=ids.__getitem__))


def measurements(files: Sequence[str], sizes: Sequence[int], held_out: float) -> Iterator[Any]:
    """(size, side, seconds of learning, fit) of each vocabulary."""
    counts, held = WordCounts(BasicTokenizer()), HeldOut(held_out)

    def read() -> None:
        for document in held.rest(read_documents(files)):
            counts.add(document)
        counts.finish()

    _, reading, _ = script.timed(read)
    texts = [line for document in held.documents for line in document]
    for size in sizes:
        mine, seconds, _ = script.timed(partial(train_vocabulary, counts, size))
        fit = measure_fit(BertTokenizer(mine.vocabulary), texts)
        yield size, "tidybert", reading + seconds, fit
        other, seconds, _ = script.timed(partial(theirs, files, held_out, size))
        yield size, "tokenizers", seconds, measure_fit(BertTokenizer(other), texts)


def vocabulary(parser: argparse.ArgumentParser) -> None:
    """Tokens a word of learnt vocabularies on held-out text, beside the tokenizers library's.

    The library's is BertWordPieceTokenizer with its own normalisation and limits.  Without FILES,
    the corpus in the data folder is read.
    """
    parser.add_argument("files", nargs="*", metavar="FILE", help="text, as train-vocab reads it")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--held-out", type=float, default=0.005)
    given = parser.parse_args()
    files = given.files or [str(datasets.data_folder() / "corpus")]
    heads = ("size", "side", "tokens a word", "unknown words", "characters a token", "seconds")
    rows = []
    for size, side, seconds, fit in measurements(files, given.sizes, given.held_out):
        rates = f"{fit.pieces_per_word:.4f}", f"{fit.unknown_rate:.4%}"
        shown = *rates, f"{fit.characters_per_token:.3f}", f"{seconds:.0f}"
        rows.append((f"{size:,}", side, *shown))
        script.note(" ".join(rows[-1]))
    script.print_table(given, "Vocabularies on held-out text", {}, heads, rows)
