"""``tidybert index`` and ``tidybert search`` in the shell."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import suggested

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.cli.main import run
from tidybert.search.index import Index

ROWS = [
    ("1", "the red cat", "a cat"),
    ("2", "a blue dog was near", "a dog, blue"),
    ("3", "the old cow", "a cow"),
]


@pytest.fixture
def faq(tmp_path: Path) -> Path:
    path = tmp_path / "faq.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "question", "answer"), *ROWS])
    return path


@pytest.fixture
def indexed(faq: Path, tiny_model: Path, tmp_path: Path) -> Path:
    out = tmp_path / "faq-index"
    assert run(["index", str(tiny_model), str(faq), "--out", str(out)]) == 0
    return out


def test_a_table_is_indexed_and_searched(
    faq: Path, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    indexed = tmp_path / "index"
    how = ["--out", str(indexed), "--allow-pickle", "--device", "cpu"]
    assert run(["index", str(tiny_model), str(faq), *how]) == 0
    notes = capsys.readouterr().err
    assert "3 texts in" in notes
    assert suggested(notes)[:4] == ["search", str(indexed), "--allow-pickle", "--device"]

    assert run([*suggested(notes), "the red cat", "--top-k", "1"]) == 0

    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "  1  1.000  the red cat"
    ranks = "by words 1, by meaning 1"
    assert [line.strip() for line in shown[1:]] == [ranks, "id: 1", "answer: a cat"]

    assert run(["search", str(indexed), "the red cat", "--top-k", "1", "--meaning"]) == 0
    assert capsys.readouterr().out.splitlines() == [shown[0], *shown[2:]]
    assert run(["search", str(indexed), "cow", "--words", "--json"]) == 0
    (hit,) = json.loads(capsys.readouterr().out)["hits"]
    assert (hit["text"], hit["rank_words"], "fused" in hit) == ("the old cow", 1, False)
    assert run(["search", str(indexed), "cow", "--words", "--meaning"]) == 2
    assert "--words and --meaning: give one of them" in capsys.readouterr().err


def test_an_index_without_words_says_how_to_add_them(
    faq: Path, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["index", str(tiny_model), str(faq), "--out", str(tmp_path / "index")]
    assert run([*line, "--no-words"]) == 0
    capsys.readouterr()

    assert run(["search", str(tmp_path / "index"), "cow", "--words"]) == 2
    assert "the index has no words to search by: add them" in capsys.readouterr().err
    assert run([*line, "--words"]) == 0
    assert run(["search", str(tmp_path / "index"), "cow", "--words"]) == 0


def test_an_index_of_an_older_version_keeps_its_way(
    faq: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign model read special tokens in texts as text, and reads them as such now."""
    faq.write_text("question\nred [SEP] cat\n")
    arguments = ["index", str(tiny_model), str(faq), "--out"]
    assert run([*arguments, str(tmp_path / "new")]) == 0
    with monkeypatch.context() as older:
        older.setattr(ModelDirectory, "special_tokens_in_text", False)
        assert run([*arguments, str(tmp_path / "old")]) == 0

    faq.write_text("question\nred [SEP] cat\nblue [MASK] dog\n")
    for name in ("new", "old"):
        assert run([*arguments, str(tmp_path / name)]) == 0
    new, old = (Index.open(tmp_path / name) for name in ("new", "old"))

    assert new.settings["fingerprint"] != old.settings["fingerprint"]
    for index, way in ((new, True), (old, False)):
        assert index.embedder is not None
        assert index.embedder.tokenizer.special_tokens_in_text is way
        for text in ("red [SEP] cat", "blue [MASK] dog"):
            (hit,) = index.search(text, 1)
            assert (hit.text, hit.score) == (text, pytest.approx(1, abs=1e-6))
    assert np.abs(np.asarray(new.vectors) - np.asarray(old.vectors)).max(axis=1).min() > 1e-3


def test_each_line_of_standard_input_is_a_query(
    indexed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO("the old cow\nthe red cat\n"))

    assert run(["search", str(indexed), "--json", "--top-k", "1"]) == 0

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["query"] for line in lines] == ["the old cow", "the red cat"]
    (hit,) = lines[0]["hits"]
    assert hit["row"] == 4
    assert hit["columns"] == {"id": "3", "answer": "a cow"}
    assert hit["score"] == pytest.approx(1, abs=1e-5)


def test_on_a_terminal_it_asks(
    indexed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", Terminal("\nthe old cow\n"))

    assert run(["search", str(indexed)]) == 0

    shown = capsys.readouterr()
    assert "the old cow" in shown.out.splitlines()[0]
    assert shown.err.count("> ") == 3
    assert "3 texts; type a query" in shown.err


def test_a_cross_encoder_orders_again(
    indexed: Path, served: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()

    assert run(["search", str(indexed), "a cat", "--rerank", served["pairs"], "--json"]) == 0

    hits = json.loads(capsys.readouterr().out)["hits"]
    scores = [hit["rerank_score"] for hit in hits]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["a cat", "--top-k", "4"], 2, "--top-k 4: the index has 3 texts"),
        ([""], 1, "the query is empty"),
        (["a cat", "--candidates", "3"], 2, "--candidates needs --rerank"),
    ],
)
def test_mistakes_are_messages(
    indexed: Path, capsys: Any, words: list[str], status: int, message: str
) -> None:
    capsys.readouterr()

    assert run(["search", str(indexed), *words]) == status

    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


def test_an_empty_line_of_a_pipe_is_a_mistake(
    indexed: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("the old cow\n\n"))

    assert run(["search", str(indexed)]) == 1

    assert "line 2 of standard input is empty" in capsys.readouterr().err


def test_a_row_that_changed_is_a_mistake(
    indexed: Path, faq: Path, tiny_model: Path, capsys: Any
) -> None:
    capsys.readouterr()
    line = ["index", str(tiny_model), str(faq), "--out", str(indexed)]

    assert run(line) == 0
    assert "has 3 texts already: nothing to do" in capsys.readouterr().err
    faq.write_text(faq.read_text().replace("a cow", "two cows"))
    assert run(line) == 1
    assert "line 4 is not what" in capsys.readouterr().err
    assert run([*line, "--pooling", "cls"]) == 2
    assert "--pooling: mean before, cls now" in capsys.readouterr().err
    assert run([*line, "--dtype", "float64"]) == 2
    assert "--dtype is float64; expected float32, float16 or int8" in capsys.readouterr().err


def test_several_columns_of_one_name_are_a_mistake(
    tmp_path: Path, tiny_model: Path, capsys: Any
) -> None:
    path = tmp_path / "twice.csv"
    path.write_text("text,id,id\na cat,1,2\n")

    assert run(["index", str(tiny_model), str(path), "--out", str(tmp_path / "out")]) == 1

    assert "several columns are named 'id'; rename them" in capsys.readouterr().err


def test_texts_are_replaced_deleted_and_filtered(
    faq: Path, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "ids")
    line = ["index", str(tiny_model), str(faq), "--id", "id", "--out", out]

    def found(*words: str) -> list[str]:
        capsys.readouterr()
        assert run(["search", out, "the red cat", "--json", *words]) == 0
        return [hit["id"] for hit in json.loads(capsys.readouterr().out)["hits"]]

    assert run(line) == 0
    assert found("--top-k", "1") == ["1"]
    faq.write_text(faq.read_text().replace("the red cat", "a green hen") + "4,we saw,a hen\n")
    assert run([*line, "--replace"]) == 0
    assert run([*line, "--replace"]) == 0
    assert "has 5 texts already: nothing to do" in capsys.readouterr().err
    assert sorted(found()) == ["1", "2", "3", "4"]
    assert sorted(found("--where", "id>=2", "--where", "answer!=a cow", "--exact")) == ["2", "4"]
    (tmp_path / "gone.txt").write_text("3\n4\n")
    assert run(["index", "--out", out, "--delete", f"@{tmp_path / 'gone.txt'}", "--compact"]) == 0
    notes = capsys.readouterr().err
    assert "2 texts deleted" in notes
    assert "the space of 3 texts given back" in notes
    assert sorted(found()) == ["1", "2"]
    assert run(["info", out]) == 0
    shown = capsys.readouterr().out
    assert "texts: 2" in shown
    assert "id: id" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--delete", "9"], "--delete: .* has no text with the id 9"),
        (["minilm", "--delete", "1"], "--delete and --compact take no MODEL, FILE or --replace"),
        ([], "Missing argument 'MODEL'"),
        (["minilm", "--replace", "--cluster", "local"], "--replace works on one machine"),
        (["minilm", "--passage-stride", "4"], "--passage-stride"),
    ],
)
def test_mistakes_of_changes_are_messages(
    indexed: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()

    assert run(["index", *words, "--out", str(indexed)]) == 2

    assert re.search(message, capsys.readouterr().err)


def ids_of(index: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert run(["search", str(index), "a cat", "--json"]) == 0
    return sorted(hit["id"] for hit in json.loads(capsys.readouterr().out)["hits"])


def test_a_new_index_takes_a_column_id_and_an_old_one_keeps_its_places(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": 27 - at, "text": text} for at, text in enumerate(["a cat", "a dog", "a cow"])]
    file, begun, out = tmp_path / "a.jsonl", tmp_path / "b.txt", tmp_path / "new"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    begun.write_text("".join(f"{row['text']}\n" for row in rows))
    line = ["index", str(tiny_model), str(file), "--text", "text", "--out", str(out)]

    assert run(line) == 0

    assert "the column id has another value in each row" in capsys.readouterr().err
    assert ids_of(out, capsys) == ["25", "26", "27"]
    assert run(["index", "--delete", "27", "--out", str(out)]) == 0
    assert ids_of(out, capsys) == ["25", "26"]
    assert run([*line, "--replace"]) == 0
    assert "the column id" not in capsys.readouterr().err
    assert ids_of(out, capsys) == ["25", "26", "27"]

    old = str(tmp_path / "old")
    # One without the column has places, and goes on with them.
    assert run(["index", str(tiny_model), str(begun), "--out", old]) == 0
    assert run([*line[:-1], old, "--replace"]) == 0
    assert ids_of(Path(old), capsys) == ["0", "1", "2"]


@pytest.mark.parametrize("ids", [("1", "1", "2"), ("1", "", "2")])
def test_a_column_id_that_names_no_row_is_a_column_like_others(
    ids: tuple[str, ...], tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,text\n" + "".join(f"{each},a cat {at}\n" for at, each in enumerate(ids)))

    assert run(["index", str(tiny_model), str(file), "--out", str(tmp_path / "new")]) == 0

    assert "the column id" not in capsys.readouterr().err
    assert ids_of(tmp_path / "new", capsys) == ["0", "1", "2"]
