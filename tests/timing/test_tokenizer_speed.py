"""What the tokeniser's benchmark reports."""

from pathlib import Path

import pytest

from tidybert.errors import UsageError
from tidybert.timing.tokenizer_speed import bench_tokenization
from tidybert.tokenization import SPECIAL_TOKENS, BertTokenizer

LINES = ["ab a, b", "中 é [MASK]", ""]


@pytest.fixture
def model(tmp_path: Path) -> str:
    BertTokenizer([*SPECIAL_TOKENS, *"ab,e", "##b"]).save(tmp_path)
    return str(tmp_path)


def test_both_sides_are_timed_and_compared(model: str) -> None:
    earlier = ["a", "b", "c"] * 3
    result = bench_tokenization(model, [*earlier, *LINES], repeats=2)
    assert (result["lines"], result["lines_seen_before"]) == (3, 9)
    assert result["megabytes"] == pytest.approx(20e-6)
    assert result["lines_differing"] == 0
    for state in ("cold", "running", "warm"):
        assert result[f"{state}_ratio"] == pytest.approx(
            result[f"{state}_mb_per_second"] / result["against_mb_per_second"]
        )


def test_alone(model: str) -> None:
    result = bench_tokenization(model, LINES, repeats=1, against=None)
    assert "against" not in result
    with pytest.raises(UsageError, match="against='spacy'"):
        bench_tokenization(model, LINES, against="spacy")
