"""A MODEL in the form of another program, with every head that the form has a place for."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
from torch import Tensor

from tidybert.checkpoints.activations import IDENTITY
from tidybert.checkpoints.dense import Dense
from tidybert.checkpoints.example_kinds import PAIR
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, model_description
from tidybert.checkpoints.sentence_form import (
    SentenceForm,
    described_activation,
    write_sentence_form,
)
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.checkpoints.tensor_files import left_out_of, write_shards, write_tensors
from tidybert.checkpoints.tensorflow_bundle import to_tensorflow, write_bundle
from tidybert.checkpoints.weights import as_berts, as_written, check_weights, from_huggingface
from tidybert.configuration import PREFIX, BertConfig, MeanBertConfig
from tidybert.configuration.family import BERT
from tidybert.errors import UsageError, WeightsError, param
from tidybert.modeling.heads import ARCHITECTURES, BertForSequenceClassification
from tidybert.storage.atomic_files import atomic_directory, atomic_write_json, atomic_write_text
from tidybert.storage.model_files import (
    CONFIG_FILE,
    MODULES_FILE,
    TENSORFLOW_CONFIG_FILE,
    TENSORFLOW_INDEX,
)
from tidybert.storage.opening import present
from tidybert.storage.output_lock import output_lock
from tidybert.tokenization import BertTokenizer

# All that a MODEL directory holds, whatever heads it has, to be written in another form.

DTYPES: Final = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


HEADS: Final = {part.prefix: part for each in ARCHITECTURES.values() for part in each.parts}
"""The layers of heads by the beginning of their tensors' names."""


@dataclass(frozen=True)
class WholeModel:
    """A MODEL, its tensors under Hugging Face's names, heads and encoder called as BERT's.

    Args:
        tensors: the encoder's begin with ``bert.`` unless the architecture is BertModel.
        architecture: transformers' class of the model.
        form: what sentence-transformers does after the encoder; None where no file says it.
        activation: what a cross-encoder's scores pass through; None for another model.
        longest: the tokens of a cross-encoder's longest pair, where its files say it.
        metadata: the content of tidybert.json; None without one.
        unread: names in the file of what is not BERT's, or in words.
    """

    config: BertConfig
    tokenizer: BertTokenizer
    tensors: dict[str, Tensor]
    architecture: str
    label_names: tuple[str, ...] | None
    problem_type: str | None
    form: SentenceForm | None
    activation: str | None
    longest: int | None
    metadata: ModelMetadata | None
    unread: tuple[str, ...]

    @property
    def heads(self) -> list[str]:
        """The keys of HEADS that the tensors have."""
        return _heads(self.tensors)

    def description(self) -> dict[str, Any]:
        """The content of config.json."""
        values = model_description(
            self.config, self.architecture, self.label_names, self.problem_type
        )
        dtypes = {each.dtype for each in self.tensors.values()}
        if len(dtypes) == 1 and dtypes != {torch.float32}:
            values["torch_dtype"] = str(dtypes.pop()).removeprefix("torch.")
        return values | (described_activation(self.activation) if self.activation else {})


def read_whole_model(source: ModelDirectory, *, dtype: str | None = None) -> WholeModel:
    """Read a MODEL with every head, in the dtype that its file has, or ``dtype``."""
    source.require_bert()
    stored = source.tensors()
    given = {"source": str(source), "architecture": source.architecture}
    check_weights(stored, source.config, **given)
    ours, unknown = from_huggingface(stored, source.config, source.architecture)
    theirs = as_berts(ours, source.config)
    has_heads = bool(_heads(theirs))
    tensors = {
        _named(name, has_heads): each if dtype is None else each.to(DTYPES[dtype])
        for name, each in theirs.items()
    }
    large = [name for name, each in tensors.items() if not torch.isfinite(each).all()]
    if large:
        raise UsageError(
            f"{param('dtype', dtype)} has no number as large as some in {', '.join(large[:3])}: "
            f"give {param('dtype', 'bfloat16')}"
        )
    head, metadata, form = source.head, source.metadata, None
    names, size = head.label_names, len(tensors.get("classifier.weight", ()))
    if names is not None and size and len(names) != size:
        raise WeightsError(
            f"{source}: {len(names)} label names do not fit a classifier of {size} outputs"
        )
    is_scorer = head.activation is not None and bool(_heads(tensors))
    if present(source.path / MODULES_FILE, error=WeightsError) and not is_scorer:
        form = read_sentence_form(source)
    activation, longest = head.activation, head.longest
    if metadata is not None and head.problem_type == "regression":
        activation = metadata.settings.get("activation", IDENTITY)
        longest = metadata.max_seq_length
    return WholeModel(
        source.config,
        source.tokenizer,
        tensors,
        _architecture(_heads(tensors), head.architectures),
        names,
        head.problem_type,
        form,
        activation,
        longest,
        metadata,
        (*unknown, *left_out_of(source.path)),
    )


def _heads(tensors: dict[str, Tensor]) -> list[str]:
    return [each for each in HEADS if any(name.startswith(f"{each}.") for name in tensors)]


def _named(name: str, has_heads: bool) -> str:
    """The encoder's names after ``bert.`` beside a head, and bare without one."""
    bare = name.removeprefix(PREFIX)
    is_head = bare.startswith(tuple(f"{each}." for each in HEADS))
    return f"{PREFIX}{bare}" if has_heads and not is_head else bare


def _architecture(heads: list[str], given: tuple[str, ...]) -> str:
    """The class that config.json names if the weights have its head, else the usual one."""
    possible = [
        name for head in heads for name, each in ARCHITECTURES.items() if HEADS[head] in each.parts
    ]
    fitting = [each for each in given if each in possible]
    if fitting or not heads:
        return fitting[0] if fitting else "BertModel"
    # A class of two heads is there twice.
    return max(possible, key=possible.count)


_ACTIVATIONS: Final = {
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
}


@dataclass(frozen=True)
class Conversion:
    """What ``convert`` wrote; ``lost`` says in words what the form has no place for."""

    directory: Path
    form: str
    architecture: str
    dtypes: tuple[str, ...]
    num_tensors: int
    num_parameters: int
    lost: tuple[str, ...]


def convert(
    source: ModelDirectory,
    destination: str | Path,
    form: str,
    *,
    dtype: str | None = None,
    max_shard_bytes: int | None = None,
) -> Conversion:
    """Write a MODEL in one of WRITERS' forms, whole or not at all."""
    destination = Path(destination)
    with output_lock(destination):
        if os.path.lexists(destination):
            raise UsageError(f"{destination} is there already; name a new directory")
        model = read_whole_model(source, dtype=dtype)
        with atomic_directory(destination) as partial:
            lost = WRITERS[form](partial, model, max_shard_bytes)
    dtypes = {str(each.dtype).removeprefix("torch.") for each in model.tensors.values()}
    return Conversion(
        destination,
        form,
        model.config.family.class_name(model.architecture),
        tuple(sorted(dtypes)),
        len(model.tensors),
        sum(each.numel() for each in model.tensors.values()),
        (*lost, *model.unread),
    )


def _write_huggingface(directory: Path, model: WholeModel, max_bytes: int | None) -> list[str]:
    """config.json, the tokenizer's files and safetensors, as transformers opens them."""
    _write_bert(directory, model, max_bytes)
    lost = _lost_modules(model.form)
    if isinstance(model.config, MeanBertConfig):
        lost.append(
            "transformers itself: it refuses the model_type bert-mean, for it has no head that "
            "reads the mean (--to sentence-transformers has one)"
        )
    if model.metadata is not None:
        model.metadata.write(directory)
    return lost


def _write_tensorflow(directory: Path, model: WholeModel, max_bytes: int | None) -> list[str]:
    """bert_config.json, vocab.txt and bert_model.ckpt, under the original code's names."""
    if model.config.family is not BERT:
        raise UsageError(
            f"{param('to', 'tensorflow')} is the form of BERT's original code, and this model's "
            f"model_type is {model.config.model_type}: write it as huggingface"
        )
    model.tokenizer.require_wordpiece(f"{param('to', 'tensorflow')}: the original code")
    atomic_write_json(directory / TENSORFLOW_CONFIG_FILE, model.description())
    model.tokenizer.save(directory, model_max_length=model.config.max_position_embeddings)
    tensors = {
        name if name.startswith((PREFIX, *HEADS)) else f"{PREFIX}{name}": each
        for name, each in model.tensors.items()
    }
    write_bundle(directory / TENSORFLOW_INDEX, to_tensorflow(tensors), max_bytes)
    lost = _lost_modules(model.form)
    if model.form is not None and model.form.max_seq_length is not None:
        lost.append(f"the longest text of {model.form.max_seq_length} tokens")
    if isinstance(model.config, MeanBertConfig):
        lost.append("the mean, which only tidybert reads: the original code's head reads [CLS]")
    if model.metadata is not None:
        model.metadata.write(directory)
    return lost


def _write_sentence_transformers(
    directory: Path, model: WholeModel, max_bytes: int | None
) -> list[str]:
    """An encoder and its modules; a head on whole sequences becomes Dense modules.

    A model that scores pairs is what CrossEncoder opens: a BERT with its head as it is, or, where
    the head reads the mean, modules as its version 5.4 has them.
    """
    form, kept, lost = model.form, [], []
    is_mean, metadata = model.config.pooling == "mean", model.metadata
    is_scorer = model.activation is not None and (metadata is None or metadata.inputs == PAIR)
    if metadata is not None and form is None:
        lost.append(f"the task {metadata.task} and its settings (tidybert.json)")
    if is_scorer and not isinstance(model.config, MeanBertConfig):
        _write_bert(directory, model, max_bytes)
        return lost
    if form is None:
        form = SentenceForm()
        head = ARCHITECTURES.get(model.architecture, object)
        activation = _ACTIVATIONS.get(model.config.pooler_act or "")
        if issubclass(head, BertForSequenceClassification) and activation is not None:
            # The logits: of the mean, or of [CLS] through the pooler.
            kept, dense = ["classifier"], [_dense(model, "classifier", IDENTITY)]
            if not is_mean:
                dense.insert(0, _dense(model, "bert.pooler.dense", activation))
            form = SentenceForm("mean" if is_mean else "cls", tuple(dense))
        if metadata is not None:
            form = replace(form, max_seq_length=metadata.max_seq_length)
    lost += [HEADS[each].words for each in model.heads if each not in kept]
    encoder = replace(
        model,
        config=model.config.with_pooling("cls"),
        architecture="BertModel",
        problem_type=None,
        form=form,
        activation=None,
        tensors={
            name.removeprefix(PREFIX): each
            for name, each in model.tensors.items()
            if not name.startswith(tuple(HEADS))
        },
    )
    _write_bert(directory, encoder, max_bytes)
    scores = model.activation if is_scorer else None
    write_sentence_form(directory, form, model.config.hidden_size, scores=scores)
    return lost


WRITERS: Final[Mapping[str, Callable[[Path, WholeModel, int | None], list[str]]]] = {
    "huggingface": _write_huggingface,
    "tensorflow": _write_tensorflow,
    "sentence-transformers": _write_sentence_transformers,
}
"""By the name of the form: fills a new directory, and says in words what is lost."""


def _write_bert(directory: Path, model: WholeModel, max_bytes: int | None) -> None:
    """config.json, the tokenizer's files and the weights."""
    atomic_write_json(directory / CONFIG_FILE, model.description())
    length = model.longest if model.form is None else model.form.max_seq_length
    model.tokenizer.save(
        directory,
        model_max_length=length or model.config.max_position_embeddings,
        reads_segments=model.config.reads_segments,
    )
    tensors = as_written(model.tensors, model.config, model.architecture)
    write_shards(directory, tensors, max_bytes)


def _dense(model: WholeModel, name: str, activation: str) -> Dense:
    weight, bias = model.tensors.get(f"{name}.weight"), model.tensors.get(f"{name}.bias")
    if weight is None or bias is None:
        raise WeightsError(f"the head needs {name}, whose weight or bias the file lacks")
    return Dense(weight, bias, activation)


def _lost_modules(form: SentenceForm | None) -> list[str]:
    """What follows the encoder, in words."""
    if form is None:
        return []
    lost = [f"the pooling {form.pooling}"]
    lost += [f"the Dense module to {each.out_features} numbers" for each in form.dense]
    lost += ["the scaling to length 1"] * form.normalize
    lost += [f"the prompt {name!r}" for name, text in form.prompts.items() if text]
    if form.truncate_dim is not None:
        lost.append(f"the cut to {form.truncate_dim} numbers (truncate_dim)")
    return lost


# A MODEL with more pieces in its vocabulary: its weights get the rows for them.
#
# A new piece begins as the mean of the pieces that it replaces, in the word embeddings and in the
# bias of the masked-LM head.  The head's decoder is tied to the embeddings, so the new logit is the
# mean of theirs.  All other numbers stay the same.

_WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
#: BERT's names, without ``bert.``, of the tensors with a row or a number for each piece.
PER_PIECE = (
    _WORD_EMBEDDINGS,
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
    "cls.predictions.bias",
)


class ExtensibleModel:
    """A MODEL with all its tensors, whatever heads it has; ``save`` writes it with more pieces.

    Raises what ModelDirectory raises, and WeightsError for weights without word embeddings, with a
    layer missing, or of other shapes than config.json says.
    """

    def __init__(self, original: ModelDirectory) -> None:
        original.require_bert()
        self.original = original
        self._tensors = original.tensors()
        family, architecture = original.config.family, original.architecture
        self._per_piece = [
            name
            for name in self._tensors
            if family.berts_name(name, architecture).removeprefix(PREFIX) in PER_PIECE
        ]
        if not any(name.endswith(_WORD_EMBEDDINGS) for name in self._per_piece):
            raise WeightsError(f"{original}: the weights have no {_WORD_EMBEDDINGS}")
        for name in self._per_piece:
            if len(self._tensors[name]) != original.config.vocab_size:
                raise WeightsError(
                    f"{original}: {name} is for {len(self._tensors[name])} tokens, {CONFIG_FILE} "
                    f"says {original.config.vocab_size}"
                )
        check_weights(
            self._tensors, original.config, source=str(original), architecture=architecture
        )

    def save(
        self, directory: str | Path, tokenizer: BertTokenizer, replaces: Mapping[int, Sequence[int]]
    ) -> None:
        """Write a new MODEL directory, whole or not at all.

        A RUN stays a RUN, but without metrics: the new pieces change how it reads texts.
        """
        size = max(tokenizer.vocab_size, self.original.config.vocab_size)
        tensors = {
            name: _extended(tensor, size, replaces) if name in self._per_piece else tensor
            for name, tensor in self._tensors.items()
        }
        head = self.original.head
        scores = {} if head.activation is None else described_activation(head.activation)
        description = {**self.original.description, "vocab_size": size, **scores}
        with atomic_directory(directory) as partial:
            text = json.dumps(description, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            atomic_write_text(partial / CONFIG_FILE, text)
            tokenizer.save(
                partial,
                model_max_length=head.longest or 512,
                reads_segments=self.original.config.reads_segments,
            )
            write_tensors(partial, tensors)
            if self.original.metadata is not None:
                msgspec.structs.replace(self.original.metadata, metrics={}).write(partial)


def _extended(tensor: Tensor, size: int, replaces: Mapping[int, Sequence[int]]) -> Tensor:
    """(V, …) to (size, …): new rows are means of old ones."""
    extended = tensor.new_zeros(size, *tensor.shape[1:])
    extended[: len(tensor)] = tensor
    for new, old in replaces.items():
        extended[new] = tensor[torch.tensor(old)].float().mean(0).to(tensor.dtype)
    return extended
