"""Texts that are replaced and deleted: what is found, and the same bytes after a stop."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.search.test_index_writer import contents, stopped

from tidybert.errors import DataError, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.search.index import Index
from tidybert.search.index_files import compact_index, delete_texts

Make = Callable[..., Path]
Examples = list[TextExample]


def changed(examples: Examples, *numbers: int) -> Examples:
    return [
        replace(one, text=f"the new {one.text}") if number in numbers else one
        for number, one in enumerate(examples)
    ]


def held(directory: Path) -> dict[str, str]:
    """By id the text that a search may find, of every text."""
    index = Index(directory)
    hits = index.nearest(np.ones((1, 16), dtype=np.float32), 1000)[0]
    assert len(hits) == len(index)
    assert sorted(hit.position for hit in hits) == index.positions.tolist()
    return {hit.id: hit.text for hit in hits}


@pytest.mark.parametrize("column", ["id", ""])
def test_replacing_changes_what_differs_and_adds_what_is_new(
    make_index: Make, examples: Examples, column: str
) -> None:
    ids = [f"n{one.row}" if column else str(place) for place, one in enumerate(examples)]
    directory = make_index(texts=examples[:20], id_column=column)
    before = Index(directory)
    wanted = changed(examples, 3, 19)

    make_index(texts=wanted, id_column=column, replacing=True)
    after = contents(directory)
    make_index(texts=wanted, id_column=column, replacing=True)

    assert contents(directory) == after
    assert held(directory) == dict(zip(ids, [one.text for one in wanted], strict=True))
    assert len(Index(directory).vectors) == 24
    # An index that was open sees what it saw.
    assert before.texts([3])[0].text == examples[3].text
    assert len(before) == 20
    if column:
        # Others stay; the order of the file does not matter.
        make_index(texts=changed(examples, 5)[5:4:-1], id_column=column, replacing=True)
        assert held(directory)["n6"] == f"the new {examples[5].text}"
        assert len(Index(directory)) == 22


def test_deleted_texts_are_not_found_and_compacting_gives_their_space_back(
    make_index: Make, examples: Examples
) -> None:
    directory = make_index(id_column="id", dtype="int8")
    make_index(texts=changed(examples, 2), id_column="id", dtype="int8", replacing=True)
    open_before = Index(directory)

    assert delete_texts(directory, ["n1", "n22", "n1"]) == 2
    assert delete_texts(directory, ["n1"]) == 0
    with pytest.raises(UsageError, match=r"delete: .* no text with the id n0, x; nothing was del"):
        delete_texts(directory, ["n2", "n0", "x"])
    texts = held(directory)
    assert compact_index(directory) == 3
    assert compact_index(directory) == 0

    assert list(texts) != []
    assert held(directory) == texts
    assert texts.keys() == {f"n{number}" for number in range(2, 22)}
    index = Index(directory)
    # In the order of the places, as of a new index of the changed texts.
    assert [hit.id for hit in index.texts(range(20))] == [f"n{number}" for number in range(2, 22)]
    assert len(index.vectors) == 20
    assert {path.name for path in directory.iterdir()} == {
        "index.json", "vectors-1.npy", "scales-1.npy", "texts-1.arrow", "words-1.npy",
        "word_ends-1.npy", "postings-1.npy", "counts-1.npy",
    }  # fmt: skip
    assert len(open_before) == 22
    assert open_before.texts([0])[0].id == "n1"
    # What was deleted may come again, and an unchanged file of the rest is known.
    wanted = changed(examples, 2)
    make_index(texts=wanted[1:21], id_column="id", dtype="int8")
    make_index(texts=wanted, id_column="id", dtype="int8", replacing=True)
    assert len(held(directory)) == 22


@pytest.mark.parametrize("column", ["id", ""])
@pytest.mark.parametrize("passages", [0, 3])
def test_any_order_of_changes_leaves_what_a_dictionary_holds(
    make_index: Make, examples: Examples, column: str, passages: int, embedder: Any
) -> None:
    from tidybert.inference.passages import text_passages

    draw = random.Random(f"{column} {passages}")
    known = {f"n{one.row}": one for one in examples[:12]}
    given: dict[str, Any] = {
        "id_column": column, "passages": passages, "passage_stride": passages,
    }  # fmt: skip

    def write(texts: Examples, **more: Any) -> Path:
        parts: Any = texts
        if passages:
            parts = list(text_passages(texts, embedder.tokenizer, passages, passages))
        return make_index(texts=parts, **given, **more)

    def key(place: int) -> str:
        return f"n{place + 1}" if column else str(place)

    model = {key(place): one.text for place, one in enumerate(examples[:12])}
    texts = list(known.values())
    directory = write(texts)
    for _ in range(6):
        if draw.random() < 0.5:
            numbers = draw.sample(range(len(texts)), 3)
            texts = [*changed(texts, *numbers), *examples[len(texts) : len(texts) + 1]]
            write(texts, replacing=True)
            model = {key(place): one.text for place, one in enumerate(texts)}
        else:
            gone = draw.sample(sorted(model), 2)
            delete_texts(directory, gone)
            model = {name: text for name, text in model.items() if name not in gone}
        if draw.random() < 0.3 and column:
            compact_index(directory)
        found = held_documents(directory)
        assert found.keys() == model.keys()
        assert all("".join(found[name].split()) == "".join(model[name].split()) for name in model)


def held_documents(directory: Path) -> dict[str, str]:
    """By id the text, joined from its passages."""
    index = Index(directory)
    found: dict[str, str] = {}
    for hit in index.texts(index.positions):
        found[hit.id] = found.get(hit.id, "") + hit.text
    assert len(found) == len(index)
    return found


@pytest.mark.parametrize("number", [0, 5, 9])
def test_a_stopped_replacement_is_not_seen_and_goes_on_with_the_same_bytes(
    make_index: Make, examples: Examples, tmp_path: Path, number: int
) -> None:
    wanted = changed(examples, *range(1, 12))
    for name in ("whole", "other"):
        make_index(name, id_column="id")
    whole = contents(make_index("whole", wanted, id_column="id", replacing=True))
    texts = held(tmp_path / "other")

    with pytest.raises(KeyboardInterrupt):
        make_index("other", stopped(wanted, number), id_column="id", replacing=True)
    assert held(tmp_path / "other") == texts
    if number > 5:
        with pytest.raises(UsageError, match="has an unfinished change: the command that began"):
            delete_texts(tmp_path / "other", ["n1"])
    make_index("other", wanted, id_column="id", replacing=True)

    assert contents(tmp_path / "other") == whole


def test_a_reader_between_index_json_and_the_files_reads_again(
    make_index: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compacting has removed the files of the index.json that it has read."""
    from tidybert.search import index_format

    directory = make_index(id_column="id")
    delete_texts(directory, ["n3"])
    read = index_format.read_state
    calls: list[Path] = []

    def slow(path: Path) -> Any:
        state = read(path)
        calls.append(path)
        if len(calls) == 1:
            with monkeypatch.context() as patch:
                patch.setattr(index_format, "read_state", read)
                compact_index(directory)
        return state

    monkeypatch.setattr(index_format, "read_state", slow)

    assert len(Index(directory).vectors) == 21


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([{"id": "a"}, {"id": "b"}, {"id": "a"}], "line 3: the id 'a' is that of line 1"),
        ([{"id": 1}, {"id": "1"}], "line 2: the id '1' is that of line 1"),
        ([{"id": "a"}, {"id": None}], "line 2 has no id: expected one in the column 'id'"),
        ([{"name": "a"}], "line 1 has no id: .* the columns beside the text are name"),
    ],
)
def test_ids_that_are_missing_or_there_twice_are_mistakes(
    make_index: Make, columns: list[dict[str, Any]], message: str
) -> None:
    texts = [
        TextExample("a red cat", None, None, row, columns=each)
        for row, each in enumerate(columns, start=1)
    ]

    with pytest.raises(DataError, match=message):
        make_index(texts=texts, id_column="id")


def test_the_column_of_the_ids_stays(make_index: Make) -> None:
    make_index(id_column="id")

    with pytest.raises(UsageError, match="id: id before, '' now"):
        make_index()


def test_an_index_without_texts_finds_nothing(make_index: Make) -> None:
    directory = make_index(id_column="id")
    assert delete_texts(directory, [f"n{number}" for number in range(1, 23)]) == 22

    assert held(directory) == {}
    with pytest.raises(UsageError, match="has no text that counts: remove the directory"):
        compact_index(directory)
