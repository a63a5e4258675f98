"""Passages: they cover the text, end where sentences do, and a hit says where it is."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.main import run
from tidybert.errors import DataError, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.inference.passages import passage_spans, text_passages
from tidybert.inference.text_jobs import EmbedJob
from tidybert.tokenization import BertTokenizer

WORDS = ["the", "a", "cat", "dog", "red", "blue", "was", "near"]
TEXT = "The red cat. A dog was near. The blue cow saw a cat. We saw."


@pytest.fixture
def tokenizer(tiny_model: Path) -> BertTokenizer:
    return BertTokenizer.from_pretrained(tiny_model)


def texts(tokenizer: BertTokenizer, window: int, stride: int, text: str = TEXT) -> list[str]:
    return [text[start:end] for start, end in passage_spans(text, tokenizer, window, stride)]


def test_passages_hold_whole_sentences(tokenizer: BertTokenizer) -> None:
    first, second, third, fourth = (
        "The red cat.", "A dog was near.", "The blue cow saw a cat.", "We saw."
    )  # fmt: skip

    assert texts(tokenizer, 100, 100) == [TEXT]
    assert texts(tokenizer, 10, 10) == [f"{first} {second}", f"{third} {fourth}"]
    assert texts(tokenizer, 12, 6) == [
        f"{first} {second}",
        f"{second} {third}",
        f"{third} {fourth}",
    ]
    # A sentence that is too long is cut between words.
    assert texts(tokenizer, 4, 4)[:3] == [first, "A dog was", "near."]


@pytest.mark.parametrize("seed", range(20))
def test_no_token_is_passed_over_and_no_passage_is_too_long(
    tokenizer: BertTokenizer, seed: int
) -> None:
    draw = random.Random(seed)
    words = [draw.choice([*WORDS, *WORDS, ".", "?\n", "  "]) for _ in range(draw.randint(0, 60))]
    text = " ".join(words)
    window = draw.randint(2, 12)
    stride = draw.randint(1, window)

    spans = passage_spans(text, tokenizer, window, stride)

    tokens = tokenizer.encode(text, add_special_tokens=False).offset_mapping
    assert spans[0][0] == 0
    for start, end in tokens:
        assert any(first <= start and end <= last for first, last in spans)
    for first, last in spans:
        assert sum(first <= start and end <= last for start, end in tokens) <= window
    assert [first for first, _ in spans] == sorted({first for first, _ in spans})


def test_the_place_is_beside_the_columns(tokenizer: BertTokenizer) -> None:
    one = TextExample(TEXT, None, None, 7, columns={"id": "x"})

    parts = list(text_passages([one], tokenizer, 10, 10))

    assert [dict(part.columns or {}) for part in parts] == [
        {"id": "x", "start": 0, "end": 28},
        {"id": "x", "start": 29, "end": 60},
    ]
    assert {part.row for part in parts} == {7}
    with pytest.raises(DataError, match=r"line 1 has a column 'end', .* rename it"):
        list(text_passages([TextExample("a", None, None, 1, columns={"end": 1})], tokenizer, 2, 2))


def test_a_passage_must_fit(tiny_model: Path) -> None:
    given: dict[str, Any] = {"model": str(tiny_model), "options": {"max_seq_length": 12}}

    assert EmbedJob(**given, passages=10).load().max_seq_length == 12
    with pytest.raises(UsageError, match=r"passages=11, .*: expected at most 10, the tokens"):
        EmbedJob(**given, passages=11).load()
    with pytest.raises(UsageError, match="a stride that is not longer"):
        EmbedJob(**given, passages=5, passage_stride=6).load()


def test_embed_says_where_each_passage_is(tiny_model: Path, tmp_path: Path, capsys: Any) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "t.jsonl").write_text(json.dumps({"text": TEXT}) + '\n{"text": "a cat"}\n')
    line = ["embed", str(tiny_model), str(tmp_path / "t.jsonl"), "--passages", "10"]

    assert run(line) == 0
    lines = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    assert run([*line, "--out", str(tmp_path / "v.parquet")]) == 0
    table = pq.read_table(tmp_path / "v.parquet")

    places = [(each["row"], each["start"], each["end"]) for each in lines]
    assert places == [(1, 0, 28), (1, 29, 60), (2, 0, 5)]
    assert list(
        zip(*(table[name].to_pylist() for name in ("row", "start", "end")), strict=True)
    ) == (places)
    assert run([*line, "--out", str(tmp_path / "v.npy")]) == 2
    assert "--passages gives a place in the text" in capsys.readouterr().err


def test_a_document_counts_once_in_a_search(tiny_model: Path, tmp_path: Path, capsys: Any) -> None:
    from tidybert import Index

    rows = [{"id": f"d{n}", "text": f"{TEXT} The old hen {n}. {TEXT}"} for n in range(3)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = str(tmp_path / "index")
    line = ["index", str(tiny_model), str(tmp_path / "t.jsonl"), "--out", out, "--id", "id"]
    assert run([*line, "--passages", "10", "--passage-stride", "5"]) == 0

    index = Index.open(out)
    hits = index.search("We saw.", 3)

    assert len(index) == 3
    assert len(index.vectors) > 9
    assert sorted(hit.id for hit in hits) == ["d0", "d1", "d2"]
    for hit in hits:
        (row,) = (row for row in rows if row["id"] == hit.id)
        assert row["text"][hit.columns["start"] : hit.columns["end"]] == hit.text
        assert hit.text.endswith("We saw.")
    assert run(["index", "--delete", "d1", "--out", out]) == 0
    assert sorted(hit.id for hit in Index.open(out).search("We saw.", 2)) == ["d0", "d2"]
    capsys.readouterr()
    assert run(["info", out]) == 0
    assert "passages: " in capsys.readouterr().out
    assert run([*line, "--passages", "10"]) == 2
    assert "--passage-stride: 5 before, 10 now" in capsys.readouterr().err
