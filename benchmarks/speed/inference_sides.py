"""The sides of ``infer``: from a model's directory to texts' logits.

transformers, ONNX Runtime and OpenVINO run batches of 32 texts that transformers' tokenizer pads to
the longest.  The last two run transformers' model, exported to ONNX.  ``onnxruntime-fused`` runs it
as onnxruntime.transformers' optimizer fuses it; ``openvino-async`` computes several batches at
once.  In int8 ONNX Runtime's own ``quantize_dynamic`` rounds weights with a scale a channel; it
rounds activations with one scale a batch, and OpenVINO computes that model too.
sentence-transformers makes vectors of [CLS], which go through the classifier's last layers here.
"""

import copy
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness import script
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.inference.forward import answering_in, run_features
from tidybert.inference.predictor import Predictor
from tidybert.storage.model_files import CONFIG_FILE

BATCH_SIZE: Final = 32
"""The other sides' batches; ours are cut by tokens."""
LOADER_WORKERS: Final = 4
"""Processes that make transformers' batches for a GPU; a CPU has no core to spare for them."""
ENGINES: Final = ("onnxruntime", "onnxruntime-fused", "openvino", "openvino-async")
SENTENCES: Final = "sentence-transformers"
_INT8_ENGINES: Final = ("onnxruntime", "openvino", "openvino-async")
_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")

Logits = npt.NDArray[np.float32]
Run = Callable[[Sequence[TextExample]], Logits]
"""From examples to their logits (B, 2), in the order given."""


def open_side(
    side: str, directory: Path, max_seq_length: int, device: str = "cpu", precision: str = "float32"
) -> Run:
    """Open the model on a side; UsageError for a precision that the side lacks."""
    if side == "ours":
        return _open_ours(directory, max_seq_length, device, precision)
    if side == "transformers" and precision != "int8":
        return _open_transformers(directory, max_seq_length, device, precision)
    known = ("float32", "int8") if side in _INT8_ENGINES else ("float32",)
    if precision not in known:
        raise UsageError(
            f"{param('precision', precision)}: {side} has no {precision} here; use "
            f"{param('against', 'onnxruntime' if precision == 'int8' else 'transformers')}"
        )
    if side == SENTENCES:
        return _open_sentences(directory, max_seq_length)
    return _open_engine(side, directory, max_seq_length, precision)


def packages_of(side: str) -> tuple[str, ...]:
    """The packages that a side needs."""
    known = {"ours": (), "transformers": ("transformers",), SENTENCES: (SENTENCES,)}
    return known.get(side, ("transformers", "onnx", "onnxruntime", side.partition("-")[0]))


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


def _open_transformers(directory: Path, max_seq_length: int, device: str, precision: str) -> Run:
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
        with answering_in(precision, torch.device(device)):
            for encoded in batches(id(examples)):
                moved = {name: each.to(device, non_blocking=True) for name, each in encoded.items()}
                parts.append(model(**moved).logits)
        logits: Logits = torch.cat(parts).float().cpu().numpy()
        return logits

    return run


def _open_sentences(directory: Path, max_seq_length: int) -> Run:
    import sentence_transformers

    transformers = script.quiet_transformers()
    encoder = sentence_transformers.SentenceTransformer(
        str(_sentence_form(directory, max_seq_length)), device="cpu"
    )
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


def _sentence_form(directory: Path, max_seq_length: int) -> Path:
    """The same model in a directory that says how its vectors are made: those of [CLS]."""
    made = directory / "sentences"
    if not made.exists():
        (made / "1_Pooling").mkdir(parents=True)
        for path in directory.iterdir():
            if path.is_file():
                (made / path.name).symlink_to(path.absolute())
        width = BertConfig.from_file(directory / CONFIG_FILE).hidden_size
        kind = "sentence_transformers.models."
        files = {
            "modules.json": [
                {"idx": 0, "name": "0", "path": "", "type": f"{kind}Transformer"},
                {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{kind}Pooling"},
            ],
            "sentence_bert_config.json": {"max_seq_length": max_seq_length},
            "1_Pooling/config.json": {
                "word_embedding_dimension": width,
                "pooling_mode_cls_token": True,
                "pooling_mode_mean_tokens": False,
            },
        }
        for name, content in files.items():
            (made / name).write_text(json.dumps(content))
    return made


def _open_engine(side: str, directory: Path, max_seq_length: int, precision: str) -> Run:
    encode = _encoder_of(directory, max_seq_length, "np")
    path = exported(directory, precision)
    if side == "openvino-async":
        compute_all = _openvino_async(path)
    else:
        opened = _openvino if side == "openvino" else _onnx_runtime
        compute = opened(_fused(directory, path) if side == "onnxruntime-fused" else path)
        compute_all = lambda batches: [compute(each) for each in batches]  # noqa: E731

    def run(examples: Sequence[TextExample]) -> Logits:
        starts = range(0, len(examples), BATCH_SIZE)
        batches = (encode(examples[start : start + BATCH_SIZE]) for start in starts)
        int64 = ({name: each[name].astype(np.int64) for name in _INPUTS} for each in batches)
        return np.concatenate(compute_all(int64))

    return run


def _onnx_runtime(path: Path) -> Callable[[dict[str, Any]], Logits]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda encoded: cast(Logits, session.run(["logits"], encoded)[0])


def _compiled(path: Path, hint: str) -> Any:
    import openvino

    # By default it multiplies in bfloat16 where the processor can.
    settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": hint}
    settings["INFERENCE_NUM_THREADS"] = str(torch.get_num_threads())
    return openvino.Core().compile_model(path, "CPU", settings)


def _openvino(path: Path) -> Callable[[dict[str, Any]], Logits]:
    compiled = _compiled(path, "LATENCY")
    return lambda encoded: cast(Logits, next(iter(compiled(encoded).values())))


def _openvino_async(path: Path) -> Callable[[Iterable[dict[str, Any]]], list[Logits]]:
    import openvino

    queue = openvino.AsyncInferQueue(_compiled(path, "THROUGHPUT"))

    def compute(batches: Iterable[dict[str, Any]]) -> list[Logits]:
        found: dict[int, Logits] = {}
        queue.set_callback(
            lambda request, at: found.update({at: request.get_output_tensor().data.copy()})
        )
        for at, encoded in enumerate(batches):
            queue.start_async(encoded, at)
        queue.wait_all()
        return [found[at] for at in range(len(found))]

    return compute


def _fused(directory: Path, path: Path) -> Path:
    """The model with attention, LayerNorm and GELU as an operator each; made once."""
    fused = directory / "transformers-fused.onnx"
    if not fused.exists():
        from onnxruntime.transformers.optimizer import optimize_model

        config = BertConfig.from_file(directory / CONFIG_FILE)
        optimize_model(
            str(path),
            model_type="bert",
            num_heads=config.num_attention_heads,
            hidden_size=config.hidden_size,
            opt_level=0,
        ).save_model_to_file(str(fused))
    return fused


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
