"""Which device a process takes; tests/pretraining/test_processes.py trains with several."""

import pytest
import torch

from tidybert.training.distributed import Processes


@pytest.mark.parametrize("has_cuda", [True, False])
def test_each_process_has_a_cuda_device_of_its_own(
    has_cuda: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    one = Processes(rank=3, size=4, local_rank=1, local_size=2, is_group=True)
    assert one.own_device("cuda") == "cuda:1"
    assert one.own_device("auto") == ("cuda:1" if has_cuda else "auto")
    assert one.own_device("cpu") == "cpu"
    assert Processes().own_device("cuda") == "cuda"
