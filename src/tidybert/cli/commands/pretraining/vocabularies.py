"""``tidybert train-vocab`` and ``extend-vocab``: vocabularies from a corpus, and their fit."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_line, print_table
from tidybert.cli.progress import shown_reading
from tidybert.corpus.documents import CorpusOptions, CorpusReport, read_documents
from tidybert.errors import DataError
from tidybert.files.rows import count_of
from tidybert.options import option

if TYPE_CHECKING:
    from tidybert.corpus.screening import HeldOut
    from tidybert.tokenization import BertTokenizer
    from tidybert.tokenization.basic import BasicTokenizer
    from tidybert.tokenization.learning.vocabulary_training import Fit, LearntVocabulary, WordCounts

SHOWN_PIECES: Final = 10

# A vocabulary's name, its size, and how it fits the held-out text.
Measured = tuple[str, int, "Fit"]


@dataclass(frozen=True, kw_only=True)
class TrainVocabFlags(flags.NewDirectoryFlag, flags.HeldOutFlag, flags.JsonFlag):
    size: int = 30522
    """Tokens of the vocabulary, special tokens included."""
    cased: bool = False
    """``--cased/--uncased``: Keep capitals, or lowercase the text."""
    strip_accents: bool | None = None
    """``--strip-accents/--keep-accents``: Turn é into e, or keep it. If not set: as --cased or
    --uncased implies."""
    character_coverage: float = 0.999975
    """Fraction of the text whose characters get a token; the rarest get none."""
    compare: str | None = None
    """``--compare MODEL``: Also measure this model's vocabulary."""


@takes(given=TrainVocabFlags, read=CorpusOptions)
def train_vocab(
    corpus: flags.CorpusArgument, *, given: TrainVocabFlags, read: CorpusOptions
) -> None:
    """Learn a WordPiece vocabulary from a corpus of any size and write a tokenizer directory.

    Give DIR wherever --vocab takes a MODEL; transformers opens it too. The same corpus gives the
    same vocabulary.
    """
    with flags.new_directory(given.out):
        _train_vocab(corpus, given, read)


def _train_vocab(corpus: Sequence[str], given: TrainVocabFlags, read: CorpusOptions) -> None:
    from tidybert.corpus.screening import HeldOut
    from tidybert.storage.atomic_files import atomic_directory
    from tidybert.tokenization import BasicTokenizer, BertTokenizer
    from tidybert.tokenization.learning.vocabulary_training import check_training, train_vocabulary

    check_training(given.size, given.character_coverage)
    held = HeldOut(given.held_out)
    other = None if given.compare is None else BertTokenizer.from_pretrained(given.compare)
    case, accents = not given.cased, given.strip_accents
    counts, report = _count_words(corpus, read, BasicTokenizer(case, accents), held)
    note(f"learning from {len(counts.words):,} different words, {counts.num_words:,} in all")
    learnt = train_vocabulary(counts, given.size, character_coverage=given.character_coverage)
    tokenizer = BertTokenizer(learnt.vocabulary, case, strip_accents=accents)
    with atomic_directory(given.out) as directory:
        tokenizer.save(directory)
    note(*_notes(learnt, counts, given.size))

    fit = _measured(str(given.out), tokenizer, held)
    compared = None if other is None else _measured(str(given.compare), other, held)
    if not given.json:
        _print_fits([fit] if compared is None else [fit, compared])
        return
    print_json(
        {
            **_described(fit),
            **_corpus_figures(report, held),
            "words": counts.num_words,
            "different_words": len(counts.words),
            "words_left_out": learnt.num_left_out,
            "different_characters": learnt.num_characters,
            "characters_without_piece": len(learnt.dropped_characters),
            "compare": compared and _described(compared),
        }
    )


def _notes(learnt: "LearntVocabulary", counts: "WordCounts", size: int) -> Iterator[str]:
    """A line about each kind of word or character that the vocabulary leaves out."""
    from tidybert.tokenization.wordpiece import MAX_CHARS_PER_WORD

    if counts.num_too_long:
        yield (
            f"{count_of(counts.num_too_long, 'word')} of more than {MAX_CHARS_PER_WORD} characters "
            "will be [UNK]"
        )
    if dropped := learnt.dropped_characters:
        yield (
            f"{len(dropped):,} of {learnt.num_characters:,} different characters, the rarest, have "
            f"no token ({' '.join(dropped[:10])}{' …' if len(dropped) > 10 else ''}; ## is inside "
            f"a word); they occur {learnt.num_dropped:,} times; a larger --character-coverage or "
            "--size keeps more"
        )
    found = len(learnt.vocabulary)
    if found < size:
        yield (
            f"{found:,} tokens, fewer than the {size:,} asked for: no other two tokens "
            "occur together twice"
        )


@dataclass(frozen=True, kw_only=True)
class ExtendVocabFlags(flags.NewDirectoryFlag, flags.HeldOutFlag, flags.PickleFlag, flags.JsonFlag):
    add: int = option(at_least=1)
    """``--add N``: Tokens to add at most."""


@takes(given=ExtendVocabFlags, read=CorpusOptions)
def extend_vocab(
    model: flags.ModelArgument,
    corpus: flags.CorpusArgument,
    *,
    given: ExtendVocabFlags,
    read: CorpusOptions,
) -> None:
    """Give MODEL's vocabulary the tokens that shorten a corpus most, and write a new MODEL.

    They take the [unused] places first. Each begins as the mean of the tokens that it replaces;
    train the new MODEL further on the corpus, so that it learns them.
    """
    with flags.new_directory(given.out):
        _extend_vocab(model, corpus, given, read)


def _extend_vocab(
    model: str, corpus: Sequence[str], given: ExtendVocabFlags, read: CorpusOptions
) -> None:
    from tidybert.checkpoints.converting import ExtensibleModel
    from tidybert.checkpoints.model_directory import ModelDirectory
    from tidybert.corpus.screening import HeldOut
    from tidybert.tokenization import BasicTokenizer, BertTokenizer
    from tidybert.tokenization.learning.new_pieces import choose_pieces, extend_vocabulary

    out, add = given.out, given.add
    held = HeldOut(given.held_out)
    directory = ModelDirectory.open(model, allow_pickle=given.allow_pickle)
    old = directory.tokenizer
    old.require_wordpiece("extend-vocab")
    extensible = ExtensibleModel(directory)
    case = old.do_lower_case, old.strip_accents, old.tokenize_chinese_chars
    counts, report = _count_words(corpus, read, BasicTokenizer(*case), held)
    pieces = choose_pieces(counts.words, old.vocabulary, add)
    if not pieces:
        raise DataError("no token would shorten this corpus: the vocabulary fits it already")
    vocabulary, places = extend_vocabulary(old.vocabulary, pieces)
    new = BertTokenizer(vocabulary, case[0], strip_accents=case[1], tokenize_chinese_chars=case[2])
    replaces = {
        place: old.convert_tokens_to_ids(piece.replaces)
        for place, piece in zip(places, pieces, strict=True)
    }
    extensible.save(out, new, replaces)

    before, after = _measured(model, old, held), _measured(str(out), new, held)
    num_appended = new.vocab_size - old.vocab_size
    if len(pieces) < add:
        note(f"{len(pieces):,} tokens, fewer than the {add:,} asked for: no other would save three")
    if given.json:
        print_json(
            {
                **_described(after),
                "before": _described(before),
                **_corpus_figures(report, held),
                "added": len(pieces),
                "appended": num_appended,
                "pieces": [asdict(piece) for piece in pieces],
            }
        )
        return
    shown = [(one.token, " ".join(one.replaces), f"{one.saved:,}") for one in pieces[:SHOWN_PIECES]]
    print_table({"new token": "left", "for": "left", "tokens saved": "right"}, shown)
    if len(pieces) > len(shown):
        print_line(f"and {len(pieces) - len(shown):,} more")
    print_line()
    _print_fits([before, after])
    note(
        f"{len(pieces) - num_appended:,} in [unused] places, {num_appended:,} appended; next: "
        f"train {out} further on the corpus"
    )


def _count_words(
    corpus: Sequence[str], read: CorpusOptions, basic: "BasicTokenizer", held_out: "HeldOut"
) -> "tuple[WordCounts, CorpusReport]":
    """Count the words of the documents that are not held out, and show the reading's progress."""
    from tidybert.tokenization.learning.vocabulary_training import WordCounts

    report = CorpusReport()
    counts = WordCounts(basic)
    documents = read_documents(corpus, read, report=report)
    with shown_reading(report) as shown:
        for document in held_out.rest(shown(documents)):
            counts.add(document)
    counts.finish()
    note(*report.lines(str))
    if counts.num_forgotten:
        note(
            f"{counts.num_forgotten:,} of {counts.num_words:,} words are not counted, to bound the "
            f"memory: rare ones, none more than {counts.max_missed:,} times"
        )
    if held_out.is_apart:
        size = sum(len(line) for document in held_out.documents for line in document)
        kept = count_of(len(held_out.documents), "document")
        note(f"measured on {kept} held out, {size:,} characters")
    else:
        note("the corpus has one document: measured on the text that was learned from")
    return counts, report


def _measured(name: str, tokenizer: "BertTokenizer", held_out: "HeldOut") -> Measured:
    """How a vocabulary fits the held-out documents."""
    from tidybert.tokenization.learning.vocabulary_training import measure_fit

    texts = [line for document in held_out.documents for line in document]
    return name, tokenizer.vocab_size, measure_fit(tokenizer, texts)


def _corpus_figures(report: CorpusReport, held_out: "HeldOut") -> dict[str, int]:
    """The documents that were read and held out, for --json."""
    return {
        "documents": report.num_documents,
        "held_out_documents": len(held_out.documents) if held_out.is_apart else 0,
    }


def _described(measured: Measured) -> dict[str, Any]:
    """A vocabulary's figures for --json."""
    name, size, fit = measured
    return {"vocabulary": name, "size": size, **fit.figures()}


def _print_fits(rows: Sequence[Measured]) -> None:
    """Print a line for each vocabulary, named by the last part of its path."""
    columns = ("size", "characters a token", "tokens a word", "unknown words")
    print_table(
        {"vocabulary": "left", **dict.fromkeys(columns, "right")},
        [
            (
                Path(name).name,
                f"{size:,}",
                f"{fit.characters_per_token:.3f}",
                f"{fit.pieces_per_word:.3f}",
                f"{fit.unknown_rate:.4%}",
            )
            for name, size, fit in rows
        ],
    )
