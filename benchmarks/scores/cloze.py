"""Ask a pre-trained model for the missing words of a hundred sentences.

    python -m benchmarks cloze tidybert-small --write docs/own-model.md

cloze.jsonl has twenty sentences of each kind, with their accepted words.  A sentence's rank is that
of its best accepted word among all pieces of the vocabulary.  The table counts the sentences with
rank 1, at most 5 and at most 10, and gives the mean reciprocal rank (MRR).  The script reports each
word that is not one piece of the vocabulary.  A sentence with only these words counts as missed,
with the reciprocal rank 0.
"""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.rounds import script_parser
from benchmarks.harness.tables import markdown, show
from tidybert import MaskFiller
from tidybert.tokenization.vocabulary import UNK_TOKEN

SENTENCES = Path(__file__).with_suffix(".jsonl")
NUM_GUESSES = 5


@dataclass(frozen=True)
class Sentence:
    """A text with one [MASK], its accepted words, and its kind."""

    text: str
    answers: tuple[str, ...]
    kind: str


@dataclass(frozen=True)
class Answer:
    """How a model answered a sentence.

    rank: that of the best accepted word, 1 for the first; None if it can answer none of them.
    guesses: the likeliest words.  not_one_piece: the accepted words that it cannot answer.
    """

    sentence: Sentence
    rank: int | None
    guesses: tuple[str, ...]
    not_one_piece: tuple[str, ...]

    def is_within(self, rank: int) -> bool:
        """Whether an accepted word is among the first ``rank``."""
        return self.rank is not None and self.rank <= rank


def read_sentences(path: Path = SENTENCES) -> list[Sentence]:
    """The sentences of a file of JSON lines."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [Sentence(one["text"], tuple(one["answers"]), one["kind"]) for one in lines]


def answered(filler: MaskFiller, sentences: Iterable[Sentence]) -> list[Answer]:
    """The model's answer to each sentence."""
    answers = []
    for sentence in sentences:
        pieces = {word: filler.tokenizer.tokenize(word) for word in sentence.answers}
        whole = {word: found[0] for word, found in pieces.items() if is_one(found)}
        (filled,) = filler.fill([sentence.text], top_k=filler.tokenizer.vocab_size)
        (mask,) = filled["masks"]
        words = [each["word"] for each in mask["words"]]
        ranks = [words.index(piece) + 1 for piece in whole.values()]
        answers.append(
            Answer(
                sentence,
                min(ranks, default=None),
                tuple(words[:NUM_GUESSES]),
                tuple(word for word in sentence.answers if word not in whole),
            )
        )
    return answers


def is_one(pieces: Sequence[str]) -> bool:
    """Whether a word is a piece of the vocabulary."""
    return len(pieces) == 1 and pieces[0] != UNK_TOKEN


def figures(answers: Sequence[Answer]) -> dict[str, float]:
    """The counts of answers, of each rank, and the mean reciprocal rank."""
    return {
        "sentences": len(answers),
        "first": sum(one.is_within(1) for one in answers),
        "first 5": sum(one.is_within(5) for one in answers),
        "first 10": sum(one.is_within(10) for one in answers),
        "MRR": statistics.mean(1 / one.rank if one.rank else 0.0 for one in answers),
    }


def by_kind(answers: Sequence[Answer]) -> dict[str, dict[str, float]]:
    """The figures of each kind, in the order of the sentences, and of all."""
    kinds = dict.fromkeys(one.sentence.kind for one in answers)
    found = {kind: figures([one for one in answers if one.sentence.kind == kind]) for kind in kinds}
    return {**found, "all": figures(answers)}


def table(answers: Sequence[Answer]) -> list[str]:
    """Markdown rows: a kind's figures."""
    found = by_kind(answers)
    rows = []
    for kind, numbers in found.items():
        *counts, mean = numbers.values()
        rows.append([kind, *map(str, counts), f"{mean:.3f}"])
    return markdown(["kind", *found["all"]], rows)


def listed(answers: Sequence[Answer]) -> list[str]:
    """Hits, misses, and the words that the model cannot answer."""
    lines = []
    for heading, is_hit in (("first", True), ("not first", False)):
        lines += ["", f"{heading}:"]
        for one in answers:
            if one.is_within(1) == is_hit:
                expected = "" if is_hit else f" ({'/'.join(one.sentence.answers)}: {one.rank})"
                lines.append(f"  {one.sentence.text} {', '.join(one.guesses)}{expected}")
    lost = [word for one in answers for word in one.not_one_piece]
    closed = sum(one.rank is None for one in answers)
    lines += [
        "",
        f"not a single piece of the vocabulary: {len(lost)} accepted words"
        + (f" ({', '.join(lost)}); {closed} sentences have no other" if lost else ""),
    ]
    return lines


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("model", metavar="MODEL", help="a model with a masked-LM head")
    parser.add_argument("--write", type=Path, help="page whose table is replaced")
    given = parser.parse_args()
    answers = answered(MaskFiller(given.model, device="cpu"), read_sentences())
    show(table(answers), given.write, "cloze")
    print("\n".join(listed(answers)))
