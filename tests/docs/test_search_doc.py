"""The blocks of docs/search.md: Python's in their order, each library's where it is, and curl's."""

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
LIBRARIES = ("usearch", "faiss")


def needs(block: str) -> str | None:
    """The library for approximate search that a block imports."""
    return next(
        (name for name in LIBRARIES if f"import {name}" in block or f"from {name}" in block), None
    )


@pytest.fixture
def made(
    tmp_path: Path, small_weights_for_all: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder of the page, with the page's index of a tiny model under the name minilm."""
    monkeypatch.chdir(tmp_path)
    write_samples()
    small_weights_for_all(True)
    (line,) = (
        line
        for language, _, block in blocks(PAGE)
        if language == "sh"
        for line in commands(block)
        if line.startswith("tidybert index")
    )
    run_line(line, monkeypatch)
    return tmp_path


@pytest.mark.parametrize("library", [None, *LIBRARIES])
def test_the_python_blocks_run_in_their_order(
    made: Path, library: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if library is not None:
        pytest.importorskip(library)
    assert {needs(block) for block in PYTHON} == {None, *LIBRARIES}
    names: dict[str, Any] = {"__name__": "page"}
    first, *rest = PYTHON
    exec(compile(first, str(PAGE), "exec"), names)

    for block in rest:
        if needs(block) == library:
            capsys.readouterr()
            exec(compile(block, str(PAGE), "exec"), names)
            if library is not None:
                # A search among a few texts finds what is there.
                assert len(capsys.readouterr().out.splitlines()) == 3


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
    models = {"minilm": str(small_weights), "ranker": served["pairs"]}

    def answer(line: str) -> list[dict[str, Any]]:
        words = shlex.split(line.replace("127.0.0.1:8000", address))
        done = subprocess.run([*words, "--fail"], capture_output=True, timeout=30, check=True)
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    with server_on_a_thread(models=models, index=Path("faq-index")) as (address, _):
        hits, ordered = answer(plain), answer(reranked)

    assert len(hits) == 3
    assert hits[0].keys() == {"position", "row", "text", "columns", "id", "score"}
    assert hits[0]["columns"].keys() == {"id", "answer"}
    assert ordered[0].keys() == {*hits[0], "rerank_score", "rerank_truncated"}
