"""``tidybert topics`` in the shell, and what goes on from its files."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import suggested
from tests.unlabelled.test_topics import TEXTS

from tidybert.cli.main import run
from tidybert.inference.embedding import Embedder


@pytest.fixture
def pile(tmp_path: Path) -> str:
    path = tmp_path / "pile.csv"
    path.write_text("text\n" + "\n".join(TEXTS) + "\n")
    return str(path)


def test_topics_go_on_to_classes_by_their_names(
    pile: str, tmp_path: Path, tiny_model: Path, capsys: Any
) -> None:
    out = tmp_path / "topics"
    Path(pile).write_text("a title\nid,said\n1," + "\n1,".join(TEXTS) + "\n1,\n1, \n")
    words = ["--model", str(tiny_model), "--out", str(out), "--skip-rows", "1", "--text", "said"]

    assert run(["topics", pile, *words, "--topics", "3", "--keywords", "2", "--json"]) == 0

    shown = capsys.readouterr()
    assert json.loads(shown.out)["num_topics"] == 3
    assert f"page: {out}/topics.html" in shown.err
    assert "2 rows skipped: 2 × the text is blank" in shown.err
    assert run(suggested(shown.err)) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(TEXTS) + 2  # a line for each row
    assert (
        (out / "assigned.csv")
        .read_text("utf-8-sig")
        .startswith("row,text,label,topic,distance,keywords\n3,")
    )


def test_another_number_reads_no_text_again(
    pile: str, tmp_path: Path, tiny_model: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--model", str(tiny_model), "--out", str(tmp_path / "topics")]
    assert run(["topics", pile, *words]) == 0
    capsys.readouterr()
    monkeypatch.setattr(Embedder, "vectors", None)

    assert run(["topics", pile, *words, "--topics", "4"]) == 0

    shown = capsys.readouterr()
    assert "42 texts, 4 topics" in shown.err
    assert max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.parametrize("table", ["topics.csv", "assigned.csv"])
def test_names_that_somebody_wrote_are_not_replaced(
    table: str, pile: str, tmp_path: Path, tiny_model: Path, capsys: Any
) -> None:
    words = ["--model", str(tiny_model), "--out", str(tmp_path / "topics")]
    assert run(["topics", pile, *words, "--topics", "3"]) == 0
    named = tmp_path / "topics" / table
    named.write_text(named.read_text("utf-8-sig").replace(",", ";"), "utf-8")
    before = named.read_bytes()

    assert run(["topics", pile, *words, "--topics", "4"]) == 2

    assert f"{named} was changed since tidybert wrote it" in capsys.readouterr().err
    assert named.read_bytes() == before


def test_mistakes_are_sentences(pile: str, tmp_path: Path, tiny_model: Path, capsys: Any) -> None:
    words = ["--model", str(tiny_model), "--out", str(tmp_path / "topics")]
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2\na cat,a dog\n")
    (tmp_path / "few.csv").write_text("text\na cat\na dog\n")

    assert run(["topics", str(tmp_path / "pairs.csv"), *words]) == 2
    assert "has pairs of texts: name one column with --text" in capsys.readouterr().err
    assert run(["topics", str(tmp_path / "few.csv"), *words]) == 1
    assert "2 texts: topics need 20" in capsys.readouterr().err
    assert run(["topics", pile, *words, "--topics", "500"]) == 2
    assert "--topics 500: expected 2 to" in capsys.readouterr().err
    assert not (tmp_path / "topics").exists()
