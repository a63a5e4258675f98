"""A pre-trained RUN as weights that a package can carry: in float16, small, and checked.

What is written is a MODEL with both heads.  Nothing stays of it unless its logits are the RUN's but
for what rounding to float16 makes of them, and it is small enough.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from tidybert.atomic_files import atomic_directory, file_sha256
from tidybert.checkpoints.conversion import from_huggingface
from tidybert.checkpoints.metadata import CONFIG_FILE, read_metadata, verify
from tidybert.checkpoints.model_directory import load_weights_into, save_model_directory
from tidybert.checkpoints.tensor_files import WEIGHTS_FILE, check_finite, read_tensors
from tidybert.configuration import BertConfig
from tidybert.errors import WeightsError, param
from tidybert.modeling import BertForPreTraining, Rows
from tidybert.tokenization import BertTokenizer

MAX_BYTES: Final = 25_000_000
#: Largest difference between logits, as a share of the largest logit.  Rounding changes a weight by
#: at most 2**-11 of itself; the layers, each of which adds its own, are given 16 times that.
TOLERANCE: Final = 2**-7
_PAIRS: Final = (
    ("Rome is the [MASK] of Italy.", "It hosts many government [MASK]."),
    ("The [MASK] sat on the mat, and the dog slept.", "In winter the days are [MASK] and cold."),
    ("What is it?", "She asked him twice, and he [MASK] nothing at all for a long time."),
)


@dataclass(frozen=True)
class Packed:
    """What was written: all files' size, the weights' sha256, and how far the logits moved.

    ``difference`` is the largest between a logit and the RUN's, as a share of the largest logit.
    """

    num_parameters: int
    num_bytes: int
    sha256: str
    difference: float


def pack(run: str | Path, directory: str | Path, *, max_bytes: int = MAX_BYTES) -> Packed:
    """Write the float16 copy of a RUN of ``tidybert pretrain`` with both heads; replace an old one.

    Raises:
        WeightsError: the RUN's files do not belong together, or it lacks a head; float16 cannot
            hold its weights; what was written differs in its logits or is larger than
            ``max_bytes``.
        ConfigError, VocabularyError: the RUN's other files cannot be read.
    """
    run, directory = Path(run), Path(directory)
    verify(run)
    metadata = read_metadata(run)
    if metadata is None or metadata.task != "pretrain":
        raise WeightsError(f"{run} is no RUN of tidybert pretrain: only such a one is packed")
    config = BertConfig.from_file(run / CONFIG_FILE)
    expected = probe_logits(run)
    state = from_huggingface(read_tensors(run), config).tensors
    rounded = {name: tensor.to(torch.float16) for name, tensor in state.items()}
    check_finite(rounded, f"{run} in float16")
    with atomic_directory(directory) as partial:
        save_model_directory(
            partial,
            model_state=rounded,
            config=config,
            tokenizer=BertTokenizer.from_pretrained(run),
            metadata=metadata,
            architecture=BertForPreTraining.__name__,
        )
        difference = check_logits(expected, probe_logits(partial), str(directory))
        num_bytes = sum(path.stat().st_size for path in partial.iterdir())
        if num_bytes > max_bytes:
            raise WeightsError(
                f"{directory}: {num_bytes:,} bytes, and a package is to carry at most "
                f"{max_bytes:,}: pre-train a smaller size, or with a smaller vocabulary"
            )
    return Packed(
        num_parameters=sum(tensor.numel() for tensor in rounded.values()),
        num_bytes=num_bytes,
        sha256=file_sha256(directory / WEIGHTS_FILE),
        difference=difference,
    )


def probe_inputs(directory: str | Path) -> list[tuple[list[int], list[int]]]:
    """The input_ids and token_type_ids of a few pairs of sentences, as the MODEL reads them."""
    config = BertConfig.from_file(Path(directory) / CONFIG_FILE)
    tokenizer = BertTokenizer.from_pretrained(directory)
    length = config.max_position_embeddings
    encodings = [
        tokenizer.encode(*pair, max_seq_length=length, special_tokens_in_text=True)
        for pair in _PAIRS
    ]
    return [(list(one.input_ids), list(one.token_type_ids)) for one in encodings]


def probe_logits(directory: str | Path) -> list[Tensor]:
    """What the heads say of ``probe_inputs``, in float32: (T, V) over their tokens, and (B, 2).

    Raises WeightsError where the weights lack one of both heads.
    """
    model = BertForPreTraining(BertConfig.from_file(Path(directory) / CONFIG_FILE)).eval()
    report = load_weights_into(model, directory)
    if report.new:
        raise WeightsError(
            f"{directory} lacks {', '.join(report.new)}: pre-train with both heads "
            f"({param('objective')} mlm+nsp)"
        )
    input_ids, token_type_ids = zip(*probe_inputs(directory), strict=True)
    with torch.inference_mode():
        found = model(Rows.from_lists(input_ids, token_type_ids))
    return [found.prediction_logits, found.seq_relationship_logits]


def check_logits(expected: list[Tensor], found: list[Tensor], source: str) -> float:
    """The largest difference as a share of the largest logit, of the head where it is larger.

    Raises WeightsError where it is above TOLERANCE.
    """
    shares = [
        float((mine - other).abs().max() / mine.abs().max())
        for mine, other in zip(expected, found, strict=True)
    ]
    if not max(shares) <= TOLERANCE:
        raise WeightsError(
            f"{source}: a logit differs from the run's by {max(shares):.2%} of the largest one; "
            f"float16 explains at most {TOLERANCE:.2%}"
        )
    return max(shares)
