"""Learnt vocabularies beside those of the tokenizers library."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.scores.words import measurements


def test_both_sides_are_measured_on_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run_script: Callable[..., int]
) -> None:
    draw = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(2000)]
    documents = [" ".join(draw.choices(words, k=40)) for _ in range(300)]
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(documents) + "\n")
    flags = ["--sizes", "1000", "--held-out", "0.1"]

    found = list(measurements([str(text)], [1000], 0.1))
    run_script("vocabulary", text, *flags)

    (_, _, _, ours), (_, _, _, theirs) = found
    assert [one[:2] for one in found] == [(1000, "tidybert"), (1000, "tokenizers")]
    assert ours.num_words == theirs.num_words > 0
    assert ours.num_characters == theirs.num_characters
    shown = capsys.readouterr().out
    assert f"| 1,000 | tidybert | {ours.pieces_per_word:.4f}" in shown
    assert f"| 1,000 | tokenizers | {theirs.pieces_per_word:.4f}" in shown
