"""``tidybert similar``: how near words and texts are, and the pieces nearest to a word."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import check_picture, print_json, print_line, write_picture
from tidybert.errors import UsageError

if TYPE_CHECKING:
    from tidybert.explain.explained_text import Shown


@dataclass(frozen=True, kw_only=True)
class SimilarFlags(flags.PickleFlag, flags.ThreadsFlag, flags.JsonFlag):
    layer: str | None = None
    """``--layer N``: Compare means of a layer's states, such as -1; words for only the word
    embeddings. If not set: the vectors of tidybert embed."""
    top_k: int | None = None
    """Tokens to show beside a single word. If not set: 10."""
    picture: Path | None = None
    """``--picture FILE``: Also write a map of the texts: F.svg, or F.html with the table."""


@takes(given=SimilarFlags)
def similar(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A MODEL or a RUN.")],
    texts: Annotated[
        list[str], typer.Argument(metavar="WORD_OR_TEXT", help="One word, or several texts.")
    ],
    *,
    given: SimilarFlags,
) -> None:
    """Show the cosine similarity of words and texts, or the tokens nearest to one word.

    Several texts are compared by the vectors of tidybert embed, each two with each other. A
    single word is compared with all tokens of the vocabulary, by their word embeddings.
    """
    if len(texts) == 1 and given.layer is not None:
        raise UsageError("--layer has no meaning for a single word; name several, or leave it out")
    if len(texts) > 1 and given.top_k is not None:
        raise UsageError("--top-k has no meaning for several texts; leave it out")
    check_picture("--picture", given.picture)
    from tidybert.explain import Explainer

    explainer = Explainer(model, allow_pickle=given.allow_pickle)
    shown: Shown
    if len(texts) == 1:
        shown = explainer.nearest(texts[0], top_k=10 if given.top_k is None else given.top_k)
    else:
        shown = explainer.similarities(texts, layer=given.layer)
    if given.picture is not None:
        write_picture(shown, given.picture)
    if given.json:
        print_json(shown.to_dict())
        return
    print_line(str(shown))
