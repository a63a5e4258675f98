"""Features through a model in batches."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tidybert.data.batching import Batch
from tidybert.data.features import Features
from tidybert.errors import DeviceMemoryError
from tidybert.inference.running import run_batches


def test_too_little_memory_says_what_to_try() -> None:
    def outputs(_batch: Batch) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    features = [Features(np.ones(9, dtype=np.int32), np.zeros(9, dtype=np.uint8), 9, example=0)] * 3

    with pytest.raises(DeviceMemoryError, match="memory of cpu is too small for 27 tokens at once"):
        run_batches(outputs, features, [1] * 3, torch.device("cpu"))
