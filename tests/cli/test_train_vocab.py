"""tidybert train-vocab: a directory that opens everywhere, figures, notes and errors."""

import json
from pathlib import Path

import pytest

from tidybert.cli import main as shell
from tidybert.cli import progress
from tidybert.tokenization import BertTokenizer


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Forty documents in two files, of words with common parts."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for file in range(2):
        documents = [
            f"Heading {n}\nThe lowest and the newest walkers walked slower; {n} talked. Ünïcode!\n"
            for n in range(20 * file, 20 * file + 20)
        ]
        (folder / f"{file}.txt").write_text("\n".join(documents), encoding="utf-8")
    return folder


def train(corpus: Path, out: Path, *flags: str) -> int:
    return shell.run(["train-vocab", str(corpus), "--size", "1000", "--out", str(out), *flags])


def test_a_table_with_another_vocabulary_beside(
    corpus: Path,
    tmp_path: Path,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Short names stand in one line of the table.
    monkeypatch.chdir(tmp_path)
    Path("small-one").symlink_to(tiny_model)

    assert train(corpus, Path("vocab"), "--held-out", "0.2", "--compare", "small-one") == 0
    found = capsys.readouterr()
    header, _, ours, theirs = found.out.splitlines()
    assert " ".join(header.split()) == (
        "vocabulary size characters a token tokens a word unknown words"
    )
    size = BertTokenizer.from_pretrained("vocab").vocab_size
    assert (ours.split()[:2], ours.split()[-1]) == (["vocab", str(size)], "0.0000%")
    assert theirs.split()[:2] == [
        "small-one",
        str(BertTokenizer.from_pretrained("small-one").vocab_size),
    ]
    assert float(theirs.split()[-1].rstrip("%")) > 50
    assert "fewer than the 1,000 asked for" in found.err
    assert "documents held out, " in found.err


def test_json_and_the_same_corpus_gives_the_same_files(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        assert train(corpus, tmp_path / name, "--json", "--cased", "--held-out", "0.2") == 0
    one, two = map(json.loads, capsys.readouterr().out.splitlines())

    assert one == two | {"vocabulary": str(tmp_path / "one")}
    assert one["documents"] == 40
    assert one["held_out_documents"] > 0
    assert one["words_left_out"] == one["characters_without_piece"] == one["unknown_rate"] == 0
    assert one["pieces_per_word"] == one["num_tokens"] / one["num_words"]
    assert one["compare"] is None
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert BertTokenizer.from_pretrained(tmp_path / "one").tokenize("The")[0] == "The"


def test_accents_are_kept_on_request(corpus: Path, tmp_path: Path) -> None:
    assert train(corpus, tmp_path / "vocab", "--keep-accents") == 0

    assert BertTokenizer.from_pretrained(tmp_path / "vocab").tokenize("Ünïcode") == ["ünïcode"]


def test_progress_without_a_terminal_is_a_line_now_and_then(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)

    assert train(corpus, tmp_path / "vocab") == 0
    assert "reading: 100%, 0.0 M characters, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        (["--size", "999"], 2, "--size 999: expected at least 1,000"),
        (["--held-out", "1"], 2, "--held-out 1: expected a fraction"),
        (["--character-coverage", "2"], 2, "--character-coverage 2"),
        (["--compare", "nothing"], 1, "no directory and no model is named 'nothing'"),
        (["--encoding", "klingon"], 2, "--encoding 'klingon'"),
    ],
)
def test_what_is_wrong_is_said_before_the_text_is_read(
    corpus: Path,
    tmp_path: Path,
    flags: list[str],
    status: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (corpus / "0.txt").write_bytes(b"\xff")
    assert train(corpus, tmp_path / "vocab", *flags) == status
    assert message in capsys.readouterr().err
    assert not (tmp_path / "vocab").exists()


def test_an_existing_directory_and_bad_lines(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(corpus, corpus) == 2
    assert f"--out {corpus} is there already" in capsys.readouterr().err
    (corpus / "0.txt").write_bytes(b"good\n\nbad \xff\n")
    assert train(corpus, tmp_path / "vocab") == 1
    assert "0.txt:3: byte 0xff at column 5 is not utf-8" in capsys.readouterr().err
    assert train(corpus, tmp_path / "vocab", "--skip-bad-rows") == 0
    assert "1 line skipped:" in capsys.readouterr().err


def test_one_document_is_measured_on_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.txt").write_text("the cat the cat")

    assert train(tmp_path / "one.txt", tmp_path / "vocab") == 0
    assert "measured on the text that was learned from" in capsys.readouterr().err
