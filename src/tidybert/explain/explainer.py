"""Explainer: what happens inside a MODEL or a RUN, for one text or a few.

n pieces, L layers, N heads, H width, D head width.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tidybert.data.batching import collate
from tidybert.errors import DataError, UsageError, param
from tidybert.explain.attention_maps import Attention
from tidybert.explain.attributions import (
    Attributions,
    ExplainedInput,
    attribute,
    baseline_ids,
    check_method,
    find_target,
    find_word_target,
    task_features,
)
from tidybert.explain.explained_text import (
    Floats,
    as_array,
    attention_of,
    cosine,
    embeddings_of,
    pieces_at,
    pieces_within,
    place_of,
    rows_of,
    states_of,
    words_of,
)
from tidybert.explain.layer_states import (
    WORDS,
    Cloze,
    EmbeddingSum,
    HiddenStates,
    NearestPieces,
    Similarities,
    WordInTexts,
    answers_of,
    nearest_pieces,
)
from tidybert.files.rows import count_of
from tidybert.inference.embedding import Embedder
from tidybert.inference.forward import encoding_features
from tidybert.inference.loading import OfOpened, OpenedModel, check_texts
from tidybert.inference.predictor import Predictor
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.bert import BertModel
from tidybert.modeling.heads import BertForMaskedLM
from tidybert.modeling.rows import pooled
from tidybert.tokenization.tokenizer import Encoding, Span
from tidybert.tokenization.vocabulary import SOS_TOKEN


class Explainer(OfOpened):
    """Shows what happens inside a model, in float32 on the CPU.

    Layers and heads are counted from 1; layer 0 is the output of the embeddings.  In a text,
    [MASK] and the other special tokens count as such.  A language model reads [SOS] and the text.

    Args:
        model: a MODEL, a RUN or a language model.  ``cloze`` needs a masked-LM head;
            ``attributions`` needs that head or a RUN of ``finetune``.
        allow_pickle: read weights from a pickle if there is no safetensors file.

    Raises what ``load`` and ``Predictor`` raise.
    """

    def __init__(self, model: str | Path, *, allow_pickle: bool = False) -> None:
        opened = self._opened = OpenedModel.of(
            model, device="cpu", precision=None, allow_pickle=allow_pickle
        )
        self._model, self._is_causal = opened.name, opened.is_causal
        # Gradients are those of the embeddings' output alone.
        self.model: nn.Module = opened.whole.requires_grad_(False)
        #: The fine-tuned model; None for a pre-trained one.
        self.predictor: Predictor | None = None
        #: The model with its masked-LM head; None where it has none.
        self.masked_lm: BertForMaskedLM | None = None
        if opened.is_finished:
            self.predictor = Predictor.of(opened.finished)
        elif not opened.is_causal:
            self.masked_lm = opened.head("BertForMaskedLM")
        self.encoder: BertModel = encoder_of(self.model)
        self.tokenizer = opened.tokenizer
        self.config = opened.config
        #: Most pieces of an input.
        self.max_seq_length: int = self.config.max_position_embeddings

    def facts(self) -> dict[str, object]:
        return {
            "model": self._model,
            "task": None if self.predictor is None else self.predictor.task.name,
            "masked_lm": self.masked_lm is not None,
            "causal": self._is_causal,
            "layers": self.config.num_hidden_layers,
            "heads": self.config.num_attention_heads,
            "max_seq_length": self.max_seq_length,
        }

    # --- one input

    def encode(
        self, text: str, text_pair: str | None = None, *, hide: Span | None = None
    ) -> Encoding:
        """The n pieces of a text or pair, never cut.

        Args:
            text, text_pair: the input.
            hide: (start, end) in characters of ``text``: its pieces become [MASK].

        Raises DataError for more pieces than the model has positions, and for a ``hide`` without a
        piece.
        """
        encoding = self._encoded(text, text_pair)
        if len(encoding) > self.max_seq_length:
            raise DataError(
                f"the text has {len(encoding)} tokens, and the model has positions for "
                f"{self.max_seq_length}: shorten it"
            )
        if hide is None:
            return encoding
        tokens, ids = list(encoding.tokens), list(encoding.input_ids)
        for position in pieces_at(encoding, hide, "hide"):
            tokens[position] = self.tokenizer.mask_token
            ids[position] = self.tokenizer.mask_token_id
        return replace(encoding, tokens=tokens, input_ids=ids)

    def embeddings(
        self, text: str, text_pair: str | None = None, *, hide: Span | None = None
    ) -> EmbeddingSum:
        """The three embeddings of each piece, their sum, and the sum after LayerNorm."""
        encoding = self.encode(text, text_pair, hide=hide)
        summands, *sums = embeddings_of(self.encoder, encoding)
        word, *others = summands
        position, segment = (*others, None, None)[:2]
        return EmbeddingSum(text, text_pair, encoding, word, position, segment, *sums)

    def attention(
        self,
        text: str,
        text_pair: str | None = None,
        *,
        hide: Span | None = None,
        causal: bool = False,
    ) -> Attention:
        """Scores before the softmax and probabilities of every layer and head.

        ``causal`` shows the same weights with a mask: a piece sees itself and those before it.
        """
        encoding = self.encode(text, text_pair, hide=hide)
        arrays = attention_of(self.encoder, encoding, causal=causal)
        return Attention(text, text_pair, encoding, causal or self._is_causal, *arrays)

    def hidden_states(
        self,
        text: str,
        text_pair: str | None = None,
        *,
        hide: Span | None = None,
        causal: bool = False,
    ) -> HiddenStates:
        """The states of each piece in each layer."""
        encoding = self.encode(text, text_pair, hide=hide)
        states = as_array(torch.stack(states_of(self.encoder, [encoding], causal=causal)))
        return HiddenStates(text, text_pair, encoding, causal or self._is_causal, states)

    def cloze(
        self,
        text: str,
        text_pair: str | None = None,
        *,
        hide: Span | None = None,
        top_k: int = 10,
    ) -> Cloze:
        """The answers of each layer at each [MASK], in the text or made by ``hide``.

        Raises WeightsError for a model without a masked-LM head, DataError for a text without
        [MASK], and UsageError for a ``top_k`` that is not 1 to the size of the vocabulary.
        """
        model = self._opened.with_head("BertForMaskedLM")
        if not 1 <= top_k <= self.tokenizer.vocab_size:
            raise UsageError(
                f"{param('top_k')} is {top_k}: expected 1 to {self.tokenizer.vocab_size}"
            )
        encoding = self.encode(text, text_pair, hide=hide)
        mask = self.tokenizer.mask_token_id
        masked = [at for at, index in enumerate(encoding.input_ids) if index == mask]
        if not masked:
            name = self.tokenizer.mask_token
            raise DataError(
                f"{text!r:.60} has no {name}: write it, spelled so, in place of a word, or name a "
                f"word's characters with {param('hide')}"
            )
        table = model.bert.word_embeddings.weight
        with torch.inference_mode():
            states = torch.stack(states_of(self.encoder, [encoding]))[:, masked]
            probabilities = as_array(model.mlm(states, table).softmax(-1))
        truths = self._encoded(text, text_pair).input_ids
        masks = answers_of(probabilities, masked, truths, self.tokenizer, top_k)
        return Cloze(text, text_pair, encoding, masks)

    def attributions(
        self,
        text: str,
        text_pair: str | None = None,
        *,
        method: str = "integrated-gradients",
        target: str | None = None,
        at: Span | None = None,
        steps: int | None = None,
    ) -> Attributions:
        """How much each word raised an answer.

        Args:
            text, text_pair: the input of a RUN; of a pre-trained model a text with [MASK].
            method: integrated-gradients, gradient-x-input or leave-one-out.
            target: a label, a tag, or a word for [MASK]; None for the model's own answer.
            at: (start, end) in characters of ``text``, the word whose tag is explained, or one
                [MASK] of several.
            steps: points of the path of integrated gradients; None for 50.

        Raises UsageError for an unknown method or target; DataError for a text that the model would
        cut, or a task whose answers this cannot explain; WeightsError for a model without a head.
        """
        steps = check_method(method, steps)
        if self.predictor is None:
            encoding = self.encode(text, text_pair)
            (features,) = encoding_features([encoding])
            model, batch = self._opened.with_head("BertForMaskedLM"), collate([features])
            chosen = find_word_target(model, self.tokenizer, encoding, batch, target, at)
        else:
            encoding = self.tokenizer.encode(text, text_pair)
            features = task_features(self.predictor, encoding, text, text_pair)
            chosen = find_target(self.predictor, encoding, collate([features]), target, at)
        words = words_of(encoding, (text, text_pair or ""))
        baseline = baseline_ids(features, self.tokenizer)
        given = ExplainedInput(self.encoder, features, words, baseline, chosen)
        found = attribute(given, method, steps)
        return Attributions(text, text_pair, encoding, method, chosen.label, **found)

    # --- words and texts beside each other

    def word_in_texts(self, word: str, texts: Sequence[str]) -> WordInTexts:
        """The vectors of a word's first place in each text, layer by layer.

        A vector is the mean over the word's pieces.  Raises DataError where a text lacks the word,
        and for fewer than two texts.
        """
        check_texts(texts)
        if len(texts) < 2:
            raise DataError(f"{count_of(len(texts), 'text')}: a word is compared in two or more")
        spans = [place_of(word, text) for text in texts]
        vectors = []
        for text, span in zip(texts, spans, strict=True):
            encoding = self.encode(text)
            pieces = pieces_within(encoding, span)
            if not pieces:
                raise DataError(f"the tokenizer drops {word!r} from {text!r:.60}")
            states = torch.stack(states_of(self.encoder, [encoding]))
            vectors.append(as_array(states[:, pieces].mean(1)))
        found = np.stack(vectors)  # (B, L + 1, H)
        cosines = cosine(found[:, None], found[None])  # (B, B, L + 1)
        return WordInTexts(word, list(texts), spans, found, np.moveaxis(cosines, -1, 0))

    def nearest(self, word: str, *, top_k: int = 10) -> NearestPieces:
        """The pieces of the vocabulary whose word embeddings are nearest to a word's, by cosine.

        A word of several pieces has their mean.  The word's own pieces and names in brackets are
        left out.  Raises DataError for a word that the vocabulary does not know.
        """
        return nearest_pieces(self._word_table(), self.tokenizer, word, top_k)

    def similarities(self, texts: Sequence[str], *, layer: int | str | None = None) -> Similarities:
        """The cosines of words and texts with each other; ``.map()`` places them on a plane.

        Args:
            texts: at least two words or texts.
            layer: whose states are averaged over all pieces, [CLS] and [SEP] among them; "words"
                averages the word embeddings of the text's own pieces; None takes the vectors of
                ``Embedder``, which uses the modules of a sentence-transformers directory.

        Raises DataError for fewer texts, or one without a piece; UsageError for an unknown layer.
        """
        check_texts(texts)
        if len(texts) < 2:
            raise DataError(f"{count_of(len(texts), 'text')}: expected two or more to compare")
        if layer == WORDS:
            table, means = self._word_table(), []
            for text in texts:
                ids = self.tokenizer.encode(text, add_special_tokens=False).input_ids
                if not ids:
                    raise DataError(f"{text!r:.60} has no token to compare")
                means.append(table[ids].mean(0))
            vectors = np.stack(means)
        elif layer is None and not self._is_causal:
            layer, vectors = self.config.num_hidden_layers, self._embedder.embed(texts)
        else:
            last, layer = self.config.num_hidden_layers, -1 if layer is None else layer
            if not re.fullmatch(r"-?\d{1,9}", str(layer)) or not -last - 1 <= int(layer) <= last:
                raise UsageError(
                    f"{param('layer')} {layer}: expected 0 (the output of the embeddings), 1 to "
                    f"{last}, from the end -1 to -{last + 1}, or {WORDS}"
                )
            layer = int(layer) % (last + 1)
            encodings = [self.encode(text) for text in texts]
            with torch.inference_mode():
                states = states_of(self.encoder, encodings)[layer]
                vectors = as_array(pooled(states, rows_of(encodings), "mean"))
        return Similarities(list(texts), layer, vectors, cosine(vectors[:, None], vectors))

    # --- parts

    @cached_property
    def _embedder(self) -> Embedder:
        return Embedder.of(self._opened)

    def _encoded(self, text: str, text_pair: str | None) -> Encoding:
        if not self._is_causal:
            return self.tokenizer.encode(text, text_pair, special_tokens_in_text=True)
        if text_pair is not None:
            raise DataError("a language model reads single texts, and this is a pair")
        one = self.tokenizer.encode(text, add_special_tokens=False)
        start, _ = self.tokenizer.vocabulary.text_bounds
        return Encoding(
            tokens=[SOS_TOKEN, *one.tokens],
            input_ids=[start, *one.input_ids],
            token_type_ids=[0, *one.token_type_ids],
            offset_mapping=[(0, 0), *one.offset_mapping],
            sequence_ids=[None, *one.sequence_ids],
            truncated=False,
            num_tokens=one.num_tokens + 1,
            continues=[False, *one.continues],
        )

    def _word_table(self) -> Floats:
        """(V, H): the word embeddings of the tokenizer's pieces."""
        return as_array(self.encoder.word_embeddings.weight.detach())[: self.tokenizer.vocab_size]
