"""Searching an index: the texts that a plain sort of cosines finds, and who may search."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.errors import DataError, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.inference.embedding import Embedder
from tidybert.search.index import Hit, Index
from tidybert.search.index_files import write_index

Make = Callable[..., Path]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_search_is_a_sort_of_cosines(
    make_index: Make, examples: list[TextExample], embedder: Embedder, dtype: str
) -> None:
    index = Index.open(make_index(dtype=dtype))
    texts = [one.text for one in examples]
    queries = ["a red cat", "the dog saw a blue cow"]

    found = index.search(queries, 22, by="meaning")

    cosines = embedder.embed(queries) @ embedder.embed(texts).T
    largest = np.sort(cosines, axis=1)[:, ::-1]
    for hits, expected, of_query in zip(found, largest, cosines, strict=True):
        assert np.allclose([hit.score for hit in hits], expected, atol=2e-2)
        for hit in hits:
            assert hit.text == texts[hit.position]
            assert abs(hit.score - of_query[hit.position]) < (2e-2 if dtype == "int8" else 1e-3)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_a_text_finds_itself_with_its_columns(
    make_index: Make, examples: list[TextExample]
) -> None:
    index = Index.open(make_index())

    (hit,) = index.search(examples[6].text, 1, by="meaning")

    assert hit.text == examples[6].text
    assert hit.columns == {"id": f"n{hit.row}", "size": hit.row}
    assert hit.score == pytest.approx(1, abs=1e-5)
    assert hit.to_dict().keys() == {"position", "row", "text", "columns", "id", "score"}
    assert index.search([]) == []
    assert len(index.search("a cat")) == 10
    assert "texts=22" in repr(index)


def test_what_cannot_be_searched_is_said(make_index: Make, examples: list[TextExample]) -> None:
    index = Index.open(make_index(texts=examples[:5]))

    assert len(index.search("a cat")) == 5
    with pytest.raises(UsageError, match="top_k=6: the index has 5 texts; give a number from 1"):
        index.search("a cat", 6)
    with pytest.raises(UsageError, match="top_k=0"):
        index.search("a cat", 0)
    with pytest.raises(DataError, match="the query is empty: give a text"):
        index.search("  ")
    with pytest.raises(DataError, match="query 2 is empty"):
        index.search(["a cat", ""])
    with pytest.raises(DataError, match="the query is 7, of type int: give a text"):
        index.search([7])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="no text at position 5: they are numbered 0 to 4"):
        index.texts([5])
    with pytest.raises(UsageError, match=r"opened without its encoder: use Index\.open"):
        Index(index.directory).search("a cat")


def test_another_encoder_is_refused(
    make_index: Make, tiny_model: Path, served: dict[str, str], tmp_path: Path
) -> None:
    directory = make_index()

    with pytest.raises(UsageError, match="made by other weights or another vocabulary"):
        Index.open(directory, served["base"])
    with pytest.raises(UsageError, match="has vectors of 16 numbers, and the model gives 24"):
        Index(directory).check_encoder("", 24)
    moved = tmp_path / "moved"
    moved.symlink_to(tiny_model)
    assert len(Index.open(directory, moved).search("a cat", 2)) == 2


def test_an_index_made_in_int8_is_searched_in_int8(
    tiny_model: Path, examples: list[TextExample], tmp_path: Path
) -> None:
    embedder = Embedder(tiny_model, normalize=True, precision="int8")
    write_index(embedder, examples, tmp_path / "index", model=str(tiny_model))

    index = Index.open(tmp_path / "index")

    assert index.embedder is not None
    assert index.embedder.precision == embedder.precision
    assert index.search(examples[3].text, 1)[0].score == pytest.approx(1, abs=1e-5)


def test_a_directory_without_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not an index: it has no index\.json; make"):
        Index.open(tmp_path)


def test_texts_of_all_kinds_are_kept(make_index: Make) -> None:
    columns: dict[str, Any] = {"none": None, "list": [1, {"a": "é"}], "half": "\ud83d", "nan": 0.5}
    texts = [
        TextExample("a red cat", None, None, 1, columns=columns),
        TextExample("é 猫", None, None, 2),
    ]

    hits = Index(make_index(texts=texts)).texts([0, 1])

    assert [hit.columns for hit in hits] == [columns, {}]
    assert hits[1].text == "é 猫"
    assert isinstance(hits[0], Hit)


def test_the_prompts_and_the_pooling_of_sentence_transformers_count(
    tiny_model: Path, examples: list[TextExample], tmp_path: Path
) -> None:
    model = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    kinds = ("Transformer", ""), ("Pooling", "1_Pooling")
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (kind, path) in enumerate(kinds)
    ]
    (model / "modules.json").write_text(json.dumps(modules))
    (model / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True}
    pooling["pooling_mode_mean_tokens"] = False
    (model / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    prompts = {"prompts": {"query": "the cat ", "passage": "a dog "}}
    (model / "config_sentence_transformers.json").write_text(json.dumps(prompts))

    form = read_sentence_form(ModelDirectory.open(model))
    embedder = Embedder(model, normalize=True, prompt_name=form.document_prompt_name)
    write_index(embedder, examples, tmp_path / "index", model=str(model))
    index = Index.open(tmp_path / "index")
    hits = index.search("red", 22, by="meaning")

    given: dict[str, Any] = {"pooling": "cls", "normalize": True, "prompt": ""}
    plain = Embedder(tiny_model, **given)
    texts = plain.embed([f"a dog {one.text}" for one in examples])
    cosines = texts @ plain.embed(["the cat red"])[0]
    assert [hit.score for hit in hits] == pytest.approx(np.sort(cosines)[::-1], abs=1e-5)
    assert index.settings["prompt"] == "a dog "
    with pytest.raises(UsageError, match="prompt: 'a dog ' before, '' now"):
        write_index(Embedder(model, normalize=True, prompt=""), examples, index.directory)


def test_a_score_is_a_cosine_however_it_is_rounded(make_index: Make) -> None:
    index = Index(make_index())
    index.vectors = np.asarray(index.vectors) * np.float32(1.0000005)

    nearest = index.nearest(np.array(index.vectors[:1]), 1)[0]
    opposite = index.nearest(-np.array(index.vectors[:1]), len(index))[0]

    assert nearest[0].score == 1.0
    assert opposite[-1].score == -1.0
