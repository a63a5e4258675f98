"""FinetunedModel: what a fine-tuning gives, ready to answer, to be measured and to be saved."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, overload

import msgspec
import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from tidybert.checkpoints.example_kinds import KINDS, name_of
from tidybert.checkpoints.metadata import ModelMetadata, stored_values
from tidybert.checkpoints.model_directory import save_model_directory, write_model
from tidybert.checkpoints.sentence_form import with_weights
from tidybert.configuration import BertConfig
from tidybert.errors import ConfigError, TrainingError, UsageError, param
from tidybert.inference.forward import as_trained
from tidybert.inference.loading import Finished, OpenedModel
from tidybert.inference.measurement import measure
from tidybert.inference.predictor import AnswerList, Predictor
from tidybert.metrics.bootstrap import NUM_RESAMPLES, Interval
from tidybert.storage.journal import Journal, check_settings
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.model_files import ARGUMENTS_FILE
from tidybert.storage.opening import present
from tidybert.storage.own_files import make_directory
from tidybert.system.terminal import ShowsFacts
from tidybert.tasks.answer_types import Answer
from tidybert.tasks.answers import Answers
from tidybert.tasks.task import AnyTask
from tidybert.tokenization import BertTokenizer
from tidybert.training.reports import TrainingResult
from tidybert.training.runs.provenance import Provenance, trained_in
from tidybert.training.runs.run_directory import clear_run, owned_run

if TYPE_CHECKING:
    from tidybert.reporting.writing import ShownReport

# trials.json: the trials that have ended, and the settings that all of them share.


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of one run.

    varied: the arguments in which it differs from the others.  collapsed: the one answer that it
    gives to everything, or None.  error: why it failed and has no metrics, or None.
    """

    name: str
    varied: dict[str, Any]
    metrics: dict[str, Any]
    seconds: int | float
    collapsed: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Trials:
    """The trials in their order, the best one, and how many the time limit left out."""

    trials: tuple[Trial, ...]
    best: Trial
    num_untried: int

    @property
    def num_failed(self) -> int:
        """The number of trials without metrics."""
        return len(self.trials) - len(finished(self.trials))

    def spread(self, metric: str) -> tuple[float, float]:
        """Mean and standard deviation (n - 1) of a metric over the trials that did not fail."""
        values = [each.metrics[metric] for each in finished(self.trials)]
        return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def finished(trials: Iterable[Trial]) -> list[Trial]:
    """The trials that did not fail."""
    return [each for each in trials if each.error is None]


class _TrialsFile(msgspec.Struct, forbid_unknown_fields=True):
    """The settings that all trials share, and the trials that have ended."""

    shared: dict[str, Any]
    trials: list[Trial]


def _journal(path: Path) -> Journal[_TrialsFile]:
    way_out = f"give a new {param('out')}"
    return Journal(path, _TrialsFile, way_out, error=TrainingError, has_checksum=False)


def read_trials(path: Path, shared: Mapping[str, Any]) -> list[Trial]:
    """The trials that have ended, none where there is no file.

    Raises TrainingError for a file that cannot be read, and UsageError for other settings.
    """
    if not present(path, error=TrainingError):
        return []
    found = _journal(path).read()
    subject = f"{param('resume')}: the trials in {path} were run"
    check_settings(found.shared, shared, subject, f"give the same, or a new {param('out')}")
    return found.trials


def write_trials(path: Path, shared: Mapping[str, Any], trials: Iterable[Trial]) -> None:
    """Write the settings that all trials share, and the trials."""
    make_directory(path.parent)
    _journal(path).write(_TrialsFile(dict(shared), list(trials)))


@dataclass(frozen=True, repr=False)
class FinetunedModel(ShowsFacts, Generic[Answer]):
    """A fine-tuned model, in evaluation mode, and the result of its training.

    ``Answer`` is the type of its answers, as in ``Predictor``.

    Args:
        collapsed: see ``collapsed_to``, on dev.
        inputs: the name of what an example holds, as in tidybert.json.
        arguments: all of the training, by name, as in arguments.json.
        run: the RUN on disk; None for a model in memory alone.
        held_out: the examples that it was measured on.
        folds: where there are none, a probe's answers to those that trained, in folds.
        trials: those of ``seeds`` or ``search``; this is the best one's model.
    """

    task: AnyTask
    model: nn.Module
    tokenizer: BertTokenizer
    config: BertConfig
    max_seq_length: int
    result: TrainingResult
    collapsed: str | None = None
    inputs: str | None = None
    provenance: Provenance = field(default_factory=Provenance)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    run: Path | None = None
    held_out: Sequence[Any] = ()
    folds: Answers[Any, Any] | None = None
    trials: "Trials | None" = None

    @classmethod
    def of_run(cls, run: str | Path) -> "FinetunedModel[Any]":
        """The model of a finished RUN, or of one that transformers saved, on the CPU.

        Its result has no more than the metrics.  Raises what ``Predictor`` raises.
        """
        opened = OpenedModel(run, device="cpu", precision=None)
        found, metadata = opened.finished, opened.finished.metadata
        file = opened.directory.path / ARGUMENTS_FILE
        return FinetunedModel(
            found.task,
            found.network,
            found.tokenizer,
            opened.config,
            metadata.max_seq_length,
            TrainingResult(0, 0, dict(metadata.metrics), 0.0, 0, 0),
            inputs=name_of(metadata.inputs),
            provenance=Provenance(reading=metadata.reading, label_values=found.label_values),
            arguments=read_json_object(file) if present(file, error=ConfigError) else {},
            run=Path(run),
        )

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of these weights on dev, by name."""
        return self.result.metrics

    @property
    def metadata(self) -> ModelMetadata:
        """The content of tidybert.json."""
        return ModelMetadata(
            task=self.task.name,
            label_names=self.task.label_names,
            max_seq_length=self.max_seq_length,
            inputs=KINDS.get(self.inputs or ""),
            label_values=stored_values(self.task.names, self.provenance.label_values),
            reading=self.provenance.reading,
            settings=self.task.settings(),
            metrics=self.result.metrics,
        )

    @cached_property
    def predictor(self) -> Predictor[Answer]:
        """What answers with these weights, on the device of the training."""
        device = next(self.model.parameters()).device
        metadata = self.metadata
        values = self.provenance.label_values if metadata.label_values else {}
        return Predictor.of(
            Finished(
                str(self.run or self),
                self.task,
                self.model,
                self.tokenizer,
                metadata,
                as_trained(trained_in(self.arguments), device, self.config.hidden_size),
                values,
                self.run,
            )
        )

    @overload
    def predict(self, texts: str, text_pairs: Any = None, *, progress: bool = ...) -> Answer: ...
    @overload
    def predict(
        self, texts: Iterable[Any], text_pairs: Iterable[Any] | None = None, *, progress: bool = ...
    ) -> AnswerList[Answer]: ...
    def predict(self, texts: Any, text_pairs: Any = None, *, progress: bool = False) -> Any:
        """The answers to texts; see ``Predictor.predict``."""
        return self.predictor.predict(texts, text_pairs, progress=progress)

    __call__ = predict

    def predict_proba(self, texts: Any, text_pairs: Any = None) -> npt.NDArray[np.float64]:
        """The scores of classes; see ``Predictor.predict_proba``."""
        return self.predictor.predict_proba(texts, text_pairs)

    def report(self, data: Any = None, *, resamples: int = NUM_RESAMPLES) -> "ShownReport":
        """A page on how far to trust the model, which a notebook shows; takes up to a minute.

        Args:
            data: labelled data as ``tidybert.evaluate`` takes them; None for those held out, or,
                where there are none, for a probe's answers in folds.
            resamples: samples to draw for the intervals.

        Raises UsageError where nothing was held out, and DataError.
        """
        from tidybert.inference.measurement import drawn_metrics
        from tidybert.reporting.evaluation import evaluation_of
        from tidybert.reporting.writing import ShownReport

        if data is None and not self.held_out and self.folds is not None:
            # A probe of the encoder, which ends where this training begins, on new texts.
            folds = (self.result.cross_validated or {}).get("folds")
            begun = self.arguments.get("model", "the encoder")
            train = self.provenance.files.get("train", {}).get("file", "the examples")
            said = (
                "these are figures of a probe, a linear layer on the states of the encoder before "
                "it was trained: each fold is answered by one that learned from the others; "
                "dev_fraction measures the model itself"
            )
            metrics = {**self.folds.metrics(), **self.folds.counts()}
            metrics |= drawn_metrics(self.folds.task, self.folds, self.folds.examples)
            return ShownReport(
                evaluation_of(
                    self.folds,
                    metrics,
                    run=f"a probe of {begun}",
                    file=f"{train}, {folds} folds",
                    max_seq_length=self.max_seq_length,
                    num_resamples=resamples,
                    notes=[said],
                )
            )
        if data is None and not self.held_out:
            raise UsageError("no examples were held out in training: give labelled data")
        found = measure(self.predictor, self.held_out if data is None else data)
        return ShownReport(
            evaluation_of(
                found.answers,
                found.metrics,
                run=str(self.run or self),
                file=found.file if data is not None else self._dev_name(),
                max_seq_length=self.max_seq_length,
                num_resamples=resamples,
                is_dev=data is None or found.is_dev,
            )
        )

    def _dev_name(self) -> str:
        files = self.provenance.files
        if "dev" in files:
            return str(files["dev"].get("file", "the dev examples"))
        train = files.get("train", {})
        return f"{train['file']}, a part held out" if "bytes" in train else "the dev examples"

    def save(self, directory: str | Path, *, force: bool = False) -> None:
        """Write the model as a MODEL directory, which the shell and transformers open.

        Raises UsageError for a directory that is not empty, unless ``force`` replaces a RUN there,
        and DiskError.
        """
        with owned_run(Path(directory), False, force):
            if force:
                clear_run(Path(directory))
            save(self, Path(directory))

    def __str__(self) -> str:
        return self.provenance.name or "a model in memory"

    def facts(self) -> dict[str, object]:
        facts = {
            "model": self.arguments.get("model"),
            "trained_on": self.provenance.files.get("train", {}).get("file"),
            "steps": self.result.num_steps,
            "cross_validated": self.result.cross_validated,
        }
        return {name: each for name, each in facts.items() if each} | self.predictor.facts()


def save(
    finished: FinetunedModel[Any], directory: Path, *, beside: Mapping[str, str] | None = None
) -> None:
    """Write a fine-tuned model as a MODEL directory, which transformers opens too.

    ``beside``: texts of further files, by name.
    """
    state = finished.model.state_dict()
    save_model_directory(directory, beside=beside, **_parts(finished, state))


def write_weights(
    trained: FinetunedModel[Any], directory: Path, weights: Mapping[str, Tensor]
) -> None:
    """Write weights of a model in training as a MODEL, into a directory that nobody reads yet."""
    write_model(directory, **_parts(trained, weights))


def _parts(finished: FinetunedModel[Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    form = finished.task.sentence_form(finished.max_seq_length)
    if form is not None:
        weights, form = with_weights(form, weights)
    return {
        "model_state": weights,
        "config": finished.config,
        "tokenizer": finished.tokenizer,
        "metadata": finished.metadata,
        "architecture": finished.task.architecture,
        "problem_type": finished.task.problem_type,
        "sentence": form,
    }


_MAX_SECONDS: Final = 1.0


def shown_metrics(answers: Answers[Any, Any]) -> tuple[dict[str, float], dict[str, Interval]]:
    """The metrics that the task's tables show, and their intervals."""
    found = answers.metrics()
    shown = {each: found.get(each) for each in answers.task.meanings}
    metrics = {each: float(one) for each, one in shown.items() if isinstance(one, int | float)}
    # A card must not cost a training's time.
    return metrics, answers.intervals(max_seconds=_MAX_SECONDS).by_name
