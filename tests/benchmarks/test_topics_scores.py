"""Topics beside BERTopic: the sets by their rule, and a row a set."""

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import datasets, script
from benchmarks.scores import topics


def test_articles_are_long_paragraphs_of_those_with_the_least_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDYBERT_DATA", str(tmp_path))
    monkeypatch.setattr(datasets, "_FEWEST_PARAGRAPHS", 2)
    monkeypatch.setattr(datasets, "_MOST_PARAGRAPHS", 2)
    long = ["a" * 200, "b" * 300, "c" * 250]
    parts = {"One": [*long, "short"], "Two": [long[0], "short"], "Three": long[1:]}
    (tmp_path / "corpus").mkdir()
    text = "\n\n".join("\n".join([title, *rest]) for title, rest in parts.items())
    (tmp_path / "corpus" / "wiki-core-00.txt.xz").write_bytes(lzma.compress(text.encode()))
    first = min(["One", "Three"], key=datasets.share_of)

    assert list(datasets.article_paragraphs(1)) == [(one, first) for one in (parts[first][:2])]
    assert {title for _, title in datasets.article_paragraphs(5)} == {"One", "Three"}


def test_both_sides_have_a_row_a_set_and_their_means(
    run_script: Callable[..., int],
    toy_examples: Callable[..., list[Any]],
    page: Callable[[str], Path],
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: Any,
) -> None:
    def one_topic(_python: str, _program: str, work: dict[str, Any]) -> dict[str, Any]:
        return {"labels": [-1, *[0] * (len(work["texts"]) - 1)], "seconds": 1.0}

    monkeypatch.setattr(script, "in_environment", one_topic)
    monkeypatch.setattr(topics, "MODELS", (str(tiny_model),))
    monkeypatch.setattr(topics, "SETS", {"toy": ("TREC", 2)})
    monkeypatch.setattr(datasets, "examples_of", lambda _name, _part: toy_examples(60))
    shown, out = page("topics"), tmp_path / "out.jsonl"

    assert run_script("topics", "--out", out) == 0
    assert "--bertopic names the Python" in capsys.readouterr().err
    out.unlink()
    assert run_script("topics", "--bertopic", "python", "--out", out, "--write", shown) == 0

    (line,) = map(json.loads, out.read_text().splitlines())
    assert line["ours"]["number"] >= 2
    assert line["ours"]["left_out"] == 0
    assert line["BERTopic"]["number"] == 1
    assert line["BERTopic"]["left_out"] == pytest.approx(1 / 60)
    rows = [row for row in shown.read_text().splitlines() if row.startswith(f"| {tiny_model}")]
    assert [row.split(" | ")[1] for row in rows] == ["toy", "mean of the sets"]
    assert {len(row.split("|")) for row in rows} == {13}
