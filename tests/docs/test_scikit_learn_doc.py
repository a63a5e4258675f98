"""Every Python block of docs/scikit-learn.md runs as it stands, in order, from an empty folder."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# What these blocks assert is learnt, from the real weights; others run on a tiny encoder.
LEARNT = ("assert classifier.predict", "assert regressor.predict")
GUIDE = Path(__file__).parents[2] / "docs" / "scikit-learn.md"


def test_every_block_runs(
    small_weights_for_all: Callable[[bool], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == text.count("```") // 2
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks:
        small_weights_for_all(not any(each in block for each in LEARNT))
        before = text[: text.index(block)].count("\n")
        exec(compile("\n" * before + block, str(GUIDE), "exec"), names)
    assert (tmp_path / "tickets-model" / "tidybert.json").is_file()
