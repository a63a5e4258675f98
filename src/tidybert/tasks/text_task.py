"""The base of the tasks on single texts and pairs: reading, splitting, features, checks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
import numpy.typing as npt

from tidybert.checkpoints.example_kinds import PAIR, TEXT, TEXT_OR_PAIR, ExampleKind
from tidybert.checkpoints.model_directory import HeadDescription
from tidybert.data.checks import (
    SHOWN,
    DataReport,
    TrainingData,
    check_joined,
    check_labels,
    check_leaks,
    check_lengths,
    check_repetition,
    listed,
    short,
    warn_of_empty,
)
from tidybert.data.features import Features
from tidybert.data.long_texts import LongTexts, long_features
from tidybert.data.splits import Indices, stratified_split
from tidybert.errors import LINE, DataError, param
from tidybert.files.rows import count_of
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples
from tidybert.tasks.answer import Read
from tidybert.tasks.answers import Answers
from tidybert.tasks.task import Task
from tidybert.tasks.task_options import TextOptions
from tidybert.tokenization import BertTokenizer

IMBALANCE_RATIO: Final = 10.0
LONE_ADVICE: Final = (
    "add examples, or merge the class with another (a header read as data looks like this too)"
)
# transformers gives two classes these names.
_UNNAMED: tuple[str, ...] = ("LABEL_0", "LABEL_1")


class TextTask(Task[TextExample]):
    """Base of classification, with one label or any number of them, and regression.

    Args:
        long_texts: how to read texts that are too long; None cuts off their end.
    """

    inputs = TEXT_OR_PAIR
    read = read_examples
    architecture = "BertForSequenceClassification"
    head = "classifier"
    has_pooling = True
    options_class = TextOptions
    stratified: ClassVar[bool] = True
    """Whether ``split`` holds out a share of each class."""

    def __init__(self, long_texts: LongTexts | None = None) -> None:
        self.long_texts = long_texts or LongTexts()

    @property
    def truncation(self) -> str:
        where = {"head-tail": " in the middle", "windows": " in their first text"}
        return f"were cut{where.get(self.long_texts.mode, '')} to {param('max_seq_length')}"

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
    def shown(cls, example: TextExample) -> Sequence[str]:
        return [text for text in (example.text, example.text_pair) if text is not None]

    @classmethod
    def identity(cls, example: TextExample) -> tuple[str, str | None]:
        return example.text, example.text_pair

    @classmethod
    def inputs_of(cls, examples: Sequence[TextExample]) -> ExampleKind | None:
        found = {TEXT if one.text_pair is None else PAIR for one in examples}
        return found.pop() if len(found) == 1 else None

    def check_inputs(self, examples: Sequence[TextExample], inputs: ExampleKind | None) -> None:
        if inputs is None:
            return
        for one in examples:
            if (one.text_pair is not None) == (inputs == PAIR):
                continue
            if inputs == PAIR:
                raise DataError(
                    f"{LINE} {one.row}: a single text, but the model was trained on pairs of "
                    f"texts: give the second text too ({param('text_pair')})"
                )
            raise DataError(
                f"{LINE} {one.row}: a pair of texts, but the model was trained on single texts: "
                f"give only one text, or name its column with {param('text')}"
            )

    @classmethod
    def split(
        cls, examples: Sequence[TextExample], fraction: float, seed: int
    ) -> tuple[Indices, Indices]:
        if not cls.stratified:
            return super().split(examples, fraction, seed)
        labels = [one.label or "" for one in examples]
        texts = [cls.identity(one) for one in examples]
        return stratified_split(labels, fraction, seed, texts=texts)

    @classmethod
    def drawn_of(cls, examples: Sequence[TextExample]) -> list[int]:
        drawn = [at for at, one in enumerate(examples) if one.drawn == "random"]
        return drawn if any(one.drawn == "chosen" for one in examples) else []

    @classmethod
    def names_in(cls, head: HeadDescription) -> tuple[str, ...] | None:
        return head.label_names or _UNNAMED

    def settings(self) -> dict[str, Any]:
        return self.long_texts.settings()

    def features(
        self, examples: Sequence[TextExample], tokenizer: BertTokenizer, max_seq_length: int
    ) -> list[Features]:
        long = self.long_texts
        return long_features(examples, tokenizer, max_seq_length, long.mode, long.doc_stride)

    @classmethod
    def drawn_counts(cls, examples: Sequence[TextExample]) -> dict[str, Any]:
        """How many were drawn at random and chosen, and the labels of the former; {} for none."""
        drawn = cls.drawn_of(examples)
        labels = Counter(name for at in drawn for name in cls.classes_of(examples[at]))
        counts = {"random": len(drawn), "chosen": len(examples) - len(drawn)}
        return {**counts, "labels": dict(labels.most_common())} if drawn else {}

    def examine(self, data: TrainingData[TextExample], report: DataReport) -> None:
        self.examine_labels(data, report)
        if found := self.drawn_counts([*data.train, *data.held_out]):
            report.facts.append(
                f"{found['random']:,} texts were drawn at random, {found['chosen']:,} chosen to be "
                f"labelled; labels of the former, as of new texts: {listed(found['labels'], SHOWN)}"
            )
        warn_of_empty(report, data, _is_empty, noun="text")
        check_repetition(report, data, self.identity, self.answer_key, noun="text", label="label")
        check_leaks(report, data, self.identity, noun="text")
        check_lengths(report, data)
        report.facts += self.long_texts.facts("train", data.train_features)
        report.facts += self.long_texts.facts("dev", data.dev_features)

    def examine_labels(self, data: TrainingData[TextExample], report: DataReport) -> None:
        """Add the findings in the labels, which are classes unless a task overrides this."""
        counts = Counter(map(label_of, data.train))
        num_classes = len(counts)
        # Classes that are known by their names alone.
        counts.update(dict.fromkeys(self.names, 0))
        in_dev = Counter(map(label_of, data.held_out))
        if num_classes == 1:
            report.errors.append(
                f"every training example has the label {short(next(iter(counts)))}; two classes at "
                f"least are needed (is {param('label')} the right column?)"
            )
        if len(in_dev) == 1:
            report.warnings.append(
                f"every dev example has the label {short(next(iter(in_dev)))}, so the dev metrics "
                "say nothing about the other classes"
            )
        check_labels(report, counts, in_dev, "labels", remedy=LONE_ADVICE)
        check_joined(report, counts, are_several=False)
        # What was chosen to be labelled says nothing of how frequent a class is.
        drawn = self.drawn_counts([*data.train, *data.held_out]).get("labels")
        counts = Counter(drawn or +counts)
        (common, most), (rare, least) = counts.most_common()[0], counts.most_common()[-1]
        if most >= IMBALANCE_RATIO * least:
            report.warnings.append(
                f"the classes are unbalanced: {short(common)} has {count_of(most, 'example')}, "
                f"{short(rare)} {least:,}; judge by macro_f1, and try "
                f"{param('class_weight', 'balanced')}"
            )

    @staticmethod
    def answer_key(example: TextExample) -> Any:
        """An example's label, equal where two labels mean the same; hashable."""
        return label_of(example)


T = TypeVar("T", bound=TextTask)


class TextAnswers(Answers[T, TextExample]):
    """Answers from one row of logits an example."""

    @cached_property
    def logits(self) -> npt.NDArray[np.float32]:
        """(N, C), for each example the mean over its windows."""
        rows = np.concatenate(self.outputs)
        if len(rows) == len(self.windows_of_each):
            return rows
        sums = np.zeros((len(self.windows_of_each), rows.shape[1]), dtype=np.float32)
        np.add.at(sums, [one.example for one in self.features], rows)
        sums /= self.windows_of_each[:, None].astype(np.float32)
        return sums

    @cached_property
    def labels(self) -> list[Any]:
        """Each example's label, as ``add_labels`` set it."""
        return [one.label for one in self.first_features]

    def read(self, number: int) -> Read:
        found = super().read(number)
        if self.task.long_texts.mode != "windows":
            return found
        return replace(found, num_windows=int(self.windows_of_each[number]))

    def place(self, number: int) -> dict[str, Any]:
        """The fields of every judgement that do not depend on the answer."""
        one = self.examples[number]
        return {
            "text": "\n".join(self.task.shown(one)),
            "num_tokens": self.first_features[number].num_tokens,
            "row": one.row,
        }


def _is_empty(one: TextExample) -> bool:
    return not one.text.strip() or (one.text_pair is not None and not one.text_pair.strip())


def label_of(example: TextExample) -> str:
    """Its label; DataError where it has none."""
    if example.label is None:
        raise DataError(f"{LINE} {example.row}: the example has no label; training needs one")
    return example.label
