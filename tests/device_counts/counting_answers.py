"""Counts of predictions on a CUDA device that does not exist; see counting.py."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from counting import CountingMode, base_config, lengths_of_a_batch
from torch._subclasses import FakeTensorMode

BATCHES = 3
BATCH_TOKENS = 4096


def count_answers(name: str) -> dict[str, Any]:
    """Three layers of base in bfloat16: three batches of a task, one of vectors or [MASK]s."""
    from tidybert.data.features import Features
    from tidybert.inference import embedding, forward
    from tidybert.inference import pretraining_heads as fill_mask
    from tidybert.modeling import BertModel
    from tidybert.modeling.heads import BertForMaskedLM
    from tidybert.modeling.kernels import transfer
    from tidybert.tasks.classification import Classification
    from tidybert.tasks.questions.question_answering import QuestionAnswering

    stream = SimpleNamespace(record_event=lambda: None)
    torch.cuda.current_stream = lambda _device: stream
    transfer.Fetched.numpy = lambda fetched: np.zeros(tuple(fetched._tensor.shape), np.float32)
    lengths = lengths_of_a_batch(BATCHES * BATCH_TOKENS, 128).tolist()
    features = [Features(np.ones(n, np.int32), np.zeros(n, np.uint8), n) for n in lengths]
    config, device = base_config(0.1), torch.device("cuda")
    tasks = {"classify": Classification(["no", "yes"]), "answer": QuestionAnswering()}
    with FakeTensorMode(allow_non_fake_inputs=True):
        with device:
            if name in tasks:
                model = tasks[name].build_model(config).eval()
            else:
                model = (BertForMaskedLM if name == "fill-mask" else BertModel)(config).eval()
        if name == "fill-mask":
            filler = object.__new__(fill_mask.MaskFiller)
            filler.model, filler.device, filler.precision = model, device, "bfloat16"
            filler.tokenizer = SimpleNamespace(mask_token_id=1, vocab_size=30522)
            filler.spans = lambda encoding: encoding.input_ids
            encodings = [
                SimpleNamespace(
                    input_ids=[1] * n, token_type_ids=[0] * n, num_tokens=n, truncated=False
                )
                for n in (30, 40, 50)
            ]
        if name in ("mean", "cls", "max"):
            embedder = object.__new__(embedding.Embedder)
            embedder.unknown = SimpleNamespace(add=lambda _features: None)
            embedder._opened = SimpleNamespace(graph=None)
            embedder.encoder, embedder.layers, embedder.combine = model, (2, 3), "mean"
            embedder.precision, embedder.device = "bfloat16", device
            embedder.dense = torch.nn.Sequential()
            embedder._scaled_before, embedder._scaled_after = True, False
            embedder.dimension = config.hidden_size
        counting = CountingMode()
        with counting:
            if name in tasks:
                forward.run_features(
                    tasks[name], model, features, BATCH_TOKENS, precision="bfloat16"
                )
            elif name == "fill-mask":
                forward.run_batches(
                    filler.outputs,
                    fill_mask.encoding_features(encodings),
                    [len(filler.spans(one)) for one in encodings],
                    device,
                    precision="bfloat16",
                )
            else:
                embedder._run(features, [1] * len(features), name)
    return counting.summary()


def count_predictions() -> dict[str, Any]:
    """The counts of each, by its name."""
    return {
        f"predict {name}": count_answers(name)
        for name in ("classify", "answer", "mean", "cls", "max", "fill-mask")
    }
