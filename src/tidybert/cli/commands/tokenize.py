"""``tidybert tokenize``: a text, or a pair, as MODEL reads it."""

from dataclasses import dataclass
from typing import Annotated

import typer

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_table


@dataclass(frozen=True, kw_only=True)
class TokenizeFlags(flags.JsonFlag):
    max_seq_length: int | None = None
    """Most tokens of the text or pair; a longer one is cut. If not set: never cut."""


@takes(given=TokenizeFlags)
def tokenize(
    model: flags.ModelArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text.")],
    second: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The second text of a pair.")
    ] = None,
    *,
    given: TokenizeFlags,
) -> None:
    """Show the tokens of a text or a pair: ids, segments, positions, and places in the text.

    Special tokens such as [MASK] in the text count as such.
    """
    from tidybert.tokenization import BertTokenizer

    tokenizer = BertTokenizer.from_pretrained(model)
    encoding = tokenizer.encode(text, second, given.max_seq_length, special_tokens_in_text=True)
    sides = (text, second or "")
    rows = [
        {
            "position": position,
            "token": token,
            "id": index,
            "segment": segment,
            # [CLS] and [SEP] are in neither text.
            "start": None if side is None else span[0],
            "end": None if side is None else span[1],
            "text": None if side is None else sides[side][span[0] : span[1]],
        }
        for position, (token, index, segment, span, side) in enumerate(
            zip(
                encoding.tokens,
                encoding.input_ids,
                encoding.token_type_ids,
                encoding.offset_mapping,
                encoding.sequence_ids,
                strict=True,
            )
        )
    ]
    if given.json:
        counts = {"num_tokens": encoding.num_tokens, "truncated": encoding.truncated}
        print_json({"tokens": rows, **counts})
        return
    words = ("token", "text")
    print_table(
        {name: "left" if name in words else "right" for name in rows[0]},
        [["" if value is None else str(value) for value in row.values()] for row in rows],
    )
    if encoding.truncated:
        note(f"{encoding.num_tokens:,} tokens were cut to --max-seq-length {given.max_seq_length}")
