"""The sides of ``infer``: a classifier's directory, and from it to texts' logits.

transformers, ONNX Runtime and OpenVINO run batches of 32 texts that transformers' tokenizer pads to
the longest.  The last two run transformers' model, exported to ONNX.  In int8 ONNX Runtime's own
``quantize_dynamic`` rounds weights with a scale a channel; it rounds activations with one scale a
batch, and OpenVINO computes that model too.  sentence-transformers makes vectors of [CLS], which go
through the classifier's last layers here.
"""

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from benchmarks.harness import script
from tidybert.catalog import find_model
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.inference.forward import answering_in, run_features
from tidybert.inference.loading import fitting_length
from tidybert.inference.predictor import Predictor
from tidybert.storage.model_files import CONFIG_FILE
from tidybert.tasks.classification import Classification

BATCH_SIZE: Final = 32
"""The other sides' batches; ours are cut by tokens."""
LOADER_WORKERS: Final = 4
"""Processes that make transformers' batches for a GPU; a CPU has no core to spare for them."""
ENGINES: Final = ("onnxruntime", "openvino")
SENTENCES: Final = "sentence-transformers"
_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")

Logits = npt.NDArray[np.float32]
Run = Callable[[Sequence[TextExample]], Logits]
"""From examples to their logits (B, 2), in the order given."""


def max_seq_length_for(model: str, asked: int | None = None) -> int:
    """``asked``, or for None 128 tokens, or fewer where MODEL has fewer positions.

    Raises UsageError for more than MODEL has positions, and as ``find_model`` does.
    """
    fitting = fitting_length(BertConfig.from_file(find_model(model) / CONFIG_FILE), asked)
    return min(128, fitting) if asked is None else fitting


def save_classifier(model: str, directory: Path, max_seq_length: int) -> None:
    """Save MODEL as a RUN that tells texts of class 0 from texts of class 1, by random weights."""
    origin, task = ModelDirectory.open(model), Classification(["0", "1"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network, _ = origin.build(task.build_model, new_head=True)
        # Logits spread like a trained head's, so that a small difference is small in comparison.
        nn.init.normal_(network.get_parameter("classifier.weight"))
    save_model_directory(
        directory,
        model_state=network.state_dict(),
        config=origin.config,
        tokenizer=origin.tokenizer,
        metadata=ModelMetadata(task.name, task.label_names, max_seq_length),
        architecture=task.architecture,
        problem_type=task.problem_type,
    )


def open_side(
    side: str, directory: Path, max_seq_length: int, device: str = "cpu", precision: str = "float32"
) -> Run:
    """Open the model on a side; UsageError for a precision that the side lacks."""
    if side == "ours":
        return _open_ours(directory, max_seq_length, device, precision)
    if precision == "int8" and side not in ENGINES:
        raise UsageError(
            f"{param('precision', 'int8')}: {side} has no int8 here; use "
            f"{param('against', 'onnxruntime')}"
        )
    if side == "transformers":
        return _open_transformers(directory, max_seq_length, device)
    if side == SENTENCES:
        return _open_sentences(directory, max_seq_length)
    return _open_engine(side, directory, max_seq_length, precision)


def packages_of(side: str) -> tuple[str, ...]:
    """The packages that a side needs."""
    known = {"ours": (), "transformers": ("transformers",), SENTENCES: (SENTENCES,)}
    return known.get(side, ("transformers", "onnx", "onnxruntime", side))


def _open_ours(directory: Path, max_seq_length: int, device: str, precision: str) -> Run:
    predictor = Predictor(
        directory, device=device, precision=cast(Any, precision), max_seq_length=max_seq_length
    )

    def run(examples: Sequence[TextExample]) -> Logits:
        tokenizer = predictor.tokenizer
        if len(examples) > 1:
            # A copy has an empty cache, as if it had seen no text.  Emptying takes longer than a
            # text alone, which comes to a program that runs.
            tokenizer = copy.copy(tokenizer)
        features = predictor.task.features(examples, tokenizer, max_seq_length)
        return np.concatenate(
            run_features(predictor.task, predictor.model, features, precision=predictor.precision)
        )

    return run


def _encoder_of(
    directory: Path, max_seq_length: int, tensors: str
) -> Callable[..., dict[str, Any]]:
    """transformers' tokenizer for a batch of examples."""
    tokenizer = script.quiet_transformers().AutoTokenizer.from_pretrained(directory)

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
        with answering_in("float32", torch.device(device)):
            for encoded in batches(id(examples)):
                moved = {name: each.to(device, non_blocking=True) for name, each in encoded.items()}
                parts.append(model(**moved).logits)
        logits: Logits = torch.cat(parts).cpu().numpy()
        return logits

    return run


def _open_sentences(directory: Path, max_seq_length: int) -> Run:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformers = script.quiet_transformers()
    model = Transformer(str(directory), max_seq_length=max_seq_length)
    vectors = Pooling(model.get_embedding_dimension(), pooling_mode="cls")
    encoder = SentenceTransformer(modules=[model, vectors], device="cpu")
    whole = transformers.AutoModelForSequenceClassification.from_pretrained(directory).eval()
    pooler, classifier = whole.bert.pooler, whole.classifier
    del whole

    def run(examples: Sequence[TextExample]) -> Logits:
        first = encoder.encode(
            [one.text for one in examples], batch_size=BATCH_SIZE, convert_to_tensor=True
        )
        with torch.inference_mode():
            logits: Logits = classifier(pooler(first[:, None])).numpy()
        return logits

    return run


def _open_engine(side: str, directory: Path, max_seq_length: int, precision: str) -> Run:
    encode, path = _encoder_of(directory, max_seq_length, "np"), exported(directory, precision)
    compute: Callable[[dict[str, Any]], Any]
    if side == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        compute = partial(session.run, ["logits"])
    else:
        import openvino

        # By default it multiplies in bfloat16 where the processor can.
        settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        settings["INFERENCE_NUM_THREADS"] = str(torch.get_num_threads())
        compiled = openvino.Core().compile_model(path, "CPU", settings)
        compute = lambda batch: list(compiled(batch).values())  # noqa: E731

    def run(examples: Sequence[TextExample]) -> Logits:
        parts = []
        for start in range(0, len(examples), BATCH_SIZE):
            batch = encode(examples[start : start + BATCH_SIZE])
            parts.append(compute({name: batch[name].astype(np.int64) for name in _INPUTS})[0])
        return np.concatenate(parts)

    return run


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
