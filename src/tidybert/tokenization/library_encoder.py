"""Ids and offsets by the tokenizers library: any tokenizer.json, and texts that hold added tokens.

tidybert's own WordPiece (``fast``) is many times faster for what it covers.  Here the library
computes, so that texts are cut as transformers cuts them.  Special tokens that stand around texts
are plain text within them, unless a call asks for them.
"""

import base64
import copy
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.errors import VocabularyError
from tidybert.storage.limits import NORMALIZER_GROWTH, NORMALIZER_STEPS
from tidybert.tokenization.basic import BasicTokenizer, check_text
from tidybert.tokenization.fast.batch_encoder import BatchEncoder, IdArray, Lengths

if TYPE_CHECKING:
    import tokenizers

Span = tuple[int, int]
Pieces = tuple[list[int], list[Span]]
# A name that no text has takes the place of a special token's among the pieces of a model.
_HIDDEN: Final = "\ue0f0"


@dataclass(frozen=True)
class AddedToken:
    """A token that is found in a text before the text is cut, as the tokenizers library defines it.

    special: left out by ``decode``.  single_word: only between word borders.  lstrip, rstrip: takes
    the white space on that side.  normalized: found in the normalised text.
    """

    content: str
    id: int
    special: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True


@dataclass(frozen=True)
class Layout:
    """How one text, and two, stand between special tokens: the parts in order, with token types.

    A part is the id of a special token, or None for the next text.
    """

    single: tuple[tuple[int | None, int], ...]
    pair: tuple[tuple[int | None, int], ...]

    @classmethod
    def of_bert(cls, cls_id: int, sep_id: int) -> "Layout":
        """[CLS] A [SEP], and [CLS] A [SEP] B [SEP] with the type 1 from B on."""
        single = ((cls_id, 0), (None, 0), (sep_id, 0))
        return cls(single, (*single, (None, 1), (sep_id, 1)))

    @classmethod
    def of_roberta(cls, cls_id: int, sep_id: int) -> "Layout":
        """<s> A </s>, and <s> A </s> </s> B </s>, all with the type 0."""
        single = ((cls_id, 0), (None, 0), (sep_id, 0))
        return cls(single, (*single, (sep_id, 0), (None, 0), (sep_id, 0)))

    def of_one_type(self) -> "Layout":
        """The same, each part with the type 0."""
        single, pair = (tuple((each, 0) for each, _ in of) for of in (self.single, self.pair))
        return Layout(single, pair)

    def parts(self, num_texts: int) -> tuple[tuple[int | None, int], ...]:
        """The parts of an input of one text or two."""
        return self.single if num_texts == 1 else self.pair

    def num_special(self, num_texts: int) -> int:
        """The special tokens of an input of one text or two."""
        return len(self.parts(num_texts)) - num_texts

    def num_before(self, num_texts: int) -> int:
        """The special tokens before the last of one text or two."""
        last = max(at for at, (token, _) in enumerate(self.parts(num_texts)) if token is None)
        return last + 1 - num_texts

    def joined(self, texts: Sequence[Any]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        """The ids and the token types, (n,) each, of one text's ids or two's."""
        left = iter(texts)
        parts = [
            (next(left) if token is None else [token], kind)
            for token, kind in self.parts(len(texts))
        ]
        ids = np.concatenate([ids for ids, _ in parts], dtype=np.int32, casting="unsafe")
        types = np.repeat([kind for _, kind in parts], [len(ids) for ids, _ in parts])
        return ids, types.astype(np.uint8)


@contextmanager
def _guarded(source: object, what: str = "compute") -> Iterator[None]:
    """Errors of the library as a VocabularyError; its panics are no Exceptions."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise VocabularyError(
            f"{source}: the tokenizers library cannot {what} it: {error!s:.300}"
        ) from None


def _check_growth(described: dict[str, Any], source: object) -> None:
    """Refuse a normalizer or a decoder that makes a long text of a short one, or has many steps."""
    for kind, inner in (("normalizer", "normalizers"), ("decoder", "decoders")):
        steps = list(_steps(described.get(kind), inner))
        NORMALIZER_STEPS.check(len(steps), f"{source}: {kind}")
        replaced, of_patterns = {"": ""}, 1
        for step in steps:
            pattern, made = step.get("pattern"), str(step.get("content", step.get("prepend", "")))
            if step.get("type") == "Precompiled":
                made = max(_of_charsmap(step.get("precompiled_charsmap")), key=len)
            NORMALIZER_GROWTH.check(len(made), f"{source}: {kind}")
            if isinstance(pattern, dict) and isinstance(found := pattern.get("String"), str):
                replaced.setdefault(found, found)
                replaced = {key: text.replace(found, made) for key, text in replaced.items()}
            else:
                of_patterns *= max(len(made), 1)
            longest = max(len(text) // max(len(key), 1) for key, text in replaced.items())
            NORMALIZER_GROWTH.check(max(longest, 1) * of_patterns, f"{source}: {kind}")


def _steps(step: object, inner: str) -> Iterator[dict[str, Any]]:
    if isinstance(step, dict) and isinstance(parts := step.get(inner), list):
        for part in parts:
            yield from _steps(part, inner)
    elif isinstance(step, dict):
        yield step


def _of_charsmap(packed: object) -> list[str]:
    """The texts that a Precompiled normalizer puts in the place of others."""
    try:
        content = base64.b64decode(packed if isinstance(packed, str) else "", validate=True)
    except ValueError:
        content = b""
    # The size of a table, the table, and texts that end with a NUL.
    texts = content[4 + int.from_bytes(content[:4], "little") :]
    return [text.decode(errors="replace") for text in texts.split(b"\0")]


class LibraryEncoder:
    """The tokenizers library's tokenizer of a description, the content of a tokenizer.json.

    special: the tokens that stand around texts, and count as such within a ``marked`` one.  Raises
    VocabularyError, which begins with ``source``, for a description that the library refuses.
    """

    def __init__(self, described: dict[str, Any], special: Sequence[str], source: object) -> None:
        self._described = copy.deepcopy({**described, "truncation": None, "padding": None})
        self._special = tuple(special)
        self._source = source
        _check_growth(described, source)
        # Now, so that the error comes when a MODEL is opened.
        self.marked = self._opened(self._described)
        self._same = self._unite()

    def _unite(self) -> dict[int, int]:
        """Added tokens that are one in the normalised text: the id of each to the lowest of them.

        The library finds any one of them, by a chance that each process draws anew.
        """
        normalizer, same = self.marked.normalizer, dict[int, int]()
        first: dict[str, Any] = {}
        added = [one for one in self._described.get("added_tokens") or [] if one["normalized"]]
        for one in sorted(added, key=itemgetter("id")):
            text = one["content"]
            with _guarded(self._source):
                normal = normalizer.normalize_str(text) if normalizer else text
            known = first.setdefault(normal, one)
            if known is not one:
                same[one["id"]] = known["id"]
                one |= {flag: known[flag] for flag in ("single_word", "lstrip", "rstrip")}
        if same:
            self.marked = self._opened(self._described)
        return same

    def _opened(self, described: dict[str, Any]) -> "tokenizers.Tokenizer":
        from tokenizers import Tokenizer

        with _guarded(self._source, "read"):
            opened = Tokenizer.from_str(json.dumps(described))
            # Some faults show only in a text.
            opened.encode("a \u00c4\ufb01 \uac00", add_special_tokens=False)
            return opened

    @cached_property
    def plain(self) -> "tokenizers.Tokenizer":
        """The same, to which special tokens in a text are text."""
        described = copy.deepcopy(self._described)
        added = described.get("added_tokens") or []
        model = described["model"]
        vocab, hidden = model["vocab"], {*self._special} - {model.get("unk_token")}
        known = {piece for piece, *_ in vocab} if isinstance(vocab, list) else vocab
        # One that the model lacks keeps its place, or those after it would have other ids.
        described["added_tokens"] = [
            {**one, "content": f"{_HIDDEN}{one['id']}"} if one["content"] in self._special else one
            for one in added
            if one["content"] not in self._special or one["content"] not in known
        ]
        if isinstance(vocab, list):
            model["vocab"] = [
                [f"{_HIDDEN}{number}" if piece in hidden else piece, *score]
                for number, (piece, *score) in enumerate(vocab)
            ]
        elif model.get("type") in ("WordPiece", "WordLevel", None):
            model["vocab"] = {
                f"{_HIDDEN}{number}" if piece in hidden else piece: number
                for piece, number in vocab.items()
            }
        return self._opened(described)

    def tokens(self) -> dict[str, int]:
        """The ids of all tokens, added ones too."""
        return dict(self.marked.get_vocab(with_added_tokens=True))

    def pieces(self, text: str, marked: bool) -> Pieces:
        """The ids of a text, and their (start, end) in it, white space around them left out."""
        chosen = self.marked if marked else self.plain
        with _guarded(self._source):
            found = chosen.encode(text, add_special_tokens=False)
        return self._united(found.ids), [_trimmed(text, *span) for span in found.offsets]

    def located(self, texts: Sequence[str], marked: bool) -> list[Pieces]:
        """The same of many texts; white space is left in."""
        chosen = self.marked if marked else self.plain
        with _guarded(self._source):
            found = chosen.encode_batch(texts, add_special_tokens=False)
        return [(self._united(each.ids), each.offsets) for each in found]

    def ids(self, texts: Sequence[str], marked: bool) -> list[list[int]]:
        """The ids of each text."""
        chosen = self.marked if marked else self.plain
        with _guarded(self._source):
            found = chosen.encode_batch_fast(texts, add_special_tokens=False)
        return [self._united(each.ids) for each in found]

    def decoded(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        """Readable text for ids."""
        with _guarded(self._source):
            return str(self.marked.decode(ids, skip_special_tokens=skip_special_tokens))

    def _united(self, ids: list[int]) -> list[int]:
        return [self._same.get(token, token) for token in ids] if self._same else ids

    def __reduce__(self) -> tuple[Any, ...]:
        return LibraryEncoder, (self._described, self._special, self._source)


def _trimmed(text: str, start: int, end: int) -> Span:
    piece = text[start:end]
    if piece and not piece.isspace():
        start, end = (
            start + len(piece) - len(piece.lstrip()),
            end - len(piece) + len(piece.rstrip()),
        )
    return start, end


class AddedTokenFinder:
    """Whether a text may hold an added token: never False for one that does."""

    def __init__(self, added: Iterable[AddedToken], basic: BasicTokenizer) -> None:
        self._basic = basic
        raw = [each.content for each in added]
        normal = [basic.normalize(each.content) for each in added if each.normalized]
        self._raw = re.compile("|".join(map(re.escape, raw)))
        self._normal = re.compile("|".join(map(re.escape, normal))) if normal else None

    def __call__(self, text: str) -> bool:
        if self._raw.search(text):
            return True
        if self._normal is None:
            return False
        if text.isascii() and text.isprintable():
            normal = text.lower() if self._basic.do_lower_case else text
        else:
            normal = self._basic.normalize(text)
        return self._normal.search(normal) is not None


class LibraryBatchEncoder:
    """The ids of many texts at once, as ``BatchEncoder`` gives them, by the tokenizers library.

    own: computes the texts in which ``finder`` finds no added token; None where all are the
    library's.
    """

    def __init__(
        self,
        library: LibraryEncoder,
        layout: Layout,
        num_tokens: int,
        own: BatchEncoder | None = None,
        finder: AddedTokenFinder | None = None,
    ) -> None:
        self.dtype: np.dtype[Any] = np.dtype(np.uint16 if num_tokens <= 2**16 else np.int32)
        self._library, self._layout = library, layout
        self._own, self._finder = own, finder
        self._num_tokens = num_tokens

    def encode(
        self, texts: Iterable[str], add_special_tokens: bool, first: int = 0, marked: bool = False
    ) -> tuple[IdArray, Lengths]:
        """(ids (T,), lengths (B,)) of B texts, laid end to end; errors as BatchEncoder's."""
        texts = list(texts)
        for index, text in enumerate(texts, first):
            check_text(text, f"text {index}")
        theirs = np.array([self._finder is None or self._finder(text) for text in texts], np.bool_)
        found: list[Any] = [None] * len(texts)
        if self._own is not None and not theirs.all():
            places = np.flatnonzero(~theirs)
            own = [texts[place] for place in places]
            ids, lengths = self._own.encode(own, False, first, marked)
            for place, part in zip(places, np.split(ids, np.cumsum(lengths)[:-1]), strict=True):
                found[place] = part
        places = np.flatnonzero(theirs)
        chosen = self._library.ids([texts[place] for place in places], marked)
        for place, numbers in zip(places, chosen, strict=True):
            found[place] = numbers
        if add_special_tokens:
            found = [self._layout.joined([part])[0] for part in found]
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        flat = np.concatenate([np.empty(0, self.dtype), *found], dtype=self.dtype, casting="unsafe")
        return flat, lengths

    def __reduce__(self) -> tuple[Any, ...]:
        given = self._library, self._layout, self._num_tokens, self._own, self._finder
        return LibraryBatchEncoder, given
