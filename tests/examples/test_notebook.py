"""examples/notebook.ipynb runs from its first cell to its last, and shows what it says."""

from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


@pytest.mark.weights
def test_the_notebook_runs(minilm_directory: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("pandas")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)

    nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()

    shown = ["".join(map(html_or_text, cell.get("outputs", []))) for cell in notebook.cells]
    trained = next(each for each in shown if "fit <progress" in each)
    assert "loss" in trained
    assert "64 examples in 2 steps" in trained
    assert trained.count("fit <progress") == 1
    assert any("<iframe srcdoc=" in each for each in shown)
    assert "array([" in shown[-1]


def html_or_text(output: Any) -> str:
    data = output.get("data", {})
    return str(data.get("text/html") or data.get("text/plain") or output.get("text", ""))
