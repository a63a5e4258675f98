"""Frozen features: texts to vectors, from any of the encoder's layers (paper 5.3, table 7).

Google's extract_features.py writes the states of each token; sentence-transformers pools them into
one vector a text.  T tokens, B sequences, H width, L layers, d values a vector.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

import numpy as np
import numpy.typing as npt

from tidybert.catalog import DEFAULT_MODEL
from tidybert.checkpoints.graph import EMBEDDING, STATES, Floats, GraphModel
from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.data.features import Features, UnknownTokens, text_features
from tidybert.errors import TruncationWarning, UsageError, WeightsError, param
from tidybert.files.rows import as_list
from tidybert.inference.forward import (
    GraphOutputs,
    Outputs,
    encoding_features,
    pooled,
    run_batches,
)
from tidybert.inference.keywords import EmbedderKeywords
from tidybert.inference.loading import (
    OfOpened,
    OpenedModel,
    check_texts,
    fitting_length,
    model_fingerprint,
)
from tidybert.inference.options import EmbedderOptions, OpeningOptions
from tidybert.options import documented, spelled_out, values_of
from tidybert.system.reporter import SILENT, Reporter
from tidybert.system.terminal import counting_bar, warn_user
from tidybert.tokenization.tokenizer import Encoding, Span

if TYPE_CHECKING:
    from torch import Tensor

    from tidybert.modeling.rows import Rows

_SMALLEST_LENGTH: Final = np.float32(1e-12)


def fitted(vectors: Floats, dimensions: int | None, *, normalize: bool) -> Floats:
    """The first ``dimensions`` numbers (None: all) of each vector (n, d), scaled to length 1 if
    ``normalize``."""
    found = vectors[:, :dimensions]
    if normalize:
        found = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), _SMALLEST_LENGTH)
    return np.ascontiguousarray(found)


def graph_vectors(graph: GraphModel, form: SentenceForm, pooling: str | None) -> Outputs | None:
    """What gives (B, d) pooled, or (T, d) without pooling; None where the graph does not have it.

    Vectors of a graph with Dense modules are scaled and cut already.
    """
    name = STATES if pooling is None or form.graph_width is None else EMBEDDING
    if name not in graph.outputs or (name == EMBEDDING and pooling != form.pooling):
        return None
    if pooling is None or name == EMBEDDING:
        return GraphOutputs(graph, lambda found, _: found[name])
    return GraphOutputs(graph, lambda found, flat: pooled(found[name], flat.lengths, pooling))


@dataclass(frozen=True)
class TokenVectors:
    """The tokens of a text or pair, [CLS] and [SEP] among them, and their vectors (n, d) float32.

    ``offset_mapping`` and ``sequence_ids`` say where each token is, as in Encoding.
    """

    tokens: list[str]
    offset_mapping: list[Span]
    sequence_ids: list[int | None]
    vectors: npt.NDArray[np.float32]


@documented(EmbedderOptions)
class Embedder(OfOpened):
    """An encoder that turns texts into vectors, with the weights as they are.

    In a directory of sentence-transformers, its modules say how vectors are made unless an argument
    does, and ``embed`` equals ``encode``.  Computes no layer above the highest one in ``layers``;
    with ``cls`` pooling, computes only the [CLS] rows of that layer.  Raises what ``load`` and
    ``read_sentence_form`` raise, and UsageError for a setting that does not fit.

    Args:
        model: a MODEL; only its encoder is used.
        pooling: how the tokens' vectors become one vector a text: mean or max over every token
            ([CLS] and [SEP] count, as in sentence-transformers), or cls for the vector of [CLS].
            None: as the directory says, else mean.
        layers: which hidden states: one number or several; -1 is the last layer, 1 the first, 0 the
            embeddings; "lastN" is the last N layers, "all" every one with 0.  A string has commas
            between the numbers.
        combine: how the states of several layers become one vector a token, before pooling: concat
            (in the order of ``layers``), sum or mean.
        normalize: scale each vector to length 1.  None: as the directory says (minilm's does),
            else False.
        max_seq_length: longest text in tokens, longer ones are cut; None: as the directory says
            (256 for minilm), else all the model's positions.
        prompt: put before each text; None: as ``prompt_name`` says.
        prompt_name: of one of the directory's prompts; None: its default prompt, if it has one.
        truncate_dim: keep this many numbers of each vector, the first ones, of a Matryoshka model;
            None: as the directory says, else all.
        device: auto, cpu, cuda or cuda:N.
        precision: float32 (on CUDA with TF32 products), bfloat16, float16 on CUDA, or int8 on a
            CPU; auto is bfloat16 if the model was trained in it and the device suits it.
        allow_pickle: read weights from a pickle if there is no safetensors file.
    """

    @spelled_out(EmbedderOptions)
    def __init__(
        self, model: str | Path = DEFAULT_MODEL, **options: Unpack[EmbedderKeywords]
    ) -> None:
        given = EmbedderOptions(**options)
        opened = OpenedModel.of(model, **values_of(given, OpeningOptions))
        form = opened.form
        self.pooling: str = given.pooling or form.pooling
        self.combine = given.combine
        self.normalize = form.normalize if given.normalize is None else given.normalize
        self._opened, self.tokenizer = opened, opened.tokenizer
        #: The network, or the graph in its place.
        self.encoder: Any = opened.encoder if opened.graph is None else opened.graph
        #: ``precision``: float32, bfloat16, float16 or int8.
        self.device, self.precision = opened.device, opened.precision
        config = opened.config
        self.layers = find_layers(given.layers, config.num_hidden_layers)
        if opened.graph is not None:
            self._check_graph(form, given)
        if form.dense and self.layers != (config.num_hidden_layers,):
            raise UsageError(
                f"{param('layers', given.layers)}: the Dense module of {opened.name} reads the "
                "last layer alone"
            )
        positions = fitting_length(config, given.max_seq_length)
        limit = form.max_seq_length if given.max_seq_length is None else None
        self.max_seq_length = min(limit or positions, positions)
        #: Put before each text.
        self.prompt = form.prompt(given.prompt, given.prompt_name)
        #: The modules between pooling and scaling.
        self.dense = form.dense
        #: d of ``token_vectors``, which no module changes.
        width = len(self.layers) if self.combine == "concat" else 1
        self.token_dimension = config.hidden_size * width
        full = form.dimension(self.token_dimension)
        self._is_embedding = form.graph_width is not None
        if self._is_embedding and form.truncate_dim:
            full = min(full, form.truncate_dim)
        if given.truncate_dim is not None and given.truncate_dim > full:
            raise UsageError(
                f"{param('truncate_dim', given.truncate_dim)}: expected 1 to {full}, the numbers "
                "of a vector"
            )
        #: d, the number of values in a vector.
        self.dimension = min(given.truncate_dim or form.truncate_dim or full, full)
        # sentence-transformers scales by its module before it cuts, and on request after it.
        is_scaled = form.normalize and given.normalize is not False
        self._scaled_before = is_scaled and not self._is_embedding
        self._scaled_after = given.normalize is True
        for each in self.dense:
            each.to(str(self.device))
        self._has_warned = False

    def _check_graph(self, form: SentenceForm, given: EmbedderOptions) -> None:
        """Raise WeightsError for a graph without states, UsageError for what it did not keep."""
        where = self._opened.directory
        if STATES not in self.encoder.outputs:
            raise WeightsError(
                f"{where} gives {', '.join(self.encoder.outputs)} and no vectors: convert an "
                "encoder, or a RUN of embed, to have a graph that embeds"
            )
        if self.layers != (self._opened.config.num_hidden_layers,):
            raise UsageError(
                f"{param('layers', given.layers)}: a graph gives the last layer alone; name the "
                "model that it was converted from, where PyTorch is installed"
            )
        is_other = self.pooling != form.pooling or (form.normalize and not self.normalize)
        if form.graph_width is not None and is_other:
            raise UsageError(
                f"{where}: its Dense modules are in the graph, after the pooling {form.pooling}"
                f"{' and a scaling' * form.normalize}: leave {param('pooling')} and "
                f"{param('normalize', False)} out"
            )

    @cached_property
    def unknown(self) -> UnknownTokens:
        """What it does not know of the texts that it was given."""
        return UnknownTokens(self.tokenizer)

    def facts(self) -> dict[str, object]:
        return {
            "model": self._opened.name,
            "pooling": self.pooling,
            "layers": ", ".join(map(str, self.layers)),
            "combine": self.combine,
            "normalize": self.normalize,
            "prompt": self.prompt,
            "dimension": self.dimension,
            "max_seq_length": self.max_seq_length,
            "device": str(self.device),
            "precision": self.precision,
        }

    def embed(
        self,
        texts: str | Sequence[str],
        text_pairs: str | Sequence[str] | None = None,
        *,
        progress: bool = False,
    ) -> npt.NDArray[np.float32]:
        """(n, d): the vector of each text or pair, in order; of one text (d,).

        Warns if it cuts any.  ``progress`` shows a bar.
        """
        if isinstance(texts, str) and (text_pairs is None or isinstance(text_pairs, str)):
            second = None if text_pairs is None else [text_pairs]
            only: npt.NDArray[np.float32] = self.embed([texts], second, progress=progress)[0]
            return only
        texts, text_pairs = _lists(texts, text_pairs)
        features = text_features(
            self.tokenizer, texts, text_pairs, self.max_seq_length, prompt=self.prompt
        )
        self._warn_of_truncation([one.truncated for one in features])
        with counting_bar("embed", len(features), wanted=progress) as reporter:
            vectors = self.vectors(features, reporter)
        self.unknown.warn()
        return vectors

    #: sentence-transformers' name for it.
    encode = embed

    def embed_tokens(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[TokenVectors]:
        """The vectors of every token of each text or pair, in order; warns if it cuts any.

        No module changes them.  A prompt's tokens are among them, and places count from its begin.
        """
        texts, text_pairs = _lists(texts, text_pairs)
        encodings = self.encodings(texts, text_pairs)
        self._warn_of_truncation([one.truncated for one in encodings])
        vectors = self.token_vectors(encodings)
        return [
            TokenVectors(one.tokens, one.offset_mapping, one.sequence_ids, each)
            for one, each in zip(encodings, vectors_of_each(vectors, encodings), strict=True)
        ]

    def vectors(
        self, features: Sequence[Features], reporter: Reporter = SILENT
    ) -> npt.NDArray[np.float32]:
        """(n, d): one vector each, in order; calls ``advance`` with the number done."""
        return self._run(features, [1] * len(features), self.pooling, reporter)

    def encodings(
        self, texts: Sequence[str], text_pairs: Sequence[str | None] | None = None
    ) -> list[Encoding]:
        """The tokens of each text or pair, for ``token_vectors``."""
        if self.prompt:
            texts = [self.prompt + text for text in texts]
        pairs: Sequence[str | None] = [None] * len(texts) if text_pairs is None else text_pairs
        return [
            self.tokenizer.encode(text, pair, self.max_seq_length)
            for text, pair in zip(texts, pairs, strict=True)
        ]

    def token_vectors(self, encodings: Sequence[Encoding]) -> npt.NDArray[np.float32]:
        """(T, d): the vectors of all tokens, one encoding after another."""
        features = encoding_features(encodings)
        return self._run(features, [len(one) for one in encodings], None)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the encoder's weights and the tokenizer; an equal hash means equal vectors."""
        # Vectors in bfloat16 may be compared with those in float32, on every device.
        is_rounded = self.precision == "bfloat16" and self.device.type == "cpu"
        encoder = self._opened.in_float32(is_plain=True).encoder if is_rounded else self.encoder
        return model_fingerprint(encoder, self.tokenizer, self.dense)

    def matching(self, fingerprint: str) -> Self:
        """The same, which reads special tokens in texts as what has the fingerprint, if it can."""
        if self.fingerprint == fingerprint:
            return self
        other = copy.copy(self)
        del other.fingerprint
        way = not self.tokenizer.special_tokens_in_text
        other.tokenizer = self.tokenizer.reading(special_tokens_in_text=way)
        return other if other.fingerprint == fingerprint else self

    def _run(
        self,
        features: Sequence[Features],
        counts: Sequence[int],
        pooling: str | None,
        reporter: Reporter = SILENT,
    ) -> npt.NDArray[np.float32]:
        """The vectors of all features one after another, ``counts`` of each."""
        self.unknown.add(features)
        found = run_batches(
            self._outputs(pooling),
            features,
            counts,
            self.device,
            reporter=reporter,
            precision=self.precision,
        )
        width = self.token_dimension if pooling is None else self.dimension
        vectors = np.concatenate([*found]) if found else np.empty((0, width), dtype=np.float32)
        if pooling is not None:
            vectors = fitted(vectors, None, normalize=self._scaled_before)
        return fitted(vectors, width, normalize=self._scaled_after)

    def _outputs(self, pooling: str | None) -> Outputs:
        if self._opened.graph is None:
            return lambda batch: self._vectors(batch.rows, pooling)
        found = graph_vectors(self._opened.graph, self._opened.form, pooling)
        assert found is not None
        return found

    def _vectors(self, rows: Rows, pooling: str | None) -> Tensor:
        """(B, d) pooled, or (T, d) without pooling, of a network."""
        import torch

        from tidybert.modeling.rows import pooled

        states = [each.float() for each in self._states(rows, only_first=pooling == "cls")]
        combined = self.combine == "concat"
        vectors = torch.cat(states, dim=1) if combined else torch.stack(states).sum(0)
        if self.combine == "mean":
            vectors = vectors / len(states)
        if pooling in ("mean", "max"):
            vectors = pooled(vectors, rows, pooling)
        for dense in self.dense if pooling is not None else ():
            vectors = dense(vectors)
        return vectors

    def _states(self, rows: Rows, *, only_first: bool) -> list[Tensor]:
        """The layers' hidden states in the order asked for: (T, H), or (B, H) of [CLS] alone."""
        from tidybert.modeling.attention import PLAIN_PASS, PassOptions
        from tidybert.modeling.encoder import LowerStates

        first, highest = rows.first_rows, max(self.layers)
        hidden = self.encoder.embeddings(rows)
        of_highest = PassOptions(output_rows=first) if only_first else PLAIN_PASS
        if self.layers == (len(self.encoder.layers),):
            return [self.encoder.encoder(LowerStates(hidden, 0), rows, of_highest)]
        found = {0: hidden[first] if only_first else hidden}
        for number, layer in enumerate(self.encoder.layers[:highest], start=1):
            # Nobody reads the other rows of the highest layer; those of lower layers feed it.
            at_first = only_first and number == highest
            hidden = layer(hidden, rows, of_highest if at_first else PLAIN_PASS)
            if number in self.layers:
                found[number] = hidden[first] if only_first and not at_first else hidden
        return [found[number] for number in self.layers]

    def _warn_of_truncation(self, truncated: Sequence[bool]) -> None:
        if any(truncated) and not self._has_warned:
            self._has_warned = True
            warn_user(
                f"{sum(truncated)} of {len(truncated)} texts were cut to {self.max_seq_length} "
                "tokens and lost their end; this Embedder does not say so again",
                TruncationWarning,
            )


def _lists(texts: Any, text_pairs: Any) -> tuple[list[str], list[str] | None]:
    """Texts and second texts as lists, from columns of any library; DataError as check_texts."""
    check_texts(texts, text_pairs)
    return as_list(texts, "texts"), None if text_pairs is None else as_list(
        text_pairs, "text_pairs"
    )


def vectors_of_each(
    vectors: npt.NDArray[Any], encodings: Sequence[Encoding]
) -> Iterator[npt.NDArray[Any]]:
    """Cut (T, d), the vectors of all tokens, into one (tokens, d) for each encoding."""
    end = 0
    for one in encodings:
        end += len(one)
        yield vectors[end - len(one) : end]


def find_layers(layers: str | int | Sequence[int], num_layers: int) -> tuple[int, ...]:
    """The numbers of hidden states, 0 (the embeddings) to L, in the order that ``layers`` gives.

    Raises UsageError if ``layers`` names none, repeats one, or names one that the model lacks.
    """
    if layers == "all":
        return tuple(range(num_layers + 1))
    last = re.fullmatch(r"last(\d+)", layers) if isinstance(layers, str) else None
    if last:
        count = int(last[1])
        if not 1 <= count <= num_layers:
            raise UsageError(f"{param('layers', layers)}: the model has {num_layers} layers")
        return tuple(range(num_layers - count + 1, num_layers + 1))
    try:
        parts = layers.split(",") if isinstance(layers, str) else np.atleast_1d(layers)
        numbers = [int(each) for each in parts]
    except (TypeError, ValueError):
        numbers = []
    if not numbers:
        raise UsageError(
            f"{param('layers')} {layers!r:.60}: expected a number such as -1, several as in -2,-1, "
            "lastN for the last N, or all"
        )
    for number in numbers:
        if not -num_layers - 1 <= number <= num_layers:
            raise UsageError(
                f"{param('layers')}: the model has no layer {number}; it has 0 (the output of the "
                f"embeddings), 1 to {num_layers}, or from the end -1 to -{num_layers + 1}"
            )
    found = tuple(number % (num_layers + 1) for number in numbers)
    if len(set(found)) < len(found):
        raise UsageError(f"{param('layers', layers)}: a layer is named twice")
    return found
