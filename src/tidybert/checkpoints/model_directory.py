"""A MODEL or a RUN on disk: its configuration, tokenizer, metadata, head and weights.

It is a Hugging Face BERT directory; transformers opens ours as it is, and we open theirs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tidybert.catalog import PRETRAINED, find_model
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.sentence_form import (
    SentenceForm,
    longest_text,
    read_activation,
    write_sentence_form,
)
from tidybert.checkpoints.unfinished import find_unfinished
from tidybert.configuration import BertConfig, CausalConfig, RobertaConfig
from tidybert.configuration.bert_config import family_of, unknown_keys
from tidybert.errors import ConfigError, VocabularyError, WeightsError, has_package
from tidybert.storage.atomic_files import atomic_write_text, file_sha256, files_together
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.limits import LABELS
from tidybert.storage.model_files import (
    CONFIG_FILE,
    INDEX_SUFFIX,
    METADATA_FILE,
    ONNX_FILE,
    ONNX_FOLDER,
    ONNX_INT8_FILE,
    PICKLE_FILE,
    TENSORFLOW_CONFIG_FILE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
)
from tidybert.storage.opening import present
from tidybert.tokenization import BertTokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tidybert.checkpoints.weights import LoadReport

Model = TypeVar("Model", bound="nn.Module")

# Programs pad the embeddings to a multiple of up to 1,024 rows; a vocabulary that lacks more is cut
# short or another model's.
_MOST_SPARE_ROWS = 1024


@dataclass(frozen=True)
class HeadDescription:
    """The head that config.json describes.

    Args:
        architectures: BERT's names of classes ("BertForSequenceClassification"); may be empty.
        label_names: in the order of their ids; None without any.
        problem_type: "regression", "single_label_classification",
            "multi_label_classification" or None.
        activation: of a cross-encoder of sentence-transformers, what its scores pass through, as a
            name of PyTorch; None for other models.
        longest: of a cross-encoder, the tokens of the longest pair, where its files say it.
    """

    architectures: tuple[str, ...]
    label_names: tuple[str, ...] | None
    problem_type: str | None
    activation: str | None = None
    longest: int | None = None


class ModelDirectory:
    """The directory of a MODEL or a RUN; reads each file when it is first needed, and only once.

    Args:
        path: the directory; it must exist only once a file is needed.
        allow_pickle: read weights from a pickle if there is no safetensors file.
    """

    def __init__(self, path: str | Path, *, allow_pickle: bool = False) -> None:
        self.path = Path(path)
        self.allow_pickle = allow_pickle
        self._is_verified = False
        self._prefix = ""

    @classmethod
    def open(cls, model: str | Path, *, allow_pickle: bool = False) -> ModelDirectory:
        """The directory of a MODEL, given by name or path; raises as ``find_model``."""
        return cls(find_model(model), allow_pickle=allow_pickle)

    def __str__(self) -> str:
        return str(self.path)

    @cached_property
    def description(self) -> dict[str, Any]:
        """The content of config.json; ConfigError if it cannot be read or the run has not ended."""
        if (found := find_unfinished(self.path)) is not None:
            raise ConfigError(found.message())
        if self.path.is_dir() and not present(self._config_file, error=ConfigError):
            names = sorted(each.name for each in self.path.iterdir())
            more = f" and {len(names) - 3:,} more" if names[3:] else ""
            others = f"{', '.join(names[:3])}{more}, but " if names else ""
            raise ConfigError(
                f"{self.path} is not a MODEL: it has {others}no {CONFIG_FILE}; name a directory "
                f"with {CONFIG_FILE} and {WEIGHTS_FILE}, or installed weights"
            )
        return read_json_object(self._config_file)

    @cached_property
    def _config_file(self) -> Path:
        """config.json, or bert_config.json in a directory of the original code."""
        theirs = self.path / TENSORFLOW_CONFIG_FILE
        has_ours = present(self.path / CONFIG_FILE, error=ConfigError)
        is_theirs = not has_ours and present(theirs, error=ConfigError)
        return theirs if is_theirs else self.path / CONFIG_FILE

    @cached_property
    def config(self) -> BertConfig:
        """The encoder's sizes; raises ConfigError for a config.json that is not BERT's."""
        return BertConfig.from_dict(self.description, source=str(self._config_file))

    @cached_property
    def tokenizer(self) -> BertTokenizer:
        """The tokenizer; raises VocabularyError if its size cannot be that of the embeddings."""
        tokenizer = BertTokenizer.from_pretrained(self.path)
        if not 0 <= self.config.vocab_size - tokenizer.vocab_size < _MOST_SPARE_ROWS:
            raise VocabularyError(
                f"{self.path}: {VOCABULARY_FILE} has {tokenizer.vocab_size} entries, {CONFIG_FILE} "
                f"says {self.config.vocab_size}: the files do not belong together"
            )
        if isinstance(self.config, RobertaConfig):
            # transformers gives it no types, whatever tokenizer.json says.
            tokenizer.layout = tokenizer.layout.of_one_type()
        return tokenizer.reading(special_tokens_in_text=self.special_tokens_in_text)

    @property
    def special_tokens_in_text(self) -> bool:
        """Whether the tokenizer reads "[SEP]" in a text as the special token, as in training."""
        return self.metadata is None or self.metadata.special_tokens_in_text

    @cached_property
    def metadata(self) -> ModelMetadata | None:
        """The content of tidybert.json, None if another program wrote the model.

        Raises ConfigError if it is damaged, of a newer format, or holds an unknown key.
        """
        return ModelMetadata.read(self.path)

    @cached_property
    def head(self) -> HeadDescription:
        """The head that config.json describes, in a model from any program.

        Raises ConfigError if id2label, label2id and num_labels are malformed or contradict each
        other.
        """
        values = self.description
        names = _label_names(values, self.path / CONFIG_FILE)
        activation = read_activation(self.path, values, len(names or "01"))
        longest = None if activation is None else longest_text(self.path)
        problem_type = values.get("problem_type")
        return HeadDescription(self.architectures, names, problem_type, activation, longest)

    @property
    def architectures(self) -> tuple[str, ...]:
        """BERT's names of the classes that config.json names; ConfigError for another list."""
        named = self.description.get("architectures") or []
        if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
            raise ConfigError(
                f"{self.path / CONFIG_FILE}: architectures is {named!r:.80}; not a list of names"
            )
        return tuple(map(family_of(self.description).berts_class, named))

    @property
    def architecture(self) -> str:
        """The class that wrote the weights; empty where no file says it."""
        return next(iter(self.architectures), "")

    @cached_property
    def graph(self) -> Path | None:
        """The folder of its ONNX graphs, if they answer: no weights are there, or no PyTorch."""
        folder = self.path / ONNX_FOLDER
        names = (ONNX_FILE, ONNX_INT8_FILE)
        if not any(present(folder / name, error=WeightsError) for name in names):
            return None
        has_weights = any(
            present(self.path / f"{name}{suffix}", error=WeightsError)
            for name in (WEIGHTS_FILE, PICKLE_FILE)
            for suffix in ("", INDEX_SUFFIX)
        )
        return None if has_weights and has_package("torch") else folder

    def verify(self) -> None:
        """Check, once, that the files are those that were saved together.

        A directory without tidybert.json passes: it has no hashes to compare.

        Raises:
            WeightsError: a file is missing or has changed; the message names it.
            ConfigError: tidybert.json cannot be read.
        """
        if self.metadata is not None and not self._is_verified:
            self.metadata.verify(self.path)
            self._is_verified = True

    def tensors(self) -> dict[str, Tensor]:
        """The verified weights by name; raises as ``verify`` and ``read_tensors``.

        A prefix that another program put before the names of a model is left out of them.
        """
        from tidybert.checkpoints.tensor_files import read_tensors
        from tidybert.checkpoints.weights import without_prefix

        self.verify()
        tensors = read_tensors(self.path, allow_pickle=self.allow_pickle)
        tensors, self._prefix = without_prefix(tensors, self.config, str(self.path))
        return tensors

    def load_into(self, model: nn.Module, *, new_head: bool = False) -> LoadReport:
        """Copy the weights into ``model``, an encoder or a model with a head.

        Parameters keep their dtype and device.

        Args:
            new_head: leave the heads of ``model`` as they are, even if the file has some; for
                fine-tuning on another task.

        Raises:
            WeightsError: as ``tensors``; or a tensor of the encoder is missing, or a shape does not
                fit.
            ConfigError: config.json or tidybert.json cannot be read, or ``model`` reads one side
                and these weights both, or the other way round.
        """
        from tidybert.checkpoints.tensor_files import left_out_of
        from tidybert.checkpoints.weights import LoadReport, load_weights
        from tidybert.modeling.heads import CausalLM

        if not isinstance(model, CausalLM):
            self.require_bert()
        elif not isinstance(self.config, CausalConfig):
            raise ConfigError(
                f"{self.path} is a BERT, which reads both sides and so cannot say what comes next; "
                "train a language model with tidybert train-lm, or fill in masked words "
                "with tidybert fill-mask"
            )
        if next(model.parameters(), None) is None:
            return LoadReport(str(self), (), (), (), 0)
        report = load_weights(
            model,
            self.tensors(),
            self.config,
            source=str(self.path),
            new_head=new_head,
            architecture=self.architecture,
        )
        notes = [f"names without {self._prefix!r}"] if self._prefix else []
        if unknown := unknown_keys(self.description):
            notes.append(f"keys of {CONFIG_FILE} that say nothing here: {', '.join(unknown)}")
        ignored = report.ignored + left_out_of(self.path)
        return replace(report, ignored=ignored, notes=tuple(notes))

    def require_bert(self) -> None:
        """Raise ConfigError for a language model."""
        if isinstance(self.config, CausalConfig):
            raise ConfigError(
                f"{self.path} is a language model, which reads from left to right, and this needs "
                "a BERT, which reads both sides; tidybert generate and tidybert score take it"
            )

    def build(
        self,
        build: Callable[[BertConfig], Model],
        *,
        config: BertConfig | None = None,
        new_head: bool = False,
    ) -> tuple[Model, LoadReport]:
        """``build(config)`` with these weights, on the CPU; draws only the weights that they lack.

        ``config`` overrides the directory's own, for another dropout.  Raises as ``load_into``.
        """
        import torch

        from tidybert.checkpoints.weights import UndrawnWeights
        from tidybert.modeling.bert import initialize_part
        from tidybert.modeling.heads import HEAD_PARTS

        config = config or self.config
        # Layers of heads that no pre-training has.
        fine_tuned = {name for part in HEAD_PARTS if part.is_fine_tuned for name in part.modules}
        # Drawing an encoder's initial weights takes seconds, reading them a twentieth of one.
        with UndrawnWeights():
            with torch.device("meta"):
                model = build(config)
            model = model.to_empty(device="cpu")
        report = self.load_into(model, new_head=new_head)
        new = {name.rpartition(".")[0] for name in report.new}
        for name, module in model.named_modules():
            if name in new:
                is_truncated = name not in fine_tuned
                initialize_part(module, config.initializer_range, is_truncated=is_truncated)
        return model, report


def _label_names(values: dict[str, Any], path: Path) -> tuple[str, ...] | None:
    """id2label as a tuple, checked against label2id and num_labels."""
    id2label = values.get("id2label")
    if id2label is None:
        count = values.get("num_labels")
        if type(count) is not int or count < 1:
            return None
        LABELS.check(count, path)
        return tuple(f"LABEL_{i}" for i in range(count))  # as transformers calls them
    if not isinstance(id2label, dict):
        raise ConfigError(f"{path}: id2label is {id2label!r:.80}; not an object")
    ids = [str(i) for i in range(len(id2label))]
    if set(id2label) != set(ids) or not all(isinstance(v, str) for v in id2label.values()):
        raise ConfigError(f"{path}: id2label does not name the ids 0 to {len(ids) - 1} in turn")
    LABELS.check(len(ids), path)
    names = tuple(id2label[i] for i in ids)
    label2id = values.get("label2id")
    # Some programs write the numbers as texts.
    if isinstance(label2id, dict):
        label2id = {
            name: int(each) if isinstance(each, str) and each.isdecimal() else each
            for name, each in label2id.items()
        }
    if label2id is not None and label2id != {name: i for i, name in enumerate(names)}:
        raise ConfigError(f"{path}: label2id is not the inverse of id2label")
    if values.get("num_labels", len(names)) != len(names):
        raise ConfigError(f"{path}: num_labels does not fit the {len(names)} of id2label")
    return names


def model_description(
    config: BertConfig,
    architecture: str,
    label_names: Sequence[str] | None = None,
    problem_type: str | None = None,
) -> dict[str, Any]:
    """The content of a config.json, in transformers' keys.

    Args:
        architecture: BERT's name of transformers' class ("BertForSequenceClassification").
        label_names: in the order of their ids.
        problem_type: transformers' name of the loss, or None.
    """
    values: dict[str, Any] = {"architectures": [config.family.class_name(architecture)]}
    values |= config.written()
    if label_names is not None:
        values["id2label"] = {str(i): name for i, name in enumerate(label_names)}
        values["label2id"] = {name: i for i, name in enumerate(label_names)}
    if problem_type is not None:
        values["problem_type"] = problem_type
    return values


def save_model_directory(directory: str | Path, **parts: Any) -> ModelMetadata:
    """Write a model that tidybert and transformers open, into a new or an existing directory.

    A full disk leaves the directory as it was: all files are written before the first one moves
    into place.  A kill between the moves leaves a directory that ``ModelDirectory.verify`` refuses.
    Other files in the directory stay.  ``parts`` are those of ``write_model``.

    Raises as ``write_model``, and InUseError where another process writes the directory.
    """
    with files_together(directory, first=METADATA_FILE, last=WEIGHTS_FILE) as partial:
        return write_model(partial, **parts)


def write_model(
    directory: Path,
    *,
    model_state: Mapping[str, Tensor],
    config: BertConfig,
    tokenizer: BertTokenizer,
    metadata: ModelMetadata,
    architecture: str,
    problem_type: str | None = None,
    beside: Mapping[str, str] | None = None,
    sentence: SentenceForm | None = None,
) -> ModelMetadata:
    """Write the files of a model into a directory that nobody reads yet.

    Args:
        model_state: our state dict; its tensors are finite and keep their dtypes.
        tokenizer: the metadata say how it reads special tokens in a text.
        metadata: its label_names go into config.json too; this function sets its hashes.
        architecture: BERT's name of transformers' class ("BertForSequenceClassification").
        problem_type: transformers' name of the loss, or None.
        beside: texts of further files by name, which get no hash: they may change later.
        sentence: what sentence-transformers does with the encoder's states, of a model that embeds.

    Returns:
        The metadata as written.

    Raises:
        WeightsError: a value is not finite, a parameter has no Hugging Face name, the number of
            label names does not fit the classifier.
        DiskError: a write fails.
    """
    from tidybert.checkpoints.tensor_files import check_finite, write_tensors
    from tidybert.checkpoints.weights import to_huggingface
    from tidybert.modeling.heads import ARCHITECTURES

    check_finite(model_state, str(directory))
    tensors = to_huggingface(model_state, config, architecture)
    names = metadata.label_names
    if architecture in ARCHITECTURES and ARCHITECTURES[architecture].has_labels:
        num_labels = len(model_state["classifier.weight"])
        # transformers writes LABEL_0, LABEL_1, ... for classes without names.
        names = names or tuple(f"LABEL_{i}" for i in range(num_labels))
        if len(names) != num_labels:
            raise WeightsError(
                f"{len(names)} label names do not fit a classifier of {num_labels} outputs"
            )
    values = model_description(config, architecture, names, problem_type)
    description = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    atomic_write_text(directory / CONFIG_FILE, description)
    tokenizer.save(directory, reads_segments=config.reads_segments)
    write_tensors(directory, tensors)
    if sentence is not None:
        write_sentence_form(directory, sentence, config.hidden_size)
    way = tokenizer.special_tokens_in_text
    sealed = msgspec.structs.replace(metadata, special_tokens_in_text=way).write(directory)
    for name, text in (beside or {}).items():
        atomic_write_text(directory / name, text)
    return sealed


# Whether the files of a MODEL are those that were saved or published.


@dataclass(frozen=True)
class Verified:
    """What the files of a MODEL were compared with, and their hashes.

    Args:
        against: tidybert.json, the published hash of the package, or None where neither is.
        sha256: of each file, by name, in hexadecimal.
    """

    against: str | None
    sha256: dict[str, str]


def verify(model: str | Path) -> Verified:
    """Compare the weights, the configuration and the vocabulary of a MODEL with saved hashes.

    Raises what ``find_model`` raises, and WeightsError, which names the file, where one was
    swapped or edited, is missing, or is not the published one.
    """
    directory = ModelDirectory.open(model)
    directory.verify()
    if directory.metadata is not None:
        return Verified(METADATA_FILE, dict(directory.metadata.files))
    found = {
        path.name: file_sha256(path) for path in sorted(directory.path.iterdir()) if path.is_file()
    }
    package = PRETRAINED.get(str(model))
    if package is None:
        return Verified(None, found)
    if found[WEIGHTS_FILE] != package.sha256:
        raise WeightsError(
            f"{directory.path / WEIGHTS_FILE}: not the published weights of {package.name}; "
            f"install them again with tidybert download {package.name}"
        )
    return Verified(f"the published hash of {WEIGHTS_FILE}", found)
