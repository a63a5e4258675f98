"""A MODEL or RUN as the page uses it: its parts are opened when a view first needs them."""

from collections.abc import Callable, Hashable
from functools import cache, cached_property
from importlib import resources
from typing import Any, Final

from tidybert.errors import DataError, WeightsError
from tidybert.explain.attention_maps import Attention
from tidybert.explain.explainer import Explainer
from tidybert.explain.layer_states import Cloze
from tidybert.inference.language_model import TextGenerator
from tidybert.inference.loading import OpenedModel
from tidybert.inference.predictor import Predictor
from tidybert.inference.pretraining_heads import NextSentencePredictor
from tidybert.modeling.heads import BertForPreTraining
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.tokenizer import Encoding

# The files that the browser loads, and the policy under which it runs them.

POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere, and no script or style in markup; data: is for pictures to be saved."""
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
INDEX: Final = "index.html"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


@cache
def page_files() -> dict[str, tuple[bytes, str]]:
    """The content and the type of each file, by its path below /page/."""
    root = resources.files("tidybert") / "resources" / "page"
    found = {}
    for folder, prefix in ((root, ""), (root / "tabs", "tabs/")):
        for each in folder.iterdir():
            kind = _TYPES.get(each.name.rpartition(".")[2])
            if kind is not None:
                found[prefix + each.name] = each.read_bytes(), kind
    return found


MOST_CHARACTERS: Final = 4000
"""Most characters of a text on the page."""
MOST_PIECES: Final = 256
"""Most pieces of a text or pair: all heads of BERT-base on them take 80 MB."""
# The page asks for layers, heads and cells of the same text one after another.
_KEPT: Final = 2


class PageModel:
    """A model of the page.

    Args:
        model: a MODEL or RUN, or one that is open to be looked into.
        written: how the Python code of a view names it.
        is_local: whether only the user's own machine sees the page, and so may see the RUN's data.

    Its parts raise what ``Explainer`` raises.  One thread at a time may use it.
    """

    def __init__(self, model: str | OpenedModel, written: str, *, is_local: bool = False) -> None:
        self._opened = OpenedModel.of(model, device="cpu", precision=None)
        self.path = self._opened.name
        self.written, self.is_local = written, is_local
        self._attention: dict[Hashable, Attention] = {}

    @cached_property
    def explainer(self) -> Explainer:
        """The encoder, opened to be looked into."""
        return Explainer.of(self._opened)

    @cached_property
    def next_sentences(self) -> NextSentencePredictor:
        """The next-sentence head; DataError without one."""
        try:
            return NextSentencePredictor.of(self._opened)
        except WeightsError:
            raise _lacking("next-sentence head") from None

    @cached_property
    def pretraining(self) -> BertForPreTraining:
        """The model with both heads of pre-training; DataError without them."""
        found: BertForPreTraining | None = None
        if not self._opened.is_causal:
            found = self._opened.head("BertForPreTraining")
        if found is None:
            raise _lacking("heads of pre-training")
        return found

    @cached_property
    def generator(self) -> TextGenerator:
        """The language model; DataError for a BERT."""
        if not self._opened.is_causal:
            raise DataError("the model reads to both sides: this view needs a language model")
        return TextGenerator.of(self._opened)

    @property
    def tokenizer(self) -> BertTokenizer:
        return self.explainer.tokenizer

    def predictor(self, *tasks: str) -> Predictor:
        """The fine-tuned model; DataError if it was not trained for one of the tasks."""
        found = self.explainer.predictor
        if found is None or found.task.name not in tasks:
            does = "is not fine-tuned" if found is None else f"was trained to {found.task.name}"
            raise DataError(f"the model {does}; this view needs one for {' or '.join(tasks)}")
        return found

    def cloze(self, text: str, span: tuple[int, int], top_k: int) -> Cloze:
        """Each layer's answers in place of some characters; DataError without a head."""
        if self.explainer.masked_lm is None:
            raise _lacking("masked-LM head")
        return self.explainer.cloze(text, hide=span, top_k=top_k)

    def encode(self, text: str, pair: str = "") -> Encoding:
        """The pieces of a text or pair; DataError for too many, and for none."""
        checked_text(text)
        checked_text(pair)
        encoding = self.explainer.encode(text, pair or None)
        if len(encoding) > MOST_PIECES:
            raise DataError(
                f"the text has {len(encoding)} tokens; the page shows {MOST_PIECES} at most: "
                "shorten it"
            )
        if 0 not in encoding.sequence_ids:
            raise DataError("the text has no token: write a word")
        return encoding

    def attention(self, text: str, pair: str = "", *, causal: bool = False) -> Attention:
        """Attention of all layers; the last few are kept."""
        self.encode(text, pair)
        key = (text, pair, causal)
        if key not in self._attention:
            while len(self._attention) >= _KEPT:
                del self._attention[next(iter(self._attention))]
            self._attention[key] = self.explainer.attention(text, pair or None, causal=causal)
        return self._attention[key]


def _lacking(head: str) -> DataError:
    return DataError(f"the model has no {head}: choose another model, such as tidybert-small")


View = Callable[..., dict[str, Any] | bytes]
"""Values that JSON holds, or the bytes of an array; its first argument is a PageModel."""


def shown_tokens(encoding: Encoding) -> list[dict[str, Any]]:
    """The pieces as the page draws them; ``side`` is the text of a piece, None for [CLS], [SEP]."""
    columns = {
        "piece": encoding.tokens,
        "id": encoding.input_ids,
        "segment": encoding.token_type_ids,
        "position": range(len(encoding)),
        "start": [start for start, _ in encoding.offset_mapping],
        "end": [end for _, end in encoding.offset_mapping],
        "side": encoding.sequence_ids,
    }
    return [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]


def written_texts(text: str, pair: str) -> str:
    """The arguments of a call: one text, or two."""
    return f"{text!r}, {pair!r}" if pair else f"{text!r}"


def checked_text(text: str) -> None:
    """Raise DataError for more characters than the page takes."""
    if len(text) > MOST_CHARACTERS:
        raise DataError(
            f"a text has {len(text):,} characters; the page takes {MOST_CHARACTERS:,} at most: "
            "shorten it"
        )


def checked_place(name: str, value: int, least: int, most: int) -> int:
    """A number in its range; DataError for another."""
    if not least <= value <= most:
        raise DataError(f"{name} is {value}: expected {least} to {most}")
    return value
