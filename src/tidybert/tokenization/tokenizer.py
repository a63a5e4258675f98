"""BertTokenizer: text to WordPiece ids and back.

``encode`` takes one input and returns tokens, offsets and truncation: ``basic`` splits the text
into words, ``wordpiece`` cuts words into pieces.  ``encode_batch`` and ``encode_flat`` return the
same ids alone, many times faster, through ``fast``.  All three agree with Hugging Face's
BertTokenizer where special tokens in a text count as such.
"""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NoReturn, Self, cast

import numpy as np
import numpy.typing as npt

from tidybert.catalog import find_model
from tidybert.errors import TextError, UsageError, VocabularyError
from tidybert.storage.model_files import TOKENIZER_FILE
from tidybert.tokenization import tokenizer_files
from tidybert.tokenization.basic import BasicTokenizer, check_text
from tidybert.tokenization.fast.batch_encoder import BatchEncoder, IdArray, encode_blocks
from tidybert.tokenization.library_encoder import (
    AddedToken,
    AddedTokenFinder,
    Layout,
    LibraryBatchEncoder,
    LibraryEncoder,
    Pieces,
)
from tidybert.tokenization.vocabulary import CONTINUATION, SPECIAL_TOKENS, Vocabulary
from tidybert.tokenization.wordpiece import WordPiece, join_pieces, piece_ends

# A text, or a pair of texts, as BERT reads it: [CLS] A [SEP] or [CLS] A [SEP] B [SEP].
#
# The layout and the truncation of pairs follow convert_single_example and _truncate_seq_pair of
# Google's run_classifier.py.


Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Encoding:
    """One model input; all lists have the same length, one entry a token.

    Args:
        tokens: the pieces as the vocabulary spells them.
        input_ids: their ids.
        token_type_ids: 0 for [CLS], the first text and its [SEP]; 1 for the second text and its.
        offset_mapping: (start, end) of each token in its text, in characters; (0, 0) for the
            special tokens around the texts.
        sequence_ids: 0 or 1, the text of a token; None for those special tokens.
        truncated: whether tokens were cut off to fit max_seq_length.
        num_tokens: the tokens before cutting, special tokens included.
        continues: whether a token goes on with the word of the one before it.
    """

    tokens: list[str]
    input_ids: list[int]
    token_type_ids: list[int]
    offset_mapping: list[Span]
    sequence_ids: list[int | None]
    truncated: bool
    num_tokens: int
    continues: list[bool]

    def __len__(self) -> int:
        return len(self.input_ids)


def fitting_lengths(
    lengths: list[int], room: int, *, odd_to_longer: bool | None = False
) -> list[int]:
    """How many tokens of each of one or two texts fit when they share ``room``.

    Cuts the longer of two texts first, until both are equal.  Where both are cut to an odd room,
    the first has one token more (Google's _truncate_seq_pair); with ``odd_to_longer`` that which
    was longer, and of equals the second (the tokenizers library).
    """
    kept = list(lengths)
    excess = max(0, sum(kept) - room)
    if len(kept) == 1:
        return [kept[0] - excess]
    longer = 0 if kept[0] > kept[1] else 1
    levelled = min(excess, kept[longer] - kept[1 - longer])
    kept[longer] -= levelled
    excess -= levelled
    cut = excess // 2, (excess + 1) // 2
    if odd_to_longer and lengths[0] <= lengths[1]:
        cut = cut[::-1]
    return [kept[0] - cut[0], kept[1] - cut[1]]


_LOGGER: Final = logging.getLogger(__name__)
_WAY: Final = "special_tokens_in_text"
_SCRIPTS: Final = {"Cjk": "CJK"}


class BertTokenizer:
    """Turn text into the ids of a vocabulary.

    Args:
        vocab: a Vocabulary, or its tokens in the order of their ids.
        do_lower_case: whether the vocabulary is uncased.
        strip_accents: whether accents are dropped; None: as do_lower_case.
        tokenize_chinese_chars: whether each CJK ideograph is a word.
        added: tokens that are found in a text before it is cut; the vocabulary holds them.
        odd_to_longer: how pairs are cut; see ``fitting_lengths``.  None is False, and not saved.

    In a text, "[MASK]" and the other special tokens are plain text unless a call, or ``reading``,
    says ``special_tokens_in_text=True``.  To an opened MODEL they are such, to a RUN as in its
    training.  Every method that takes texts raises TextError for a value other than a string and
    for a lone surrogate, naming the text and the position.
    """

    special_tokens_in_text = False
    """How texts are read where a call does not say it."""

    def __init__(
        self,
        vocab: Vocabulary | Iterable[str],
        do_lower_case: bool = True,
        *,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        added: Sequence[AddedToken] = (),
        odd_to_longer: bool | None = False,
    ) -> None:
        self.odd_to_longer = odd_to_longer
        self.do_lower_case = do_lower_case
        self.strip_accents = strip_accents
        self.tokenize_chinese_chars = tokenize_chinese_chars
        self.added = tuple(added)
        self._take(vocab if isinstance(vocab, Vocabulary) else Vocabulary(vocab), SPECIAL_TOKENS)
        self.layout = Layout.of_bert(self.cls_token_id, self.sep_token_id)
        self._basic = BasicTokenizer(do_lower_case, strip_accents, tokenize_chinese_chars)
        own = self.vocabulary
        if own.num_added:
            own = Vocabulary(own.tokens[: len(own) - own.num_added])
        self._without_added = own
        self._batch: BatchEncoder | LibraryBatchEncoder = BatchEncoder(self._basic, own)
        if self.added:
            described = tokenizer_files.described_wordpiece(
                self.vocabulary, self._settings(), self.added
            )
            self._library = LibraryEncoder(described, SPECIAL_TOKENS, "the tokenizer")
            self._finder = AddedTokenFinder(self.added, self._basic)
            self._batch = LibraryBatchEncoder(
                self._library, self.layout, self.vocab_size, self._batch, self._finder
            )
        #: dtype of the arrays that encode_batch and encode_flat return.
        self.dtype = self._batch.dtype

    @cached_property
    def _wordpiece(self) -> WordPiece[int]:
        """For texts with offsets; batches have a table of their own."""
        return WordPiece(self._without_added, range(len(self._without_added)))

    def _take(self, vocabulary: Vocabulary, special: Sequence[str]) -> None:
        """Take the vocabulary, and the special tokens for padding, unknown, begin, end, mask."""
        self.vocabulary = vocabulary
        self.vocab_size = len(vocabulary)
        self.special_tokens = tuple(special)
        self.pad_token, self.unk_token, self.cls_token, self.sep_token, self.mask_token = special
        pad, unk, cls, sep, mask = self.convert_tokens_to_ids(special)
        self.pad_token_id, self.unk_token_id, self.mask_token_id = pad, unk, mask
        self.cls_token_id, self.sep_token_id = cls, sep
        self._special = re.compile("|".join(map(re.escape, special)))

    @classmethod
    def from_pretrained(cls, model: str | Path, *, do_lower_case: bool | None = None) -> Self:
        """The tokenizer of a MODEL: a directory, or the name of installed weights.

        Settings come from tokenizer_config.json.  Without ``do_lower_case`` there, a vocabulary
        is cased if it holds the Latin capitals; the argument overrules both.  (The published
        Chinese vocabulary was made from lower-cased text, but its Hugging Face configuration says
        that it is cased: capitals become [UNK] there.)
        """
        files = tokenizer_files.read_directory(find_model(model))
        if files.described is not None:
            return cast(Self, LibraryTokenizer(files))
        vocabulary, settings = files.vocabulary, files.settings
        source = "asked for"
        if do_lower_case is None:
            do_lower_case, source = settings.get("do_lower_case"), "as tokenizer_config.json says"
        if do_lower_case is None:
            do_lower_case, source = not vocabulary.is_cased, "judged by the vocabulary's capitals"
        _LOGGER.info(f"tokenizer of {model}: {'un' * do_lower_case}cased, {source}")
        found = cls(
            vocabulary,
            do_lower_case,
            strip_accents=settings.get("strip_accents"),
            tokenize_chinese_chars=settings.get("tokenize_chinese_chars") is not False,
            added=files.added,
            odd_to_longer=files.odd_to_longer,
        )
        if not files.has_types:
            found.layout = found.layout.of_one_type()
        return found

    @classmethod
    def from_file(
        cls,
        vocab_file: str | Path,
        do_lower_case: bool | None = None,
        *,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
    ) -> Self:
        """The tokenizer of a vocab.txt; do_lower_case=None: cased if it holds the capitals."""
        vocabulary = Vocabulary.from_file(vocab_file)
        return cls(
            vocabulary,
            not vocabulary.is_cased if do_lower_case is None else do_lower_case,
            strip_accents=strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
        )

    def reading(self, *, special_tokens_in_text: bool) -> Self:
        """The same tokenizer, to which special tokens in a text are such, or plain text."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, special_tokens_in_text=special_tokens_in_text)
        return other

    def with_tokens(self, tokens: Iterable[str]) -> Self:
        """The same tokenizer, whose vocabulary ends with those of the tokens that it lacks."""
        known = self.vocabulary
        more = [token for token in tokens if token not in known]
        if more:
            self.require_wordpiece("a larger vocabulary")
        return type(self)(
            Vocabulary([*known.tokens, *more], num_added=known.num_added),
            self.do_lower_case,
            strip_accents=self.strip_accents,
            tokenize_chinese_chars=self.tokenize_chinese_chars,
            added=self.added,
            odd_to_longer=self.odd_to_longer,
        )

    def save(
        self, directory: str | Path, *, model_max_length: int = 512, reads_segments: bool = True
    ) -> None:
        """Write vocab.txt, tokenizer_config.json and tokenizer.json, which transformers opens.

        Other programs truncate to ``model_max_length`` on request, and give token types to a model
        that ``reads_segments`` alone.
        """
        has_types = self.layout != self.layout.of_one_type()
        limits = tokenizer_files.limits_of(
            model_max_length, reads_segments and has_types, self.odd_to_longer
        )
        tokenizer_files.write_directory(
            Path(directory), self.vocabulary, self._settings(), self.added, limits
        )

    def identity(self) -> list[Any]:
        """Everything that decides the ids of a text, as JSON can hold it."""
        added = [[asdict(each) for each in self.added]] if self.added else []
        return [list(self.vocabulary.tokens), self._settings(), *added]

    def require_wordpiece(self, what: str, *, or_added: bool = False) -> None:
        """Raise VocabularyError, which begins with ``what``, unless this is a plain WordPiece.

        ``or_added``: added tokens are no hindrance.
        """
        if self.added and not or_added:
            raise VocabularyError(
                f"{what} needs a vocabulary without added tokens, and this one has "
                f"{len(self.added)}: {', '.join(each.content for each in self.added[:8])}"
            )

    def tokenize(self, text: str, *, special_tokens_in_text: bool | None = None) -> list[str]:
        """The pieces of a text, as the vocabulary spells them."""
        ids, _ = self._pieces(text, special_tokens_in_text)
        return self.convert_ids_to_tokens(ids)

    def encode(
        self,
        text: str,
        text_pair: str | None = None,
        max_seq_length: int | None = None,
        *,
        add_special_tokens: bool = True,
        special_tokens_in_text: bool | None = None,
    ) -> Encoding:
        """One input of one or two texts, with offsets; cut to ``max_seq_length`` tokens if given.

        One text is cut at its end; the longer of two is cut first.  Raises UsageError where
        max_seq_length leaves no room for the special tokens.
        """
        sides = [self._pieces(text, special_tokens_in_text)]
        if text_pair is not None:
            sides.append(self._pieces(text_pair, special_tokens_in_text, "text_pair"))
        num_special = self.layout.num_special(len(sides)) if add_special_tokens else 0
        full = [len(ids) for ids, _ in sides]
        lengths = full
        if max_seq_length is not None:
            if max_seq_length < num_special:
                raise UsageError(
                    f"max_seq_length is {max_seq_length}: expected at least {num_special}, which "
                    "the special tokens take"
                )
            room = max_seq_length - num_special
            lengths = fitting_lengths(full, room, odd_to_longer=self.odd_to_longer)
        ids: list[int] = []
        spans: list[Span] = []
        types: list[int] = []
        sequences: list[int | None] = []

        def add(more: list[int], their_spans: list[Span], kind: int, sequence: int | None) -> None:
            ids.extend(more)
            spans.extend(their_spans)
            types.extend([kind] * len(more))
            sequences.extend([sequence] * len(more))

        side = 0
        for token, kind in self.layout.parts(len(sides)):
            if token is None:
                side_ids, side_spans = sides[side]
                add(side_ids[: lengths[side]], side_spans[: lengths[side]], kind, side)
                side += 1
            elif add_special_tokens:
                add([token], [(0, 0)], kind, None)
        tokens = self.convert_ids_to_tokens(ids)
        return Encoding(
            tokens=tokens,
            input_ids=ids,
            token_type_ids=types,
            offset_mapping=spans,
            sequence_ids=sequences,
            truncated=lengths != full,
            num_tokens=sum(full) + num_special,
            continues=[
                sequence is not None and self.continues(token)
                for token, sequence in zip(tokens, sequences, strict=True)
            ],
        )

    def encode_batch(
        self, texts: Sequence[str], add_special_tokens: bool = True, *, num_workers: int = 0
    ) -> list[IdArray]:
        """The ids of each text, never cut: 1-D arrays of ``dtype``, views of one buffer.

        ``num_workers`` above 0 spawns that many processes.  Each fills a cache of its own, which
        pays from some hundred thousand texts.
        """
        flat, offsets = self.encode_flat(texts, add_special_tokens, num_workers=num_workers)
        return [flat[start:end] for start, end in pairwise(offsets.tolist())]

    def encode_flat(
        self, texts: Sequence[str], add_special_tokens: bool = True, *, num_workers: int = 0
    ) -> tuple[IdArray, npt.NDArray[np.int64]]:
        """The ids of all texts end to end: ids (T,) of ``dtype`` and offsets (B+1,) int64.

        Text i is ids[offsets[i]:offsets[i + 1]].  See encode_batch for ``num_workers``.
        """
        if isinstance(texts, str):
            raise TextError("texts is one string: expected a list of strings; wrap it in [...]")
        if num_workers < 0:
            raise UsageError(f"num_workers is {num_workers}: expected 0 (none) or more processes")
        ways = add_special_tokens, self.special_tokens_in_text
        if num_workers:
            blocks = list(encode_blocks(self._batch, texts, num_workers, *ways))
            flat: IdArray = np.concatenate([ids for ids, _ in blocks] or [np.empty(0, self.dtype)])
            lengths = np.concatenate([part for _, part in blocks] or [np.empty(0, np.int64)])
        else:
            flat, lengths = self._batch.encode(texts, ways[0], 0, ways[1])
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return flat, offsets

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Readable text for ids: joins pieces, and removes the spaces around punctuation.

        Raises VocabularyError for an id outside the vocabulary.
        """
        tokens = self.convert_ids_to_tokens(ids)
        if skip_special_tokens:
            left_out = {
                *self.special_tokens,
                *(each.content for each in self.added if each.special),
            }
            tokens = [token for token in tokens if token not in left_out]
        return join_pieces(tokens)

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """The id of each token; that of [UNK] for one that the vocabulary lacks."""
        return [self.vocabulary.token_to_id(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The token of each id; raises VocabularyError for one outside the vocabulary."""
        return [self.vocabulary.id_to_token(index) for index in ids]

    def continues(self, token: str) -> bool:
        """Whether a token goes on with the word of the one before it."""
        return token.startswith(CONTINUATION) and token != CONTINUATION

    def following(self, text: str) -> str:
        """A text as it is tokenised after another, whose end is a space before it."""
        return text

    def cuts_words_alone(self, text: str = "") -> bool:
        """Whether words that BERT's basic tokenizer finds in a text have the same pieces alone."""
        is_marked = self.special_tokens_in_text and self._special.search(text)
        return self.tokenize_chinese_chars and not self.added and not is_marked

    def encode_with_offsets(self, texts: Sequence[str]) -> list[Pieces]:
        """The ids of each text without special tokens, and their (start, end) in it."""
        return [self._pieces(text, None, f"text {at}") for at, text in enumerate(texts)]

    def spelled(self, token: str) -> str:
        """The characters that a token of the vocabulary stands for in a text."""
        return token.removeprefix(CONTINUATION) if self.continues(token) else token

    def scripts(self) -> dict[str, int]:
        """By script the number of tokens with a letter of it, the most first; special ones apart.

        A script is the first word of its letters' names in Unicode: Latin, Cyrillic, CJK.
        """
        counts: Counter[str] = Counter()
        for token in self.vocabulary.tokens:
            if re.fullmatch(r"\[.+\]|<.+>", token) is None:
                text = unicodedata.normalize("NFKC", self.spelled(token))
                kinds = ("Lu", "Ll", "Lo")
                letter = next((each for each in text if unicodedata.category(each) in kinds), " ")
                counts[unicodedata.name(letter, " ").split(" ")[0].capitalize()] += 1
        # A token without letters.
        del counts["Space"]
        return {_SCRIPTS.get(name, name): count for name, count in counts.most_common() if name}

    def pieces_of_word(self, word: str) -> list[str]:
        """A token that the vocabulary spells so, or the pieces of a word within a text."""
        return [word] if word in self.vocabulary else self.tokenize(word)

    def _pieces(self, text: str, marked: bool | None, name: str = "text") -> Pieces:
        check_text(text, name)
        marked = self.special_tokens_in_text if marked is None else marked
        if self.added and self._finder(text):
            return self._library.pieces(text, marked)
        if not marked:
            return self._plain_pieces(text)
        ids: list[int] = []
        spans: list[Span] = []
        start = 0
        for match in self._special.finditer(text):
            plain_ids, plain_spans = self._plain_pieces(text[start : match.start()], start)
            ids += [*plain_ids, self.vocabulary.token_to_id(match[0])]
            spans += [*plain_spans, match.span()]
            start = match.end()
        plain_ids, plain_spans = self._plain_pieces(text[start:], start)
        return ids + plain_ids, spans + plain_spans

    def _plain_pieces(self, text: str, shift: int = 0) -> tuple[list[int], list[Span]]:
        ids: list[int] = []
        spans: list[Span] = []
        for word in self._basic.split_with_offsets(text):
            word_ids = self._wordpiece.split(word.text)
            ids += word_ids
            begin = 0
            for end in piece_ends(word.text, self.convert_ids_to_tokens(word_ids)):
                spans.append(word.span(begin, end))
                begin = end
        return ids, [(start + shift, end + shift) for start, end in spans] if shift else spans

    def _settings(self) -> dict[str, bool | None]:
        return {name: getattr(self, name) for name in tokenizer_files.SETTINGS}

    def __getstate__(self) -> dict[str, Any]:
        # A copy leaves the cache out: it is large, and cheap to fill again.
        given = {"vocab": self.vocabulary, **self._settings(), "added": self.added}
        given["odd_to_longer"] = self.odd_to_longer
        return {"given": given, "layout": self.layout, _WAY: self.special_tokens_in_text}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Older versions pickled what was given alone, and read special tokens as text.
        BertTokenizer.__init__(self, **state.get("given", state))
        self.layout = state.get("layout", self.layout)
        self.special_tokens_in_text = state.get(_WAY, False)

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self._settings().items())
        return f"{type(self).__name__}({self.vocabulary!r}, {settings})"


# How the first token of a word begins, by the tokenizer's model; others mark those that go on.
_WORD_BEGINS: Final = {"BPE": "Ġ", "Unigram": "▁"}


class LibraryTokenizer(BertTokenizer):
    """A tokenizer.json of another kind, as Unigram or byte-level BPE, which the library computes.

    It has what BertTokenizer has; its special tokens have names of their own.
    """

    def __init__(self, files: tokenizer_files.TokenizerFiles) -> None:
        assert files.described is not None
        self._files = files
        self.added, self.odd_to_longer = files.added, files.odd_to_longer
        self._take(files.vocabulary, files.special)
        self.layout = tokenizer_files.layout_of(files)
        self._library = LibraryEncoder(files.described, files.special, TOKENIZER_FILE)
        self._batch = LibraryBatchEncoder(self._library, self.layout, self.vocab_size)
        self.dtype = self._batch.dtype
        self._whole = {*self.special_tokens, *(each.content for each in self.added)}
        # Only WordPiece has these settings.
        self.do_lower_case, self.strip_accents, self.tokenize_chinese_chars = False, None, False

    def with_tokens(self, tokens: Iterable[str]) -> NoReturn:
        """Raises VocabularyError: only a WordPiece vocabulary can grow here."""
        self.require_wordpiece("a larger vocabulary")

    def identity(self) -> list[Any]:
        """The content of tokenizer.json, and the names of the special tokens."""
        return [self._files.described, list(self.special_tokens)]

    def require_wordpiece(self, what: str, *, or_added: bool = False) -> NoReturn:
        """Raise VocabularyError."""
        raise VocabularyError(
            f"{what} needs a WordPiece vocabulary (vocab.txt), and this tokenizer is {self.kind}"
        )

    @property
    def kind(self) -> str:
        """The model of the tokenizer, as tokenizer.json calls it: Unigram, BPE, WordPiece."""
        assert self._files.described is not None
        return str(self._files.described["model"].get("type"))

    def save(
        self, directory: str | Path, *, model_max_length: int = 512, reads_segments: bool = True
    ) -> None:
        """Write tokenizer.json and tokenizer_config.json as they were read."""
        assert self._files.described is not None
        limits = tokenizer_files.limits_of(model_max_length, reads_segments, self.odd_to_longer)
        tokenizer_files.write_library_files(
            Path(directory), self._files.described, {**self._files.config, **limits}
        )

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Readable text for ids, by the library; raises VocabularyError for an unknown id."""
        numbers = list(map(int, ids))
        self.convert_ids_to_tokens(numbers)
        return self._library.decoded(numbers, skip_special_tokens=skip_special_tokens)

    def continues(self, token: str) -> bool:
        """Whether a token goes on with the word of the one before it."""
        begins = _WORD_BEGINS.get(self.kind)
        if begins is None:
            return super().continues(token)
        return not token.startswith(begins) and token not in self._whole

    def spelled(self, token: str) -> str:
        """The characters that a token of the vocabulary stands for in a text."""
        if self.kind not in _WORD_BEGINS:
            return super().spelled(token)
        ids = self.convert_tokens_to_ids([token])
        return self.decode(ids, skip_special_tokens=False).strip()

    def pieces_of_word(self, word: str) -> list[str]:
        """A word's pieces after a space, which byte-level BPE has in the token, or those alone."""
        pieces = self.tokenize(f" {word}")
        return pieces if len(pieces) == 1 else super().pieces_of_word(word)

    def following(self, text: str) -> str:
        """A text as it is tokenised after another, whose end is a space before it."""
        return f" {text}" if self.kind == "BPE" else text

    def encode_with_offsets(self, texts: Sequence[str]) -> list[Pieces]:
        """The ids of each text without special tokens, and their (start, end) in it."""
        for at, text in enumerate(texts):
            check_text(text, f"text {at}")
        return self._library.located(texts, self.special_tokens_in_text)

    def _pieces(self, text: str, marked: bool | None, name: str = "text") -> Pieces:
        check_text(text, name)
        marked = self.special_tokens_in_text if marked is None else marked
        return self._library.pieces(text, marked)

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self._files, _WAY: self.special_tokens_in_text}

    def __setstate__(self, state: dict[str, Any]) -> None:
        LibraryTokenizer.__init__(self, state["files"])
        self.special_tokens_in_text = state.get(_WAY, False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.vocabulary!r}, {self.kind})"
