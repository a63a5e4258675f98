"""Reading, checking and writing vocab.txt."""

from pathlib import Path

import pytest

from tidybert.errors import VocabularyError
from tidybert.tokenization import SPECIAL_TOKENS, Vocabulary


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_the_line_number_is_the_id(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_file(
        written(tmp_path / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n")
    )
    assert len(vocabulary) == 7
    assert vocabulary.token_to_id("##b") == 6
    assert vocabulary.id_to_token(5) == "a"
    assert "a" in vocabulary
    assert "b" not in vocabulary
    assert vocabulary.token_to_id("b") == 1
    assert repr(vocabulary) == "Vocabulary(7 tokens)"


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    tokens = (*SPECIAL_TOKENS, "\u2028", "##\u2028", "\x85", "\x0b", "z")
    vocabulary = Vocabulary(tokens)
    vocabulary.save(tmp_path / "vocab.txt")
    assert (tmp_path / "vocab.txt").read_bytes().count(b"\n") == len(tokens)
    assert Vocabulary.from_file(tmp_path / "vocab.txt") == vocabulary
    assert Vocabulary.from_file(tmp_path / "vocab.txt").tokens == tokens


def test_windows_line_ends_and_a_missing_last_line_feed(tmp_path: Path) -> None:
    path = written(tmp_path / "vocab.txt", "\r\n".join([*SPECIAL_TOKENS, "a"]))
    assert Vocabulary.from_file(path).tokens == (*SPECIAL_TOKENS, "a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"vocab\.txt is empty"),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r"vocab\.txt:5 .* without \[MASK\]"),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n", r"vocab\.txt:8 repeats .*'a' of line 6"),
        ("[PAD]\n\n[UNK]\n", r"vocab\.txt:2 is blank"),
        (b"[PAD]\n[UNK]\n\xff\n", r"vocab\.txt:3: not UTF-8"),
    ],
)
def test_a_damaged_file_is_refused_by_line(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(VocabularyError, match=message):
        Vocabulary.from_file(written(tmp_path / "vocab.txt", content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"nowhere\.txt: cannot be read: no such file"):
        Vocabulary.from_file(tmp_path / "nowhere.txt")


@pytest.mark.parametrize("index", [-1, 5])
def test_an_id_outside_is_refused(index: int) -> None:
    with pytest.raises(VocabularyError, match="expected 0 to 4"):
        Vocabulary(SPECIAL_TOKENS).id_to_token(index)


def test_cased_means_that_capitals_are_tokens() -> None:
    capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    assert Vocabulary([*SPECIAL_TOKENS, *capitals]).is_cased
    assert not Vocabulary([*SPECIAL_TOKENS, *capitals[1:]]).is_cased


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "size", "cased"),
    [
        ("bert-base-uncased", 30522, False),
        ("bert-base-cased", 28996, True),
        ("bert-base-chinese", 21128, False),
        ("bert-base-multilingual-cased", 119547, True),
        ("bert-base-multilingual-uncased", 105879, False),
    ],
)
def test_the_published_vocabularies(real_data: Path, name: str, size: int, cased: bool) -> None:
    vocabulary = Vocabulary.from_file(real_data / "vocab" / name / "vocab.txt")
    assert len(vocabulary) == size
    assert vocabulary.is_cased == cased
    assert vocabulary.token_to_id("[MASK]") == 103
