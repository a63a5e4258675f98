"""Two commands with one --out: the second is told who has it, and changes nothing."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidybert.cli.main import run as shell
from tidybert.storage.output_lock import output_lock

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")


def test_every_command_that_writes(
    tiny_model: Path, tiny_run: Path, toy_file: Callable[..., Path], tmp_path: Path, capsys
) -> None:
    labelled, out = str(toy_file("toy.csv", 8)), tmp_path / "out.npy"
    model, run = str(tiny_model), str(tiny_run)
    (tmp_path / "text.txt").write_text("a red cat\n")
    text = str(tmp_path / "text.txt")
    ready, told = os.pipe()
    owner = os.fork()
    if not owner:
        with output_lock(out):
            os.write(told, b"x")
            signal.pause()
    try:
        os.read(ready, 1)
        before = sorted(tmp_path.iterdir())
        for command, *flags in (
            ["finetune", "classify", model, "--train", labelled, "--out"],
            ["finetune", "classify", model, "--train", labelled, "--seeds", "2", "--out"],
            ["pretrain", "mini", "--data", "absent", "--out"],
            ["predict", run, labelled, "--out"],
            ["embed", model, labelled, "--out"],
            ["evaluate", run, labelled, "--report"],
            ["build-corpus", text, "--vocab", model, "--out"],
            ["train-vocab", text, "--out"],
            ["extend-vocab", model, text, "--add", "1", "--out"],
            ["quickstart", "--out"],
        ):
            assert shell([command, *flags, str(out)]) == 1, command
            assert f"in use by process {owner} on " in capsys.readouterr().err, command
            assert sorted(tmp_path.iterdir()) == before, command
    finally:
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
        os.close(ready)
        os.close(told)

    # The owner is dead, and its lock is no obstacle.
    assert shell(["embed", model, labelled, "--out", str(out)]) == 0
    assert sorted(tmp_path.iterdir()) == sorted([*before[1:], out])
