"""A pre-trained RUN as weights that a package can carry: in float16, small and checked.

``pack`` writes a MODEL with both heads.  It keeps the MODEL only if it is small enough and its
logits differ from the RUN's by no more than rounding to float16 explains.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from tidybert.atomic_files import atomic_directory, file_sha256
from tidybert.checkpoints.conversion import from_huggingface
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.checkpoints.tensor_files import check_finite
from tidybert.errors import WeightsError, param
from tidybert.model_files import WEIGHTS_FILE
from tidybert.modeling import BertForPreTraining, Rows

MAX_BYTES: Final = 25_000_000
#: Largest difference between logits, as a share of the largest logit.  Rounding changes a weight by
#: at most 2**-11 of itself; errors add up over the layers, so the limit is 16 times that.
TOLERANCE: Final = 2**-7
_PAIRS: Final = (
    ("Rome is the [MASK] of Italy.", "It hosts many government [MASK]."),
    ("The [MASK] sat on the mat, and the dog slept.", "In winter the days are [MASK] and cold."),
    ("What is it?", "She asked him twice, and he [MASK] nothing at all for a long time."),
)


@dataclass(frozen=True)
class Packed:
    """The size of all files, the sha256 of the weights, and how far the logits moved.

    ``difference`` is the largest between a logit and the RUN's, as a share of the largest logit.
    """

    num_parameters: int
    num_bytes: int
    sha256: str
    difference: float


def pack(run: str | Path, directory: str | Path, *, max_bytes: int = MAX_BYTES) -> Packed:
    """Write a float16 copy of a RUN of ``tidybert pretrain`` with both heads; replace an old one.

    Raises:
        WeightsError: the RUN's files do not belong together, or it lacks a head; float16 cannot
            hold its weights; the copy's logits differ, or it is larger than ``max_bytes``.
        ConfigError, VocabularyError: the RUN's other files cannot be read.
    """
    origin, directory = ModelDirectory(run), Path(directory)
    origin.verify()
    if origin.metadata is None or origin.metadata.task != "pretrain":
        raise WeightsError(
            f"{origin} is not a RUN of tidybert pretrain: only its RUNs can be packed"
        )
    expected = probe_logits(origin)
    state = from_huggingface(origin.tensors(), origin.config).tensors
    rounded = {name: tensor.to(torch.float16) for name, tensor in state.items()}
    check_finite(rounded, f"{origin} in float16")
    with atomic_directory(directory) as partial:
        save_model_directory(
            partial,
            model_state=rounded,
            config=origin.config,
            tokenizer=origin.tokenizer,
            metadata=origin.metadata,
            architecture=BertForPreTraining.__name__,
        )
        difference = check_logits(expected, probe_logits(ModelDirectory(partial)), str(directory))
        num_bytes = sum(path.stat().st_size for path in partial.iterdir())
        if num_bytes > max_bytes:
            raise WeightsError(
                f"{directory}: {num_bytes:,} bytes, but a package may carry at most {max_bytes:,}: "
                "pre-train a smaller size, or with a smaller vocabulary"
            )
    return Packed(
        num_parameters=sum(tensor.numel() for tensor in rounded.values()),
        num_bytes=num_bytes,
        sha256=file_sha256(directory / WEIGHTS_FILE),
        difference=difference,
    )


def probe_inputs(model: ModelDirectory) -> list[tuple[list[int], list[int]]]:
    """The input_ids and token_type_ids of a few pairs of sentences for this MODEL."""
    length = model.config.max_position_embeddings
    encodings = [
        model.tokenizer.encode(*pair, max_seq_length=length, special_tokens_in_text=True)
        for pair in _PAIRS
    ]
    return [(list(one.input_ids), list(one.token_type_ids)) for one in encodings]


def probe_logits(model: ModelDirectory) -> list[Tensor]:
    """The logits of both heads for ``probe_inputs``, in float32: (T, V) and (B, 2).

    Raises WeightsError if the weights lack a head.
    """
    network, report = model.build(BertForPreTraining)
    if report.new:
        raise WeightsError(
            f"{model} lacks {', '.join(report.new)}: pre-train with both heads "
            f"({param('objective', 'mlm+nsp')})"
        )
    input_ids, token_type_ids = zip(*probe_inputs(model), strict=True)
    with torch.inference_mode():
        found = network.eval()(Rows.from_lists(input_ids, token_type_ids))
    return [found.prediction_logits, found.seq_relationship_logits]


def check_logits(expected: list[Tensor], found: list[Tensor], source: str) -> float:
    """The largest difference as a share of the largest logit, the larger of both heads'.

    Raises WeightsError if it is above TOLERANCE.
    """
    shares = [
        float((mine - other).abs().max() / mine.abs().max())
        for mine, other in zip(expected, found, strict=True)
    ]
    if not max(shares) <= TOLERANCE:
        raise WeightsError(
            f"{source}: a logit differs from the run's by {max(shares):.2%} of the largest logit; "
            f"float16 explains at most {TOLERANCE:.2%}"
        )
    return max(shares)
