"""A MODEL as ONNX: onnx/model.onnx, and beside it the files that other programs look for.

The layout is that of optimum, transformers.js and sentence-transformers: config.json and the
tokenizer's files, onnx/model.onnx, and onnx/model_quantized.onnx in int8.
"""

import io
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.checkpoints.converting import HEADS, WholeModel, read_whole_model
from tidybert.checkpoints.graph import Floats, GraphModel
from tidybert.checkpoints.graph_check import OPSET
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_form import SentenceForm, write_sentence_form
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, WeightsError
from tidybert.modeling.architectures import build_encoder, encoder_of
from tidybert.modeling.attention import scaled_dot_product
from tidybert.modeling.encoder import BertLayer
from tidybert.modeling.heads import ARCHITECTURES, BertWithHead
from tidybert.modeling.rows import Rows
from tidybert.storage.atomic_files import atomic_directory, atomic_write_json
from tidybert.storage.model_files import CONFIG_FILE, ONNX_FILE, ONNX_FOLDER, ONNX_INT8_FILE
from tidybert.storage.own_files import make_directory

# The padded forward of a model, which torch.onnx can trace: tensors (B, S) in, tensors out.
#
# It holds the modules of the model that it is given, and writes again only what sees padding:
# embeddings, attention's mask and pooling.  Every layer of ours gets three axes, (B, S, H): for two
# axes ``linear`` may use an operator that ONNX lacks.  B sequences, S length, N heads, D head
# width, H width, C choices or classes, V vocabulary.


class PaddedModel(nn.Module):
    """An encoder, or a model with a head, as a function of padded tensors; in evaluation mode.

    Args:
        form: what follows an encoder that embeds texts.
    """

    def __init__(self, model: nn.Module, form: SentenceForm | None = None) -> None:
        super().__init__()
        self.model: Any = model.eval()
        self.encoder = encoder_of(model)
        self.form = form
        self.dense = nn.Sequential(*(form.dense if form else ()))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The outputs by the names of optimum's exports; those of an embedding are (B, d).

        A model without segments takes no ``token_type_ids``.
        """
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        if not getattr(self.model, "takes_choices", False):
            return self._outputs(input_ids, attention_mask != 0, token_type_ids)
        shape = input_ids.shape
        ids, mask, types = (
            each.reshape(-1, shape[2]) for each in (input_ids, attention_mask, token_type_ids)
        )
        found = self._outputs(ids, mask != 0, types)
        return {"logits": found["logits"].reshape(shape[:2])}

    def _outputs(
        self, input_ids: Tensor, is_token: Tensor, token_type_ids: Tensor
    ) -> dict[str, Tensor]:
        hidden = self._states(input_ids, is_token, token_type_ids)
        if isinstance(self.model, BertWithHead):
            return self.model.exported(hidden, lambda: self._pooled(hidden, is_token))
        if self.form is None:
            return {"last_hidden_state": hidden}
        embedding = self._embedding(hidden, is_token, self.form)
        return {"last_hidden_state": hidden, "sentence_embedding": embedding}

    def _states(self, input_ids: Tensor, is_token: Tensor, token_type_ids: Tensor) -> Tensor:
        """(B, S, H): the last layer's states."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        # Layers take any number of axes; nothing here reads where sequences begin.
        rows = Rows(input_ids, token_type_ids, positions, positions, ())
        hidden: Tensor = self.encoder.embeddings(rows)
        for layer in self.encoder.layers:
            assert isinstance(layer, BertLayer)
            hidden = layer.after_attention(_context(layer, hidden, is_token, positions), hidden)
        return hidden

    def _pooled(self, hidden: Tensor, is_token: Tensor) -> Tensor:
        """(B, 1, H): what a head on whole sequences reads."""
        state = _pooled(hidden, is_token, self.encoder.config.pooling)
        return state if self.encoder.pooler is None else self.encoder.pooler(state)

    def _embedding(self, hidden: Tensor, is_token: Tensor, form: SentenceForm) -> Tensor:
        """(B, d): as sentence-transformers makes it."""
        vectors: Tensor = self.dense(_pooled(hidden, is_token, form.pooling)[:, 0])
        if form.normalize:
            vectors = functional.normalize(vectors)
        return vectors[:, : form.truncate_dim]


def _context(layer: BertLayer, hidden: Tensor, is_token: Tensor, positions: Tensor) -> Tensor:
    """(B, S, H): attention before its output projection; no token sees padding."""
    size, length, width = hidden.shape
    num_heads, window = layer.attention.num_heads, layer.attention.window
    projected = layer.joint(hidden, positions)  # (B, S, 3H)
    blocks = projected.view(size, length, 3, num_heads, width // num_heads)
    query, key, value = blocks.permute(2, 0, 3, 1, 4)
    visible = is_token[:, None, None, :]
    if window is not None:
        places = is_token.cumsum(1)
        near = (places[:, :, None] - places[:, None, :]).abs() <= window
        visible = visible & near[:, None]
    context, _, _ = scaled_dot_product(query, key, value, visible, 0.0)
    return context.transpose(1, 2).reshape(size, length, width)


def _pooled(hidden: Tensor, is_token: Tensor, pooling: str) -> Tensor:
    """(B, 1, H): the mean or max of the tokens' states (B, S, H), or that of [CLS]."""
    if pooling == "cls":
        return hidden[:, :1]
    if pooling == "max":
        return hidden.masked_fill(~is_token[:, :, None], -torch.inf).amax(1, keepdim=True)
    weights = is_token[:, :, None].to(hidden.dtype)
    return (hidden * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True)


# A file of Protocol Buffers ends at 2 GiB; the graph needs a little.
_MOST_BYTES: Final = 2**31 - 2**24
_ENCODER: Final = "BertModel"


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


def export_onnx(source: ModelDirectory, destination: str | Path, *, int8: bool = False) -> Exported:
    """Write a MODEL as a new directory with ONNX files, whole or not at all.

    The inputs are input_ids, attention_mask and, where the model has segments, token_type_ids:
    int64 (B, S) with any B and any S up to the model's positions, (B, C, S) for multiple choice.
    The outputs are those of ``PaddedModel.forward``, in float32.
    """
    destination = Path(destination)
    if os.path.lexists(destination):
        raise UsageError(f"{destination} is there already; name a new directory")
    _check_packages()
    whole = read_whole_model(source)
    architecture = whole.architecture if whole.form is None else _ENCODER
    padded = PaddedModel(_built(source, whole, architecture), whole.form)
    size = sum(each.nbytes for each in padded.parameters())
    if size > _MOST_BYTES:
        raise WeightsError(
            f"{source}: {size:,} bytes of weights; an ONNX file has room for {_MOST_BYTES:,}"
        )
    has_choices = takes_choices(architecture)
    example = _example(whole.config, has_choices)
    with torch.inference_mode():
        expected = {name: each.numpy() for name, each in padded(*example).items()}
    arrays = [each.numpy() for each in example]
    with atomic_directory(destination) as directory:
        _write_beside(directory, whole, architecture)
        make_directory(directory / ONNX_FOLDER)
        names = [ONNX_FILE, ONNX_INT8_FILE] if int8 else [ONNX_FILE]
        files = {f"{ONNX_FOLDER}/{name}": directory / ONNX_FOLDER / name for name in names}
        first, *others = files.values()
        _write_graph(padded, example, list(expected), first)
        if others:
            from tidybert.export.int8_graph import write_int8

            write_int8(first, *others)
        if whole.metadata is not None:
            # Last: its hashes are of all files.
            whole.metadata.write(directory)
        return Exported(
            destination,
            whole.config.family.class_name(architecture),
            tuple(expected),
            {name: path.stat().st_size for name, path in files.items()},
            {
                name: _difference(expected, GraphModel(path, whole.config).run(*arrays))
                for name, path in files.items()
            },
            tuple(_lost(whole, architecture)),
        )


def takes_choices(architecture: str) -> bool:
    """Whether a model's inputs are (B, C, S), of several sequences an example."""
    return architecture in ARCHITECTURES and ARCHITECTURES[architecture].takes_choices


def _check_packages() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            f"ONNX needs the package {error.name}: pip install 'tidybert[export]'"
        ) from None


def _built(source: ModelDirectory, whole: WholeModel, architecture: str) -> nn.Module:
    num_labels = len(whole.tensors.get("classifier.weight", ()))
    head = ARCHITECTURES.get(architecture)

    def build(config: BertConfig) -> nn.Module:
        return head.built(config, num_labels) if head else build_encoder(config, add_pooler=False)

    model, report = source.build(build)
    if report.new:
        raise WeightsError(
            f"{source}: its head reads {', '.join(report.new)}, which the weights lack"
        )
    return model


def _lost(whole: WholeModel, architecture: str) -> Iterator[str]:
    for name in whole.heads:
        head = ARCHITECTURES.get(architecture)
        if head is None or HEADS[name] not in head.parts:
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
    longest = whole.longest or config.max_position_embeddings
    if metadata is not None:
        longest = metadata.max_seq_length
    elif form is not None and form.max_seq_length is not None:
        longest = min(longest, form.max_seq_length)
    whole.tokenizer.save(directory, model_max_length=longest, reads_segments=config.reads_segments)
    if form is not None:
        write_sentence_form(directory, form, config.hidden_size)


def _example(config: BertConfig, has_choices: bool) -> tuple[Tensor, ...]:
    """Random tokens, a mask with padding, and segments: (2, S), or (2, 3, S) with choices.

    A model without segments takes the first two.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (2, *([3] if has_choices else []), min(16, config.max_position_embeddings))
    ids = torch.randint(config.vocab_size, shape, generator=generator)
    types = torch.randint(config.type_vocab_size, shape, generator=generator)
    mask = torch.ones_like(ids)
    mask[0, ..., shape[-1] // 2 :] = 0
    return (ids, mask, types) if config.reads_segments else (ids, mask)


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
            input_names=["input_ids", "attention_mask", "token_type_ids"][: len(example)],
            output_names=outputs,
            dynamic_shapes=(dict(enumerate(axes)),) * len(example),
            verbose=False,
        )
        program.save(path, external_data=False)


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


def _difference(expected: dict[str, Floats], found: dict[str, Floats]) -> float:
    """The largest difference of any output."""
    assert expected.keys() == found.keys()
    return max(float(np.abs(found[name] - each).max()) for name, each in expected.items())
