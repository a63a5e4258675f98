"""embed: an encoder whose vectors are near where texts belong together (Reimers & Gurevych 2019).

Each text is a sequence of its own, and its vector is the mean, or another pooling, of its tokens'
last states.  The columns of the examples choose the loss.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tidybert.checkpoints.activations import IDENTITY
from tidybert.checkpoints.example_kinds import TEXT
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.sentence_form import DENSE, POOLINGS, SentenceForm
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.configuration import BertConfig
from tidybert.data.batching import Batch
from tidybert.data.checks import DataReport, TrainingData
from tidybert.data.features import Features, text_features
from tidybert.data.splits import Indices, grouped_split, stratified_split
from tidybert.errors import ConfigError, UsageError, param
from tidybert.metrics.metric import meanings_of
from tidybert.metrics.retrieval_scores import VectorScores
from tidybert.tasks.answer import Embedded
from tidybert.tasks.answers import Answers, Outputs
from tidybert.tasks.task import AnyTask, Task, tensor_on
from tidybert.tasks.task_options import SCALE, VectorOptions
from tidybert.tasks.vectors.vector_answers import answers_of
from tidybert.tasks.vectors.vector_examples import (
    FORM_NAMES,
    Form,
    TextNumbers,
    VectorExample,
    candidate_rows,
    examine,
    form_of,
    ignored_candidates,
    read_vectors,
)
from tidybert.tokenization import BertTokenizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from tidybert.checkpoints.dense import Dense
    from tidybert.checkpoints.model_directory import HeadDescription, ModelDirectory
    from tidybert.modeling.bert import BertModel
    from tidybert.training.fine_tuning import FineTuning, Loss
    from tidybert.training.training_arguments import TrainingArguments

_QUERY, _DOCUMENT = "query", "document"
_METRIC_OF: Mapping[Form, str] = {
    "pairs": "ndcg_at_10", "scores": "spearman", "labels": "map", "texts": "ndcg_at_10",
}  # fmt: skip
_LOSS_OF: Mapping[Form, str] = {
    "pairs": "infonce", "scores": "cosent", "labels": "supcon", "texts": "leaf",
}  # fmt: skip


@dataclass(eq=False)
class SentenceVectors(Task[VectorExample]):
    """Vectors of single texts.

    Args:
        form: what the examples of the training hold, which chooses the metric.
        loss_name: infonce, cosent, supcon, or leaf, which learns a teacher's vectors; None where
            nothing is trained.
        pooling: of the tokens' last states: mean, cls or max.
        query_prompt, document_prompt: what each first text, and each other one, begins with.
        normalize: whether ``embed`` scales vectors to length 1; a cosine does not depend on it.
        scale: see ``losses``.
        both_directions: see ``losses.info_nce``.
        widths: first values of the vectors that are trained too, with the whole ones.
        dense: what follows the pooling, as the training begins.
        teacher: the fingerprint of the model in whose space the vectors are.
    """

    form: Form | None = None
    loss_name: str | None = None
    pooling: str = "mean"
    query_prompt: str = ""
    document_prompt: str = ""
    normalize: bool = False
    scale: float = SCALE
    both_directions: bool = False
    widths: tuple[int, ...] = ()
    dense: tuple[Dense, ...] = ()
    teacher: str = ""

    name = "embed"
    inputs = TEXT
    answer = Embedded
    architecture = "BertModel"
    unit = "sequence"
    read = read_vectors
    options_class = VectorOptions
    has_pooling = True
    pools_itself = True
    correctness = "accuracy of the nearest text"
    meanings = meanings_of(VectorScores)

    @property
    def metric(self) -> str:  # type: ignore[override]
        """What picks the best checkpoint: that of the form."""
        return _METRIC_OF[self.form or "pairs"]

    # --- from files and options to the task

    @classmethod
    def from_texts(
        cls, texts: Sequence[str], text_pairs: Sequence[str] | None
    ) -> list[VectorExample]:
        columns = [texts] if text_pairs is None else [texts, text_pairs]
        rows = zip(*columns, strict=True)
        return [VectorExample(row, None, number) for number, row in enumerate(rows, start=1)]

    @classmethod
    def shown(cls, example: VectorExample) -> Sequence[str]:
        return example.texts

    @classmethod
    def identity(cls, example: VectorExample) -> Hashable:
        """The text, or the two that belong together."""
        return example.texts[:2]

    @classmethod
    def split(
        cls, examples: Sequence[VectorExample], fraction: float, seed: int
    ) -> tuple[Indices, Indices]:
        """A share of each class; or pairs of which no text is on both sides, where that is left."""
        form = form_of(examples)
        if form == "labels":
            labels, texts = [one.label or "" for one in examples], [one.texts for one in examples]
            return stratified_split(labels, fraction, seed, texts=texts)
        if form == "scores":
            # Texts of scored pairs are often in many of them.
            return super().split(examples, fraction, seed)
        firsts, seconds = ([one.texts[at] for one in examples] for at in (0, 1))
        labels_of_none: list[tuple[str, ...]] = [()] * len(examples)
        return grouped_split(firsts, fraction, seed, texts=seconds, labels=labels_of_none)

    @classmethod
    def are_measured(cls, examples: Sequence[VectorExample]) -> bool:
        return any(len(one.texts) > 1 or one.label is not None for one in examples)

    @classmethod
    def from_examples(
        cls, examples: Sequence[VectorExample], options: VectorOptions = VectorOptions()
    ) -> Self:
        form = form_of(examples)
        loss_name = options.loss or _LOSS_OF[form]
        # Of pairs with scores, the scores can be left out.
        if loss_name != _LOSS_OF[form] and (loss_name, form) != ("infonce", "scores"):
            wanted = next(FORM_NAMES[each] for each in _LOSS_OF if _LOSS_OF[each] == loss_name)
            raise UsageError(
                f"{param('loss', loss_name)} learns from {wanted}, and these are {FORM_NAMES[form]}"
            )
        if options.both_directions and loss_name != "infonce":
            raise UsageError(
                f"{param('both_directions', True)} is for {param('loss', 'infonce')}, and the "
                f"loss of {FORM_NAMES[form]} is {loss_name}; leave it out"
            )
        return cls(
            form,
            loss_name,
            query_prompt=options.query_prompt or "",
            document_prompt=options.document_prompt or "",
            scale=SCALE if options.scale is None else options.scale,
            both_directions=bool(options.both_directions),
            widths=options.widths(),
        )

    def begun_from(self, directory: ModelDirectory | None, pooling: str | None) -> Self:
        """With the pooling and the prompts of a directory of sentence-transformers."""
        form = SentenceForm() if directory is None else read_sentence_form(directory)
        return replace(
            self,
            dense=form.dense,
            pooling=pooling or form.pooling,
            normalize=form.normalize,
            query_prompt=self.query_prompt or form.prompts.get(_QUERY, ""),
            document_prompt=self.document_prompt or form.prompts.get(_DOCUMENT, ""),
        )

    def following(self, other: AnyTask) -> Self:
        if not isinstance(other, SentenceVectors) or not other.dense:
            return self
        return replace(self, pooling=other.pooling, dense=other.dense, normalize=other.normalize)

    def completed(self, directory: ModelDirectory) -> Self:
        return replace(self, dense=read_sentence_form(directory).dense)

    def attach(self, network: nn.Module) -> None:
        if self.dense:
            from torch import nn

            dense = nn.Sequential(*map(copy.deepcopy, self.dense)).requires_grad_(True)
            network.add_module(DENSE, dense.to(next(network.parameters()).device))

    def taught(self, network: nn.Module, width: int, teacher: str) -> Self:
        """The task that learns a teacher's vectors, whose network ends with a Dense to them."""
        import torch
        from torch import nn

        from tidybert.checkpoints.dense import Dense
        from tidybert.modeling.bert import BertModel

        assert isinstance(network, BertModel)
        dense = self.dense
        size = dense[-1].linear.out_features if dense else network.config.hidden_size
        if not dense or size != width:
            linear = nn.Linear(size, width)
            if size == width:
                nn.init.eye_(linear.weight)
            dense = (*dense, Dense(linear.weight, torch.zeros(width), IDENTITY))
        made = replace(self, dense=dense, teacher=teacher, normalize=True)
        made.attach(network)
        return made

    def sentence_form(self, max_seq_length: int) -> SentenceForm:
        """A text for which no prompt is named is a document."""
        prompts = {_QUERY: self.query_prompt, _DOCUMENT: self.document_prompt}
        given = prompts if any(prompts.values()) else {}
        default = _DOCUMENT if self.document_prompt else None
        return SentenceForm(
            self.pooling, self.dense, self.normalize, given, default, max_seq_length
        )

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        settings = metadata.settings
        found = {
            name: settings[name]
            for name in ("pooling", "query_prompt", "document_prompt", "normalize", "teacher")
            if name in settings
        }
        for name, value in found.items():
            is_good = type(value) is (bool if name == "normalize" else str)
            if not is_good or (name == "pooling" and value not in POOLINGS):
                raise ConfigError(f"settings: {name} is {value!r:.80}; not one that embed knows")
        return cls(**found)

    def settings(self) -> dict[str, Any]:
        return {
            "pooling": self.pooling,
            "query_prompt": self.query_prompt,
            "document_prompt": self.document_prompt,
            "normalize": self.normalize,
            **({"teacher": self.teacher} if self.teacher else {}),
        }

    @classmethod
    def reads_head(cls, head: HeadDescription) -> bool:
        # An encoder alone is a MODEL, whatever trained it.
        return False

    # --- from examples to batches

    def features(
        self, examples: Sequence[VectorExample], tokenizer: BertTokenizer, max_seq_length: int
    ) -> list[Features]:
        """A sequence a text; the example has as many tokens as its longest."""
        texts = [self._with_prompts(one.texts) for one in examples]
        different = list(dict.fromkeys(text for each in texts for text in each))
        made = text_features(tokenizer, different, None, max_seq_length)
        of_text = dict(zip(different, made, strict=True))
        features = []
        for number, each in enumerate(texts):
            parts = [of_text[text] for text in each]
            features.append(Features.of_sequences(parts, number))
        return features

    def _with_prompts(self, texts: Sequence[str]) -> list[str]:
        """A text alone is a document; the first of several is a query."""
        first = self.query_prompt if len(texts) > 1 else self.document_prompt
        return [first + texts[0], *(self.document_prompt + text for text in texts[1:])]

    def add_labels(self, features: Sequence[Features], examples: Sequence[VectorExample]) -> None:
        """Set what the loss compares with; answers need no labels but those of the examples."""
        labels: list[Any] = []
        if self.loss_name == "infonce":
            numbers = TextNumbers(examples)
            labels = [numbers.label(one) for one in examples]
        elif self.loss_name == "cosent":
            labels = [one.score for one in examples]
        elif self.loss_name == "supcon":
            classes = dict.fromkeys(one.label for one in examples)
            number_of = {label: number for number, label in enumerate(classes)}
            labels = [number_of[one.label] for one in examples]
        for one, label in zip(features, labels, strict=bool(labels)):
            one.label = label

    def examine(self, data: TrainingData[VectorExample], report: DataReport) -> None:
        assert self.form is not None
        examine(self.form, data, report)

    # --- the model

    def build_model(self, config: BertConfig) -> BertModel:
        from tidybert.modeling.architectures import build_encoder

        return build_encoder(config, add_pooler=False)

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """(S, H) the vector of each text."""
        from tidybert.modeling.rows import pooled

        rows = batch.rows
        only = rows.first_rows if self.pooling == "cls" else None
        found = model(rows, output_rows=only, lower_states=batch.lower_states)
        states: Tensor = found.last_hidden_state
        vectors = states if only is not None else pooled(states.float(), rows, self.pooling)
        return network_dense(vectors) if (network_dense := getattr(model, DENSE, None)) else vectors

    def objective(
        self,
        model: nn.Module,
        features: Sequence[Features],
        loss: Loss,
        arguments: TrainingArguments,
        **given: Any,
    ) -> FineTuning:
        """Its loss is that of a whole batch: ``loss`` where a teacher answered, else its own."""
        from tidybert.tasks.vectors.vector_training import TaughtVectors, VectorTraining

        classes = None
        if self.loss_name == "supcon":
            classes = [-1 if one.label is None else one.label for one in features]
        of_batch = loss if isinstance(loss, TaughtVectors) else self.batch_loss
        return VectorTraining(
            model, features, self.outputs, of_batch, arguments, classes=classes, **given
        )

    def batch_loss(self, vectors: Tensor, features: Sequence[Features]) -> Tensor:
        """The mean loss of a whole batch, a scalar, from its vectors (S, H)."""
        from tidybert.tasks.vectors import losses

        return losses.matryoshka(self._loss(features, vectors.device), vectors, self.widths)

    def _loss(
        self, features: Sequence[Features], device: torch.device
    ) -> Callable[[Tensor], Tensor]:
        from tidybert.tasks.vectors import losses

        labels = [one.label for one in features]
        if self.loss_name == "supcon":
            classes = tensor_on(device, labels)
            return partial(losses.supervised_contrastive, classes=classes, scale=self.scale)
        rows = [tensor_on(device, each) for each in candidate_rows(features)]
        first, second = rows
        if self.loss_name == "cosent":
            scores = tensor_on(device, np.array(labels, dtype=np.float64))
            return lambda vectors: losses.cosent(
                vectors[first], vectors[second], scores, scale=self.scale
            )
        ignored = tensor_on(device, ignored_candidates(labels))
        return lambda vectors: losses.info_nce(
            vectors[first],
            vectors[second],
            ignored,
            scale=self.scale,
            both_directions=self.both_directions,
        )

    # --- its answers

    def answers(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[VectorExample]
    ) -> Answers[Any, VectorExample]:
        return answers_of(self, outputs, features, examples)
