"""The blocks of docs/search.md: Python's in their order, and curl's."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import server_on_a_thread
from tests.docs.test_commands import ROOT, blocks, commands, run_line, write_samples

PAGE = ROOT / "docs" / "search.md"
PYTHON = [block for language, _, block in blocks(PAGE) if language == "python"]


@pytest.fixture
def made(
    tmp_path: Path, small_weights_for_all: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder of the page, with the page's index of a tiny model, named tidybert-small."""
    monkeypatch.chdir(tmp_path)
    write_samples()
    small_weights_for_all(True)
    line = next(
        line
        for language, _, block in blocks(PAGE)
        if language == "sh"
        for line in commands(block)
        if line.startswith("tidybert index")
    )
    run_line(line, monkeypatch)
    return tmp_path


def test_the_python_blocks_run_in_their_order(made: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}

    for block in PYTHON:
        exec(compile(block, str(PAGE), "exec"), names)


def test_the_index_answers_over_http(
    made: Path, small_weights: Path, served: dict[str, str]
) -> None:
    if find_spec("fastapi") is None or shutil.which("curl") is None:
        pytest.skip("needs fastapi and curl")
    plain, reranked = (
        line
        for language, _, block in blocks(PAGE)
        if language == "sh"
        for line in commands(block)
        if line.startswith("curl ")
    )
    models = {"tidybert-small": str(small_weights), "ranker": served["pairs"]}

    def answer(line: str) -> list[dict[str, Any]]:
        words = shlex.split(line.replace("127.0.0.1:8000", address))
        done = subprocess.run([*words, "--fail"], capture_output=True, timeout=30, check=True)
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    with server_on_a_thread(models=models, index=Path("faq-index")) as (address, _):
        hits, ordered = answer(plain), answer(reranked)

    assert len(hits) == 3
    ranks = {"rank_words", "rank_meaning", "fused"}
    assert hits[0].keys() == {"position", "row", "text", "columns", "id", "score", *ranks}
    assert hits[0]["columns"].keys() == {"id", "answer"}
    assert ordered[0].keys() == {*hits[0], "rerank_score", "rerank_truncated"}
