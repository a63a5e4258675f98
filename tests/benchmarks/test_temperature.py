"""The table of temperatures: log-loss on the rest, by the size of dev and the prior."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest


def test_a_prior_helps_a_calibrated_model_of_few_dev_examples(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    temperature = script("temperature")
    monkeypatch.setattr(temperature, "DRAWS", 20)
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (600, 2)).astype(np.float32)
    right = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    labels = (rng.random(600) < right).astype(np.int64)
    uniform = temperature.log_loss(np.zeros((3, 4), dtype=np.float32), labels[:3], 1.0)
    assert uniform == pytest.approx(np.log(4))

    rows = temperature.measure(logits, labels, [20])

    changes = {row["prior"]: row["change"] for row in rows}
    assert changes.keys() == set(temperature.PRIORS)
    assert changes[80] < changes[20] < changes[0]
