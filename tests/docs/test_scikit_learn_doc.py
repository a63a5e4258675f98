"""Every Python block of docs/scikit-learn.md runs as it stands, in order, from an empty folder."""

import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "scikit-learn.md"


@pytest.mark.weights
def test_every_block_runs(
    minilm_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == text.count("```") // 2
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks:
        before = text[: text.index(block)].count("\n")
        exec(compile("\n" * before + block, str(GUIDE), "exec"), names)
    assert (tmp_path / "tickets-model" / "tidybert.json").is_file()
