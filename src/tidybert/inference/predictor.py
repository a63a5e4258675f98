"""Predictor: load a finished RUN once, then answer texts in batches, in the order given."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tidybert.checkpoints.label_values import restored_values
from tidybert.configuration import BertConfig
from tidybert.errors import DataError
from tidybert.files.reading import Reading
from tidybert.inference.answer_precision import choose_precision
from tidybert.inference.forward import in_chunks, run_features
from tidybert.inference.loading import (
    check_texts,
    fitting_length,
    load_finished,
    model_fingerprint,
    to_device,
)
from tidybert.inference.notebooks import html_table, one_line
from tidybert.json_objects import plain_json
from tidybert.tasks.answers import Answers
from tidybert.tasks.task import SHOWN_LABELS


class Predictor:
    """A fine-tuned model that answers.

    Args:
        run: a RUN, or a directory that transformers saved with a head of the same kind.
        device: auto, cpu, cuda or cuda:N.
        precision: float32 (on CUDA with TF32 products), bfloat16, or float16 on CUDA; auto is
            bfloat16 on CUDA if the model was trained in it, and float32 elsewhere.
        max_seq_length: tokens a text is cut to; None for the length of the training.
        allow_pickle: read weights from a pickle if there is no safetensors file.

    Raises ModelNotFoundError, ConfigError, VocabularyError, WeightsError or UsageError.
    """

    def __init__(
        self,
        run: str | Path,
        *,
        device: str = "auto",
        precision: str = "auto",
        max_seq_length: int | None = None,
        allow_pickle: bool = False,
    ) -> None:
        self._run = str(run)
        self.task, self.model, self.tokenizer, self.metadata = load_finished(
            run, allow_pickle=allow_pickle
        )
        self.device = to_device(self.model, device)
        #: float32, bfloat16 or float16.
        self.precision = choose_precision(precision, run, self.device)
        config = self.model.config
        assert isinstance(config, BertConfig)
        fitting = fitting_length(config, max_seq_length)
        trained = self.metadata.max_seq_length
        self.max_seq_length = trained if max_seq_length is None else fitting
        #: By name, the labels of a program that are no texts.
        self.label_values = restored_values(self.task.names, self.metadata.label_values)

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

    def __repr__(self) -> str:
        return one_line(self, self._facts())

    def _repr_html_(self) -> str:
        return html_table(self, self._facts())

    def _facts(self) -> dict[str, object]:
        names, metrics = self.task.names, self.metadata.metrics
        facts: dict[str, object] = {"run": self._run, "task": self.task.name}
        facts["device"] = str(next(self.model.parameters()).device)
        facts["precision"] = self.precision
        if self.metadata.inputs is not None:
            facts["inputs"] = self.metadata.inputs
        if names:
            more = f" and {len(names) - SHOWN_LABELS:,} more" if len(names) > SHOWN_LABELS else ""
            facts["labels"] = ", ".join(names[:SHOWN_LABELS]) + more
        if self.task.metric in metrics:
            facts[f"{self.task.metric} on dev"] = round(float(metrics[self.task.metric]), 4)
        return {**facts, "max_seq_length": self.max_seq_length}

    @property
    def reading(self) -> Reading | None:
        """How the file that trained the model was read; None where nobody recorded it."""
        recorded = self.metadata.reading
        return None if recorded is None else Reading.from_dict(recorded)

    def predict(
        self, texts: Sequence[Any], text_pairs: Sequence[Any] | None = None
    ) -> list[dict[str, Any]]:
        """One answer a text, in order: see ``predict_stream``.

        The task says what the two are: texts and second texts to classify, questions and contexts
        to answer, contexts and lists of choices to choose from.
        """
        check_texts(texts, text_pairs)
        examples = self.task.from_texts(texts, text_pairs)
        answers = list(self._predictions(examples)) if examples else []
        return [self._with_values(each) for each in answers] if self.label_values else answers

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
            yield chunk, list(self._predictions(chunk))

    def evaluate(self, examples: Sequence[Any]) -> dict[str, Any]:
        """The task's metrics on labelled examples, with the counts of ``Answers.counts``.

        "computed_in" is the precision.

        Raises DataError for a label that the model does not know, or no examples.
        """
        answers = self.examine(examples)
        return {**answers.metrics(), **answers.counts(), "computed_in": self.precision}

    def examine(
        self, examples: Sequence[Any], advance: Callable[[int], None] = lambda num_done: None
    ) -> Answers[Any, Any]:
        """The answers to labelled examples, to be measured in more ways than one.

        Calls ``advance`` with the number of sequences done: texts, or windows over them.  Raises as
        ``evaluate``.
        """
        if not examples:
            raise DataError("there are no examples to evaluate on")
        return self._answers(examples, labelled=True, advance=advance)

    def _with_values(self, answer: dict[str, Any]) -> dict[str, Any]:
        """An answer with the labels that training was given, in place of their names."""
        values = self.label_values
        found = dict(answer)
        if "label" in found:
            found["label"] = values[found["label"]]
        if "labels" in found:
            found["labels"] = [values[name] for name in found["labels"]]
        return {**found, "scores": {values[name]: each for name, each in found["scores"].items()}}

    def _answers(
        self,
        examples: Sequence[Any],
        *,
        labelled: bool = False,
        advance: Callable[[int], None] = lambda num_done: None,
    ) -> Answers[Any, Any]:
        self.task.check_inputs(examples, self.metadata.inputs)
        features = self.task.features(examples, self.tokenizer, self.max_seq_length)
        if labelled:
            self.task.add_labels(features, examples)
        outputs = run_features(
            self.task, self.model, features, advance=advance, precision=self.precision
        )
        return self.task.answers(outputs, features, examples)

    def _predictions(self, examples: Sequence[Any]) -> Iterator[dict[str, Any]]:
        answers = self._answers(examples)
        for answer, one in zip(answers.predictions(), answers.first_features, strict=True):
            yield {**answer, "num_tokens": one.num_tokens, "truncated": one.truncated}
