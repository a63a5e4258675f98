"""A MODEL as ONNX: onnx/model.onnx, and beside it the files that other programs look for.

The layout is that of optimum, transformers.js and sentence-transformers: config.json and the
tokenizer's files, onnx/model.onnx, and onnx/model_quantized.onnx in int8.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, model_description
from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.checkpoints.sentence_writing import write_sentence_form
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, WeightsError
from tidybert.export.onnx_model import OnnxModel
from tidybert.export.padded_model import PaddedModel
from tidybert.inference.loading import is_finished, load_finished
from tidybert.modeling import heads
from tidybert.modeling.bert import BertModel
from tidybert.storage.atomic_files import atomic_directory, atomic_write_json
from tidybert.storage.model_files import (
    CONFIG_FILE,
    MODULES_FILE,
    ONNX_FILE,
    ONNX_FOLDER,
    ONNX_INT8_FILE,
)
from tidybert.storage.opening import present
from tidybert.storage.own_files import make_directory

OPSET: Final = 20
"""The first with a Gelu of its own."""
# A file of Protocol Buffers ends at 2 GiB; the graph needs a little.
_MOST_BYTES: Final = 2**31 - 2**24


@dataclass(frozen=True)
class Exported:
    """What ``export_onnx`` wrote.

    Args:
        sizes: bytes of each ONNX file, by its path in the directory.
        differences: of each ONNX file, the largest difference of an output from the same outputs
            computed by PyTorch, on random tokens with padding.
        left_out: names in MODEL's weights of what the export does not compute.
    """

    sizes: dict[str, int]
    differences: dict[str, float]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class _Source:
    """What is exported: a model, and what its directory says of it."""

    model: nn.Module
    left_out: tuple[str, ...] = ()
    metadata: ModelMetadata | None = None
    problem_type: str | None = None
    form: SentenceForm | None = None


def export_onnx(
    model: str | Path, out: str | Path, *, int8: bool = False, allow_pickle: bool = False
) -> Exported:
    """Write a MODEL as a new directory with ONNX files, whole or not at all; replaces ``out``.

    The inputs are input_ids, attention_mask and token_type_ids, int64 (B, S) with any B and any S
    up to the model's positions, (B, C, S) for multiple choice.  The outputs are those of
    ``PaddedModel.forward`` in float32.

    Args:
        model: with its head; without one, or of sentence-transformers, its encoder.
        int8: also write model_quantized.onnx, by ONNX Runtime's dynamic quantisation.
        allow_pickle: read weights from a pickle if there is no safetensors file.

    Raises:
        UsageError: the packages of the extra ``export`` are not installed.
        ConfigError, VocabularyError, WeightsError: MODEL cannot be read, or is a language model.
        WeightsError: the weights do not fit into one ONNX file.
        DiskError, InUseError: as ``atomic_directory``.
    """
    _check_packages()
    directory = ModelDirectory.open(model)
    directory.require_bert()
    source = _read(directory, allow_pickle)
    padded = PaddedModel(source.model, source.form)
    size = sum(each.nbytes for each in padded.parameters())
    if size > _MOST_BYTES:
        raise WeightsError(
            f"{directory}: {size:,} bytes of weights; an ONNX file holds at most {_MOST_BYTES:,}"
        )
    has_choices = isinstance(source.model, heads.BertForMultipleChoice)
    with atomic_directory(out) as whole:
        _write_beside(whole, directory, source)
        folder = whole / ONNX_FOLDER
        make_directory(folder)
        example = _example(directory.config, has_choices)
        _write_graph(padded, example, folder / ONNX_FILE)
        if int8:
            _quantize(folder)
        with torch.inference_mode():
            expected = padded(*example)
        files = sorted(folder.iterdir())
        return Exported(
            {str(path.relative_to(whole)): path.stat().st_size for path in files},
            {
                str(path.relative_to(whole)): _difference(
                    expected, OnnxModel(path, has_choices).run(*example)
                )
                for path in files
            },
            source.left_out,
        )


def _check_packages() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            f"ONNX needs the package {error.name}: pip install 'tidybert[export]'"
        ) from None


def _read(directory: ModelDirectory, allow_pickle: bool) -> _Source:
    if present(directory.path / MODULES_FILE):
        form = read_sentence_form(directory, allow_pickle=allow_pickle)
        return _of_encoder(directory, allow_pickle, form)
    if is_finished(directory):
        task, model, _, metadata = load_finished(directory.path, allow_pickle=allow_pickle)
        return _Source(model, (), metadata, task.problem_type)
    model, report = directory.build(heads.BertForPreTraining, allow_pickle=allow_pickle)
    new = {name.partition(".")[0] for name in report.new}
    if not new:
        return _Source(model, report.ignored)
    build: Callable[[BertConfig], nn.Module]
    if "mlm" not in new:
        build = heads.BertForMaskedLM
    elif not new & {"nsp", "bert"}:
        build = heads.BertForNextSentencePrediction
    else:
        return _of_encoder(directory, allow_pickle, None)
    model, report = directory.build(build, allow_pickle=allow_pickle)
    return _Source(model, report.ignored)


def _of_encoder(
    directory: ModelDirectory, allow_pickle: bool, form: SentenceForm | None
) -> _Source:
    build = partial(BertModel, add_pooler=False)
    model, report = directory.build(build, allow_pickle=allow_pickle)
    return _Source(model, report.ignored, form=form)


def _write_beside(whole: Path, directory: ModelDirectory, source: _Source) -> None:
    """Write config.json, the tokenizer's files, and those of sentence-transformers or ours."""
    # The graph has the pooling, so other programs may take every encoder for a plain BERT.
    config = directory.config.with_pooling("cls")
    metadata, form = source.metadata, source.form
    architecture = type(source.model).__name__
    names = None if metadata is None else metadata.label_names
    description = model_description(config, architecture, names, source.problem_type)
    atomic_write_json(whole / CONFIG_FILE, description)
    longest = None
    if metadata is not None:
        longest = metadata.max_seq_length
    elif form is not None:
        longest = form.max_seq_length
    positions = config.max_position_embeddings
    directory.tokenizer.save(whole, model_max_length=min(longest or positions, positions))
    if form is not None:
        write_sentence_form(whole, form, config.hidden_size)
    if directory.metadata is not None:
        directory.metadata.write(whole)


def _example(config: BertConfig, has_choices: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Random tokens, a mask with padding, and segments: (2, S), or (2, 3, S) with choices."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, *([3] if has_choices else []), min(16, config.max_position_embeddings))
    ids = torch.randint(config.vocab_size, shape, generator=generator)
    types = torch.randint(config.type_vocab_size, shape, generator=generator)
    mask = torch.ones_like(ids)
    mask[0, ..., shape[-1] // 2 :] = 0
    return ids, mask, types


def _write_graph(padded: PaddedModel, example: tuple[Tensor, ...], path: Path) -> None:
    axes = ["batch_size", "sequence_length"]
    if example[0].dim() == 3:
        axes.insert(1, "num_choices")
    with torch.no_grad(), _quiet():
        program: Any = torch.onnx.export(
            padded,
            example,
            dynamo=True,
            opset_version=OPSET,
            input_names=["input_ids", "attention_mask", "token_type_ids"],
            output_names=list(padded(*example)),
            dynamic_shapes=(dict(enumerate(axes)),) * len(example),
            verbose=False,
        )
        program.save(path, external_data=False)


def _quantize(folder: Path) -> None:
    """Write the weights in int8, with a scale for each output; activations get one as they come.

    Weights have 7 bits: sums of two products of 8 bits overflow on processors without VNNI.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        quantize_dynamic(
            folder / ONNX_FILE,
            folder / ONNX_INT8_FILE,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the libraries' notes about packages and names of axes, which ask nothing of users."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _difference(expected: dict[str, Tensor], found: dict[str, Tensor]) -> float:
    """The largest difference of any output."""
    assert expected.keys() == found.keys()
    return max(float((found[name] - each).abs().max()) for name, each in expected.items())
