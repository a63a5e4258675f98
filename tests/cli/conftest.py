"""The toy problem as files, for the commands."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def toy_file(tmp_path: Path, toy_examples: Callable[..., list[Any]]) -> Callable[..., Path]:
    """Writes labelled examples to a CSV file with the columns text and label."""

    def write(name: str, count: int, **options: Any) -> Path:
        path = tmp_path / name
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["text", "label"])
            rows.writerows([one.text, one.label] for one in toy_examples(count, **options))
        return path

    return write
