"""A small fine-tuning for both sides of a measurement."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from tidybert.files.read_options import ReadOptions
from tidybert.files.text_examples import TextExample
from tidybert.timing.work import FinetuningWork


@pytest.fixture
def work(
    tiny_run: Path, tmp_path: Path, toy_examples: Callable[..., list[TextExample]]
) -> FinetuningWork:
    """Two epochs and a part of 20 examples, in batches of 8."""
    path = tmp_path / "train.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows([one.text, one.label] for one in toy_examples(20))
    return FinetuningWork(
        task="classify",
        model=str(tiny_run),
        train=str(path),
        dev=str(path),
        options=ReadOptions(text="text", label="label"),
        max_seq_length=16,
        train_batch_size=8,
        num_train_epochs=3,
        max_steps=7,
        threads=1,
    )
