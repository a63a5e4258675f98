"""SavedEstimator: a fitted estimator as a RUN on disk, and as a pickle."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from tidybert.configuration import BertConfig
from tidybert.errors import UsageError
from tidybert.finetuning.finetuned_model import FinetunedModel, save
from tidybert.storage.json_objects import plain_json
from tidybert.storage.model_files import ARGUMENTS_FILE
from tidybert.storage.output_lock import contents, output_lock
from tidybert.tasks.task import AnyTask
from tidybert.tokenization import BertTokenizer
from tidybert.training.reports import TrainingResult
from tidybert.training.runs.run_directory import check_run, clear_run
from tidybert.training.runs.run_origin import RunOrigin

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
        if found.inputs in ("text", "pair"):
            estimator.n_features_in_ = ("text", "pair").index(found.inputs) + 1
        if "feature_names" in stored:
            estimator.feature_names_in_ = np.array(stored["feature_names"], dtype=object)
        estimator._restore(found.made_from.label_values)
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
