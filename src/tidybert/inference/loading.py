"""From the name of a MODEL to a model ready for use, and checks of what it is given."""

import hashlib
import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from tidybert.catalog import find_model
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import Model, ModelDirectory
from tidybert.checkpoints.weights import huggingface_names
from tidybert.configuration import BertConfig
from tidybert.errors import (
    ConfigError,
    DataError,
    TidyBertError,
    UsageError,
    WeightsError,
    param,
)
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.bert import BertModel
from tidybert.options import check_type
from tidybert.storage.model_files import CONFIG_FILE, METADATA_FILE
from tidybert.system.terminal import printable
from tidybert.tasks.registry import foreign_metadata, task_for
from tidybert.tasks.task import AnyTask
from tidybert.tokenization import BertTokenizer

# How an object that answers shows itself: one line, or a table in a notebook.


class ShowsFacts(ABC):
    """An object that Python shows by its ``facts`` on one line, and a notebook as a table."""

    @abstractmethod
    def facts(self) -> Mapping[str, object]:
        """The model, the data that trained it and its metrics, by name."""

    def __repr__(self) -> str:
        return one_line(self, self.facts())

    def _repr_html_(self) -> str:
        return html_table(self, self.facts())


class ShowsPretraining(ShowsFacts):
    """The same for a model with the head of its pre-training."""

    device: torch.device
    precision: str
    max_seq_length: int

    def _note(self, model: str | Path, config: Any) -> None:
        """Keep the name of the MODEL, its size and the metrics of its RUN, for ``facts``."""
        self._name, self._config = str(model), config
        metadata = ModelMetadata.read(find_model(model))
        self._metrics = {} if metadata is None else metadata.metrics

    def facts(self) -> dict[str, object]:
        return {
            "model": self._name,
            "layers": self._config.num_hidden_layers,
            "hidden_size": self._config.hidden_size,
            "max_seq_length": self.max_seq_length,
            "device": str(self.device),
            "precision": self.precision,
            **{k: round(v, 4) for k, v in self._metrics.items() if isinstance(v, float)},
        }


def one_line(shown: object, facts: Mapping[str, object]) -> str:
    """Predictor(run='tickets', task='classify', …), without control characters."""
    parts = ", ".join(f"{name}={value!r}" for name, value in facts.items())
    return printable(f"{type(shown).__name__}({parts})")


def html_table(shown: object, facts: Mapping[str, object]) -> str:
    """A table of two columns, with every text escaped."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(printable(str(value)))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{type(shown).__name__}</caption>{rows}</table>"


_LOGGER: Final = logging.getLogger(__name__)
PRETRAINING: Final = "pretrain"
"""The task of a RUN that pre-training wrote."""


def load(model: str | Path, *, allow_pickle: bool = False) -> tuple[BertModel, BertTokenizer]:
    """The encoder of a MODEL, in evaluation mode on the CPU, and its tokenizer.

    The encoder has no pooler if the weights have none.  Raises ModelNotFoundError, ConfigError,
    VocabularyError or WeightsError.
    """
    directory = ModelDirectory.open(model, allow_pickle=allow_pickle)
    encoder, report = directory.build(BertModel)
    if report.new:
        encoder.pooler = None
    return encoder.eval(), directory.tokenizer


def load_finished(
    run: str | Path, *, allow_pickle: bool = False
) -> tuple[AnyTask, nn.Module, BertTokenizer, ModelMetadata]:
    """A fine-tuned model with its head: a RUN, or a directory that transformers saved.

    Raises what ``load`` raises, and WeightsError if the weights lack the head.
    """
    directory = ModelDirectory.open(run, allow_pickle=allow_pickle)
    metadata = read_finished(directory)
    task = task_for(metadata)
    model, report = directory.build(task.build_model)
    if report.new:
        raise WeightsError(
            f"{directory} has no {', '.join(report.new)}: it is not a fine-tuned model. Fine-tune "
            f"it with tidybert finetune {task.name}"
        )
    return task, model.eval(), directory.tokenizer, metadata


def read_finished(directory: ModelDirectory) -> ModelMetadata:
    """The task that a MODEL was trained for, from tidybert.json or from transformers' config.json.

    Raises ConfigError, and WeightsError if config.json names no head that predicts.
    """
    directory.require_bert()
    positions = directory.config.max_position_embeddings
    if directory.metadata is not None:
        if directory.metadata.max_seq_length > positions:
            raise ConfigError(
                f"{directory.path / METADATA_FILE}: max_seq_length is "
                f"{directory.metadata.max_seq_length}, but the model has positions for {positions} "
                "tokens"
            )
        return directory.metadata
    found = foreign_metadata(directory.head, positions)
    if found is None:
        named = ", ".join(directory.head.architectures) or "no architecture"
        raise WeightsError(
            f"{directory} has no head that predicts ({CONFIG_FILE} names {named}): fine-tune it "
            "with tidybert finetune, or name a finished RUN"
        )
    return found


def is_finished(directory: ModelDirectory) -> bool:
    """Whether a MODEL has a head that predicts, from ``finetune`` or from another program."""
    if directory.metadata is not None:
        return directory.metadata.task != PRETRAINING
    try:
        return (
            foreign_metadata(directory.head, directory.config.max_position_embeddings) is not None
        )
    except TidyBertError:
        return False


def load_with_head(
    build: Callable[[BertConfig], Model],
    model: str | Path,
    *,
    head: str,
    allow_pickle: bool = False,
) -> tuple[Model, BertTokenizer]:
    """A model with a pre-training head, in evaluation mode on the CPU, and its tokenizer.

    Raises what ``load`` raises, and WeightsError if the weights lack the ``head``.
    """
    directory = ModelDirectory.open(model, allow_pickle=allow_pickle)
    built, report = directory.build(build)
    if report.new:
        lacking = [
            name for ours in report.new for name in huggingface_names(ours, directory.config)
        ]
        raise WeightsError(
            f"{directory} has no {head}: its weights lack {', '.join(lacking)}. Name a model "
            "that has its pre-training heads (tidybert-small and Google's releases do, fine-tuned "
            "models and minilm do not), or pre-train one"
        )
    return built.eval(), directory.tokenizer


def choose_device(device: str) -> torch.device:
    """The device that ``device`` names; auto is CUDA if PyTorch finds it, else the CPU.

    Raises UsageError for another name, and for a device that PyTorch does not find.
    """
    if device == "auto":
        found = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        why = "PyTorch finds a CUDA device" if found.type == "cuda" else "there is no CUDA device"
        _LOGGER.info(f"device: {found}, because {why}; {torch.get_num_threads()} threads")
        return found
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
    """Move a model, in place, to the device that ``device`` names.

    Raises UsageError as ``choose_device``, and if the device has no room for the model.
    """
    chosen = choose_device(device)
    try:
        model.to(chosen)
    except torch.OutOfMemoryError as error:
        size = sum(each.nbytes for each in model.parameters())
        raise UsageError(
            f"{param('device', device)}: {chosen} has no room for the model, {size / 2**20:,.0f} "
            "MiB; end other programs that use it, name another device, or a smaller model"
        ) from error
    return chosen


def share_parameters(model: nn.Module, encoder: nn.Module) -> None:
    """Have the encoder of a model with a head use the parameters of another one, equal to them."""
    shared = dict(encoder.named_parameters())
    for prefix, module in encoder_of(model).named_modules():
        for name, _ in list(module.named_parameters(recurse=False)):
            setattr(module, name, shared[f"{prefix}.{name}"])


def model_fingerprint(
    model: nn.Module, tokenizer: BertTokenizer, dense: Iterable[nn.Module] = ()
) -> str:
    """A hash of a model's weights and its tokenizer, and of the Dense modules after it."""
    digest = hashlib.sha256(json.dumps(tokenizer.identity()).encode())
    assert isinstance(model.config, BertConfig)
    config = model.config.to_dict()
    # It does not change what is computed, and older fingerprints do not include it.
    del config["classifier_dropout"]
    digest.update(json.dumps(config).encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().data)
    for each in dense:
        digest.update(str(each).encode())
        for tensor in each.state_dict().values():
            digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_texts(texts: Sequence[Any], text_pairs: Sequence[Any] | None = None) -> None:
    """Raise DataError for anything but a list of texts, and for lists of unequal lengths."""
    if isinstance(texts, str) or isinstance(text_pairs, str):
        raise DataError("one string was given; expected a list of texts: wrap it in [...]")
    for given in (texts, text_pairs):
        # A table would give the names of its columns for texts.
        if isinstance(given, Mapping) or hasattr(given, "columns"):
            raise DataError(
                "a table was given; expected a list of texts: give one column, as in frame['text']"
            )
    if texts is None:
        raise DataError("None was given; expected a list of texts")
    if text_pairs is not None and len(text_pairs) != len(texts):
        raise DataError(f"there are {len(texts)} texts and {len(text_pairs)} second texts")


def fitting_length(config: BertConfig, max_seq_length: int | None) -> int:
    """``max_seq_length``, or all the model's positions for None; UsageError for more than those."""
    limit = config.max_position_embeddings
    check_type("max_seq_length", max_seq_length, int | None)
    if max_seq_length is not None and max_seq_length > limit:
        raise UsageError(
            f"{param('max_seq_length')} is {max_seq_length}, but the model has positions for "
            f"{limit} tokens"
        )
    return limit if max_seq_length is None else max_seq_length
