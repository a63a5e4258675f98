"""BertEstimator: the common part of the estimators that train.

After scikit-learn's developer guide (develop.rst): no logic in __init__, checks in fit, fitted
attributes end in an underscore.
"""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from tidybert.catalog import DEFAULT_MODEL
from tidybert.checkpoints.example_kinds import PAIR, TEXT, TEXT_OR_PAIR, name_of
from tidybert.configuration import BertConfig
from tidybert.errors import DataError, TruncationWarning, UsageError
from tidybert.estimators.checked_inputs import read_weights, text_tags
from tidybert.files.rows import count_of
from tidybert.finetuning.api import History, noted_training
from tidybert.finetuning.finetuned_model import FinetunedModel, save
from tidybert.finetuning.finetuning_job import (
    SHARE_HELD_OUT,
    FinetuningJob,
    FinetuningOptions,
    share_by_rule,
)
from tidybert.finetuning.keywords import TrainingParameters
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.forward import as_trained, run_features
from tidybert.inference.loading import choose_device, to_device
from tidybert.inference.predictor import examples_of
from tidybert.metrics.bootstrap import NUM_RESAMPLES
from tidybert.modeling.architectures import encoder_of
from tidybert.options import named
from tidybert.reporting.evaluation import evaluation_of
from tidybert.reporting.writing import ShownReport
from tidybert.storage.json_objects import plain_json
from tidybert.storage.model_files import ARGUMENTS_FILE
from tidybert.storage.output_lock import contents, output_lock
from tidybert.system.terminal import counting_bar, html_table, warn_user
from tidybert.tasks.answers import Answers
from tidybert.tasks.task import AnyTask, Task
from tidybert.tasks.task_options import TaskOptions
from tidybert.tokenization import BertTokenizer
from tidybert.training.interruption import TrainingInterrupted, as_in_python
from tidybert.training.precision import is_mixed
from tidybert.training.reports import TrainingResult
from tidybert.training.runs.provenance import Provenance
from tidybert.training.runs.run_directory import check_run, clear_run
from tidybert.training.training_arguments import TrainingArguments

T = TypeVar("T", bound=TaskOptions)

# The warnings of an estimator, once for each fit.

_LOST = {
    "truncate": "their end",
    "head-tail": "their middle",
    "windows": "the end of their first text",
}

# Predicting must not change an estimator, so this is beside it: those that have warned.
_WARNED: "WeakKeyDictionary[Any, bool]" = WeakKeyDictionary()


def forget_warnings(estimator: Any) -> None:
    """Let a newly fitted estimator warn again."""
    _WARNED.pop(estimator, None)


def warn_of_truncation(
    estimator: Any, lengths: Sequence[int], total: int, max_seq_length: int, mode: str = "truncate"
) -> None:
    """Warn once of texts of these lengths, in tokens, that ``mode`` of LongTexts has cut."""
    if not lengths or estimator in _WARNED:
        return
    _WARNED[estimator] = True
    warn_user(
        f"{len(lengths)} of {total} examples are longer than max_seq_length={max_seq_length} "
        f"tokens and lose {_LOST[mode]} (the longest has {max(lengths)}); a higher "
        "max_seq_length keeps them whole, at the cost of time (said once for each fit)",
        TruncationWarning,
    )


# The examples that ``fit`` measures on: given by the caller, or held out of X.


def read_held_out(
    X_val: Any, y_val: Any, read: Callable[[Any, Any], list[Any]]
) -> list[Any] | None:
    """The examples that ``read`` makes of X_val and y_val; None where these were not given.

    Raises DataError for one without the other.
    """
    if (X_val is None) != (y_val is None):
        given, missing = ("X_val", "y_val") if y_val is None else ("y_val", "X_val")
        raise DataError(f"{given} was given without {missing}: give both, or none")
    if X_val is None:
        return None
    try:
        return read(X_val, y_val)
    except DataError as error:
        error.args = (f"in X_val and y_val: {error.message}",)
        raise


def read_groups(groups: Any, num_examples: int) -> list[Hashable] | None:
    """The group of each example of X; a group is never on both sides.  DataError for other n."""
    if groups is None:
        return None
    found = np.asarray(groups)
    if found.shape != (num_examples,):
        raise DataError(
            f"groups has the shape {found.shape}: expected ({num_examples},), one group for each "
            "example of X"
        )
    return found.tolist()  # type: ignore[no-any-return]


def choose_parts(
    task: AnyTask,
    examples: Sequence[Any],
    dev: Sequence[Any] | None,
    groups: Sequence[Hashable] | None,
    fraction: float | None,
    arguments: TrainingArguments,
) -> tuple[Sequence[Any], Sequence[Any] | None, npt.NDArray[np.int64]]:
    """The examples to train on, those to measure on, and the places of these in X, (d,).

    ``dev`` was given beside ``examples``, whose rows are their places in X.  ``fraction``: the
    share to hold out; None: a tenth for groups, else as ``tidybert.finetune``.
    """
    if fraction is None and dev is not None:
        fraction = 0.0
    if fraction is None:
        fraction = SHARE_HELD_OUT if groups is not None else share_by_rule(len(examples), arguments)
    if groups is not None and not fraction:
        raise UsageError(
            "groups decide which examples are held out: set validation_fraction, for example to "
            "0.1, or leave groups out"
        )
    if dev is not None and fraction:
        raise UsageError(f"validation_fraction is {fraction} and X_val was given: give one of them")
    if not fraction:
        return examples, dev, np.empty(0, dtype=np.int64)
    if not 0 < fraction < 1:
        raise UsageError(f"validation_fraction is {fraction}: expected 0 (none) to below 1")
    of_examples = None if groups is None else [groups[one.row] for one in examples]
    try:
        train, dev = task.hold_out(examples, fraction, arguments.seed, of_examples)
    except DataError as error:
        alone = "" if groups is None else " in groups"
        raise DataError(
            f"validation_fraction is {fraction}, but {len(examples)} examples{alone} are too few "
            "to hold any out: give more examples, or validation_fraction=0"
        ) from error
    return train, dev, np.array([one.row for one in dev], dtype=np.int64)


# SavedEstimator: a fitted estimator as a RUN on disk, and as a pickle.

_ESTIMATORS = {
    "classify": "BertClassifier",
    "multi-label": "BertClassifier",
    "regress": "BertRegressor",
    "tag": "BertTagger",
    "answer": "BertQuestionAnswerer",
    "choose": "BertMultipleChoice",
}


class SavedEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of BertEstimator that writes and reads it."""

    _task_names: ClassVar[tuple[str, ...]]

    device: str
    task_: AnyTask
    model_: nn.Module
    tokenizer_: BertTokenizer
    result_: TrainingResult
    max_seq_length_: int

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
        with output_lock(run):
            if run.is_dir() and contents(run):
                if not force:
                    raise UsageError(
                        f"{run} is not empty: name a new directory, or give force=True to replace "
                        "the RUN in it"
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
        found = FinetunedModel.of_run(run)
        task = found.task
        if task.name not in cls._task_names:
            other = _ESTIMATORS.get(task.name)
            raise UsageError(
                f"{run} was trained to {task.name}, {cls.__name__} is to "
                f"{' or '.join(cls._task_names)}: load it with "
                f"{f'{other}.load' if other else 'Predictor'}"
            )
        stored = found.arguments or {"model": str(run)}
        known = {*cls._get_param_names()} - {"device"}
        # The shell writes null for a flag that was not given.
        given = {name: each for name, each in stored.items() if each is not None and name in known}
        estimator = cls(**given)
        estimator.device = device
        estimator.task_, estimator.model_, estimator.tokenizer_ = task, found.model, found.tokenizer
        estimator.max_seq_length_, estimator.result_ = found.max_seq_length, found.result
        if (kind := found.metadata.inputs) in (TEXT, PAIR):
            estimator.n_features_in_ = len(kind.parts)
        if "feature_names" in stored:
            estimator.feature_names_in_ = np.array(stored["feature_names"], dtype=object)
        estimator._restore(found.provenance.label_values)
        return estimator

    def _stored(self) -> dict[str, Any]:
        """The contents of arguments.json beside the task."""
        params = {name: plain(value) for name, value in self.get_params(deep=False).items()}
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
        kind, width = self.task_.inputs, getattr(self, "n_features_in_", None)
        if kind == TEXT_OR_PAIR and width is not None:
            kind = TEXT if width == 1 else PAIR
        return FinetunedModel(
            self.task_,
            self.model_,
            self.tokenizer_,
            config,
            self.max_seq_length_,
            self.result_,
            inputs=name_of(kind),
            provenance=Provenance(label_values=self._label_values()),
        )

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "model_" in state:
            # NumPy arrays load on a machine without the device that the model is on.
            weights = {name: each.cpu().numpy() for name, each in self.model_.state_dict().items()}
            config: Any = self.model_.config
            state["model_"] = {
                "config": config.written(),
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

    def _seed(self) -> Any:
        """``random_state`` where it is given, else ``seed``."""
        raise NotImplementedError


def plain(value: Any) -> Any:
    """NumPy's numbers, as a grid has them, and paths as JSON values."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


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
class BertEstimator(TrainingParameters, SavedEstimator):
    """Base of the estimators; see BertClassifier for the parameters.

    A dataclass writes the __init__ that scikit-learn reads the parameters from.
    """

    model: str | Path = field(default=DEFAULT_MODEL, kw_only=False)
    max_seq_length: int = Task.default_max_seq_length
    random_state: int | None = None
    warm_start: bool = False
    validation_fraction: float | None = None
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
        if y is None:
            # In scikit-learn's words.
            name = type(self).__name__
            raise DataError(f"{name} requires y to be passed, but the target y is None")
        weights = read_weights(sample_weight, len(read))
        kept = np.flatnonzero(weights)
        begun = self._begin(read, y, kept)
        given = read_held_out(X_val, y_val, lambda X, y: self._labelled(X, y, begun))
        groups = read_groups(groups, len(read))
        arguments = self._arguments(has_dev=given is not None)
        forget_warnings(self)
        is_warm = self.warm_start and hasattr(self, "model_")
        train, dev, places = choose_parts(
            begun.task, begun.examples, given, groups, self.validation_fraction, arguments
        )
        shares = weights[kept] * begun.weights
        weight_of = {one.row: each for one, each in zip(begun.examples, shares, strict=True)}
        history: History = []
        fitted = {
            "history_": history,
            "validation_indices_": places,
            **begun.fitted,
            **self._columns(X, read),
        }
        options = self._options(FinetuningOptions) | {"device": str(choose_device(self.device))}
        if is_warm:
            # What is fitted has a vocabulary and its layers.
            options |= {"vocab": None, "num_layers": None}
        with as_in_python():
            job = FinetuningJob(
                begun.task,
                self._finished() if is_warm else self.model,
                train,
                dev,
                arguments,
                unlabelled=None
                if X_unlabelled is None
                else examples_of(begun.task, X_unlabelled, None, None),
                **options,
                example_weights=[float(weight_of[one.row]) for one in train],
            )
            try:
                with noted_training(history, verbose=self.verbose) as reporter:
                    finished = run_finetuning(job, reporter)
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
            file=count_of(len(answers.examples), "example"),
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
        width = encoder_of(self.model_).config.hidden_size
        mixed = is_mixed(self.precision, device, width)
        precision = as_trained("bfloat16" if mixed else None, device, width)
        with counting_bar("predict", len(features), wanted=self.verbose > 0) as reporter:
            outputs = run_features(
                self.task_, self.model_, features, reporter=reporter, precision=precision
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
        has_dev |= self.validation_fraction != 0
        if self.early_stopping_patience is not None and not has_dev:
            raise UsageError(
                f"early_stopping_patience is {self.early_stopping_patience}, which needs a part "
                "held out to know when to stop: set validation_fraction, for example to 0.1, or "
                "give X_val and y_val"
            )
        with as_in_python():
            return TrainingArguments(**self._options(TrainingArguments) | {"seed": self._seed()})

    def _options(self, group: type) -> dict[str, Any]:
        """The values of the options of a dataclass that are parameters."""
        return {name: plain(getattr(self, name)) for name in named(group, estimator=True)}

    def _task_options(self, group: type[T], **others: Any) -> T:
        """The options of a task that are parameters; UsageError for unknown values."""
        with as_in_python():
            return group(**self._options(group) | others)

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
            steps = count_of(result.num_steps, "step")
            facts["trained"] = (
                f"{count_of(result.num_examples, 'example')} in {steps}, "
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
