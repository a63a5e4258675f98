"""BertEstimator: the common part of the estimators that train.

After scikit-learn's developer guide (develop.rst): no logic in __init__, checks in fit, fitted
attributes end in an underscore.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from tidybert.catalog import find_model
from tidybert.checkpoints.label_values import restored_values
from tidybert.configuration import BertConfig
from tidybert.errors import ConfigError, UsageError
from tidybert.estimators.checked_inputs import text_tags
from tidybert.estimators.fit_notes import forget_warnings
from tidybert.estimators.held_out import HeldOut, choose_parts
from tidybert.finetuning import FinetunedModel, clear_run, finetune_examples, save
from tidybert.finetuning.training_notes import History, noted_training
from tidybert.inference.answer_precision import as_trained
from tidybert.inference.forward import run_features
from tidybert.inference.loading import choose_device, load_finished, to_device
from tidybert.inference.notebooks import html_table
from tidybert.metrics.bootstrap import NUM_RESAMPLES
from tidybert.reporting.evaluation import evaluation_of
from tidybert.reporting.shown_report import ShownReport
from tidybert.storage.json_objects import plain_json, read_json_object
from tidybert.storage.model_files import ARGUMENTS_FILE
from tidybert.storage.opening import present
from tidybert.storage.output_lock import contents
from tidybert.system.progress_bar import counting_bar
from tidybert.tasks.answers import Answers
from tidybert.tasks.task import AnyTask, Task
from tidybert.tokenization import BertTokenizer
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.python_spelling import as_in_python
from tidybert.training.reports import TrainingResult
from tidybert.training.run_directory import check_run
from tidybert.training.run_origin import RunOrigin
from tidybert.training.training_arguments import (
    HeadPooling,
    HeadStart,
    Precision,
    TrainingArguments,
)

#: The training arguments about files; fit writes none.
RUN_ARGUMENTS = ("save_steps", "save_total_limit", "logging_steps", "deterministic")

_ESTIMATORS = {
    "classify": "BertClassifier",
    "multi-label": "BertClassifier",
    "regress": "BertRegressor",
    "tag": "BertTagger",
    "answer": "BertQuestionAnswerer",
    "choose": "BertMultipleChoice",
}


@dataclass(eq=False, repr=False, kw_only=True)
class BertEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators; see BertClassifier for the parameters.

    A dataclass writes the __init__ that scikit-learn reads the parameters from.
    """

    _task_names: ClassVar[tuple[str, ...]]

    model: str | Path = field(default="minilm", kw_only=False)
    vocab: str | Path | None = None
    max_seq_length: int = Task.default_max_seq_length
    doc_stride: int | None = None
    num_train_epochs: float = TrainingArguments.num_train_epochs
    max_steps: int | None = TrainingArguments.max_steps
    train_batch_size: int = TrainingArguments.train_batch_size
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
    dropout: float | None = TrainingArguments.dropout
    validation_fraction: float = 0.0
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

    def save(self, directory: str | Path, *, force: bool = False) -> None:
        """Write the fitted model as a finished RUN: ``load``, the shell and transformers open it.

        arguments.json holds the parameters, all but ``device``; tidybert.json the classes with
        their types.  ``force`` replaces a RUN that is there.

        Raises UsageError for a directory with contents, DataError for classes that no file can
        hold, DiskError where it cannot be written, and InUseError where another process does.
        """
        check_is_fitted(self)
        run = Path(directory)
        values = {"task": self.task_.name, **self._stored()}
        text = json.dumps(plain_json(values), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        if run.is_dir() and contents(run):
            if not force:
                raise UsageError(
                    f"{run} is not empty: name a new directory, or give force=True to replace the "
                    "RUN in it"
                )
            check_run(run, resume=False, force=True)
            clear_run(run)
        save(self._finished(), run, beside={ARGUMENTS_FILE: text})

    @classmethod
    def load(cls, run: str | Path, *, device: str = "auto") -> Self:
        """A fitted estimator from a finished RUN of ``save``, the shell or transformers.

        The parameters come from its arguments.json, if it has one; ``result_`` has only the
        metrics.  Raises what ``Predictor`` raises, and UsageError for another task.
        """
        task, model, tokenizer, metadata = load_finished(run)
        if task.name not in cls._task_names:
            other = _ESTIMATORS.get(task.name)
            raise UsageError(
                f"{run} was trained to {task.name}, {cls.__name__} is to "
                f"{' or '.join(cls._task_names)}: load it with "
                f"{f'{other}.load' if other else 'Predictor'}"
            )
        path = find_model(run) / ARGUMENTS_FILE
        stored: dict[str, Any] = {"model": str(run)}
        if present(path, error=ConfigError):
            stored = read_json_object(path)
        known = {*cls._get_param_names()} - {"device"}
        # The shell writes null for a flag that was not given.
        given = {name: each for name, each in stored.items() if each is not None and name in known}
        estimator = cls(**given)
        estimator.device = device
        estimator.task_, estimator.model_, estimator.tokenizer_ = task, model, tokenizer
        estimator.max_seq_length_ = metadata.max_seq_length
        estimator.result_ = TrainingResult(0, 0, dict(metadata.metrics), 0.0, 0, 0)
        if metadata.inputs in ("text", "pair"):
            estimator.n_features_in_ = ("text", "pair").index(metadata.inputs) + 1
        if "feature_names" in stored:
            estimator.feature_names_in_ = np.array(stored["feature_names"], dtype=object)
        estimator._restore(restored_values(task.names, metadata.label_values))
        return estimator

    def report(self, X: Any, y: Any, *, resamples: int = NUM_RESAMPLES) -> ShownReport:
        """The evaluation report on labelled examples, which a notebook shows.

        Measure on examples that had no part in the training.  ``resamples``: samples that the
        intervals are drawn from.  Raises DataError for examples that cannot be measured on.
        """
        check_is_fitted(self)
        examples = self._examples(X, y)
        answers = self._measured(examples)
        evaluation = evaluation_of(
            answers,
            {**answers.metrics(), **answers.counts()},
            run=type(self).__name__,
            file=f"{len(examples):,} examples",
            max_seq_length=self.max_seq_length_,
            num_resamples=resamples,
        )
        return ShownReport(evaluation)

    def _stored(self) -> dict[str, Any]:
        """The contents of arguments.json beside the task."""
        params = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        del params["device"], params["random_state"]
        names = getattr(self, "feature_names_in_", None)
        return {
            **params,
            "seed": self._seed(),
            **({} if names is None else {"feature_names": names.tolist()}),
        }

    def _restore(self, values: Mapping[str, Any]) -> None:
        """Set the attributes that only one estimator has; ``values`` are of labels, by name."""

    def _label_values(self) -> dict[str, Any]:
        """By name, the labels as y had them."""
        return {}

    def _finished(self) -> FinetunedModel:
        """The fitted model as the rooms below know it."""
        config: Any = self.model_.config
        width = getattr(self, "n_features_in_", None)
        return FinetunedModel(
            self.task_,
            self.model_,
            self.tokenizer_,
            config,
            self.max_seq_length_,
            self.result_,
            inputs={1: "text", 2: "pair"}.get(width or 0, self.task_.inputs),
            made_from=RunOrigin(label_values=self._label_values()),
        )

    def _train(
        self,
        task: AnyTask,
        examples: Sequence[Any],
        weights: npt.NDArray[np.float64],
        held_out: HeldOut,
        **fitted: Any,
    ) -> Self:
        """Train on examples of any task, and set the fitted attributes.

        weights: (n,) of the examples.  fitted: those that only one estimator has.

        Ctrl-C keeps the best weights so far, and ends more than this fit.
        """
        arguments = self._arguments(has_dev=held_out.examples is not None)
        forget_warnings(self)
        device = choose_device(self.device)
        start = self._finished() if self.warm_start and hasattr(self, "model_") else self.model
        parts = choose_parts(task, examples, held_out, self.validation_fraction, arguments.seed)
        weight_of = {one.row: weight for one, weight in zip(examples, weights, strict=True)}
        history: History = []
        fitted |= {"history_": history, "validation_indices_": parts.places}
        with as_in_python():
            try:
                with noted_training(history, verbose=self.verbose) as callbacks:
                    finished = finetune_examples(
                        task,
                        start,
                        parts.train,
                        parts.dev,
                        arguments,
                        max_seq_length=_plain(self.max_seq_length),
                        vocab=None if start is not self.model else self.vocab,
                        new_head=self.new_head,
                        device=str(device),
                        example_weights=[float(weight_of[one.row]) for one in parts.train],
                        callbacks=callbacks,
                    )
            except TrainingInterrupted as interrupted:
                if isinstance(interrupted.kept, FinetunedModel):
                    self._take(interrupted.kept, fitted)
                    interrupted.args = (f"{interrupted.message}; {self._kept()}",)
                raise
        self._take(finished, fitted)
        return self

    def _take(self, finished: FinetunedModel, fitted: Mapping[str, Any]) -> None:
        self.task_, self.model_ = finished.task, finished.model
        self.tokenizer_ = finished.tokenizer
        self.max_seq_length_, self.result_ = finished.max_seq_length, finished.result
        self.n_iter_ = finished.result.num_steps
        for name, value in fitted.items():
            setattr(self, name, value)

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

    def _measured(self, examples: Sequence[Any]) -> Answers[Any, Any]:
        """The model's answers to labelled examples, to be measured."""
        return self._answers(examples, labelled=True)

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

    def _examples(self, X: Any, y: Any) -> list[Any]:
        """Labelled examples for a fitted model, to be measured on."""
        raise NotImplementedError

    def _seed(self) -> Any:
        """``random_state`` where it is given, else ``seed``."""
        given = self.random_state
        if given is None:
            return _plain(self.seed)
        if not isinstance(given, int | np.integer):
            raise UsageError(f"random_state is {given!r:.40}; expected a whole number, or None")
        return int(given)

    def _arguments(self, *, has_dev: bool) -> TrainingArguments:
        names = [each.name for each in fields(TrainingArguments)]
        has_dev |= bool(self.validation_fraction)
        if self.early_stopping_patience is not None and not has_dev:
            raise UsageError(
                f"early_stopping_patience is {self.early_stopping_patience}, which needs a part "
                "held out to know when to stop: set validation_fraction, for example to 0.1, or "
                "give X_val and y_val"
            )
        values = {name: _plain(getattr(self, name)) for name in names if name not in RUN_ARGUMENTS}
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

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "model_" in state:
            # NumPy arrays load on a machine without the device that the model is on.
            weights = {name: each.cpu().numpy() for name, each in self.model_.state_dict().items()}
            config: Any = self.model_.config
            state["model_"] = {
                "config": {"model_type": config.model_type, **config.to_dict()},
                "weights": weights,
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model_" in state:
            stored = state["model_"]
            # The meta device draws nothing at random.
            with torch.device("meta"):
                model = self.task_.build_model(BertConfig.from_dict(stored["config"]))
            weights = {name: torch.tensor(each) for name, each in stored["weights"].items()}
            model.load_state_dict(weights, assign=True)
            self.model_ = model.eval()

    def __sklearn_tags__(self) -> Any:
        return text_tags(super().__sklearn_tags__())


def _plain(value: Any) -> Any:
    """NumPy's numbers, as a grid has them, and paths as JSON values."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value
