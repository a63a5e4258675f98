"""A MODEL or a RUN that is served: opened once, verified, with a lane for each of its heads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidybert.checkpoints.example_kinds import ExampleKind
from tidybert.checkpoints.graph import Cpu
from tidybert.checkpoints.model_directory import verify
from tidybert.checkpoints.sentence_form import POOLINGS, SentenceForm
from tidybert.data.batching import Batch, collate
from tidybert.data.features import Features, sequence, text_features
from tidybert.errors import UsageError, param
from tidybert.inference.embedding import graph_vectors
from tidybert.inference.forward import GraphOutputs, Outputs, outputs_of, run_batches
from tidybert.inference.loading import OpenedModel
from tidybert.inference.predictor import Predictor
from tidybert.inference.pretraining_heads import MaskFiller, NextSentencePredictor
from tidybert.server.settings import ServerSettings
from tidybert.server.work_queue import Rows
from tidybert.tasks.task import AnyTask

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from tidybert.modeling.bert import BertModel
    from tidybert.search.index import Index

PREDICT, EMBED, FILL_MASK, NEXT_SENTENCE = "predict", "embed", "fill-mask", "next-sentence"
GENERATE, SEARCH = "generate", "search"


@dataclass(frozen=True, eq=False)
class ModelLane:
    """A model and one of its heads, which share batches; ``num_rows`` of a batch a feature."""

    outputs: Outputs
    num_rows: Callable[[Features], int]
    device: torch.device | Cpu
    precision: str

    def run(self, features: Sequence[Features]) -> list[Rows]:
        """The rows of each of the features; raises as ``run_batches``."""
        counts = [self.num_rows(one) for one in features]
        return run_batches(self.outputs, features, counts, self.device, precision=self.precision)


class ServedModel:
    """A MODEL or a RUN, ready to answer; ``name`` is what clients call it.

    A RUN predicts and embeds.  A MODEL embeds, fills masks and compares sentences, as far as its
    weights have these heads.  A language model goes on with a text, on the page alone.

    Raises what ``Predictor`` raises, and WeightsError for weights that are not those published.
    """

    def __init__(self, name: str, opened: OpenedModel) -> None:
        verify(opened.name)
        self.name, self.path, self.opened = name, opened.name, opened
        #: Seconds since 1970, when it was opened.
        self.created = int(time.time())
        self.predictor: Predictor | None = None
        self.mask_filler: MaskFiller | None = None
        self.next_sentences: NextSentencePredictor | None = None
        #: The index that requests search in, if this model's encoder made it.
        self.index: Index | None = None
        self.lanes: dict[str, ModelLane] = {}
        #: Whether it is a language model, which reads from left to right.
        self.is_causal = opened.is_causal
        if self.is_causal:
            # The page alone uses it.
            opened.precision = "float32"
        #: The network, or the graph in its place.
        self.encoder: Any = opened.graph
        if opened.graph is None:
            from tidybert.modeling.architectures import encoder_of

            self.encoder = encoder_of(opened.whole)
        if opened.is_finished:
            self.predictor = Predictor.of(opened.finished)
        elif not self.is_causal:
            if opened.head("BertForMaskedLM") is not None:
                self.mask_filler = MaskFiller.of(opened)
            if opened.head("BertForNextSentencePrediction") is not None:
                self.next_sentences = NextSentencePredictor.of(opened)
        self.tokenizer, self.config = opened.tokenizer, opened.config
        self.device, self.precision = opened.device, opened.precision
        #: Most tokens that a head without a task reads.
        self.max_positions: int = self.config.max_position_embeddings
        #: How ``embed`` makes vectors unless a request says it: as ``tidybert embed`` does.
        self.form = SentenceForm()
        if not self.is_causal:
            self.form = opened.form
            for each in self.form.dense:
                each.to(str(self.device))
            self._add_lanes()
        #: Most tokens of a text that ``embed`` reads.
        self.embedding_length = min(
            self.form.max_seq_length or self.max_positions, self.max_positions
        )
        #: The numbers of its vectors.
        full = self.form.dimension(self.config.hidden_size)
        self.dimension = min(self.form.truncate_dim or full, full)

    @property
    def heads(self) -> tuple[str, ...]:
        """What it can do: predict, embed, fill-mask, next-sentence, search; or generate."""
        if self.is_causal:
            return (GENERATE,)
        searches = () if self.index is None else (SEARCH,)
        return (*dict.fromkeys(name.partition(":")[0] for name in self.lanes), *searches)

    @property
    def task(self) -> AnyTask | None:
        """What a RUN was trained for."""
        return None if self.predictor is None else self.predictor.task

    @property
    def inputs(self) -> ExampleKind | None:
        """What one input of ``predict`` holds."""
        if self.predictor is None:
            return None
        # A model of another program has no tidybert.json, but its task has a kind.
        return self.predictor.metadata.inputs or self.predictor.task.inputs

    @property
    def max_seq_length(self) -> int:
        """Most tokens that ``predict`` reads; of a MODEL, that any head reads."""
        return self.max_positions if self.predictor is None else self.predictor.max_seq_length

    def embedding_features(self, inputs: Sequence[Any], prompt: str = "") -> list[Features]:
        """Features of texts after the prompt, or of ids and special tokens, cut to fit."""
        if all(isinstance(one, str) for one in inputs):
            return text_features(self.tokenizer, inputs, None, self.embedding_length, prompt=prompt)
        return [self._id_features(ids, number) for number, ids in enumerate(inputs)]

    def warm(self) -> None:
        """Run an input through each head, so that the first request is as fast as the next."""
        ids = [self.tokenizer.cls_token_id, self.tokenizer.mask_token_id]
        one = self._id_features([*ids, self.tokenizer.sep_token_id], 0)
        for name, lane in self.lanes.items():
            if name in (f"{EMBED}:cls", f"{EMBED}:max"):
                # They are as warm as the mean.
                continue
            if isinstance(lane.outputs, GraphOutputs):
                lane.outputs([one])
                continue
            import torch

            with torch.inference_mode():
                lane.outputs(collate([one]).to(str(self.device)))
        self.tokenizer.encode_batch(["warm"])

    def _id_features(self, ids: Sequence[int], number: int) -> Features:
        given = np.array(ids, dtype=np.int32)
        cls, sep = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        if len(given) > 1 and given[0] == cls and given[-1] == sep:
            given = given[1:-1]
        special = self.tokenizer.layout.num_special(1)
        total = len(given) + special
        kept = given[: self.embedding_length - special]
        made = sequence(self.tokenizer, [kept])
        return Features(*made, total, len(kept) < len(given), example=number)

    def _add_lanes(self) -> None:
        def add(
            name: str,
            outputs: Outputs,
            num_rows: Callable[[Features], int] = lambda one: 1,
        ) -> None:
            self.lanes[name] = ModelLane(outputs, num_rows, self.device, self.precision)

        predictor, filler = self.predictor, self.mask_filler
        if predictor is not None:
            task, model = predictor.task, predictor.model
            add(PREDICT, outputs_of(task, model), task.num_rows)
        for pooling in POOLINGS:
            # Not a method: a model that a reload replaced goes when its last request does.
            made: Outputs | None = partial(_vectors, self.encoder, self.form, pooling)
            if self.opened.graph is not None:
                made = graph_vectors(self.opened.graph, self.form, pooling)
            if made is not None:
                add(f"{EMBED}:{pooling}", made)
        if filler is not None:
            mask = self.tokenizer.mask_token_id
            add(FILL_MASK, filler.outputs, lambda one: int((one.input_ids == mask).sum()))
        if self.next_sentences is not None:
            add(NEXT_SENTENCE, self.next_sentences.outputs)


def _vectors(encoder: BertModel, form: SentenceForm, pooling: str, batch: Batch) -> Tensor:
    """(B, d): the last layer's states, pooled and through the Dense modules."""
    from tidybert.modeling.rows import pooled

    rows = batch.rows
    if pooling == "cls":
        found: Tensor = encoder(rows, output_rows=rows.first_rows).last_hidden_state
        found = found.float()
    else:
        states = encoder.lowest_states(rows, encoder.config.num_hidden_layers)
        found = pooled(states.float(), rows, pooling)
    for dense in form.dense:
        found = dense(found)
    return found


def open_models(settings: ServerSettings) -> dict[str, ServedModel]:
    """The models of a server by name: loaded, verified and warm; raises as ``ServedModel``."""
    found = {}
    for name, path in settings.models.items():
        opened = OpenedModel(
            path,
            device=settings.device,
            precision=settings.precision,
            allow_pickle=settings.allow_pickle,
            plain_texts=not settings.special_tokens_in_text,
        )
        found[name] = ServedModel(name, opened)
    if settings.index is not None:
        _open_index(settings.index, [each for each in found.values() if not each.is_causal])
    for each in found.values():
        each.warm()
    return found


def _open_index(directory: Path, models: Sequence[ServedModel]) -> None:
    """Give an index to the model whose encoder made it; raises as ``Index.open``."""
    if not models:
        raise UsageError(f"{param('index', directory)}: no model embeds")
    from tidybert.search.index import Index

    index = Index(directory)
    errors = []
    for each in models:
        try:
            # Requests are embedded with those for the model's other heads.
            index.embedder_of(each.opened.in_float32())
        except UsageError as error:
            errors.append(error)
        else:
            each.index = index
            return
    raise errors[0]
