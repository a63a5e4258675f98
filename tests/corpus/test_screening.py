"""Near-duplicates and quotes of evaluation data: which documents go, and after any stop."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.main import run as shell
from tidybert.corpus import building
from tidybert.corpus.building import build_corpus
from tidybert.corpus.screening import Screening, bands_for, read_evaluation
from tidybert.errors import DataError, UsageError
from tidybert.tokenization import BertTokenizer

pytest.importorskip("rensa")

WORDS = ("the", "red", "cat", "dog", "cow", "hen", "saw", "near", "old", "new", "blue", "we", "and")


def text_of(seed: int, count: int = 120) -> list[str]:
    draw = random.Random(seed)
    return [f"{draw.choice(WORDS)}{draw.randrange(40)}" for _ in range(count)]


def changed(words: list[str], share: float, seed: int) -> list[str]:
    """The words, a share of them others."""
    draw = random.Random(seed)
    return [f"other{draw.randrange(10**6)}" if draw.random() < share else word for word in words]


def jaccard(one: list[str], other: list[str]) -> float:
    first, second = (
        {tuple(words[at : at + 5]) for at in range(len(words) - 4)} for words in (one, other)
    )
    return len(first & second) / len(first | second)


def test_bands_find_what_is_alike_and_little_else() -> None:
    screening = Screening(0.8)
    found = {"above": [0, 0], "below": [0, 0]}
    for seed in range(300):
        one = text_of(seed)
        other = changed(one, 0.005 if seed % 2 else 0.1, seed + 1)
        similarity = jaccard(one, other)
        if 0.65 < similarity < 0.92:
            continue
        bands = [set(screening.found([[" ".join(words)]]).bands.tolist()) for words in (one, other)]
        kind = found["above" if similarity > 0.9 else "below"]
        kind[0] += bool(bands[0] & bands[1])
        kind[1] += 1

    assert bands_for(0.8) == (10, 12)
    assert min(found["above"][1], found["below"][1]) > 80
    assert found["above"][0] > 0.97 * found["above"][1]
    assert found["below"][0] < 0.04 * found["below"][1]


def test_words_and_not_their_marks_decide() -> None:
    screening = Screening(0.8)
    one = [["The red cat, near the dog; we saw.", "And a cow"]]
    other = [["the RED cat near the dog - we saw", "and a cow!"]]

    assert screening.found(one).bands.tolist() == screening.found(other).bands.tolist()
    # Chinese has no spaces: each ideograph is a word.
    chinese = ["床前明月光疑是地上霜", "床前明月光疑是地上雪"]
    bands = [set(screening.found([[each]]).bands.tolist()) for each in chinese]
    assert bands[0] != bands[1]
    assert screening.num_bands == len(bands[0]) == 10


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """60 documents; every third one is almost that before it, and one quotes another file."""
    documents = []
    for number in range(40):
        words = text_of(number)
        documents.append(" ".join(words))
        if number % 2:
            documents.append(" ".join([*words[:-1], "end"]))
    documents[6] += "\n" + " ".join(text_of(1000, 30)).upper()
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents) + "\n")
    return path


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    path = tmp_path / "dev.tsv"
    path.write_text("label\ttext\n1\t" + ", ".join(text_of(1000, 30)[5:25]) + "\n0\tshort\n")
    return path


def test_what_is_left_out_is_counted_and_listed(
    text: Path, evaluation: Path, tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "out"
    command = ["build-corpus", str(text), "--vocab", str(tiny_model), "--held-out", "0.3"]
    command += ["--near-duplicates", "0.8", "--exclude", str(evaluation)]

    assert shell([*command, "--out", str(out), "--workers", "0"]) == 0

    shown = capsys.readouterr()
    assert "20 were like one before, and are left out" in shown.out
    assert "1 quote evaluation data, and are left out" in shown.out
    assert "2 texts of --exclude have fewer than 13 words" in shown.err
    listed = [json.loads(line) for line in (out / "excluded.jsonl").read_text().splitlines()]
    assert listed == [
        {"file": str(text), "in": str(evaluation), "words": " ".join(text_of(1000, 30)[5:18])}
    ]
    assert not (out / "bands.bin").exists()
    counts = json.loads((out / "corpus.json").read_text())["counts"]
    assert (counts["documents"], counts["near_duplicates"], counts["excluded"]) == (60, 20, 1)
    # With processes: the same bytes.
    assert shell([*command, "--out", str(tmp_path / "two"), "--workers", "1"]) == 0
    for name in ("train-00000.tokens", "held-out-00000.tokens", "excluded.jsonl"):
        assert (tmp_path / "two" / name).read_bytes() == (out / name).read_bytes()
    # Other settings are another corpus.
    assert shell([*command[:-4], "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "\n  --near-duplicates: 0.8 before, not given now\n  --exclude: not the same" in said


def test_a_stopped_build_leaves_out_the_same(
    text: Path, evaluation: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    given: dict[str, Any] = {
        "held_out": 0.3,
        "screening": Screening(0.8, read_evaluation([evaluation])),
    }
    build_corpus([text], tokenizer, tmp_path / "whole", **given)
    monkeypatch.setattr(building, "SYNC_SECONDS", -1.0)
    monkeypatch.setattr("tidybert.corpus.building.BLOCK_DOCUMENTS", 5)

    def stop(built: building.Built) -> None:
        raise KeyboardInterrupt

    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            build_corpus([text], tokenizer, tmp_path / "out", progress=stop, **given)
    build_corpus([text], tokenizer, tmp_path / "out", **given)

    for name in ("train-00000.tokens", "held-out-00000.tokens", "excluded.jsonl"):
        expected = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "out" / name).read_bytes() == expected


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".txt"])
def test_evaluation_files_of_any_form(tmp_path: Path, suffix: str) -> None:
    words = " ".join(f"word{number}" for number in range(20))
    entry = {"data": [{"question": words, "id": 1}]}
    path = tmp_path / f"dev{suffix}"
    path.write_text(words if suffix == ".txt" else json.dumps(entry) + "\n")

    screening = Screening(evaluation=read_evaluation([path]))

    quoted = ["before " + words.upper() + " after"]
    short = [" ".join(words.split()[:12])]
    found = screening.found([["a cat"], quoted, short])
    assert found.excluded == [(1, str(path), " ".join(words.split()[:13]))]


def test_what_cannot_be_screened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (0, -1.0, 1.5, float("nan")):
        with pytest.raises(UsageError, match=r"near_duplicates=.*expected a similarity above 0"):
            Screening(value)
    short = tmp_path / "dev.txt"
    short.write_text("too short\n")
    with pytest.raises(DataError, match="no text has 13 words, so nothing can be found"):
        read_evaluation([short])
    (tmp_path / "dev.json").write_text("{")
    with pytest.raises(DataError, match=r"dev.json: not JSON"):
        read_evaluation([tmp_path / "dev.json"])
    with pytest.raises(DataError, match="no such file or folder"):
        read_evaluation([tmp_path / "none.tsv"])
    monkeypatch.setitem(sys.modules, "rensa", None)
    with pytest.raises(UsageError, match=r"pip install 'tidybert\[dedup\]'"):
        Screening(0.8)
