"""A MODEL as ONNX: onnx/model.onnx, and beside it the files that other programs look for.

The layout is that of optimum, transformers.js and sentence-transformers: config.json and the
tokenizer's files, onnx/model.onnx, and onnx/model_quantized.onnx in int8.
"""

import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_writing import write_sentence_form
from tidybert.checkpoints.whole_model import HEADS, WholeModel, read_whole_model
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, WeightsError
from tidybert.export.onnx_model import OnnxModel
from tidybert.export.padded_model import PaddedModel
from tidybert.modeling import heads
from tidybert.modeling.bert import BertModel
from tidybert.storage.atomic_files import atomic_directory, atomic_write_json
from tidybert.storage.model_files import CONFIG_FILE, ONNX_FILE, ONNX_FOLDER, ONNX_INT8_FILE
from tidybert.storage.own_files import make_directory

OPSET: Final = 20
"""The first with a Gelu of its own."""
# A file of Protocol Buffers ends at 2 GiB; the graph needs a little.
_MOST_BYTES: Final = 2**31 - 2**24
_ENCODER: Final = "BertModel"
# By transformers' name: builds the model from its sizes and the number of its labels.
_BUILDERS: Final[Mapping[str, Callable[[BertConfig, int], nn.Module]]] = {
    _ENCODER: lambda config, _: BertModel(config, add_pooler=False),
    "BertForSequenceClassification": heads.BertForSequenceClassification,
    "BertForTokenClassification": heads.BertForTokenClassification,
    "BertForMultipleChoice": lambda config, _: heads.BertForMultipleChoice(config),
    "BertForQuestionAnswering": lambda config, _: heads.BertForQuestionAnswering(config),
    "BertForMaskedLM": lambda config, _: heads.BertForMaskedLM(config),
    "BertForNextSentencePrediction": lambda config, _: heads.BertForNextSentencePrediction(config),
    "BertForPreTraining": lambda config, _: heads.BertForPreTraining(config),
}


@dataclass(frozen=True)
class Exported:
    """What ``export_onnx`` wrote.

    Args:
        architecture: transformers' class of the model.
        outputs: their names.
        sizes: bytes of each ONNX file, by its path in the directory.
        differences: of each ONNX file, the largest difference of an output from the same one
            computed by PyTorch, on random tokens with padding.
        lost: in words, what of MODEL the files do not have.
    """

    directory: Path
    architecture: str
    outputs: tuple[str, ...]
    sizes: dict[str, int]
    differences: dict[str, float]
    lost: tuple[str, ...]


def export_onnx(
    source: ModelDirectory,
    destination: str | Path,
    *,
    int8: bool = False,
    allow_pickle: bool = False,
) -> Exported:
    """Write a MODEL as a new directory with ONNX files, whole or not at all.

    The inputs are input_ids, attention_mask and token_type_ids, int64 (B, S) with any B and any S
    up to the model's positions, (B, C, S) for multiple choice.  The outputs are those of
    ``PaddedModel.forward``, in float32.

    Args:
        source: with its head; without one, or of sentence-transformers, its encoder.
        int8: also write model_quantized.onnx, by ONNX Runtime's dynamic quantisation.

    Raises:
        UsageError: something is at ``destination``, or the packages of the extra ``export`` are
            not installed.
        WeightsError: the head lacks weights, or they do not fit into one ONNX file; and what
            ``read_whole_model`` raises.
        DiskError, InUseError: as ``atomic_directory``.
    """
    destination = Path(destination)
    if os.path.lexists(destination):
        raise UsageError(f"{destination} is there already; name a new directory")
    _check_packages()
    whole = read_whole_model(source, allow_pickle=allow_pickle)
    architecture = whole.architecture if whole.form is None else _ENCODER
    padded = PaddedModel(_built(source, whole, architecture, allow_pickle), whole.form)
    size = sum(each.nbytes for each in padded.parameters())
    if size > _MOST_BYTES:
        raise WeightsError(
            f"{source}: {size:,} bytes of weights; an ONNX file has room for {_MOST_BYTES:,}"
        )
    has_choices = isinstance(padded.model, heads.BertForMultipleChoice)
    example = _example(whole.config, has_choices)
    with torch.inference_mode():
        expected = padded(*example)
    with atomic_directory(destination) as directory:
        _write_beside(directory, whole, architecture)
        make_directory(directory / ONNX_FOLDER)
        names = [ONNX_FILE, ONNX_INT8_FILE] if int8 else [ONNX_FILE]
        files = {f"{ONNX_FOLDER}/{name}": directory / ONNX_FOLDER / name for name in names}
        first, *others = files.values()
        _write_graph(padded, example, list(expected), first)
        for path in others:
            _quantize(first, path)
        return Exported(
            destination,
            architecture,
            tuple(expected),
            {name: path.stat().st_size for name, path in files.items()},
            {
                name: _difference(expected, OnnxModel(path, has_choices).run(*example))
                for name, path in files.items()
            },
            tuple(_lost(whole, architecture)),
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


def _built(
    source: ModelDirectory, whole: WholeModel, architecture: str, allow_pickle: bool
) -> nn.Module:
    num_labels = len(whole.tensors.get("classifier.weight", ()))
    model, report = source.build(
        lambda config: _BUILDERS[architecture](config, num_labels), allow_pickle=allow_pickle
    )
    if report.new:
        raise WeightsError(
            f"{source}: its head reads {', '.join(report.new)}, which the weights lack"
        )
    return model


def _lost(whole: WholeModel, architecture: str) -> Iterator[str]:
    for name in whole.heads:
        if architecture not in HEADS[name].architectures:
            yield HEADS[name].words
    if architecture == _ENCODER and "pooler.dense.weight" in whole.tensors:
        yield "the pooler, which no output reads"
    if whole.form is not None:
        for name, text in whole.form.prompts.items():
            if text:
                yield f"in the graph the prompt {name!r}: put it before texts yourself"
    yield from whole.unread


def _write_beside(directory: Path, whole: WholeModel, architecture: str) -> None:
    """Write config.json, the tokenizer's files, and those of sentence-transformers or ours."""
    # The graph has the pooling, so other programs may take every encoder for a plain BERT.
    config, form, metadata = whole.config.with_pooling("cls"), whole.form, whole.metadata
    described = replace(whole, config=config, architecture=architecture)
    atomic_write_json(directory / CONFIG_FILE, described.description())
    longest = config.max_position_embeddings
    if metadata is not None:
        longest = metadata.max_seq_length
    elif form is not None and form.max_seq_length is not None:
        longest = min(longest, form.max_seq_length)
    whole.tokenizer.save(directory, model_max_length=longest)
    if form is not None:
        write_sentence_form(directory, form, config.hidden_size)
    if metadata is not None:
        metadata.write(directory)


def _example(config: BertConfig, has_choices: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Random tokens, a mask with padding, and segments: (2, S), or (2, 3, S) with choices."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, *([3] if has_choices else []), min(16, config.max_position_embeddings))
    ids = torch.randint(config.vocab_size, shape, generator=generator)
    types = torch.randint(config.type_vocab_size, shape, generator=generator)
    mask = torch.ones_like(ids)
    mask[0, ..., shape[-1] // 2 :] = 0
    return ids, mask, types


def _write_graph(
    padded: PaddedModel, example: tuple[Tensor, ...], outputs: list[str], path: Path
) -> None:
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
            output_names=outputs,
            dynamic_shapes=(dict(enumerate(axes)),) * len(example),
            verbose=False,
        )
        program.save(path, external_data=False)


def _quantize(source: Path, target: Path) -> None:
    """Write the weights in int8, with a scale for each output; activations get one as they come.

    Weights have 7 bits: sums of two products of 8 bits overflow on processors without VNNI.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        quantize_dynamic(
            source,
            target,
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
        # onnxscript 0.6 prints how many rules it applied; stdout is the command's own.
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _difference(expected: dict[str, Tensor], found: dict[str, Tensor]) -> float:
    """The largest difference of any output."""
    assert expected.keys() == found.keys()
    return max(float((found[name] - each).abs().max()) for name, each in expected.items())
