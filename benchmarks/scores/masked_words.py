"""What a pre-trained model says for masked words: of a hundred sentences, and of held-out text."""

import argparse
import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness import script
from tidybert import MaskFiller
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import WeightsError
from tidybert.modeling import BertForPreTraining, Rows
from tidybert.tokenization.vocabulary import UNK_TOKEN

SENTENCES: Final = Path(__file__).with_name("cloze.jsonl")
NUM_GUESSES: Final = 5


@dataclass(frozen=True)
class Sentence:
    """A text with one [MASK], its accepted words, and its kind."""

    text: str
    answers: Sequence[str]
    kind: str


@dataclass(frozen=True)
class Answer:
    """How a model answered a sentence.

    rank: that of the best accepted word, 1 for the first; None if it can answer none of them.
    guesses: the likeliest words.  not_one_piece: the accepted words that it cannot answer.
    """

    sentence: Sentence
    rank: int | None
    guesses: Sequence[str]
    not_one_piece: Sequence[str]


def read_sentences() -> list[Sentence]:
    """The hundred sentences."""
    return [Sentence(**json.loads(line)) for line in SENTENCES.read_text("utf-8").splitlines()]


def answered(filler: MaskFiller, sentences: Iterable[Sentence]) -> list[Answer]:
    """The model's answer to each sentence."""
    answers = []
    for sentence in sentences:
        pieces = {word: filler.tokenizer.tokenize(word) for word in sentence.answers}
        whole = [found[0] for found in pieces.values() if len(found) == 1 and found[0] != UNK_TOKEN]
        lost = [word for word, found in pieces.items() if len(found) > 1 or found[0] == UNK_TOKEN]
        (filled,) = filler.fill([sentence.text], top_k=filler.tokenizer.vocab_size)
        (mask,) = filled["masks"]
        words = [each["word"] for each in mask["words"]]
        rank = min((words.index(piece) + 1 for piece in whole), default=None)
        answers.append(Answer(sentence, rank, words[:NUM_GUESSES], lost))
    return answers


def figures(answers: Sequence[Answer]) -> dict[str, float]:
    """The counts of answers, of each rank, and the mean reciprocal rank."""
    ranks = [one.rank or float("inf") for one in answers]
    within = {"first": 1, "first 5": 5, "first 10": 10}
    counts = {name: sum(rank <= most for rank in ranks) for name, most in within.items()}
    return {"sentences": len(ranks), **counts, "MRR": statistics.mean(1 / rank for rank in ranks)}


def by_kind(answers: Sequence[Answer]) -> dict[str, dict[str, float]]:
    """The figures of each kind, in the order of the sentences, and of all."""
    kinds = dict.fromkeys(one.sentence.kind for one in answers)
    found = {kind: figures([one for one in answers if one.sentence.kind == kind]) for kind in kinds}
    return {**found, "all": figures(answers)}


def cloze_table(answers: Sequence[Answer]) -> list[str]:
    """Markdown rows: a kind's figures."""
    found, rows = by_kind(answers), []
    for kind, numbers in found.items():
        *counts, mean = numbers.values()
        rows.append([kind, *map(str, counts), f"{mean:.3f}"])
    return script.markdown(["kind", *found["all"]], rows)


def listed(answers: Sequence[Answer]) -> list[str]:
    """Hits, misses, and the words that the model cannot answer."""
    lines = []
    for heading, is_hit in (("first", True), ("not first", False)):
        lines += ["", f"{heading}:"]
        for one in answers:
            if (one.rank == 1) == is_hit:
                expected = "" if is_hit else f" ({'/'.join(one.sentence.answers)}: {one.rank})"
                lines.append(f"  {one.sentence.text} {', '.join(one.guesses)}{expected}")
    lost = [word for one in answers for word in one.not_one_piece]
    closed = sum(one.rank is None for one in answers)
    more = f" ({', '.join(lost)}); {closed} sentences have no other" if lost else ""
    said = f"not a single piece of the vocabulary: {len(lost)} accepted words{more}"
    return [*lines, "", said]


def cloze(parser: argparse.ArgumentParser) -> None:
    """Ask a pre-trained model for the missing words of a hundred sentences.

        python -m benchmarks cloze tidybert-small --write docs/own-model.md

    cloze.jsonl has twenty sentences of each kind, with their accepted words.  A sentence's rank is
    that of its best accepted word among all pieces of the vocabulary.  The table counts the
    sentences with rank 1, at most 5 and at most 10, and gives the mean reciprocal rank (MRR).  The
    script reports each word that is not one piece of the vocabulary.  A sentence with only these
    words counts as missed, with the reciprocal rank 0.
    """
    parser.add_argument("model", metavar="MODEL", help="a model with a masked-LM head")
    script.add_flags(parser, "write")
    given = parser.parse_args()
    answers = answered(MaskFiller(given.model, device="cpu"), read_sentences())
    script.show(cloze_table(answers), given.write, "cloze")
    print("\n".join(listed(answers)))


# --- tokens of held-out text

SHARE: Final = 0.15
MOST_TOKENS: Final = 128
_BATCH: Final = 64

Ids = npt.NDArray[np.int64]


def held_out_texts(corpus: TokenCorpus, count: int) -> list[str]:
    """Texts of the corpus, each of at most 126 of its tokens."""
    numbers, tokenizer = np.random.default_rng(0), corpus.tokenizer()
    ends = corpus.document_ends(np.arange(corpus.num_documents))
    starts = numbers.integers(ends[-1], size=count)
    last = np.minimum(starts + MOST_TOKENS - 2, ends[np.searchsorted(ends, starts, "right")])
    return [tokenizer.decode(ids.tolist()) for ids in corpus.tokens(starts, last)]


def masked(ids: Ids, mask: int, numbers: np.random.Generator) -> tuple[Ids, Ids]:
    """The (N,) places drawn, without the ends, and the sequence with each one masked (N, T)."""
    count = max(1, round(SHARE * (len(ids) - 2)))
    places = 1 + numbers.choice(len(ids) - 2, size=count, replace=False)
    rows = np.repeat(ids[None], count, 0)
    rows[np.arange(count), places] = mask
    return places, rows


def named(model: ModelDirectory, given: list[str]) -> Iterator[bool]:
    """Of each token drawn from the texts, whether the likeliest one is right.

    Raises WeightsError if the model lacks a head of pre-training.
    """
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

        python -m benchmarks masked_tokens CORPUS --models tidybert-small --write docs/own-model.md

    The text is the held-out part of a corpus, in sequences of at most 128 of its tokens, from
    documents drawn by their length.  Of each sequence 15% of the tokens are drawn, and each is
    masked alone: the model sees all others, as in a user's text.  Pre-training's own figure masks
    them all at once, and its recipe more of them.  Models with different vocabularies name
    different tokens, so such rows compare roughly.
    """
    parser.add_argument("corpus", type=Path, metavar="CORPUS", help="what build-corpus wrote")
    parser.add_argument("--models", nargs="+", default=["tidybert-small"])
    parser.add_argument("--num-texts", type=script.at_least(1), default=400)
    script.add_flags(parser, "write")
    given = parser.parse_args()
    read = held_out_texts(TokenCorpus(given.corpus, "held-out"), given.num_texts)
    rows = []
    for name in given.models:
        found = list(named(ModelDirectory.open(name), read))
        rows.append([Path(name).name, f"{len(found):,}", f"{100 * np.mean(found):.1f}"])
    table = script.markdown(["model", "tokens", "right, percent"], rows)
    script.show(table, given.write, "masked_tokens")
