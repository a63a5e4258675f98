"""``tidybert attention``: where the pieces of a text look, in one head or in all."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import check_picture, print_json, print_line, write_picture
from tidybert.errors import UsageError

if TYPE_CHECKING:
    from tidybert.explain.explained_text import Shown

# The queries, keys and values are for Python.
_IN_JSON: Final = ("text", "text_pair", "encoding", "layer", "head", "causal", "scores", "probs")


@dataclass(frozen=True, kw_only=True)
class AttentionFlags(flags.PickleFlag, flags.ThreadsFlag, flags.JsonFlag):
    layer: int | None = None
    """Layer to show, from 1; with --head. If not set: all layers and heads."""
    head: int | None = None
    """Head to show, from 1; with --layer."""
    causal: bool = False
    """``--causal``: Let a token see only itself and the tokens before it."""
    out: Path | None = None
    """``--out FILE``: Also write a picture: F.svg, or F.html with the table."""


@takes(given=AttentionFlags)
def attention(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A MODEL or a RUN.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text.")],
    second: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The second text of a pair.")
    ] = None,
    *,
    given: AttentionFlags,
) -> None:
    """Show where each token of a text looks: one matrix, or a summary of all heads.

    Special tokens such as [MASK] in the text count as such.
    """
    if (given.layer is None) != (given.head is None):
        raise UsageError("--layer and --head name one matrix together; give both, or neither")
    check_picture("--out", given.out)
    from tidybert.explain import Explainer

    explainer = Explainer(model, allow_pickle=given.allow_pickle)
    found = explainer.attention(text, second, causal=given.causal)
    shown: Shown = found
    if given.layer is not None and given.head is not None:
        shown = found.head(given.layer, given.head)
    if given.out is not None:
        write_picture(shown, given.out)
    if given.json:
        entries = shown.to_dict()
        print_json({name: entries[name] for name in _IN_JSON if name in entries})
        return
    print_line(str(shown))
