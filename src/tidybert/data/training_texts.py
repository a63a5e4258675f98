"""training_texts.npy: hashes of the texts that trained a RUN, sorted, at most 8 MB.

They tell which texts of another file had a part in training, and hold no text.
"""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.errors import ConfigError
from tidybert.storage.atomic_files import atomic_write_bytes
from tidybert.storage.limits import HASHES_BYTES
from tidybert.storage.model_files import TRAINING_TEXTS_FILE
from tidybert.storage.opening import present, read_bytes

MAX_HASHES: Final = 1_000_000

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class TrainingTexts:
    """The hashes of the training texts; ``is_whole`` is False where only the smallest are kept."""

    hashes: Hashes
    is_whole: bool

    def num_among(self, hashes: Hashes) -> int:
        """How many of ``hashes`` trained the model; at least as many where not all are kept."""
        return int(np.isin(hashes, self.hashes).sum())


def write_training_texts(run: Path, hashes: Hashes) -> None:
    """Write the hashes; of more than MAX_HASHES the smallest, which are a random part of them."""
    kept = np.unique(hashes)[:MAX_HASHES]
    content = BytesIO()
    np.lib.format.write_array(content, kept.astype("<u8"), allow_pickle=False)
    atomic_write_bytes(run / TRAINING_TEXTS_FILE, content.getvalue())


def read_training_texts(run: Path) -> TrainingTexts | None:
    """The hashes of a RUN; None where it has none.  Raises ConfigError for a damaged file."""
    path = run / TRAINING_TEXTS_FILE
    if not present(path, error=ConfigError):
        return None
    content = BytesIO(read_bytes(path, HASHES_BYTES, error=ConfigError))
    try:
        version = np.lib.format.read_magic(content)
        shape, _, dtype = np.lib.format.read_array_header_1_0(content, max_header_size=1000)
        # Memory is only taken for what the file holds, not for what its header says.
        hashes = np.frombuffer(content.read(), "<u8")
    # The damaged byte decides which exception NumPy raises.
    except Exception as error:
        raise ConfigError(f"{path}: not the hashes that tidybert wrote: {error}") from None
    if (version, shape, dtype) != ((1, 0), hashes.shape, hashes.dtype):
        raise ConfigError(f"{path}: not the hashes that tidybert wrote")
    return TrainingTexts(hashes, len(hashes) < MAX_HASHES)
