"""Training and answers do not depend on what a program set for PyTorch and the standard streams."""

import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tidybert
from tidybert.files.text_examples import TextExample
from tidybert.system.terminal import warn_user, write_note
from tidybert.training.precision import usual_torch

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@contextmanager
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


Surroundings = Callable[[], AbstractContextManager[Any]]
SET: dict[str, Surroundings] = {
    "float64": float64,
    "no gradients": lambda: torch.set_grad_enabled(False),
    "inference": torch.inference_mode,
    "another device": lambda: torch.device("meta"),
}


class Fit:
    """A training with a probe and two steps, and answers and vectors of its model."""

    def __init__(self, model: Path, examples: list[TextExample]) -> None:
        self.model = model
        self.data = [one.text for one in examples], [one.label for one in examples]

    def __call__(self) -> np.ndarray:
        options: dict[str, Any] = {"max_seq_length": 16, "max_steps": 2, "verbose": True}
        found = tidybert.finetune(
            self.data, "classify", self.model, dev=0.2, head_start="probe", **options
        )
        scores = [each["score"] for each in found.predict(self.data[0][:4], progress=True)]
        vectors = tidybert.Embedder(self.model).embed(self.data[0][:2], progress=True)
        return np.concatenate([scores, vectors.ravel()])


@pytest.fixture(scope="module")
def fit(tiny_model: Path, toy_examples: Callable[..., list[TextExample]]) -> Fit:
    return Fit(tiny_model, toy_examples(32))


@pytest.fixture(scope="module")
def usual(fit: Fit) -> np.ndarray:
    return fit()


@pytest.mark.parametrize("name", SET)
def test_settings_of_pytorch_change_nothing(name: str, fit: Fit, usual: np.ndarray) -> None:
    with SET[name]():
        found = fit()

    assert (found == usual).all()


def test_the_last_of_several_threads_sets_the_dtype_back() -> None:
    with float64():
        inside, leave = threading.Event(), threading.Event()

        def other() -> None:
            with usual_torch():
                inside.set()
                leave.wait(10)

        thread = threading.Thread(target=other)
        with usual_torch():
            thread.start()
            inside.wait(10)
        assert torch.get_default_dtype() == torch.float32
        leave.set()
        thread.join()


class OnlyWrites:
    def write(self, text: str) -> None:
        pass


CLOSED = io.StringIO()
CLOSED.close()


@pytest.mark.parametrize("stream", [None, CLOSED, OnlyWrites()], ids=["None", "closed", "writes"])
def test_a_program_without_a_console_trains(
    stream: Any, fit: Fit, usual: np.ndarray, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)

    found = fit()
    write_note("nobody reads this")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("warnings.showwarning", lambda *given: None)
        warn_user("nor this", UserWarning)

    assert (found == usual).all()
    assert not capsys.readouterr().out
