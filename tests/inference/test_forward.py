"""Features through a model in batches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tidybert.data.batching import Batch
from tidybert.data.features import Features
from tidybert.errors import DeviceMemoryError, WeightsError
from tidybert.inference import forward
from tidybert.inference.forward import run_batches
from tidybert.modeling.kernels import transfer
from tidybert.system.reporter import Reporter


def test_too_little_memory_says_what_to_try() -> None:
    def outputs(_batch: Batch) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    features = [Features(np.ones(9, dtype=np.int32), np.zeros(9, dtype=np.uint8), 9, example=0)] * 3

    with pytest.raises(DeviceMemoryError, match="memory of cpu is too small for 9 tokens at once"):
        run_batches(outputs, features, [1] * 3, torch.device("cpu"))


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_outputs_that_are_not_finite_are_refused(wrong: float) -> None:
    def outputs(batch: Batch) -> Tensor:
        found = batch.rows.input_ids[batch.rows.first_rows][:, None].float()
        return torch.where(found == 2, wrong, found)

    features = [
        Features(np.full(9, number, dtype=np.int32), np.zeros(9, dtype=np.uint8), 9, example=number)
        for number in range(4)
    ]

    with pytest.raises(WeightsError, match="outputs are not finite: its weights are too large"):
        run_batches(outputs, features, [1] * 4, torch.device("cpu"))
    run_batches(outputs, features[:2], [1] * 2, torch.device("cpu"))


def test_a_batch_that_memory_is_too_small_for_is_halved() -> None:
    tried: list[int] = []

    def outputs(batch: Batch) -> Tensor:
        tried.append(batch.rows.num_tokens)
        if batch.rows.num_tokens > 18:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return batch.rows.input_ids[batch.rows.first_rows][:, None].float()

    features = [
        Features(np.full(9, number, dtype=np.int32), np.zeros(9, dtype=np.uint8), 9, example=number)
        for number in range(7)
    ]

    found = run_batches(outputs, features, [1] * 7, torch.device("cpu"))

    assert [each.tolist() for each in found] == [[[number]] for number in range(7)]
    assert tried == [63, 27, 9, 18, 36, 18, 18]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_several_threads_answer_each_of_the_features_once(
    threads: int, set_threads: Callable[[int], None]
) -> None:
    """In their order, in batches that keep all of them busy and none of which is too large."""
    lengths = np.random.default_rng(threads).integers(2, 200, size=90)
    features = [
        Features(
            np.full(length, number, dtype=np.int32), np.zeros(length, np.uint8), length, number
        )
        for number, length in enumerate(lengths.tolist())
    ]
    tried: list[int] = []

    def outputs(batch: Batch) -> Tensor:
        assert torch.is_inference_mode_enabled()
        tried.append(batch.rows.num_tokens)
        return batch.rows.input_ids[batch.rows.first_rows][:, None].float()

    set_threads(threads)
    found = run_batches(outputs, features, [1] * 90, torch.device("cpu"))

    assert [each.tolist() for each in found] == [[[number]] for number in range(90)]
    assert sum(tried) == lengths.sum()
    assert max(tried) <= 1024
    assert len(tried) >= threads


def test_a_gpu_has_its_next_batch_before_an_answer_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the meta device, which computes nothing; in order, and the halves of a batch too."""
    seen: list[str] = []

    class Fetched:
        def __init__(self, tensor: Tensor) -> None:
            self.num_rows = len(tensor)
            seen.append(f"launch {self.num_rows}")

        def numpy(self) -> np.ndarray:
            seen.append(f"fetch {self.num_rows}")
            return np.zeros((self.num_rows, 1), np.float32)

    def outputs(batch: Batch) -> Tensor:
        if batch.rows.num_sequences > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return torch.zeros(batch.rows.num_sequences, 1, device="meta")

    monkeypatch.setattr(transfer, "Fetched", Fetched)
    features = [Features(np.ones(9, np.int32), np.zeros(9, np.uint8), 9)] * 4 + [
        Features(np.ones(8, np.int32), np.zeros(8, np.uint8), 8)
    ]

    found = run_batches(outputs, features, [1] * 5, torch.device("meta"), 18)
    assert [len(each) for each in found] == [1] * 5
    assert seen == ["launch 2", "launch 2", "fetch 2", "launch 1", "fetch 2", "fetch 1"]

    seen.clear()
    run_batches(outputs, features[:4], [1] * 4, torch.device("meta"), 36)
    assert seen == ["launch 2", "launch 2", "fetch 2", "fetch 2"]


def test_a_sequence_that_several_features_have_is_computed_once() -> None:
    computed: list[int] = []

    class Sequences:
        unit = "sequence"

        def num_rows(self, one: Features) -> int:
            return len(one.sequence_lengths)

        def outputs(self, _model: object, batch: Batch) -> Tensor:
            computed.extend(batch.rows.input_ids[batch.rows.first_rows].tolist())
            ids = batch.rows.input_ids.float()
            parts = torch.split(ids, list(batch.rows.lengths))
            return torch.stack([each.sum() for each in parts])[:, None]

    def features(*texts: list[int]) -> Features:
        ids = np.array([each for text in texts for each in text], dtype=np.int32)
        types = np.zeros(len(ids), dtype=np.uint8)
        return Features(ids, types, len(ids), lengths=tuple(map(len, texts)))

    given = [features([1, 2], [3]), features([4], [1, 2], [5, 6, 7]), features([3], [3])]
    task: Any = Sequences()
    done: list[int] = []

    found = forward.run_features(
        task, torch.nn.Linear(1, 1), given, reporter=Reporter(advance=done.append)
    )

    assert [each[:, 0].tolist() for each in found] == [[3, 3], [4, 3, 18], [3, 3]]
    assert sorted(computed) == [1, 3, 4, 5]
    assert done[-1] == 3
