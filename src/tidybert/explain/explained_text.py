"""A text or pair whose inside is shown, its pieces, and the words that they make up."""

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from html import escape
from threading import get_ident
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from markupsafe import Markup
from rich.cells import cell_len
from torch import Tensor, nn

from tidybert.errors import DataError, param
from tidybert.modeling.attention import scaled_dot_product
from tidybert.modeling.bert import BertModel
from tidybert.modeling.rows import Rows
from tidybert.reporting.drawing import Picture
from tidybert.reporting.report_page import rendered
from tidybert.storage.json_objects import plain_json
from tidybert.system.terminal import ShowsFacts, printable
from tidybert.system.version import installed_version
from tidybert.tokenization.tokenizer import Encoding, Span

# How a result shows itself: one line, a table in a terminal, a table in a notebook, JSON.

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Table:
    """Rows of texts under headings; the columns named in ``left`` hold words, others numbers."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    left: frozenset[str]
    note: str = ""

    def __str__(self) -> str:
        cells = [[printable(each) for each in row] for row in (self.headings, *self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        lines = [self.title, *(self._line(row, widths) for row in cells)]
        lines.insert(2, "─" * (sum(widths) + 2 * len(widths) - 2))
        return "\n".join([*lines, *filter(None, [self.note])])

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        padded = []
        for heading, cell, width in zip(self.headings, row, widths, strict=True):
            room = " " * (width - cell_len(cell))
            padded.append(cell + room if heading in self.left else room + cell)
        return "  ".join(padded).rstrip()

    def html(self, *, with_title: bool = True) -> str:
        """A table element with every text escaped."""
        title = f"<caption>{escaped(self.title)}</caption>" if with_title else ""
        heads = "".join(f'<th scope="col">{escaped(each)}</th>' for each in self.headings)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escaped(each)}</td>" for each in row) + "</tr>"
            for row in self.rows
        )
        note = f"<p>{escaped(self.note)}</p>" if self.note else ""
        return f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{note}"


class Shown(ShowsFacts):
    """The base of all results; a subclass is a dataclass."""

    @abstractmethod
    def table(self) -> Table:
        """What a terminal and a notebook show."""

    @abstractmethod
    def plot(self) -> Picture:
        """The same as a picture, which a notebook shows and ``save`` writes as SVG."""

    @property
    def quoted(self) -> Sequence[str]:
        """The texts that its page begins with."""
        return ()

    def page(self) -> str:
        """A page that needs no other file: the texts, the picture, and the table."""
        table = self.table()
        return rendered(
            "explanation.html.j2",
            title=table.title,
            version=installed_version(),
            texts=self.quoted,
            picture=self.plot().inline,
            table=Markup(table.html(with_title=False)),
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON can hold them; a score of minus infinity becomes None."""
        found: dict[str, Any] = plain_json(asdict(self))  # type: ignore[call-overload]
        return found

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table().html()


def signed(value: float) -> str:
    """The number with its sign; a dash for NaN."""
    return "–" if np.isnan(value) else f"{value:+.4f}"


def escaped(text: str) -> str:
    """A text as HTML has it, without control characters."""
    return escape(printable(text))


def cosine(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Floats:
    """The cosines of vectors (…, d) with vectors (…, d); 0 where one of them is zero."""
    lengths = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    products = np.sum(first * second, axis=-1)
    cosines = products / np.where(lengths == 0, 1, lengths)
    return np.asarray(cosines.clip(-1, 1), dtype=np.float32)


@dataclass(frozen=True)
class Word:
    """A word of the first (0) or second text (1), its place there, and its pieces' positions."""

    text: str
    sequence_id: int
    span: Span
    pieces: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class ExplainedText(Shown):
    """The base of results about one input of n pieces, [CLS] and [SEP] among them."""

    text: str
    text_pair: str | None
    encoding: Encoding

    @property
    def tokens(self) -> list[str]:
        """The n pieces."""
        return self.encoding.tokens

    @property
    def quoted(self) -> list[str]:
        """The text, and the second one of a pair."""
        return [self.text] if self.text_pair is None else [self.text, self.text_pair]

    @property
    def words(self) -> list[Word]:
        """The words of the text, then those of the second text."""
        return words_of(self.encoding, (self.text, self.text_pair or ""))

    def facts(self) -> dict[str, object]:
        pair = {} if self.text_pair is None else {"text_pair": self.text_pair}
        return {"text": self.text, **pair, "num_pieces": len(self.encoding)}


def words_of(encoding: Encoding, sides: Sequence[str]) -> list[Word]:
    groups: list[list[int]] = []
    for position, (continues, side) in enumerate(
        zip(encoding.continues, encoding.sequence_ids, strict=True)
    ):
        if side is None:
            continue
        follows = bool(groups) and groups[-1][-1] == position - 1
        if follows and continues:
            groups[-1].append(position)
        else:
            groups.append([position])
    words = []
    for group in groups:
        side = encoding.sequence_ids[group[0]]
        assert side is not None
        start, end = encoding.offset_mapping[group[0]][0], encoding.offset_mapping[group[-1]][1]
        # Some tokenizers make the space before a word a piece of it.
        start = end - len(sides[side][start:end].lstrip() or sides[side][start:end])
        words.append(Word(sides[side][start:end], side, (start, end), tuple(group)))
    return words


def pieces_within(encoding: Encoding, span: Span) -> list[int]:
    """The positions of the first text's pieces that have a character of ``span``."""
    return [
        position
        for position, (side, (start, end)) in enumerate(
            zip(encoding.sequence_ids, encoding.offset_mapping, strict=True)
        )
        if side == 0 and start < span[1] and end > span[0]
    ]


def pieces_at(encoding: Encoding, span: Span, name: str) -> list[int]:
    """The same; DataError that names the parameter where there is none."""
    found = pieces_within(encoding, span)
    if not found:
        raise DataError(f"{param(name)}: characters {span[0]} to {span[1]} have no token")
    return found


def place_of(word: str, text: str) -> Span:
    """The first place of a word in a text, whatever its case; DataError where there is none."""
    escaped = re.escape(word)
    # Between other letters only where it is no word by itself, as in Chinese.
    found = re.search(rf"(?<!\w){escaped}(?!\w)", text, re.IGNORECASE) or re.search(
        escaped, text, re.IGNORECASE
    )
    if not word or found is None:
        raise DataError(f"{text!r:.60} does not have the word {word!r}")
    return found.span()


# What an encoder computes for a few inputs, caught by hooks while its own forward pass runs.
#
# The encoder may be any whose layers have ``joint``; see ``modeling/architectures.py``.  T tokens,
# n pieces, L layers, N heads, H width, D head width.


def rows_of(encodings: Sequence[Encoding]) -> Rows:
    return Rows.from_lists(
        [one.input_ids for one in encodings], [one.token_type_ids for one in encodings]
    )


def as_array(tensor: Tensor) -> Floats:
    found: Floats = np.asarray(tensor.numpy(), dtype=np.float32)
    return found


def states_of(
    encoder: BertModel, encodings: Sequence[Encoding], *, causal: bool = False
) -> list[Tensor]:
    """The hidden states of layers 0 to L, (T, H) each."""
    with torch.inference_mode():
        output = encoder(rows_of(encodings), output_hidden_states=True, causal=causal)
    return list(output.hidden_states)


def embeddings_of(encoder: BertModel, encoding: Encoding) -> tuple[list[Floats], Floats, Floats]:
    """The summands, their sum, and the sum after LayerNorm, (n, H) each."""
    rows, parts = rows_of([encoding]), encoder.embeddings
    with torch.inference_mode(), _calls_of([parts.layer_norm]) as calls:
        normalized = parts(rows)
        summands = [as_array(each) for each in parts.summands(rows)]
        return summands, as_array(calls[0][0]), as_array(normalized)


def attention_of(encoder: BertModel, encoding: Encoding, *, causal: bool) -> list[Floats]:
    """Scores and probs (L, N, n, n); queries, keys and values (L, N, n, D)."""
    heads, size = encoder.config.num_attention_heads, len(encoding)
    rows, found = rows_of([encoding]), []
    at = rows.position_ids
    layers: list[Any] = list(encoder.layers)
    with torch.inference_mode(), _calls_of(layers) as calls:
        encoder(rows, causal=causal)
        for layer, (hidden, _) in zip(layers, calls, strict=True):
            visible = torch.ones(1, 1, size, size, dtype=torch.bool)
            if causal or encoder.is_causal:
                visible = visible.tril()
            if layer.attention.window is not None:
                visible = visible & ((at[:, None] - at).abs() <= layer.attention.window)
            # (n, 3H) to (3, 1, N, n, D)
            blocks = layer.joint(hidden, at).view(1, size, 3, heads, -1).permute(2, 0, 3, 1, 4)
            query, key, value = blocks
            _, probs, scores = scaled_dot_product(query, key, value, visible, 0.0)
            found.append((scores.masked_fill(~visible, -torch.inf), probs, query, key, value))
        return [as_array(torch.cat(each)) for each in zip(*found, strict=True)]


@contextmanager
def _calls_of(modules: Sequence[nn.Module]) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Within the block, the first argument and the result of this thread's calls, in order."""
    calls: list[tuple[Tensor, Tensor]] = []
    this_thread = get_ident()

    def record(_module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        # A server's other threads may use the same model.
        if get_ident() == this_thread:
            calls.append((given[0], output))

    hooks = [each.register_forward_hook(record) for each in modules]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()
