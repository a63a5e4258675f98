"""A tiny encoder, texts with other columns, and an index of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.files.text_examples import TextExample
from tidybert.inference import answer_files as vector_files
from tidybert.inference.embedding import Embedder
from tidybert.search.index_files import write_index

LENGTH = 8


@pytest.fixture(scope="session")
def embedder(tiny_model: Path) -> Embedder:
    return Embedder(tiny_model, normalize=True, max_seq_length=LENGTH)


@pytest.fixture(scope="session")
def examples(toy_examples: Callable[..., list[TextExample]]) -> list[TextExample]:
    return [
        TextExample(one.text, None, None, one.row, columns={"id": f"n{one.row}", "size": one.row})
        for one in toy_examples(22)
    ]


@pytest.fixture
def make_index(
    embedder: Embedder,
    examples: list[TextExample],
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Path]:
    """Makes an index in chunks of four, saved after each, and gives its directory."""
    monkeypatch.setattr(vector_files, "LARGEST_CHUNK", 4)
    monkeypatch.setattr("tidybert.search.index_files.SECONDS_BETWEEN_SAVES", 0.0)

    def make(name: str = "index", texts: Any = None, **given: Any) -> Path:
        texts = examples if texts is None else texts
        write_index(embedder, texts, tmp_path / name, model=str(tiny_model), **given)
        return tmp_path / name

    return make
