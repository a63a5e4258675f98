"""--cluster on the command line: what is refused, and a job that is killed and begun again."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidybert.cli.main import run as shell

# make test-kills tries many, at random moments; each starts Ray twice.
KILLS = int(os.environ.get("TIDYBERT_KILLS", "0"))


@pytest.fixture
def folder(tmp_path: Path, toy_examples: Callable[..., Any]) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(4):
        rows = [json.dumps({"text": one.text}) + "\n" for one in toy_examples(4000, seed=number)]
        (tmp_path / "in" / f"{number}.jsonl").write_text("".join(rows))
    return tmp_path / "in"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster", "local"], "--cluster needs --out: a folder"),
        (["--cluster", "local", "--out", "o", "--input", "x"], "--input does not go with"),
        (["--cluster-workers", "2"], "--cluster-workers needs --cluster"),
        (["--on-error", "continue"], "--on-error needs --cluster"),
        (["--cluster", "local", "--out", "o"], "--cluster reads files"),
        (["--cluster", "local", "--out", "s3://b/o"], "expected a folder on a disk"),
        (["--cluster", "local", "--out", "o", "--threads", "2"], "a worker of --cluster has one"),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    tiny_run: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell(["predict", str(tiny_run), *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("trial", range(KILLS))
def test_a_killed_job_goes_on_by_the_same_command_with_the_same_bytes(
    folder: Path, tiny_run: Path, tmp_path: Path, begin: Callable[..., Any], trial: int
) -> None:
    pytest.importorskip("ray")
    out = tmp_path / "out"
    words = ["predict", tiny_run, folder, "--cluster", "local", "--out", out]
    first = begin(*words)
    until = time.monotonic() + 100
    while not (out / "manifest.jsonl").is_file() or len(list(out.iterdir())) < 2:
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(Random(trial).uniform(0, 3) if trial else 0)
    first.send_signal(signal.SIGKILL)
    first.wait()

    assert begin(*words).wait() == 0

    for number in range(4):
        alone = tmp_path / f"{number}.jsonl"
        source = folder / alone.name
        assert shell(["predict", str(tiny_run), str(source), "--out", str(alone)]) == 0
        assert (out / f"{alone.name}.jsonl").read_bytes() == alone.read_bytes()
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert names == {"manifest.jsonl", *(f"{number}.jsonl.jsonl" for number in range(4))}
