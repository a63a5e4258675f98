"""Predictor: load a finished RUN once, then answer texts in batches, in the order given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, cast, overload

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tidybert.checkpoints.example_kinds import PAIR
from tidybert.checkpoints.graph import Cpu, GraphModel
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.data.features import UnknownTokens
from tidybert.errors import DataError, UsageError
from tidybert.files.reading import Reading
from tidybert.files.rows import as_list, count_of, plain
from tidybert.inference.forward import device_of, in_chunks, run_features
from tidybert.inference.keywords import PredictorKeywords
from tidybert.inference.loading import (
    Finished,
    OpenedModel,
    fitting_length,
    model_fingerprint,
    network_of,
)
from tidybert.inference.options import OpeningOptions, PredictorOptions
from tidybert.options import documented, spelled_out, values_of
from tidybert.storage.json_objects import plain_json
from tidybert.system.reporter import SILENT, Reporter
from tidybert.system.terminal import ShowsFacts, counting_bar
from tidybert.tasks.answer import Classified, LabelledAnswer, Scored, TaskAnswer
from tidybert.tasks.answer_types import Answer
from tidybert.tasks.answers import Answers
from tidybert.tasks.labelled_examples import is_example, read_all
from tidybert.tasks.task import SHOWN_LABELS, AnyTask
from tidybert.tokenization import BertTokenizer
from tidybert.training.interruption import as_in_python
from tidybert.training.runs.provenance import trained_on

if TYPE_CHECKING:
    import torch
    from torch import nn

# AnswerList: the answers to several inputs, as a list and as a frame.

A = TypeVar("A")


class AnswerList(list[A]):
    """One answer an input, in order; see ``tidybert.tasks.answer_types`` for their keys."""

    #: The index of a pandas Series or DataFrame that held the inputs; None for other inputs.
    index: Any = None

    def to_pandas(self) -> Any:
        """A flat DataFrame, whose column ``input`` has the place of each row's input, from 0.

        A row an answer, with the scores of classes as score_NAME and the labels given as
        label_NAME, True or False; n_best and the scores of choices are left out.  Of tags a row an
        entity, or a row a word where tags mark none.  Answers to a Series or a DataFrame of pandas
        have its index, so that a column of theirs can join it.

        Raises UsageError where pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise UsageError("to_pandas() needs pandas: pip install pandas") from None
        rows = [
            {"input": at, **row}
            for at, one in enumerate(self)
            for row in TaskAnswer.of(cast(Any, one)).rows()
        ]
        if self.index is None or len(self.index) != len(self):
            return pandas.DataFrame(rows)
        return pandas.DataFrame(rows, index=self.index.take([row["input"] for row in rows]))


# What a program gives ``Predictor.predict``, as examples of the task.

_TABLES = ("columns", "column_names", "schema")


def examples_of(task: AnyTask, texts: Any, text_pairs: Any, like: Reading | None) -> list[Any]:
    """Examples without labels of what ``predict`` takes; ``like`` finds the columns of a frame."""
    if isinstance(texts, Mapping) or any(hasattr(texts, name) for name in _TABLES):
        return _from_rows(task, texts, text_pairs, like)
    rows = as_list(texts, "texts")
    takes_rows = task.read.tuple_names is not None
    if rows and (is_example(rows[0]) or (takes_rows and isinstance(rows[0], Mapping))):
        return _from_rows(task, rows, text_pairs, like)
    kind, seconds = task.inputs, None
    takes_lists = kind is not None and kind.parts[0].is_list
    are_pairs = rows and all(
        not isinstance(row, str | bytes) and hasattr(row, "__len__") and len(row) == 2
        for row in rows
    )
    if text_pairs is None and kind and not takes_lists and are_pairs:
        rows, seconds = [row[0] for row in rows], [row[1] for row in rows]
    elif text_pairs is not None:
        seconds = as_list(text_pairs, "text_pairs")
    if seconds is not None and len(seconds) != len(rows):
        raise DataError(
            f"given: {count_of(len(rows), 'text')}, {count_of(len(seconds), 'second text')}"
        )
    if kind is None:
        return task.from_texts(rows, seconds)
    firsts = _checked(rows, "texts", lists=takes_lists)
    if seconds is not None:
        seconds = _checked(seconds, "text_pairs", lists=kind.takes_choices)
    return task.from_texts(firsts, seconds)


def _from_rows(task: AnyTask, rows: Any, text_pairs: Any, like: Reading | None) -> list[Any]:
    if text_pairs is not None:
        raise DataError(
            "texts has columns of its own, and text_pairs was given too: give two columns, as in "
            "predict(frame['one'], frame['two'])"
        )
    if hasattr(rows, "columns") and len(rows) == 0:
        return []  # as for an empty list
    return read_all(task, rows, name="texts", need_label=False, like=like)


def _checked(values: list[Any], name: str, *, lists: bool) -> list[Any]:
    """The texts, or with ``lists`` the lists of texts too."""
    found = [plain(value) for value in values]
    for place, value in enumerate(found):
        if isinstance(value, str) or (lists and isinstance(value, list)):
            continue
        if isinstance(value, list):
            what = f"{count_of(len(value), 'value')} where one text is expected"
        elif value is None:
            what = "missing (None or NaN); drop it, or fill it in"
        else:
            what = f"{values[place]!r:.40}, of type {type(values[place]).__name__}; give a text"
        raise DataError(f"{name}[{place}] is {what}")
    return found


@documented(PredictorOptions)
class Predictor(ShowsFacts, Generic[Answer]):
    """A fine-tuned model that answers.

    A type checker knows the keys of ``Predictor[ClassAnswer](run)``'s answers; the classes of
    answers are in ``tidybert.tasks.answer_types``.

    Raises ModelNotFoundError, ConfigError, VocabularyError, WeightsError or UsageError.

    Args:
        run: a RUN, or a directory that transformers saved with a head of the same kind.
    """

    #: The directory of the RUN; None for a model in memory.
    directory: Path | None = None
    task: AnyTask
    model: nn.Module | GraphModel
    tokenizer: BertTokenizer
    metadata: ModelMetadata
    device: torch.device | Cpu
    #: float32, bfloat16, float16 or int8.
    precision: str
    #: By name, the labels that a program gave and that are not texts.
    label_values: Mapping[str, Any]

    @spelled_out(PredictorOptions)
    def __init__(self, run: str | Path, **options: Unpack[PredictorKeywords]) -> None:
        given = PredictorOptions(**options)
        opened = OpenedModel(run, **values_of(given, OpeningOptions))
        self._take(opened.finished)
        fitting = fitting_length(opened.config, given.max_seq_length)
        if given.max_seq_length is not None:
            self.max_seq_length = fitting
        if given.min_score is not None:
            self.task = self.task.with_min_score(given.min_score)
            chosen = {**self.metadata.settings, "min_score": given.min_score}
            self.metadata = replace(self.metadata, settings=chosen)

    @classmethod
    def of(cls, finished: Finished) -> Self:
        """The same over a model that is open, on the device that it is on."""
        made = cls.__new__(cls)
        made._take(finished)
        return made

    def _take(self, finished: Finished) -> None:
        self._run, self.directory = finished.name, finished.directory
        self.task, self.model = finished.task, finished.model
        self.tokenizer, self.metadata = finished.tokenizer, finished.metadata
        self.precision, self.label_values = finished.precision, finished.label_values
        self.device = device_of(self.model)
        self.max_seq_length = self.metadata.max_seq_length

    @cached_property
    def unknown(self) -> UnknownTokens:
        """What it does not know of the texts that it was given."""
        return UnknownTokens(self.tokenizer)

    @property
    def network(self) -> nn.Module:
        """The model, to be looked into or trained; UsageError for a graph."""
        return network_of(self.model)

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides the answers to a text; an equal hash means equal answers."""
        metadata = self.metadata
        # The files' hash takes no time; a directory of transformers has none.
        model = metadata.sha256 or model_fingerprint(self.model, self.tokenizer)
        settings = plain_json(
            [metadata.task, metadata.label_names, metadata.settings, metadata.files]
        )
        return hashlib.sha256(json.dumps([model, settings]).encode()).hexdigest()

    def facts(self) -> dict[str, object]:
        names, metrics = self.task.names, self.metadata.metrics
        facts: dict[str, object] = {"run": self._run, "task": self.task.name}
        source = None if self.directory is None else trained_on(self.directory)
        if source is not None:
            facts["trained_on"] = source
        facts["device"] = str(device_of(self.model))
        facts["precision"] = self.precision
        if self.metadata.inputs is not None:
            facts["inputs"] = self.metadata.inputs.name
        if names:
            more = f" and {len(names) - SHOWN_LABELS:,} more" if len(names) > SHOWN_LABELS else ""
            facts["labels"] = ", ".join(names[:SHOWN_LABELS]) + more
        if self.task.metric in metrics:
            facts[f"{self.task.metric}_on_dev"] = round(float(metrics[self.task.metric]), 4)
        return {**facts, "max_seq_length": self.max_seq_length}

    @property
    def reading(self) -> Reading | None:
        """How the file that trained the model was read; None where nobody recorded it."""
        recorded = self.metadata.reading
        return None if recorded is None else Reading.from_dict(recorded)

    @overload
    def predict(self, texts: str, text_pairs: Any = None, *, progress: bool = ...) -> Answer: ...
    @overload
    def predict(
        self, texts: Iterable[Any], text_pairs: Iterable[Any] | None = None, *, progress: bool = ...
    ) -> AnswerList[Answer]: ...
    def predict(self, texts: Any, text_pairs: Any = None, *, progress: bool = False) -> Any:
        """One answer a text, in order: see ``predict_stream``; for one text, its answer alone.

        The task says what the two are: texts and second texts to classify, questions and contexts
        to answer, contexts and lists of choices to choose from.  Labels are as training got them.

        Args:
            texts: one text, or several in a list, a generator, a Series, an array of NumPy or
                Arrow; (text, text_pair) tuples; or a frame or dicts, with columns as in training.
            text_pairs: the second texts, in the same kinds.
            progress: show a bar.

        Raises DataError for single texts to a model of pairs, the reverse, and missing texts.
        """
        is_one = isinstance(texts, str)
        if is_one:
            texts, text_pairs = [texts], None if text_pairs is None else [text_pairs]
        with as_in_python("row"):
            examples = examples_of(self.task, texts, text_pairs, self.reading)
            with counting_bar("predict", len(examples), wanted=progress) as reporter:
                found = self._predictions(examples, reporter) if examples else []
                answers = AnswerList(self._with_values(each).as_dict() for each in found)
            self.unknown.warn()
        if hasattr(texts, "iloc"):
            answers.index = texts.index
        return answers[0] if is_one else answers

    #: As a pipeline of transformers is called.
    __call__ = predict

    def predict_proba(self, texts: Any, text_pairs: Any = None) -> npt.NDArray[np.float64]:
        """(n, C): the scores of ``predict``, in the order of ``task.names``; of one text (C,).

        Raises UsageError too for a model that does not classify.
        """
        if not issubclass(self.task.answer, LabelledAnswer):
            raise UsageError(
                f"predict_proba is for classes, and {self._run} is to {self.task.name}"
            )
        found: Any = self.predict(texts, text_pairs)
        if isinstance(texts, str):
            return np.array([*found["scores"].values()])
        scores = [[*one["scores"].values()] for one in found]
        return np.array(scores).reshape(len(scores), len(self.task.names))

    def predict_stream(self, examples: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """Answers in the order of the examples, in constant memory.

        Each is a ``prediction`` of the task's answers ({"label", "score", "scores"}, {"value"}, …),
        with "num_tokens" (before truncation) and "truncated".
        """
        for _, answers in self.predict_chunks(examples):
            yield from answers

    def predict_chunks(
        self, examples: Iterable[Any], *, first: int = 1
    ) -> Iterator[tuple[list[Any], list[dict[str, Any]]]]:
        """The same answers in lists, with their examples: ``first``, twice as many, and so on."""
        for chunk in in_chunks(examples, first=first):
            yield chunk, [each.as_dict() for each in self._predictions(chunk)]

    def evaluate(self, examples: Sequence[Any]) -> dict[str, Any]:
        """The task's metrics on labelled examples, with the counts of ``Answers.counts``.

        "computed_in" is the precision.

        Raises DataError for a label that the model does not know, or no examples.
        """
        answers = self.examine(examples)
        return {**answers.metrics(), **answers.counts(), "computed_in": self.precision}

    def examine(
        self, examples: Sequence[Any], reporter: Reporter = SILENT, *, labelled: bool = True
    ) -> Answers[Any, Any]:
        """The answers to labelled examples, to be measured in more ways than one; or to others.

        Calls ``advance`` with the number of sequences done: texts, or windows over them.  Raises as
        ``evaluate``.
        """
        if not examples:
            raise DataError("there are no examples to evaluate on")
        return self._answers(examples, labelled=labelled, reporter=reporter)

    def vectors(self, texts: Sequence[str]) -> tuple[list[npt.NDArray[np.float32]], int]:
        """What the model outputs for each single text, (1, H), and how many texts were cut."""
        examples = self.task.from_texts(texts, None)
        features = self.task.features(examples, self.tokenizer, self.max_seq_length)
        found = run_features(self.task, self.model, features, precision=self.precision)
        return found, sum(one.truncated for one in features)

    def _with_values(self, answer: TaskAnswer) -> TaskAnswer:
        """An answer with the labels that training was given, in place of their names."""
        return answer.with_values(self.label_values) if self.label_values else answer

    def _answers(
        self,
        examples: Sequence[Any],
        *,
        labelled: bool = False,
        reporter: Reporter = SILENT,
    ) -> Answers[Any, Any]:
        self.task.check_inputs(examples, self.metadata.inputs)
        features = self.task.features(examples, self.tokenizer, self.max_seq_length)
        self.unknown.add(features)
        if labelled:
            self.task.add_labels(features, examples)
        outputs = run_features(
            self.task, self.model, features, reporter=reporter, precision=self.precision
        )
        return self.task.answers(outputs, features, examples)

    def _predictions(
        self,
        examples: Sequence[Any],
        reporter: Reporter = SILENT,
    ) -> list[TaskAnswer]:
        return self._answers(examples, reporter=reporter).predictions()


# A cross-encoder scores pairs of texts: it reads both together (Nogueira & Cho 2019).


class CrossEncoder:
    """A finished RUN over pairs of texts: the score of ``regress``, or a class's probability.

    Args:
        predictor: of ``regress``, or of ``classify`` with two classes, of which the second says
            that the second text answers the first.
        name: the RUN, as messages call it.

    Raises UsageError for a RUN of another task or of single texts.
    """

    def __init__(self, predictor: Predictor[Any], name: str | Path) -> None:
        self.predictor = predictor
        task, inputs = predictor.task, predictor.metadata.inputs
        names = task.names
        is_fit = task.answer is Scored or (task.answer is Classified and len(names) == 2)
        if not is_fit or inputs not in (None, PAIR):
            classes = f" with {len(names)} classes" if names else ""
            of_texts = f" on single inputs ({inputs.name})" if inputs not in (None, PAIR) else ""
            raise UsageError(
                f"{name} was trained to {task.name}{classes}{of_texts}: to score pairs of texts "
                "give a RUN of regress over pairs, or of classify over pairs with two classes"
            )

    @classmethod
    def open(cls, run: str | Path, *, device: str = "auto", allow_pickle: bool = False) -> Self:
        """The cross-encoder in a directory; raises what ``Predictor`` raises too."""
        return cls(Predictor(run, device=device, allow_pickle=allow_pickle), run)

    def answers(self, firsts: Sequence[str], seconds: Sequence[str]) -> list[TaskAnswer]:
        """The predictor's answer to each pair of texts, whose ``relevance`` is the pair's score."""
        examples = self.predictor.task.from_texts(firsts, seconds)
        return list(map(TaskAnswer.of, self.predictor.predict_stream(examples)))

    def scores(self, firsts: Sequence[str], seconds: Sequence[str]) -> npt.NDArray[np.float64]:
        """(n,) the score of each pair of texts; higher is better."""
        answers = self.answers(firsts, seconds)
        return np.array([each.relevance() for each in answers], dtype=np.float64)
