"""``tidybert extend-vocab``: a MODEL with pieces for the words of another domain."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_table
from tidybert.cli.vocabulary_reports import (
    CorpusArgument,
    HeldOutOption,
    count_words,
    described,
    print_fits,
)
from tidybert.corpus.documents import CorpusOptions
from tidybert.errors import DataError, UsageError

SHOWN_PIECES = 10


@takes(read=CorpusOptions)
def extend_vocab(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="As tidybert models lists.")],
    corpus: CorpusArgument,
    *,
    add: Annotated[int, typer.Option("--add", metavar="N", min=1, help="Pieces to add at most.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="New directory to write.")],
    held_out: HeldOutOption = 0.005,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read weights from a pickle of MODEL.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    read: CorpusOptions,
) -> None:
    """Give MODEL's vocabulary the pieces that shorten a corpus most, and write a new MODEL.

    They take the [unused] places first. Each begins as the mean of the pieces that it replaces;
    train the result further on the corpus, for it has not learnt them yet.
    """
    from tidybert.checkpoints.model_directory import ModelDirectory
    from tidybert.checkpoints.vocabulary_extension import ExtensibleModel
    from tidybert.corpus.held_out_documents import HeldOut
    from tidybert.tokenization import BasicTokenizer, BertTokenizer
    from tidybert.tokenization.learning.new_pieces import choose_pieces, extend_vocabulary
    from tidybert.tokenization.learning.quality import measure_fit

    if out.exists():
        raise UsageError(f"--out {out} is there already; name a new directory")
    held = HeldOut(held_out)
    directory = ModelDirectory.open(model)
    extensible = ExtensibleModel(directory, allow_pickle=allow_pickle)
    old = directory.tokenizer
    case = old.do_lower_case, old.strip_accents, old.tokenize_chinese_chars
    counts, report = count_words(corpus, read, BasicTokenizer(*case), held)
    pieces = choose_pieces(counts.words, old.vocabulary, add)
    if not pieces:
        raise DataError("no piece would shorten this corpus: the vocabulary fits it as it is")
    vocabulary, places = extend_vocabulary(old.vocabulary, pieces)
    new = BertTokenizer(vocabulary, case[0], strip_accents=case[1], tokenize_chinese_chars=case[2])
    replaces = {
        place: old.convert_tokens_to_ids(piece.replaces)
        for place, piece in zip(places, pieces, strict=True)
    }
    extensible.save(out, new, replaces)

    texts = [line for document in held.documents for line in document]
    rows = [(model, old.vocab_size, measure_fit(old, texts))]
    rows.append((str(out), new.vocab_size, measure_fit(new, texts)))
    num_appended = new.vocab_size - old.vocab_size
    if len(pieces) < add:
        note(f"{len(pieces):,} pieces, fewer than the {add:,} asked for: no other would save three")
    if json:
        print_json(
            {
                **described(rows[1]),
                "before": described(rows[0]),
                "documents": report.num_documents,
                "held_out_documents": len(held.documents) if held.is_apart else 0,
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
    print_fits(rows)
    note(
        f"{len(pieces) - num_appended:,} in [unused] places, {num_appended:,} appended; next: "
        f"train {out} further on the corpus"
    )
