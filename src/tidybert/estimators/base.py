"""BertEstimator: the common part of the estimators that train.

After scikit-learn's developer guide (develop.rst): no logic in __init__, checks in fit, fitted
attributes end in an underscore.
"""

import json
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from tidybert.catalog import find_model
from tidybert.configuration import BertConfig
from tidybert.data.checks import DataReport
from tidybert.errors import (
    ConfigError,
    DataError,
    TidyBertError,
    TruncationWarning,
    UsageError,
    in_python,
)
from tidybert.estimators.checked_inputs import text_tags
from tidybert.finetuning import Callbacks, FinetunedModel, finetune_examples, save
from tidybert.inference.answer_precision import as_trained
from tidybert.inference.forward import run_features
from tidybert.inference.loading import choose_device, load_finished, to_device
from tidybert.json_objects import plain_json, read_json_object
from tidybert.model_files import ARGUMENTS_FILE
from tidybert.opening import present
from tidybert.tasks.answers import Answers
from tidybert.tasks.task import AnyTask, Task
from tidybert.tasks.text_task import TextTask
from tidybert.terminal_text import printable
from tidybert.tokenization import BertTokenizer
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.trainer import StepReport, TrainingResult
from tidybert.training.training_arguments import TrainingArguments

#: The training arguments about files; fit writes none.
RUN_ARGUMENTS = ("save_steps", "save_total_limit", "logging_steps", "deterministic")

_STEPS_PER_LINE = 10
_ESTIMATORS = {
    "classify": "BertClassifier",
    "multi-label": "BertClassifier",
    "regress": "BertRegressor",
    "tag": "BertTagger",
}
_LOST = {
    "truncate": "their end",
    "head-tail": "their middle",
    "windows": "the end of their first text",
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
    head_start: str | None = TrainingArguments.head_start
    pooling: str | None = TrainingArguments.pooling
    weight_decay: float = TrainingArguments.weight_decay
    adam_beta1: float = TrainingArguments.adam_beta1
    adam_beta2: float = TrainingArguments.adam_beta2
    adam_epsilon: float = TrainingArguments.adam_epsilon
    max_grad_norm: float = TrainingArguments.max_grad_norm
    seed: int = TrainingArguments.seed
    validation_fraction: float = 0.0
    eval_steps: int | None = TrainingArguments.eval_steps
    early_stopping_patience: int | None = TrainingArguments.early_stopping_patience
    freeze_layers: int = TrainingArguments.freeze_layers
    freeze_embeddings: bool = TrainingArguments.freeze_embeddings
    precision: str = TrainingArguments.precision
    device: str = "auto"
    verbose: int = 0

    task_: AnyTask = field(init=False)
    model_: nn.Module = field(init=False)
    tokenizer_: BertTokenizer = field(init=False)
    result_: TrainingResult = field(init=False)
    max_seq_length_: int = field(init=False)
    n_features_in_: int = field(init=False)

    def save(self, directory: str | Path) -> None:
        """Write the fitted model as a finished RUN: ``load``, the shell and transformers open it.

        arguments.json holds the parameters (all but ``device``) and the classes with their types.
        Raises DiskError where it cannot be written, and InUseError where another process does.
        """
        check_is_fitted(self)
        values = {"task": self.task_.name, **self._stored()}
        text = json.dumps(plain_json(values), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        config: Any = self.model_.config
        width = getattr(self, "n_features_in_", None)
        finished = FinetunedModel(
            self.task_,
            self.model_,
            self.tokenizer_,
            config,
            self.max_seq_length_,
            self.result_,
            inputs={1: "text", 2: "pair"}.get(width or 0, self.task_.inputs),
        )
        save(finished, Path(directory), beside={ARGUMENTS_FILE: text})

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
        estimator._restore(stored)
        return estimator

    def _stored(self) -> dict[str, Any]:
        """The contents of arguments.json beside the task."""
        params = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        del params["device"]
        return params

    def _restore(self, stored: dict[str, Any]) -> None:
        """Set the attributes that only one estimator has, from arguments.json."""

    def _train(
        self, task: AnyTask, examples: Sequence[Any], weights: npt.NDArray[np.float64]
    ) -> None:
        """Train on examples of any task, and set the fitted attributes of every estimator."""
        arguments = self._arguments()
        _WARNED.pop(self, None)
        device = choose_device(self.device)
        train, dev = self._split(task, examples)
        with as_in_python():
            finished = finetune_examples(
                task,
                self.model,
                [examples[index] for index in train],
                [examples[index] for index in dev] if len(dev) else None,
                arguments,
                max_seq_length=_plain(self.max_seq_length),
                vocab=self.vocab,
                device=str(device),
                example_weights=weights[train].tolist(),
                callbacks=self._callbacks(task),
            )
        self.task_, self.model_ = finished.task, finished.model
        self.tokenizer_ = finished.tokenizer
        self.max_seq_length_, self.result_ = finished.max_seq_length, finished.result

    def _run(self, examples: Sequence[Any]) -> Answers[Any, Any]:
        """The model's answers to examples without labels."""
        device = to_device(self.model_, self.device)
        with as_in_python():
            features = self.task_.features(examples, self.tokenizer_, self.max_seq_length_)
        precision = as_trained(self.precision, device)
        outputs = run_features(self.task_, self.model_, features, precision=precision)
        return self.task_.answers(outputs, features, examples)

    def _arguments(self) -> TrainingArguments:
        names = [each.name for each in fields(TrainingArguments)]
        if self.early_stopping_patience is not None and not self.validation_fraction:
            raise UsageError(
                f"early_stopping_patience is {self.early_stopping_patience}, which needs a part "
                "held out to know when to stop: set validation_fraction, for example to 0.1"
            )
        values = {name: _plain(getattr(self, name)) for name in names if name not in RUN_ARGUMENTS}
        with as_in_python():
            return TrainingArguments(**values)

    def _split(
        self, task: AnyTask, examples: Sequence[Any]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The places of the examples to train on and of those held out; all rows differ."""
        fraction, everything = self.validation_fraction, np.arange(len(examples))
        if not fraction:
            return everything, everything[:0]
        if not 0 < fraction < 1:
            raise UsageError(f"validation_fraction is {fraction}: expected 0 (none) to below 1")
        try:
            parts = task.hold_out(examples, fraction, self.seed)
        except DataError as error:
            raise DataError(
                f"validation_fraction is {fraction}, but {len(examples)} examples are too few to "
                "hold any out: give more examples, or validation_fraction=0"
            ) from error
        places = {one.row: place for place, one in enumerate(examples)}
        train, dev = (np.array([places[one.row] for one in part]) for part in parts)
        return train, dev

    def _callbacks(self, task: AnyTask) -> Callbacks:
        mode = task.long_texts.mode if isinstance(task, TextTask) else "truncate"

        def step(done: StepReport) -> None:
            if done.step % _STEPS_PER_LINE == 0 or done.step == done.num_steps:
                speed = f"{done.num_examples / done.seconds:.0f} examples/s"
                tell(f"step {done.step} of {done.num_steps}: loss {done.loss:.4f}, {speed}")

        def metrics(step: int, found: dict[str, Any]) -> None:
            scores = {name: each for name, each in found.items() if isinstance(each, float)}
            shown = ", ".join(f"{name} {each:.4f}" for name, each in scores.items())
            tell(f"step {step}: {shown} on the part held out")

        def data(report: DataReport) -> None:
            for part, count in report.num_truncated.items():
                longest = [report.num_tokens[part]["max"]] * count
                total = report.num_train if part == "train" else report.num_dev
                warn_of_truncation(self, "fit", longest, total or 0, self.max_seq_length, mode)

        if not self.verbose:
            return Callbacks(data=data)
        return Callbacks(note=tell, spell=str, step=step, metrics=metrics, data=data)

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
    return str(value) if isinstance(value, Path) else value


@contextmanager
def as_in_python() -> Iterator[None]:
    """Have errors name parameters as Python does; Ctrl-C and SIGTERM end more than this fit."""
    try:
        yield
    except TrainingInterrupted as interrupted:
        # cross_val_score takes an Exception for the failure of one fit and starts the next.
        if interrupted.exit_status == 128 + signal.SIGINT:
            raise KeyboardInterrupt(str(interrupted)) from None
        raise SystemExit(interrupted.exit_status) from None
    except TidyBertError as error:
        error.args = (in_python(error.message, rows="position"),)
        raise


def tell(text: str) -> None:
    """Print a note on stderr; the row of an example is its position in X."""
    print(printable(in_python(text, rows="position")), file=sys.stderr)


# Predicting must not change an estimator, so this is beside it: the works that have warned.
_WARNED: "WeakKeyDictionary[Any, set[str]]" = WeakKeyDictionary()


def warn_of_truncation(
    estimator: Any,
    work: str,
    lengths: Sequence[int],
    total: int,
    max_seq_length: int,
    mode: str = "truncate",
) -> None:
    """Warn of texts of these lengths, in tokens, that ``mode`` of LongTexts has cut.

    An estimator warns once for each ``work``: fit, predict.
    """
    warned = _WARNED.setdefault(estimator, set())
    if lengths and work not in warned:
        warned.add(work)
        warnings.warn(
            f"{len(lengths)} of {total} examples are longer than max_seq_length={max_seq_length} "
            f"tokens and lose {_LOST[mode]} (the longest has {max(lengths)}); a higher "
            f"max_seq_length keeps them whole, at the cost of time (said once for {work})",
            TruncationWarning,
            stacklevel=4,
        )
