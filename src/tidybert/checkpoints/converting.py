"""A MODEL in the form of another program, with every head that the form has a place for."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tidybert.checkpoints.conversion import PREFIX
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_form import Dense, SentenceForm
from tidybert.checkpoints.sentence_writing import write_sentence_form
from tidybert.checkpoints.tensor_bundle import write_bundle
from tidybert.checkpoints.tensor_files import write_shards
from tidybert.checkpoints.tensorflow_names import to_tensorflow
from tidybert.checkpoints.whole_model import HEADS, WholeModel, read_whole_model
from tidybert.configuration import MeanBertConfig
from tidybert.errors import UsageError, WeightsError
from tidybert.storage.atomic_files import atomic_directory, atomic_write_json
from tidybert.storage.model_files import CONFIG_FILE, TENSORFLOW_CONFIG_FILE, TENSORFLOW_INDEX
from tidybert.storage.output_lock import output_lock

_TANH: Final = "torch.nn.modules.activation.Tanh"
_IDENTITY: Final = "torch.nn.modules.linear.Identity"
_OF_SEQUENCES: Final = ("BertForSequenceClassification", "BertForMultipleChoice")


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
    allow_pickle: bool = False,
) -> Conversion:
    """Write a MODEL in one of WRITERS' forms, whole or not at all.

    Args:
        destination: a new directory.
        form: huggingface, tensorflow or sentence-transformers; tidybert reads each as a MODEL.
        dtype: float32, float16 or bfloat16; None keeps that of each tensor.
        max_shard_bytes: most bytes of tensors in a file of weights; None for one file.

    Raises UsageError where something is at ``destination``, InUseError where another process writes
    it, DiskError, and what ``read_whole_model`` raises.
    """
    destination = Path(destination)
    with output_lock(destination):
        if os.path.lexists(destination):
            raise UsageError(f"{destination} is there already; name a new directory")
        model = read_whole_model(source, dtype=dtype, allow_pickle=allow_pickle)
        with atomic_directory(destination) as partial:
            lost = WRITERS[form](partial, model, max_shard_bytes)
    dtypes = {str(each.dtype).removeprefix("torch.") for each in model.tensors.values()}
    return Conversion(
        destination,
        form,
        model.architecture,
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
    """An encoder and its modules; a head on whole sequences becomes Dense modules."""
    form, kept, lost = model.form, [], []
    if form is None:
        form = SentenceForm()
        if model.architecture in _OF_SEQUENCES:
            form, kept = _classifying(model), ["classifier"]
        if model.metadata is not None:
            form = replace(form, max_seq_length=model.metadata.max_seq_length)
            lost.append(f"the task {model.metadata.task} and its settings (tidybert.json)")
    lost += [HEADS[each].words for each in model.heads if each not in kept]
    encoder = replace(
        model,
        config=model.config.with_pooling("cls"),
        architecture="BertModel",
        problem_type=None,
        form=form,
        tensors={
            name.removeprefix(PREFIX): each
            for name, each in model.tensors.items()
            if not name.startswith(tuple(HEADS))
        },
    )
    _write_bert(directory, encoder, max_bytes)
    write_sentence_form(directory, form, model.config.hidden_size)
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
    length = None if model.form is None else model.form.max_seq_length
    model.tokenizer.save(directory, model_max_length=length or model.config.max_position_embeddings)
    write_shards(directory, model.tensors, max_bytes)


def _classifying(model: WholeModel) -> SentenceForm:
    """The logits of a head on whole sequences: of the mean, or of [CLS] through the pooler."""
    dense = [_dense(model, "classifier", _IDENTITY)]
    if isinstance(model.config, MeanBertConfig):
        return SentenceForm("mean", tuple(dense))
    return SentenceForm("cls", (_dense(model, "bert.pooler.dense", _TANH), *dense))


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
    lost += [f"the Dense module to {each.linear.out_features} numbers" for each in form.dense]
    lost += ["the scaling to length 1"] * form.normalize
    lost += [f"the prompt {name!r}" for name, text in form.prompts.items() if text]
    if form.truncate_dim is not None:
        lost.append(f"the cut to {form.truncate_dim} numbers (truncate_dim)")
    return lost
