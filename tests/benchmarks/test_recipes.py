"""Variants of the recipe: trained as the flags say, all measured alike, each a row of the table."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tidybert.cli.main import run as shell
from tidybert.corpus.building import build_corpus
from tidybert.tokenization import BertTokenizer


@pytest.fixture
def corpus(pretrained_run: Path, tmp_path: Path) -> Path:
    """Documents with the vocabulary of the tiny model."""
    sentences = ("the red cat is near", "a dog was near the red cat", "we saw the old dog")
    documents = [f"{sentences[n % 3]} {n}\n{sentences[n % 2]} {n}" for n in range(60)]
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(documents) + "\n")
    tokenizer = BertTokenizer.from_pretrained(pretrained_run)
    build_corpus([text], tokenizer, tmp_path / "corpus", held_out=0.2)
    return tmp_path / "corpus"


def test_variants_are_trained_once_and_measured_alike(
    script: Callable[[str], ModuleType],
    run_script: Callable[..., None],
    page: Callable[[str], Path],
    pretrained_run: Path,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs: list[dict[str, Any]] = []

    def run_here(command: list[str], **_given: Any) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        status = shell(command[command.index("tidybert") + 1 :])
        run = Path(command[command.index("--out") + 1])
        runs.append(json.loads((run / "arguments.json").read_text()))
        shown = capsys.readouterr()
        return subprocess.CompletedProcess(command, status, shown.out, shown.err)

    recipes = script("recipes")
    monkeypatch.setattr(recipes, "subprocess", SimpleNamespace(run=run_here))
    monkeypatch.setitem(recipes.BASE, "tokens_per_step", 256)
    written, out = page("recipes"), tmp_path / "recipes.jsonl"
    flags = ["--model", pretrained_run, "--tokens", "600", "--eval-tokens", "512"]
    flags += ["--at-once", "1", "--out", out, "--write", written]
    run_script("recipes", corpus, *flags, "--variants", "15% masked", "whole words masked")
    run_script("recipes", corpus, *flags, "--variants", "15% masked", "masked words alone")

    trained, measured = runs[::2], runs[1::2]
    assert [each["max_steps"] for each in trained] == [2, 2, 2]
    assert [each["masked_lm_prob"] for each in trained] == [0.15, 0.3, 0.3]
    assert [each["whole_word"] for each in trained] == [False, True, False]
    assert [each["objective"] for each in trained] == ["mlm+nsp", "mlm+nsp", "mlm"]
    # Whatever a variant was trained with, it is measured as the others are.
    different = ("model", "data", "record")
    same = [{k: v for k, v in each.items() if k not in different} for each in measured]
    assert same[0] == same[1] == same[2]
    assert same[0]["masked_lm_prob"] == 0.15
    assert same[0]["learning_rate"] == 1e-30
    rows = [line for line in written.read_text().splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[1:]] == [
        "| 15% masked",
        "| whole words masked",
        "| masked words alone",
    ]
    assert rows[3].split(" | ")[5] == "not trained"


def test_what_fails_is_told(
    script: Callable[[str], ModuleType], tmp_path: Path, pretrained_run: Path
) -> None:
    with pytest.raises(SystemExit, match="no-corpus"):
        script("recipes").pretrained(pretrained_run, tmp_path / "no-corpus", tmp_path / "run", {})
