"""A MODEL or a RUN, opened to answer: the only place that opens one for that."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, Unpack

from tidybert.checkpoints.graph import (
    LOGITS,
    NEXT,
    PRECISIONS,
    STATES,
    Cpu,
    GraphModel,
    graph_precision,
)
from tidybert.checkpoints.metadata import ModelMetadata, restored_values
from tidybert.checkpoints.model_directory import Model, ModelDirectory
from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.configuration import BertConfig, CausalConfig
from tidybert.errors import (
    LINE,
    ConfigError,
    DataError,
    TidyBertError,
    UsageError,
    WeightsError,
    has_package,
    param,
)
from tidybert.files.rows import count_of
from tidybert.files.text_examples import TextExample
from tidybert.inference.forward import choose_precision, in_chunks
from tidybert.inference.keywords import OpeningKeywords
from tidybert.inference.options import OpeningOptions
from tidybert.options import check_type, spelled_out, values_of
from tidybert.storage.model_files import CONFIG_FILE, METADATA_FILE
from tidybert.system.terminal import ShowsFacts
from tidybert.tasks.registry import foreign_metadata, task_for
from tidybert.tasks.task import AnyTask
from tidybert.tokenization import BertTokenizer

if TYPE_CHECKING:
    import torch
    from torch import nn

    from tidybert.modeling.bert import BertModel

_LOGGER: Final = logging.getLogger(__name__)
PRETRAINING: Final = "pretrain"
"""The task of a RUN that pre-training wrote."""
# Parts that several networks of the same weights have, in their encoder and beside it.
_EMBEDDINGS: Final = "embeddings"
_OF_ENCODER: Final = (_EMBEDDINGS, "encoder", "pooler")
_OF_NETWORK: Final = ("mlm", "nsp")
_HEADS: Final = {
    "BertForMaskedLM": "masked-LM head",
    "BertForNextSentencePrediction": "next-sentence head",
    "CausalLM": "output layer",
}
"""By transformers' name of a class."""


@dataclass(frozen=True, eq=False)
class Finished:
    """A fine-tuned model with all that its answers follow from; in memory without a directory."""

    name: str
    task: AnyTask
    model: nn.Module | GraphModel
    tokenizer: BertTokenizer
    metadata: ModelMetadata
    precision: str
    label_values: Mapping[str, Any]
    directory: Path | None

    @property
    def network(self) -> nn.Module:
        """The model, to be looked into or trained; UsageError for a graph."""
        return network_of(self.model)


class OpenedModel:
    """A MODEL or a RUN, whose weights are read when a network with them is asked for.

    All networks are in evaluation mode and share the parts that they have in common.  The arguments
    are those of ``Predictor``; the precision None leaves networks as they are read, to be trained.
    ``plain_texts``: special tokens in a text are text, whatever the model was trained with.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = "auto",
        precision: str | None = "auto",
        allow_pickle: bool = False,
        plain_texts: bool = False,
    ) -> None:
        self.name = str(model)
        self._plain_texts = plain_texts
        self.directory = ModelDirectory.open(model, allow_pickle=allow_pickle)
        self.config: BertConfig = self.directory.config
        #: Whether it is a language model, which reads from left to right.
        self.is_causal = isinstance(self.config, CausalConfig)
        self._is_plain = precision is None
        #: The graph that answers in the place of a network; None where weights do.
        self.graph: GraphModel | None = None
        #: Where networks are; a graph is on the CPU.
        self.device: torch.device | Cpu
        #: float32, bfloat16, float16 or int8.
        self.precision: str
        folder = self.directory.graph
        if folder is not None and not self._is_plain:
            if device not in ("auto", "cpu"):
                raise UsageError(f"{param('device', device)}: {folder} answers on the CPU; use cpu")
            self.precision = graph_precision(folder, precision or "float32")
            self.directory.verify()
            self.graph = GraphModel(folder / PRECISIONS[self.precision], self.config)
            self.device = self.graph.device
        else:
            self.need_weights()
            self.device = choose_device(device)
            self.precision = choose_precision(
                precision or "float32", model, self.device, self.config.hidden_size
            )
        self._parts: dict[str, nn.Module] = {}
        self._networks: dict[Any, tuple[Any, tuple[str, ...]]] = {}

    @classmethod
    def of(cls, model: str | Path | OpenedModel, **given: Any) -> OpenedModel:
        """The model itself where it is open, else opened as ``given`` says."""
        return model if isinstance(model, OpenedModel) else cls(model, **given)

    def in_float32(self, *, is_plain: bool = False) -> OpenedModel:
        """The same model in float32 on the CPU, to answer or, if ``is_plain``, to be looked into.

        It shares the weights that are in memory so; a CPU has the embeddings in every precision.
        """
        precision = None if is_plain else "float32"
        if self.graph is not None and self.precision == precision:
            return self
        given = {"allow_pickle": self.directory.allow_pickle, "plain_texts": self._plain_texts}
        other = OpenedModel(self.name, device="cpu", precision=precision, **given)
        if self._layers == other._layers:
            other._parts = self._parts
        elif self.device == other.device and _EMBEDDINGS in self._parts:
            other._parts = {_EMBEDDINGS: self._parts[_EMBEDDINGS]}
        return other

    @property
    def _layers(self) -> tuple[str, str, bool]:
        """What decides which layers it has: device and precision, and whether they are plain."""
        return self.device.type, self.precision, self._is_plain or self.is_causal

    def need_weights(self) -> None:
        """Raise UsageError where a network can not be made."""
        if self.directory.graph is not None:
            raise _only_answers(self.directory.path)
        if not has_package("torch"):
            raise UsageError(
                f"{self.directory} has weights, which PyTorch computes, and PyTorch is not "
                "installed: pip install tidybert, or where it is installed write a graph, which "
                f"answers here: tidybert convert {self.name} DST --to onnx"
            )

    @cached_property
    def tokenizer(self) -> BertTokenizer:
        found = self.directory.tokenizer
        return found.reading(special_tokens_in_text=False) if self._plain_texts else found

    @cached_property
    def form(self) -> SentenceForm:
        """How it makes vectors of texts; raises what ``read_sentence_form`` raises."""
        return read_sentence_form(self.directory)

    @cached_property
    def is_finished(self) -> bool:
        """Whether it has a head that predicts, from ``finetune`` or from another program."""
        directory = self.directory
        if self.is_causal:
            return False
        if directory.metadata is not None:
            return directory.metadata.task != PRETRAINING
        try:
            positions = self.config.max_position_embeddings
            return foreign_metadata(directory.head, positions) is not None
        except TidyBertError:
            return False

    @cached_property
    def finished(self) -> Finished:
        """The model with the head that predicts; raises WeightsError where it has none."""
        directory = self.directory
        metadata = read_finished(directory)
        task = task_for(metadata).completed(directory)
        network: nn.Module | GraphModel | None = self.graph
        lacking: tuple[str, ...] = ()
        if self.graph is None:
            network, lacking = self.network(task.build_model)
            task.attach(network)
        elif task.architecture != (self.directory.architecture or task.architecture):
            lacking = (f"{task.architecture} in {CONFIG_FILE}",)
        elif self.graph.num_labels not in (None, len(task.names)) and task.names:
            lacking = (f"output for {len(task.names)} labels: it has {self.graph.num_labels}",)
        elif task.pools_itself:
            if self.form.graph_width is not None:
                raise UsageError(
                    f"{directory}: its Dense modules are in the graph, which gives the vectors of "
                    "tidybert embed and Embedder: ask these"
                )
            self.graph.require(STATES, 3, task.name)
        else:
            self.graph.require(LOGITS, 3 if task.unit == "token" else 2, task.name)
        if lacking or network is None:
            raise WeightsError(
                f"{directory} has no {', '.join(lacking)}: it is not a fine-tuned model. Fine-tune "
                f"it with tidybert finetune {task.name}"
            )
        values = restored_values(task.names, metadata.label_values)
        precision, path = self.precision, directory.path
        return Finished(self.name, task, network, self.tokenizer, metadata, precision, values, path)

    @cached_property
    def encoder(self) -> BertModel:
        """The encoder of a BERT, with its pooler if the weights have one."""
        from tidybert.modeling.architectures import build_encoder

        encoder, lacking = self.network(build_encoder)
        if lacking:
            encoder.pooler = None
        return encoder

    @property
    def whole(self) -> nn.Module:
        """The network with the heads of its training: those that the weights lack are random."""
        from tidybert.modeling.heads import BertForPreTraining, CausalLM

        if self.is_causal:
            return self.network(CausalLM)[0]
        if not self.is_finished:
            return self.network(BertForPreTraining)[0]
        return self.finished.network

    def head(self, name: str) -> Any:
        """The network, or graph, with the head of this class; None where it lacks a part of it."""
        network, lacking = self._with_gaps(name)
        return None if lacking else network

    def _with_gaps(self, name: str) -> tuple[Any, tuple[str, ...]]:
        """The same, and what it lacks."""
        if self.graph is not None:
            if self.directory.architecture not in (name, "BertForPreTraining"):
                return self.graph, (name,)
            is_both = NEXT in self.graph.axes
            of_words = name == "BertForMaskedLM"
            self.graph.require(NEXT if is_both and not of_words else LOGITS, 2 + of_words, name)
            return self.graph, ()
        from tidybert.modeling import heads

        return self.network(getattr(heads, name))

    def with_head(self, name: str) -> Any:
        """The same, or WeightsError."""
        network, lacking = self._with_gaps(name)
        if lacking:
            theirs: Sequence[str] = lacking
            if self.graph is None:
                from tidybert.checkpoints.weights import huggingface_names

                theirs = [each for ours in lacking for each in huggingface_names(ours, self.config)]
            raise WeightsError(
                f"{self.directory} has no {_HEADS[name]}: its weights lack {', '.join(theirs)}. "
                "Name a model that has its pre-training heads (tidybert-small and Google's "
                "releases do, fine-tuned models and minilm do not), or pre-train one"
            )
        return network

    def network(self, build: Callable[[BertConfig], Model]) -> tuple[Model, tuple[str, ...]]:
        """``build(config)`` with these weights, once, and the names of those that they lack."""
        if build in self._networks:
            return self._networks[build]
        from tidybert.training.precision import usual_torch

        self.need_weights()
        known: list[tuple[nn.Module, str]] = []

        def with_gaps(config: BertConfig) -> Model:
            network = build(config)
            known.extend(each for each in _parts_of(network) if each[1] in self._parts)
            for owner, name in known:
                owner.register_module(name, None)
            return network

        with usual_torch():
            network, report = self.directory.build(with_gaps)
            # Before the known parts are in it: another thread may compute with them.
            to_device(network, str(self.device))
            for owner, name in known:
                setattr(owner, name, self._parts[name])
            self._make_ready(network)
        new = {name.removeprefix("bert.").partition(".")[0] for name in report.new}
        for owner, name in _parts_of(network):
            if name not in new:
                self._parts.setdefault(name, owner.get_submodule(name))
        self._networks[build] = network.eval(), report.new
        return self._networks[build]

    def _make_ready(self, network: nn.Module) -> None:
        """Prepare a network for the precision, in place; float32 where it cannot have int8."""
        if self.precision == "int8" and self.is_causal:
            raise UsageError(
                f"{param('precision', 'int8')} is for a BERT, and {self.name} is a language model: "
                "use float32"
            )
        if self._is_plain or self.device.type != "cpu" or self.is_causal:
            return
        from tidybert.modeling.kernels.answer_layers import use_bfloat16, use_float32, use_int8
        from tidybert.modeling.kernels.linear import largest_weight
        from tidybert.modeling.kernels.processor import has

        if self.precision == "int8":
            obstacle = use_int8(network)
            if obstacle is not None:
                _LOGGER.warning(f"precision: float32 in place of int8, because {obstacle}")
                self.precision = "float32"
            elif has("AMX"):
                _LOGGER.warning(
                    "precision: bfloat16 is as fast as int8 on this processor, which has AMX, and "
                    "nearer to float32"
                )
            elif largest_weight() < 127:
                _LOGGER.warning(
                    "precision: this processor has no VNNI: in int8 a single text takes longer "
                    "than in float32, and weights have 7 bits; files are answered faster"
                )
        if self.precision == "bfloat16":
            use_bfloat16(network)
        if self.precision == "float32":
            use_float32(network)


def network_of(model: nn.Module | GraphModel) -> nn.Module:
    """The network that a model is; UsageError for a graph."""
    if isinstance(model, GraphModel):
        raise _only_answers(model.path)
    return model


def _only_answers(path: Path) -> UsageError:
    return UsageError(
        f"{path} is an ONNX graph, which only answers; this looks into the network or trains it: "
        "name the model that it was converted from"
    )


def _parts_of(network: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """The parts that other networks of the same weights have too: their owners and names."""
    from torch import nn

    from tidybert.modeling.architectures import encoder_of

    for owner, names in ((encoder_of(network), _OF_ENCODER), (network, _OF_NETWORK)):
        for name in names:
            if isinstance(getattr(owner, name, None), nn.Module):
                yield owner, name


class OfOpened(ShowsFacts):
    """A class that opens a MODEL by its name, or takes one that is open."""

    @classmethod
    def of(cls, opened: OpenedModel, **settings: Any) -> Self:
        """The same over a model that is open, on its device and in its precision."""
        make: Any = cls
        return make(opened, **settings)  # type: ignore[no-any-return]


class OfPretraining(OfOpened):
    """The same with a head of pre-training."""

    _heads: ClassVar[tuple[str, str]]
    """The class of the network of a BERT, and that of a language model."""
    _has_graph: ClassVar[bool] = True
    """Whether a graph can be in the place of the network."""

    @spelled_out(OpeningOptions)
    def __init__(self, model: str | Path, **options: Unpack[OpeningKeywords]) -> None:
        self._open(model, OpeningOptions(**options))

    def _open(
        self, model: str | Path, given: OpeningOptions, max_seq_length: int | None = None
    ) -> None:
        opened = OpenedModel.of(model, **values_of(given, OpeningOptions))
        if not self._has_graph:
            opened.need_weights()
        self._opened, self.is_causal = opened, opened.is_causal
        self.model: Any = opened.with_head(self._heads[self.is_causal])
        if self.is_causal:
            self.start_id, self.end_id = opened.tokenizer.vocabulary.text_bounds
        self.tokenizer = opened.tokenizer
        self.device, self.precision = opened.device, opened.precision
        self.max_seq_length = fitting_length(opened.config, max_seq_length)

    @property
    def fingerprint(self) -> str:
        """A hash of the weights and the tokenizer."""
        return model_fingerprint(self.model, self.tokenizer)

    def facts(self) -> dict[str, object]:
        config, metadata = self._opened.config, self._opened.directory.metadata
        metrics = {} if metadata is None else metadata.metrics
        return {
            "model": self._opened.name,
            "layers": config.num_hidden_layers,
            "hidden_size": config.hidden_size,
            "max_seq_length": self.max_seq_length,
            "device": str(self.device),
            "precision": self.precision,
            **{k: round(v, 4) for k, v in metrics.items() if isinstance(v, float)},
        }


def check_model(model: str | Path, *, to_train: bool = False) -> None:
    """Raise what a MODEL is refused with before its weights are read, ``to_train`` it or answer."""
    directory = ModelDirectory.open(model)
    _ = directory.config
    if to_train:
        directory.require_bert()
        if directory.graph is not None:
            raise _only_answers(directory.path)


def answers_by_graph(model: str | Path) -> bool:
    """Whether a MODEL is ONNX graphs, so that no network is made; raises as ``find_model``."""
    return ModelDirectory.open(model).graph is not None


def load(model: str | Path, *, allow_pickle: bool = False) -> tuple[BertModel, BertTokenizer]:
    """The encoder of a MODEL, in evaluation mode on the CPU, and its tokenizer.

    The encoder has no pooler if the weights have none.  Raises ModelNotFoundError, ConfigError,
    VocabularyError or WeightsError.
    """
    opened = OpenedModel(model, device="cpu", precision=None, allow_pickle=allow_pickle)
    return opened.encoder, opened.tokenizer


def read_finished(directory: ModelDirectory) -> ModelMetadata:
    """The task of a MODEL, from tidybert.json or transformers' config.json; or WeightsError."""
    directory.require_bert()
    positions = directory.config.max_position_embeddings
    if directory.metadata is not None and directory.metadata.task != PRETRAINING:
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
            "with tidybert finetune, or name a finished RUN; tidybert embed and Embedder give its "
            "vectors, tidybert predict --labels answers with classes that it knows by name"
        )
    return found


def choose_device(device: str) -> torch.device:
    """The device that ``device`` names, or UsageError; auto is CUDA if there is one, or the CPU."""
    import torch

    if device == "auto":
        found = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        why = "PyTorch finds a CUDA device" if found.type == "cuda" else "there is no CUDA device"
        _LOGGER.info(f"device: {found}, because {why}; {torch.get_num_threads()} threads")
        return found
    if not re.fullmatch(r"cpu|cuda(:[0-9]{1,9})?", str(device)):
        raise UsageError(f"{param('device', device)}: expected auto, cpu, cuda or cuda:N")
    kind, _, number = str(device).partition(":")
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
    """Move a model, in place, to the device that ``device`` names; UsageError without room."""
    import torch

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


def model_fingerprint(
    model: nn.Module | GraphModel, tokenizer: BertTokenizer, dense: Iterable[nn.Module] = ()
) -> str:
    """A hash of a model's weights and its tokenizer, and of the Dense modules after it."""
    # Fingerprints of older versions are of texts without special tokens.
    way = ["special_tokens_in_text"] if tokenizer.special_tokens_in_text else []
    digest = hashlib.sha256(json.dumps([*tokenizer.identity(), *way]).encode())
    if isinstance(model, GraphModel):
        digest.update(model.sha256.encode())
        return digest.hexdigest()
    import torch

    assert isinstance(model.config, BertConfig)
    config = model.config.to_dict()
    # They do not change what is computed, and older fingerprints do not include them.
    for of_heads in ("classifier_dropout", "classifier_activation"):
        config.pop(of_heads, None)
    digest.update(json.dumps(config).encode())
    for name, tensor in _weights_of(model):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().data)
    for each in dense:
        digest.update(str(each).encode())
        for tensor in each.state_dict().values():
            digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _weights_of(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The items of ``state_dict``, of which a layer for answers makes its own when they are due."""
    from tidybert.modeling.kernels.answer_layers import AnswerLayer

    if isinstance(module, AnswerLayer):
        yield from module.state_dict(prefix=prefix).items()
        return
    own: dict[str, torch.Tensor] = {}
    module._save_to_state_dict(own, prefix, False)
    yield from own.items()
    for name, part in module._modules.items():
        if part is not None:
            yield from _weights_of(part, f"{prefix}{name}.")


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
        raise DataError(
            f"given: {count_of(len(texts), 'text')}, {count_of(len(text_pairs), 'second text')}"
        )


def single_texts(
    examples: Iterable[TextExample], first: int, largest: int
) -> Iterator[tuple[list[TextExample], list[str]]]:
    """Single texts in chunks, with their lines; DataError for a pair of texts."""
    for chunk in in_chunks(examples, first=first, largest=largest):
        for one in chunk:
            if one.text_pair is not None:
                raise DataError(
                    f"{LINE} {one.row}: a pair of texts, and this reads single texts: name their "
                    f"column with {param('text')}"
                )
        yield chunk, [f"{LINE} {one.row}" for one in chunk]


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
