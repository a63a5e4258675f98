"""The sides of ``python -m benchmarks infer``: from a model's directory to texts' logits.

transformers, ONNX Runtime and OpenVINO run batches of 32 texts that transformers' tokenizer pads to
the longest.  The last two run transformers' model, exported to ONNX.  In int8 ONNX Runtime's own
``quantize_dynamic`` rounds weights with a scale a channel; it rounds activations with one scale a
batch.
"""

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import torch

from tidybert.errors import UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.inference.forward import run_features
from tidybert.inference.predictor import Predictor

BATCH_SIZE: Final = 32
"""The other sides' batches; ours are cut by tokens."""
LOADER_WORKERS: Final = 4
"""Processes that make transformers' batches for a GPU; a CPU has no core to spare for them."""
ENGINES: Final = ("onnxruntime", "openvino")
_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")

Logits = npt.NDArray[np.float32]
Run = Callable[[Sequence[TextExample]], Logits]
"""From examples to their logits (B, 2), in the order given."""


def open_side(
    side: str,
    directory: Path,
    max_seq_length: int,
    device: str = "cpu",
    precision: str = "float32",
) -> Run:
    """Open the model on a side; UsageError for a precision that the side lacks."""
    if side == "ours":
        return _open_ours(directory, max_seq_length, device, precision)
    if precision == "int8" and side != "onnxruntime":
        raise UsageError(
            f"{param('precision', 'int8')}: {side} has no int8 here; use "
            f"{param('against', 'onnxruntime')}"
        )
    if side == "transformers":
        return _open_transformers(directory, max_seq_length, device)
    return _open_engine(side, directory, max_seq_length, precision)


def _open_ours(directory: Path, max_seq_length: int, device: str, precision: str) -> Run:
    predictor = Predictor(
        directory, device=device, precision=cast(Any, precision), max_seq_length=max_seq_length
    )

    def run(examples: Sequence[TextExample]) -> Logits:
        # A copy has an empty cache, as if it had seen no text.
        tokenizer = copy.copy(predictor.tokenizer)
        features = predictor.task.features(examples, tokenizer, max_seq_length)
        return np.concatenate(
            run_features(predictor.task, predictor.model, features, precision=predictor.precision)
        )

    return run


def _encoder_of(
    directory: Path, max_seq_length: int, tensors: str
) -> Callable[..., dict[str, Any]]:
    """transformers' tokenizer for a batch of examples."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)

    def encode(batch: Sequence[TextExample]) -> dict[str, Any]:
        pairs = [one.text_pair for one in batch]
        encoded = tokenizer(
            [one.text for one in batch],
            pairs if pairs[0] is not None else None,
            padding=True,
            truncation=True,
            max_length=max_seq_length,
            return_tensors=tensors,
        )
        return dict(encoded)

    return encode


def _open_transformers(directory: Path, max_seq_length: int, device: str) -> Run:
    import transformers

    encode = _encoder_of(directory, max_seq_length, "pt")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        directory, attn_implementation="sdpa"
    )
    model.eval().to(device)
    on_gpu = device != "cpu"

    @cache
    def batches(number: int) -> torch.utils.data.DataLoader[Any]:
        # Its processes are started once for each order of the texts.
        return torch.utils.data.DataLoader(
            given[number],  # type: ignore[arg-type]
            batch_size=BATCH_SIZE,
            collate_fn=encode,
            num_workers=LOADER_WORKERS if on_gpu else 0,
            persistent_workers=on_gpu,
            pin_memory=on_gpu,
        )

    given: dict[int, Sequence[TextExample]] = {}

    def run(examples: Sequence[TextExample]) -> Logits:
        given[id(examples)] = examples
        parts = []
        with torch.inference_mode():
            for encoded in batches(id(examples)):
                moved = {name: each.to(device, non_blocking=True) for name, each in encoded.items()}
                parts.append(model(**moved).logits)
        logits: Logits = torch.cat(parts).cpu().numpy()
        return logits

    return run


def _open_engine(side: str, directory: Path, max_seq_length: int, precision: str) -> Run:
    encode = _encoder_of(directory, max_seq_length, "np")
    opened = _onnx_runtime if side == "onnxruntime" else _openvino
    compute = opened(exported(directory, precision))

    def run(examples: Sequence[TextExample]) -> Logits:
        parts = []
        for start in range(0, len(examples), BATCH_SIZE):
            encoded = encode(examples[start : start + BATCH_SIZE])
            parts.append(compute({name: encoded[name].astype(np.int64) for name in _INPUTS}))
        return np.concatenate(parts)

    return run


def _onnx_runtime(path: Path) -> Callable[[dict[str, Any]], Logits]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda encoded: cast(Logits, session.run(["logits"], encoded)[0])


def _openvino(path: Path) -> Callable[[dict[str, Any]], Logits]:
    import openvino

    # By default it multiplies in bfloat16 where the processor can.
    settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    settings["INFERENCE_NUM_THREADS"] = str(torch.get_num_threads())
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    return lambda encoded: cast(Logits, next(iter(compiled(encoded).values())))


def exported(directory: Path, precision: str) -> Path:
    """transformers' model of a directory as ONNX, beside it; exported once."""
    path = directory / "transformers.onnx"
    if not path.exists():
        import transformers

        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            directory, attn_implementation="eager"
        ).eval()
        ids = torch.ones(2, 9, dtype=torch.long)
        axes = {name: {0: "batch", 1: "length"} for name in _INPUTS}
        with warnings.catch_warnings(action="ignore"):
            torch.onnx.export(
                model, (ids, ids, 0 * ids), path,
                input_names=list(_INPUTS), output_names=["logits"],
                dynamic_axes={**axes, "logits": {0: "batch"}}, opset_version=17, dynamo=False,
            )  # fmt: skip
    if precision != "int8":
        return path
    rounded = directory / "transformers-int8.onnx"
    if not rounded.exists():
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(path, rounded, per_channel=True)
    return rounded
