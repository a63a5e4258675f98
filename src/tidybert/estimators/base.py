"""BertEstimator: the common part of the estimators that train.

After scikit-learn's developer guide (develop.rst): no logic in __init__, checks in fit, fitted
attributes end in an underscore.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted
from torch import nn

from tidybert.catalog import DEFAULT_MODEL
from tidybert.errors import UsageError
from tidybert.estimators.checked_inputs import read_weights, require_y, text_tags
from tidybert.estimators.fit_notes import forget_warnings
from tidybert.estimators.held_out import choose_parts, read_held_out
from tidybert.estimators.saved_estimator import SavedEstimator, plain
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob, FinetuningOptions
from tidybert.finetuning.run_job import run_finetuning
from tidybert.finetuning.training_notes import History, noted_training
from tidybert.inference.answer_precision import as_trained
from tidybert.inference.forward import run_features
from tidybert.inference.loading import choose_device, to_device
from tidybert.inference.notebooks import html_table
from tidybert.inference.python_inputs import examples_of
from tidybert.metrics.bootstrap import NUM_RESAMPLES
from tidybert.reporting.evaluation import evaluation_of
from tidybert.reporting.shown_report import ShownReport
from tidybert.system.progress_bar import counting_bar
from tidybert.tasks.answers import Answers
from tidybert.tasks.task import AnyTask, Task
from tidybert.tokenization import BertTokenizer
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.python_spelling import as_in_python
from tidybert.training.reports import TrainingResult
from tidybert.training.training_arguments import (
    HeadPooling,
    HeadStart,
    Precision,
    TrainingArguments,
)

#: The training arguments about files; fit writes none.
RUN_ARGUMENTS = ("save_steps", "save_total_limit", "logging_steps", "deterministic")


@dataclass(frozen=True)
class Begun:
    """What ``fit`` has made of X and y: a task, its examples, and their weights by class, (n,).

    fitted: attributes that only one estimator has; None removes one.
    """

    task: AnyTask
    examples: Sequence[Any]
    weights: npt.NDArray[np.float64] | float = 1.0
    fitted: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, repr=False, kw_only=True)
class BertEstimator(SavedEstimator):
    """Base of the estimators; see BertClassifier for the parameters.

    A dataclass writes the __init__ that scikit-learn reads the parameters from.
    """

    model: str | Path = field(default=DEFAULT_MODEL, kw_only=False)
    vocab: str | Path | None = None
    max_seq_length: int = Task.default_max_seq_length
    doc_stride: int | None = None
    num_train_epochs: float | None = TrainingArguments.num_train_epochs
    max_steps: int | None = TrainingArguments.max_steps
    train_batch_size: int | None = TrainingArguments.train_batch_size
    tokens_per_batch: int = TrainingArguments.tokens_per_batch
    learning_rate: float | None = TrainingArguments.learning_rate
    warmup_proportion: float = TrainingArguments.warmup_proportion
    head_start: HeadStart | None = None
    pooling: HeadPooling | None = None
    weight_decay: float = TrainingArguments.weight_decay
    adam_beta1: float = TrainingArguments.adam_beta1
    adam_beta2: float = TrainingArguments.adam_beta2
    adam_epsilon: float = TrainingArguments.adam_epsilon
    max_grad_norm: float = TrainingArguments.max_grad_norm
    seed: int = TrainingArguments.seed
    random_state: int | None = None
    warm_start: bool = False
    new_head: bool = False
    num_layers: int | None = None
    teacher: str | Path | None = None
    teacher_weight: float = FinetuningOptions.teacher_weight
    teacher_temperature: float = FinetuningOptions.teacher_temperature
    dropout: float | None = TrainingArguments.dropout
    validation_fraction: float | None = None
    eval_steps: int | None = TrainingArguments.eval_steps
    early_stopping_patience: int | None = TrainingArguments.early_stopping_patience
    freeze_layers: int = TrainingArguments.freeze_layers
    freeze_embeddings: bool = TrainingArguments.freeze_embeddings
    precision: Precision = "auto"
    device: str = "auto"
    verbose: int = 0

    task_: AnyTask = field(init=False)
    model_: nn.Module = field(init=False)
    tokenizer_: BertTokenizer = field(init=False)
    result_: TrainingResult = field(init=False)
    max_seq_length_: int = field(init=False)
    n_features_in_: int = field(init=False)
    feature_names_in_: npt.NDArray[Any] = field(init=False)
    n_iter_: int = field(init=False)
    history_: History = field(init=False)
    validation_indices_: npt.NDArray[np.int64] = field(init=False)

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        groups: Any = None,
        X_unlabelled: Any = None,
    ) -> Self:
        """Fine-tune ``model`` on examples X and their answers y, which the class describes.

        Ctrl-C keeps the best weights so far, and ends more than this fit.

        Args:
            sample_weight: (n,) the examples' shares in the loss of a step; 0 leaves one out.
            X_val, y_val: examples to measure on, in place of ``validation_fraction``.
            groups: (n,) such as authors; ``validation_fraction`` then holds out whole groups.
            X_unlabelled: examples without answers, which ``teacher`` answers.

        Raises DataError (a ValueError) for data that cannot be trained on, UsageError for a
        parameter's value, and what loading ``model`` raises.  Warns of what the checks find in the
        data (DataWarning), and of a model that gives one answer to all that it is measured on
        (CollapseWarning).
        """
        read = self._read(X)
        require_y(self, y)
        weights = read_weights(sample_weight, len(read))
        kept = np.flatnonzero(weights)
        begun = self._begin(read, y, kept)
        held_out = read_held_out(
            X_val, y_val, groups, len(read), lambda X, y: self._labelled(X, y, begun)
        )
        arguments = self._arguments(has_dev=held_out.examples is not None)
        forget_warnings(self)
        device = choose_device(self.device)
        is_warm = self.warm_start and hasattr(self, "model_")
        parts = choose_parts(
            begun.task, begun.examples, held_out, self.validation_fraction, arguments
        )
        shares = weights[kept] * begun.weights
        weight_of = {one.row: each for one, each in zip(begun.examples, shares, strict=True)}
        history: History = []
        fitted = {
            "history_": history,
            "validation_indices_": parts.places,
            **begun.fitted,
            **self._columns(X, read),
        }
        with as_in_python():
            job = FinetuningJob(
                begun.task,
                self._finished() if is_warm else self.model,
                parts.train,
                parts.dev,
                arguments,
                max_seq_length=plain(self.max_seq_length),
                vocab=None if is_warm else self.vocab,
                new_head=self.new_head,
                num_layers=None if is_warm else plain(self.num_layers),
                teacher=self.teacher,
                teacher_weight=plain(self.teacher_weight),
                teacher_temperature=plain(self.teacher_temperature),
                unlabelled=None
                if X_unlabelled is None
                else examples_of(begun.task, X_unlabelled, None, None),
                device=str(device),
                example_weights=[float(weight_of[one.row]) for one in parts.train],
            )
            try:
                with noted_training(history, verbose=self.verbose) as callbacks:
                    finished = run_finetuning(job, callbacks)
            except TrainingInterrupted as interrupted:
                if isinstance(interrupted.kept, FinetunedModel):
                    self._take(interrupted.kept, fitted)
                    interrupted.args = (f"{interrupted.message}; {self._kept()}",)
                raise
        self._take(finished, fitted)
        return self

    def report(self, X: Any, y: Any, *, resamples: int = NUM_RESAMPLES) -> ShownReport:
        """The evaluation report on labelled examples, which a notebook shows.

        Measure on examples that had no part in the training.  ``resamples``: samples that the
        intervals are drawn from.  Raises DataError for examples that cannot be measured on.
        """
        answers = self._measured(X, y)
        evaluation = evaluation_of(
            answers,
            {**answers.metrics(), **answers.counts()},
            run=type(self).__name__,
            file=f"{len(answers.examples):,} examples",
            max_seq_length=self.max_seq_length_,
            num_resamples=resamples,
        )
        return ShownReport(evaluation)

    def _read(self, X: Any) -> Sequence[Any]:
        """X as the estimator's examples have it; raises DataError for anything else."""
        raise NotImplementedError

    def _begin(self, read: Sequence[Any], y: Any, kept: npt.NDArray[np.int64]) -> Begun:
        """The task and the labelled examples at the places that are ``kept``."""
        raise NotImplementedError

    def _labelled(self, X: Any, y: Any, begun: Begun | None = None) -> list[Any]:
        """Labelled examples to be measured on, by what is fitted or what has ``begun``."""
        raise NotImplementedError

    def _columns(self, X: Any, read: Sequence[Any]) -> dict[str, Any]:
        """Attributes for the columns of X."""
        return {}

    def _take(self, finished: FinetunedModel, fitted: Mapping[str, Any]) -> None:
        self.task_, self.model_ = finished.task, finished.model
        self.tokenizer_ = finished.tokenizer
        self.max_seq_length_, self.result_ = finished.max_seq_length, finished.result
        self.n_iter_ = finished.result.num_steps
        for name, value in fitted.items():
            if value is not None:
                setattr(self, name, value)
            elif hasattr(self, name):
                delattr(self, name)

    def _kept(self) -> str:
        """Which weights an interrupted fit has left."""
        result = self.result_
        score = result.metrics.get(self.task_.metric)
        which = "" if score is None else f", the best so far ({self.task_.metric} {score:.4f})"
        return (
            f"this {type(self).__name__} has the weights after step {result.best_step}{which}, and "
            "can predict and be saved"
        )

    def _run(self, examples: Sequence[Any]) -> Answers[Any, Any]:
        """The model's answers to examples without labels."""
        return self._answers(examples, labelled=False)

    def _measured(self, X: Any, y: Any) -> Answers[Any, Any]:
        """The model's answers to labelled examples, to be measured."""
        check_is_fitted(self)
        return self._answers(self._labelled(X, y), labelled=True)

    def _answers(self, examples: Sequence[Any], *, labelled: bool) -> Answers[Any, Any]:
        device = to_device(self.model_, self.device)
        with as_in_python():
            features = self.task_.features(examples, self.tokenizer_, self.max_seq_length_)
            if labelled:
                self.task_.add_labels(features, examples)
        precision = as_trained(self.precision, device)
        with counting_bar("predict", len(features), wanted=self.verbose > 0) as advance:
            outputs = run_features(
                self.task_, self.model_, features, advance=advance, precision=precision
            )
        return self.task_.answers(outputs, features, examples)

    def _seed(self) -> Any:
        """``random_state`` where it is given, else ``seed``."""
        given = self.random_state
        if given is None:
            return plain(self.seed)
        if not isinstance(given, int | np.integer):
            raise UsageError(f"random_state is {given!r:.40}; expected a whole number, or None")
        return int(given)

    def _arguments(self, *, has_dev: bool) -> TrainingArguments:
        names = [each.name for each in fields(TrainingArguments)]
        has_dev |= self.validation_fraction != 0
        if self.early_stopping_patience is not None and not has_dev:
            raise UsageError(
                f"early_stopping_patience is {self.early_stopping_patience}, which needs a part "
                "held out to know when to stop: set validation_fraction, for example to 0.1, or "
                "give X_val and y_val"
            )
        values = {name: plain(getattr(self, name)) for name in names if name not in RUN_ARGUMENTS}
        with as_in_python():
            return TrainingArguments(**{**values, "seed": self._seed()})

    def _repr_html_(self) -> str:
        """scikit-learn's diagram, and of a fitted estimator what it learned and how well."""
        diagram: str = super()._repr_html_()
        return diagram + (html_table(self, self._facts()) if hasattr(self, "model_") else "")

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """The same for a notebook, which asks for this first."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _facts(self) -> dict[str, object]:
        """The facts that a notebook shows of a fitted estimator."""
        names = self.task_.names
        facts: dict[str, object] = {"task": self.task_.name, "model": str(self.model)}
        if names:
            facts["labels"] = ", ".join(names[:10]) + (", …" if names[10:] else "")
        if hasattr(self, "n_iter_"):
            result = self.result_
            facts["trained"] = (
                f"{result.num_examples:,} examples in {result.num_steps:,} steps, "
                f"{result.seconds:.0f} s; the weights are those of step {result.best_step:,}"
            )
        scores = {k: v for k, v in self.result_.metrics.items() if isinstance(v, float)}
        facts["scores"] = (
            ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
            or "none: nothing was held out"
        )
        return facts

    def __sklearn_tags__(self) -> Any:
        return text_tags(super().__sklearn_tags__())
