"""benchmarks/padding.py: cells a token, worked out by hand."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidybert.files.read_options import ReadOptions


def test_cells_are_counted_by_batch(
    script: Callable[[str], ModuleType],
    run_script: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tiny_model: Path,
    tmp_path: Path,
    capsys: Any,
) -> None:
    # [CLS] and [SEP] make 3, 4 and 7 tokens of these, and all are padded to 7.
    texts = ["cat", "red cat", "red cat red cat red"]
    train = tmp_path / "train.csv"
    train.write_text("text,label\n" + "".join(f"{text},{n % 2}\n" for n, text in enumerate(texts)))
    make = script("side_by_side").Job
    job = make("classify", str(train), str(train), ReadOptions(), ("accuracy",), num_train_epochs=2)
    monkeypatch.setattr(script("glue"), "TASKS", {"small": job})
    monkeypatch.setattr(script("text"), "TASKS", {})
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- padding -->\n<!-- /padding -->\nafter\n")

    run_script("padding", "--model", tiny_model, "--write", page)

    row = "| small | 3 | 4.7 | 1.50 |"
    assert row in capsys.readouterr().out
    assert row in page.read_text()
