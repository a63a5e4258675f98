"""Kernels that repeat to the bit: asked for on CUDA alone, and given back."""

import os

import pytest
import torch

from tidybert.errors import UsageError
from tidybert.training.determinism import deterministic_algorithms, repeating


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment as it was, after the test too."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")


@pytest.mark.parametrize(
    ("asked", "device", "has_cuda", "expected"),
    [
        (True, "cuda:1", True, (True, ":4096:8")),
        (True, "auto", True, (True, ":4096:8")),
        (True, "auto", False, (False, None)),
        (True, "cpu", True, (False, None)),
        (False, "cuda", True, (False, None)),
    ],
)
def test_cuda_repeats_where_it_is_asked(
    asked: bool,
    device: str,
    has_cuda: bool,
    expected: tuple[bool, str | None],
    unset: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)

    with repeating(asked, device):
        enabled = torch.are_deterministic_algorithms_enabled()
        assert (enabled, os.environ.get("CUBLAS_WORKSPACE_CONFIG")) == expected
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory


def test_a_work_space_that_does_not_repeat_is_an_error(
    unset: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")

    with (
        pytest.raises(UsageError, match=r"is ':0:0', .* expected :4096:8 or :16:8"),
        deterministic_algorithms(),
    ):
        pass
