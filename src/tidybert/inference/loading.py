"""From the name of a MODEL to a model and a tokenizer ready for use."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from tidybert.catalog import model_directory
from tidybert.checkpoints.conversion import huggingface_names
from tidybert.checkpoints.model_directory import (
    LoadReport,
    ModelMetadata,
    load_weights_into,
    read_head,
    read_metadata,
)
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, VocabularyError, WeightsError, param
from tidybert.modeling.bert import BertModel, initialize_part
from tidybert.tasks.registry import AnyTask, foreign_metadata, task_for
from tidybert.tokenization import BertTokenizer

Model = TypeVar("Model", bound=nn.Module)


def load(model: str | Path, *, allow_pickle: bool = False) -> tuple[BertModel, BertTokenizer]:
    """The encoder of a MODEL, in evaluation mode on the CPU, and its tokenizer.

    The pooler is left out where the weights have none.  Raises ModelNotFoundError, ConfigError,
    VocabularyError or WeightsError.
    """
    directory = model_directory(model)
    config = BertConfig.from_file(directory / "config.json")
    encoder, report = build_with_weights(BertModel, config, directory, allow_pickle=allow_pickle)
    if report.new:
        encoder.pooler = None
    return encoder.eval(), load_tokenizer(directory, config)


def load_finished(
    run: str | Path, *, allow_pickle: bool = False
) -> tuple[AnyTask, nn.Module, BertTokenizer, ModelMetadata]:
    """A fine-tuned model with its head: a RUN of ours, or a directory that transformers saved.

    Raises what ``load`` raises, and WeightsError where there is no head.
    """
    directory = model_directory(run)
    metadata = read_finished(directory)
    task = task_for(metadata)
    config = BertConfig.from_file(directory / "config.json")
    model, report = build_with_weights(
        task.build_model, config, directory, allow_pickle=allow_pickle
    )
    if report.new:
        raise WeightsError(
            f"{directory} has no {', '.join(report.new)}: it is no fine-tuned model. Fine-tune it "
            f"with tidybert finetune {task.name}"
        )
    return task, model.eval(), load_tokenizer(directory, config), metadata


def read_finished(directory: Path) -> ModelMetadata:
    """What a directory says of the task that its weights were trained for.

    Raises ConfigError, and WeightsError where config.json names no head that predicts.
    """
    return read_metadata(directory) or _foreign_metadata(directory)


def load_with_head(
    build: Callable[[BertConfig], Model],
    model: str | Path,
    *,
    head: str,
    allow_pickle: bool = False,
) -> tuple[Model, BertTokenizer]:
    """A model with a head of pre-training, in evaluation mode on the CPU, and its tokenizer.

    Raises what ``load`` raises, and WeightsError where the weights lack the ``head``.
    """
    directory = model_directory(model)
    config = BertConfig.from_file(directory / "config.json")
    built, report = build_with_weights(build, config, directory, allow_pickle=allow_pickle)
    if report.new:
        lacking = [name for ours in report.new for name in huggingface_names(ours, config)]
        raise WeightsError(
            f"{directory} has no {head}: its weights lack {', '.join(lacking)}. Name a model as "
            "pre-training left it (tidybert-mini and Google's releases have these; a fine-tuned "
            "one and minilm do not), or pre-train one"
        )
    return built.eval(), load_tokenizer(directory, config)


def load_tokenizer(directory: Path, config: BertConfig) -> BertTokenizer:
    """The directory's tokenizer; VocabularyError where the embeddings are too few for it."""
    tokenizer = BertTokenizer.from_pretrained(directory)
    if tokenizer.vocab_size > config.vocab_size:
        raise VocabularyError(
            f"{directory}: vocab.txt has {tokenizer.vocab_size} entries, config.json says "
            f"{config.vocab_size}: the files do not belong together"
        )
    return tokenizer


def build_with_weights(
    build: Callable[[BertConfig], Model],
    config: BertConfig,
    directory: Path,
    *,
    new_head: bool = False,
    allow_pickle: bool = False,
) -> tuple[Model, LoadReport]:
    """``build(config)`` with the directory's weights; only what the file lacks is drawn anew.

    Drawing an encoder's initial weights takes seconds, reading them a twentieth of one.
    """
    with torch.device("meta"):
        model = build(config)
    model = model.to_empty(device="cpu")
    report = load_weights_into(model, directory, new_head=new_head, allow_pickle=allow_pickle)
    new = {name.rpartition(".")[0] for name in report.new}
    for name, module in model.named_modules():
        if name in new:
            initialize_part(module, config.initializer_range)
    return model, report


def choose_device(device: str) -> torch.device:
    """The device that ``--device`` names; auto is CUDA where there is one, else the CPU.

    Raises UsageError for another name, and for a device that is not there.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|mps|cuda(:[0-9]{1,9})?", str(device)):
        raise UsageError(f"{param('device', device)}: expected auto, cpu, cuda or cuda:N")
    kind, _, number = str(device).partition(":")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UsageError(f"{param('device', device)}: PyTorch finds no MPS device here; use cpu")
    if kind == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"{param('device', device)}: PyTorch finds no CUDA device here; use cpu")
    if not number:
        return torch.device(kind)
    last = torch.cuda.device_count() - 1
    if int(number) > last:
        raise UsageError(
            f"{param('device', device)}: PyTorch finds no such CUDA device here; expected "
            + (f"cuda:0 to cuda:{last}" if last else "cuda:0")
        )
    return torch.device(kind, int(number))


def to_device(model: nn.Module, device: str) -> torch.device:
    """Move a model, in place, to the device that ``--device`` names; raises as choose_device.

    Raises UsageError where the device has no room for it.
    """
    chosen = choose_device(device)
    try:
        model.to(chosen)
    except torch.OutOfMemoryError as error:
        size = sum(each.nbytes for each in model.parameters())
        raise UsageError(
            f"{param('device', device)}: {chosen} has no room for the model, {size / 2**20:,.0f} "
            "MiB; see what else uses it, name another device, or a smaller model"
        ) from error
    return chosen


def _foreign_metadata(directory: Path) -> ModelMetadata:
    """What config.json says of a model that another program fine-tuned."""
    head = read_head(directory)
    limit = BertConfig.from_file(directory / "config.json").max_position_embeddings
    found = foreign_metadata(head, limit)
    if found is None:
        named = ", ".join(head.architectures) or "no architecture"
        raise WeightsError(
            f"{directory} has no head that predicts (config.json names {named}): fine-tune it with "
            "tidybert finetune, or name a finished RUN"
        )
    return found
