"""An index of many files, without Ray."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidybert import Embedder, Index
from tidybert.cluster import index_job as indexing
from tidybert.cluster.index_job import IndexJob, index_files
from tidybert.cluster.input_files import InputFile, input_files
from tidybert.files.text_files import SUFFIXES

Job = Callable[..., Any]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, run_here: Job) -> None:
    monkeypatch.setattr(indexing, "run_job", run_here)


def files(folder: Path) -> Sequence[InputFile]:
    return input_files(str(folder), SUFFIXES)


def test_an_index_of_files_finds_what_each_file_has(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, text in (("a", "the red fox"), ("b", "a blue bird"), ("c", "the sea")):
        row = {"text": text, "number": name}
        (tmp_path / "in" / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    work = IndexJob(model=str(tiny_model), options={"normalize": True})
    first = files(tmp_path / "in")[:2]
    given: dict[str, Any] = {"cluster": "here"}
    index_files(work, first, tmp_path / "index", **given)
    report = index_files(work, files(tmp_path / "in"), tmp_path / "index", **given)
    index_files(work, files(tmp_path / "in"), tmp_path / "whole", **given)

    # What was there was not computed again, and adding has the bytes of one go.
    assert [each.input for each in report.done] == ["c.jsonl"]
    for name in ("vectors.npy", "texts.arrow"):
        assert (tmp_path / "index" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    index = Index(tmp_path / "index")
    assert index.vectors.shape[0] == 3
    vectors = Embedder(tiny_model, normalize=True).embed(["the sea"])
    assert abs(index.vectors[2] - vectors[0]).max() < 1e-6
    assert not (tmp_path / "index.parts").exists()
