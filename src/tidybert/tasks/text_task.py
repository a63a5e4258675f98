"""What the tasks on single texts and pairs share: reading, splitting, features."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidybert.data.checks import DataReport, Kind, check_examples
from tidybert.data.features import BatchTokenizer, Features
from tidybert.data.long_texts import LongTexts, window_counts
from tidybert.data.splits import random_split, stratified_split
from tidybert.errors import param
from tidybert.files.read_options import ReadOptions
from tidybert.files.read_report import ReadReport
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples
from tidybert.tasks.task import Outputs


class TextTask:
    """Base of classification, with one label or any number of them, and regression.

    Args:
        long_texts: what becomes of texts that are too long; None cuts off their end.
    """

    kind: ClassVar[Kind]
    default_max_seq_length: ClassVar[int] = 128

    def __init__(self, long_texts: LongTexts | None = None) -> None:
        self.long_texts = long_texts or LongTexts()

    @property
    def truncation(self) -> str:
        where = {"head-tail": " in the middle", "windows": " in their first text"}
        return f"were cut{where.get(self.long_texts.mode, '')} to {param('max_seq_length')}"

    @classmethod
    def read(
        cls,
        path: str | Path,
        options: ReadOptions,
        *,
        need_label: bool,
        skip_bad_rows: bool = False,
        report: ReadReport | None = None,
    ) -> Iterator[TextExample]:
        return read_examples(
            path,
            options,
            need_label=need_label,
            scores=cls.kind == "regress",
            multi_label=cls.kind == "multi-label",
            skip_bad_rows=skip_bad_rows,
            report=report,
        )

    @classmethod
    def from_texts(
        cls, texts: Sequence[str], text_pairs: Sequence[str] | None
    ) -> list[TextExample]:
        pairs: Sequence[str | None] = text_pairs or [None] * len(texts)
        return [
            TextExample(text, pair, None, row)
            for row, (text, pair) in enumerate(zip(texts, pairs, strict=True), start=1)
        ]

    @classmethod
    def hold_out(
        cls, examples: Sequence[TextExample], fraction: float, seed: int
    ) -> tuple[list[TextExample], list[TextExample]]:
        texts = [(one.text, one.text_pair) for one in examples]
        if cls.kind == "regress":
            train, dev = random_split(len(examples), fraction, seed, texts=texts)
        else:
            labels = [one.label or "" for one in examples]
            train, dev = stratified_split(labels, fraction, seed, texts=texts)
        return [examples[index] for index in train], [examples[index] for index in dev]

    def features(
        self, examples: Sequence[TextExample], tokenizer: BatchTokenizer, max_seq_length: int
    ) -> list[Features]:
        return self.long_texts.features(examples, tokenizer, max_seq_length)

    def check(
        self,
        train: Sequence[TextExample],
        dev: Sequence[TextExample] | None,
        train_features: Sequence[Features],
        dev_features: Sequence[Features],
        max_seq_length: int,
    ) -> DataReport:
        report = check_examples(
            train,
            dev,
            train_features,
            dev_features,
            kind=self.kind,
            max_seq_length=max_seq_length,
        )
        report.facts += self.long_texts.facts("train", train_features)
        report.facts += self.long_texts.facts("dev", dev_features)
        return report

    def with_windows(
        self, answers: list[dict[str, Any]], features: Sequence[Features]
    ) -> list[dict[str, Any]]:
        """The answers with the number of windows that each was read in, where texts are."""
        if self.long_texts.mode == "windows":
            for answer, count in zip(answers, window_counts(features).tolist(), strict=True):
                answer["num_windows"] = count
        return answers


def example_outputs(outputs: Outputs, features: Sequence[Features]) -> npt.NDArray[np.float32]:
    """(number of examples, C): the mean of each example's outputs, one row a feature."""
    rows = np.concatenate(outputs)
    numbers = np.array([one.example for one in features])
    counts = np.bincount(numbers)
    if len(counts) == len(rows):
        return rows
    sums = np.zeros((len(counts), rows.shape[1]), dtype=np.float32)
    np.add.at(sums, numbers, rows)
    sums /= counts[:, None].astype(np.float32)
    return sums


def shown_text(example: TextExample) -> str:
    """A text, or a pair on two lines."""
    return example.text if example.text_pair is None else f"{example.text}\n{example.text_pair}"
