"""Fill-mask: the masked-LM head's words for each [MASK] in a text (paper 3.1, task 1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
import numpy.typing as npt

from tidybert.checkpoints.graph import LOGITS, NEXT, GraphModel
from tidybert.data.batching import Batch
from tidybert.data.features import Features, text_features
from tidybert.errors import DataError, UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.inference.forward import (
    GraphOutputs,
    Outputs,
    encoding_features,
    in_chunks,
    run_batches,
)
from tidybert.inference.keywords import PairKeywords
from tidybert.inference.loading import OfPretraining, check_texts, single_texts
from tidybert.inference.options import OpeningOptions, PairOptions
from tidybert.options import documented, spelled_out
from tidybert.tasks.answers import softmax
from tidybert.tokenization.tokenizer import BertTokenizer, Encoding, Span

if TYPE_CHECKING:
    from torch import Tensor

TOP_K: Final = 5
# Texts in memory at once: each [MASK] has a probability for every word of the vocabulary.
_CHUNK: Final = 64


@documented(OpeningOptions)
class MaskFiller(OfPretraining):
    """A pre-trained model that fills in the [MASK]s of texts.

    Raises what ``load`` raises, WeightsError if the weights lack the head, and UsageError.

    Args:
        model: a MODEL with a masked-LM head.
    """

    _heads = ("BertForMaskedLM", "BertForMaskedLM")

    def fill(
        self, texts: Sequence[str], *, top_k: int | None = None, among: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """The likeliest words for each [MASK] of each text, in order.

        Each answer is {"text", "filled", "masks"}.  "filled" has the likeliest word at every
        [MASK].  "masks" has {"start", "end", "words"} for each [MASK]: its place in the text, and
        {"word", "probability", "text"} for each word, where only this [MASK] is filled.

        Args:
            texts: each with at least one [MASK], as the tokenizer spells it.
            top_k: how many words; None for 5, or for all of ``among``.
            among: choose only from these words.  Probabilities are still those among all words.

        Raises DataError for a text without [MASK], or with more tokens than the model has positions
        for; UsageError for a word that is not one piece of the vocabulary.
        """
        check_texts(texts)
        ids, top_k = self.words(top_k, among)
        encodings = [
            self.encoded(text, f"text {number}") for number, text in enumerate(texts, start=1)
        ]
        return self._fill(texts, encodings, ids, top_k)

    def fill_chunks(
        self,
        examples: Iterable[TextExample],
        *,
        first: int = 1,
        top_k: int | None = None,
        among: Sequence[str] | None = None,
    ) -> Iterator[tuple[list[TextExample], list[dict[str, Any]]]]:
        """The same answers in lists, with their examples: ``first``, twice as many, and so on.

        Raises as ``fill``, with the line of the example, and DataError for a pair of texts.
        """
        ids, top_k = self.words(top_k, among)
        for chunk, names in single_texts(examples, first, _CHUNK):
            texts = [one.text for one in chunk]
            yield chunk, self._fill(texts, list(map(self.encoded, texts, names)), ids, top_k)

    def words(self, top_k: int | None, among: Sequence[str] | None) -> tuple[list[int] | None, int]:
        """The ids to choose from, None for all, and how many to show.

        Raises UsageError as ``fill``.
        """
        ids = None if among is None else self._ids_of(among)
        limit = self.tokenizer.vocab_size if ids is None else len(ids)
        if top_k is None:
            top_k = min(TOP_K, limit) if ids is None else limit
        if not 1 <= top_k <= limit:
            raise UsageError(
                f"{param('top_k')} is {top_k}: expected 1 to {limit}, the number of words"
            )
        return ids, top_k

    def _fill(
        self,
        texts: Sequence[str],
        encodings: Sequence[Encoding],
        ids: Sequence[int] | None,
        top_k: int,
    ) -> list[dict[str, Any]]:
        answers = []
        for start in range(0, len(texts), _CHUNK):
            chunk = encodings[start : start + _CHUNK]
            features, counts = encoding_features(chunk), [len(self.spans(one)) for one in chunk]
            # (M, V) for each text: the logits of its [MASK]s.
            found = run_batches(
                self.outputs, features, counts, self.device, precision=self.precision
            )
            answers += [
                self.answer(text, encoding, each, ids, top_k)
                for text, encoding, each in zip(texts[start:], chunk, found, strict=False)
            ]
        return answers

    def _ids_of(self, words: Sequence[str]) -> list[int]:
        """The id of each word, as the vocabulary or else the tokenizer spells it."""
        if isinstance(words, str) or not words:
            raise DataError(f"among is {words!r:.60}: expected a list of words")
        found: dict[int, str] = {}
        for word in words:
            pieces = self.tokenizer.pieces_of_word(word)
            if pieces == [self.tokenizer.unk_token]:
                raise UsageError(f"{param('among')}: the vocabulary has no word {word!r}")
            if len(pieces) != 1:
                raise UsageError(
                    f"{param('among')}: {word!r} is {len(pieces)} tokens of the "
                    f"vocabulary{': ' * bool(pieces)}{' '.join(pieces)}; a "
                    f"{self.tokenizer.mask_token} hides one"
                )
            (index,) = self.tokenizer.convert_tokens_to_ids(pieces)
            if index in found:
                raise UsageError(f"{param('among')}: {found[index]!r} and {word!r} are one word")
            found[index] = word
        return list(found)

    def encoded(self, text: str, where: str) -> Encoding:
        """The tokens of a text; raises DataError as ``fill``, and ``where`` begins its message."""
        encoding = self.tokenizer.encode(text, special_tokens_in_text=True)
        mask = self.tokenizer.mask_token
        if self.tokenizer.mask_token_id not in encoding.input_ids:
            raise DataError(
                f"{where}, {text!r:.60}, has no {mask}: write it, spelled so, in place of a word"
            )
        if len(encoding) > self.max_seq_length:
            raise DataError(
                f"{where}, {text!r:.60}, has {len(encoding)} tokens, and the model has "
                f"positions for {self.max_seq_length}: shorten it (cutting it here could lose a "
                f"{mask})"
            )
        return encoding

    def spans(self, encoding: Encoding) -> list[Span]:
        """Where each [MASK] is in its text."""
        return [
            span
            for span, index in zip(encoding.offset_mapping, encoding.input_ids, strict=True)
            if index == self.tokenizer.mask_token_id
        ]

    @property
    def outputs(self) -> Outputs:
        """(M, V): the logits of all words, for each [MASK]."""
        mask = self.tokenizer.mask_token_id
        if isinstance(self.model, GraphModel):
            return GraphOutputs(
                self.model, lambda found, flat: found[LOGITS][flat.input_ids == mask]
            )
        return self._of_network

    def _of_network(self, batch: Batch) -> Tensor:
        from tidybert.tasks.task import tensor_on

        ids = np.concatenate([one.input_ids for one in batch.features])
        # The device would make the program wait to know how many there are.
        masked = np.flatnonzero(ids == self.tokenizer.mask_token_id)
        positions = tensor_on(batch.rows.input_ids.device, masked)
        logits: Tensor = self.model(batch.rows, masked_lm_positions=positions)
        return logits

    def answer(
        self,
        text: str,
        encoding: Encoding,
        logits: npt.NDArray[np.float32],
        ids: Sequence[int] | None,
        top_k: int,
    ) -> dict[str, Any]:
        """What ``fill`` gives for a text, from its rows of ``outputs`` and from ``words``."""
        spans = self.spans(encoding)
        probabilities = softmax(logits)[:, : self.tokenizer.vocab_size]
        known = np.arange(probabilities.shape[1]) if ids is None else np.array(ids)
        masks: list[dict[str, Any]] = []
        for span, each in zip(spans, probabilities[:, known], strict=True):
            best = np.argsort(-each, kind="stable")[:top_k]
            words = self.tokenizer.convert_ids_to_tokens(known[best].tolist())
            found = [
                {
                    "word": word,
                    "probability": float(each[at]),
                    "text": _with(self.tokenizer, text, span, word),
                }
                for word, at in zip(words, best, strict=True)
            ]
            masks.append({"start": span[0], "end": span[1], "words": found})
        filled = text
        # From the end, so that earlier places stay valid.
        for span, mask in zip(reversed(spans), reversed(masks), strict=True):
            filled = _with(self.tokenizer, filled, span, mask["words"][0]["word"])
        return {"text": text, "filled": filled, "masks": masks}


def _with(tokenizer: BertTokenizer, text: str, span: Span, word: str) -> str:
    """The text with a word in place of a [MASK]; a ## piece joins the word before it."""
    before, after = text[: span[0]], text[span[1] :]
    if tokenizer.continues(word):
        before = before.rstrip()
    return before + tokenizer.spelled(word) + after


# Next sentence prediction: does B follow A in a text? (paper 3.1, task 2)


@documented(PairOptions)
class NextSentencePredictor(OfPretraining):
    """A pre-trained model that says whether a sentence follows another.

    Raises what ``load`` raises, WeightsError if the weights lack the head, and UsageError.

    Args:
        model: a MODEL with a next-sentence head.
        max_seq_length: longest pair in tokens, the longer text is cut first; None: all the model's
            positions.
    """

    _heads = ("BertForNextSentencePrediction", "BertForNextSentencePrediction")

    @spelled_out(PairOptions)
    def __init__(self, model: str | Path, **options: Unpack[PairKeywords]) -> None:
        given = PairOptions(**options)
        self._open(model, given, given.max_seq_length)

    def predict(self, texts: Sequence[str], next_texts: Sequence[str]) -> list[dict[str, Any]]:
        """One answer a pair, in order: {"follows", "num_tokens", "truncated"}.

        "follows" is the probability that the second text follows the first (next_sentence_label 0);
        "num_tokens" counts the pair's tokens before truncation.
        """
        check_texts(texts, next_texts)
        features = text_features(self.tokenizer, texts, next_texts, self.max_seq_length)
        found = run_batches(
            self.outputs, features, [1] * len(features), self.device, precision=self.precision
        )
        return [self.answer(one, each) for one, each in zip(features, found, strict=True)]

    @property
    def outputs(self) -> Outputs:
        """(B, 2): the logits that the second text follows, and that it does not."""
        if isinstance(self.model, GraphModel):
            return GraphOutputs(self.model, lambda found, _: found.get(NEXT, found[LOGITS]))
        return lambda batch: self.model(batch.rows)

    def answer(self, one: Features, row: npt.NDArray[np.float32]) -> dict[str, Any]:
        """What ``predict`` gives for a pair, from its row (1, 2) of ``outputs``."""
        follows = float(softmax(row)[0, 0])
        return {"follows": follows, "num_tokens": one.num_tokens, "truncated": one.truncated}

    def predict_chunks(
        self, examples: Iterable[TextExample], *, first: int = 1
    ) -> Iterator[tuple[list[TextExample], list[dict[str, Any]]]]:
        """The same answers in lists, with their examples: ``first``, twice as many, and so on.

        Raises DataError for a single text.
        """
        for chunk in in_chunks(examples, first=first):
            pairs = [one.text_pair for one in chunk if one.text_pair is not None]
            if len(pairs) < len(chunk):
                raise DataError(
                    "the file has single texts, not pairs: name the column of the second sentence "
                    f"with {param('text_pair')}"
                )
            yield chunk, self.predict([one.text for one in chunk], pairs)
