"""All that a MODEL directory holds, whatever heads it has, to be written in another form."""

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from tidybert.checkpoints.conversion import PREFIX, from_huggingface, to_huggingface
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, model_description
from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.checkpoints.tensor_files import left_out_of
from tidybert.checkpoints.weight_loading import check_weights
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, WeightsError, param
from tidybert.storage.model_files import MODULES_FILE
from tidybert.storage.opening import present
from tidybert.tokenization import BertTokenizer

DTYPES: Final = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


@dataclass(frozen=True)
class Head:
    """A head by the beginning of its tensors' names.

    Args:
        words: what a person calls it.
        architectures: transformers' classes that have it, the usual one first.
    """

    words: str
    architectures: tuple[str, ...]


HEADS: Final = {
    "cls.predictions": Head("the masked-LM head", ("BertForMaskedLM", "BertForPreTraining")),
    "cls.seq_relationship": Head(
        "the next-sentence head", ("BertForNextSentencePrediction", "BertForPreTraining")
    ),
    "qa_outputs": Head("the question-answering head", ("BertForQuestionAnswering",)),
    "classifier": Head(
        "the classification head",
        (
            "BertForSequenceClassification",
            "BertForTokenClassification",
            "BertForMultipleChoice",
        ),
    ),
}


@dataclass(frozen=True)
class WholeModel:
    """A MODEL, its tensors under Hugging Face's names.

    Args:
        tensors: the encoder's begin with ``bert.`` unless the architecture is BertModel.
        architecture: transformers' class of the model.
        form: what sentence-transformers does after the encoder; None where no file says it.
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
        return values


def read_whole_model(
    source: ModelDirectory, *, dtype: str | None = None, allow_pickle: bool = False
) -> WholeModel:
    """Read a MODEL with every head, in the dtype that its file has, or ``dtype``.

    Raises what ModelDirectory and ``read_sentence_form`` raise, WeightsError for weights that are
    incomplete or do not fit config.json, and UsageError for values above the largest of ``dtype``.
    """
    source.require_bert()
    stored = source.tensors(allow_pickle=allow_pickle)
    check_weights(stored, source.config, source=str(source))
    ours, unknown = from_huggingface(stored, source.config)
    theirs = to_huggingface(ours, source.config)
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
    names, size = source.head.label_names, len(tensors.get("classifier.weight", ()))
    if names is not None and size and len(names) != size:
        raise WeightsError(
            f"{source}: {len(names)} label names do not fit a classifier of {size} outputs"
        )
    form = None
    if present(source.path / MODULES_FILE, error=WeightsError):
        form = read_sentence_form(source, allow_pickle=allow_pickle)
    return WholeModel(
        source.config,
        source.tokenizer,
        tensors,
        _architecture(_heads(tensors), source.head.architectures),
        names,
        source.head.problem_type,
        form,
        source.metadata,
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
    possible = [each for head in heads for each in HEADS[head].architectures]
    fitting = [each for each in given if each in possible]
    if fitting or not heads:
        return fitting[0] if fitting else "BertModel"
    # A class of two heads is there twice.
    return max(possible, key=possible.count)
