"""The script for a GPU, on a CPU with tiny sizes: weights come back in parts while it trains."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.harness.script import ROOT
from tidybert.checkpoints.model_directory import ModelDirectory

SCRIPT = Path("benchmarks/small/on_a_gpu.sh")
WORDS = ("the red cat", "a dog was near", "we saw the dog", "the old cat", "a cat was near")


@pytest.fixture
def environment(tmp_path: Path, pretrained: object) -> dict[str, str]:
    directory, _ = pretrained("BertForPreTraining")  # type: ignore[operator]
    return {
        **os.environ,
        "PYTHON": sys.executable,
        "START": str(directory),
        "WORK": str(tmp_path / "work"),
        "DEVICE": "cpu",
        "STEPS": "2",
        "SECONDS_BETWEEN": "1",
        "CORPUS_FLAGS": "--held-out 0.2",
        "FLAGS": "--eval-steps 2 --tokens-per-step 64 --teacher-sentences 4 --max-seq-length 16 "
        "--precision float32",
    }


def test_weights_come_back_in_parts(tmp_path: Path, environment: dict[str, str]) -> None:
    documents = [f"{WORDS[at % 5]}.\n{WORDS[at * 2 % 5]}.\nnew {at}" for at in range(40)]
    texts, out = tmp_path / "texts.txt", tmp_path / "out"
    texts.write_text("\n\n".join(documents) + "\n")

    done = subprocess.run(
        ["sh", SCRIPT, texts, out, "train"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip

    logs = "".join(path.read_text() for path in out.glob("*.log"))
    assert done.returncode == 0, done.stderr + logs
    assert "step 2: cls_cosine" in logs
    assert subprocess.run(["sha256sum", "-c", "sums"], cwd=out, check=False).returncode == 0
    whole = tmp_path / "weights.tar"
    whole.write_bytes(b"".join(path.read_bytes() for path in sorted(out.glob("weights.*"))))
    with tarfile.open(whole) as archive:
        archive.extractall(tmp_path, filter="data")
    assert ModelDirectory(tmp_path / "packed").metadata is not None
