"""``tidybert extend-vocab``: a MODEL with pieces for the words of another domain."""

from dataclasses import asdict, dataclass, field

from tidybert.cli import shared_flags as flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_table
from tidybert.cli.vocabulary_reports import (
    check_new,
    corpus_figures,
    count_words,
    described,
    measured,
    print_fits,
)
from tidybert.corpus.documents import CorpusOptions
from tidybert.errors import DataError

SHOWN_PIECES = 10


@dataclass(frozen=True, kw_only=True)
class ExtendVocabFlags(flags.NewDirectoryFlag, flags.HeldOutFlag, flags.PickleFlag, flags.JsonFlag):
    add: int = field(metadata={"min": 1})
    """``--add N``: Pieces to add at most."""


@takes(given=ExtendVocabFlags, read=CorpusOptions)
def extend_vocab(
    model: flags.ModelArgument,
    corpus: flags.CorpusArgument,
    *,
    given: ExtendVocabFlags,
    read: CorpusOptions,
) -> None:
    """Give MODEL's vocabulary the pieces that shorten a corpus most, and write a new MODEL.

    They take the [unused] places first. Each begins as the mean of the pieces that it replaces;
    train the new MODEL further on the corpus, so that it learns them.
    """
    from tidybert.checkpoints.model_directory import ModelDirectory
    from tidybert.checkpoints.vocabulary_extension import ExtensibleModel
    from tidybert.corpus.held_out_documents import HeldOut
    from tidybert.tokenization import BasicTokenizer, BertTokenizer
    from tidybert.tokenization.learning.new_pieces import choose_pieces, extend_vocabulary

    out, add = given.out, given.add
    check_new(out)
    held = HeldOut(given.held_out)
    directory = ModelDirectory.open(model)
    extensible = ExtensibleModel(directory, allow_pickle=given.allow_pickle)
    old = directory.tokenizer
    case = old.do_lower_case, old.strip_accents, old.tokenize_chinese_chars
    counts, report = count_words(corpus, read, BasicTokenizer(*case), held)
    pieces = choose_pieces(counts.words, old.vocabulary, add)
    if not pieces:
        raise DataError("no piece would shorten this corpus: the vocabulary fits it already")
    vocabulary, places = extend_vocabulary(old.vocabulary, pieces)
    new = BertTokenizer(vocabulary, case[0], strip_accents=case[1], tokenize_chinese_chars=case[2])
    replaces = {
        place: old.convert_tokens_to_ids(piece.replaces)
        for place, piece in zip(places, pieces, strict=True)
    }
    extensible.save(out, new, replaces)

    before, after = measured(model, old, held), measured(str(out), new, held)
    num_appended = new.vocab_size - old.vocab_size
    if len(pieces) < add:
        note(f"{len(pieces):,} pieces, fewer than the {add:,} asked for: no other would save three")
    if given.json:
        print_json(
            {
                **described(after),
                "before": described(before),
                **corpus_figures(report, held),
                "added": len(pieces),
                "appended": num_appended,
                "pieces": [asdict(piece) for piece in pieces],
            }
        )
        return
    shown = [(one.token, " ".join(one.replaces), f"{one.saved:,}") for one in pieces[:SHOWN_PIECES]]
    print_table({"new piece": "left", "for": "left", "pieces saved": "right"}, shown)
    if len(pieces) > len(shown):
        print(f"and {len(pieces) - len(shown):,} more")
    print()
    print_fits([before, after])
    note(
        f"{len(pieces) - num_appended:,} in [unused] places, {num_appended:,} appended; next: "
        f"train {out} further on the corpus"
    )
