"""``tidybert.finetune`` and ``tidybert.evaluate``: data of any kind to a model, and to metrics.

They read, check, train and measure as the commands of the shell do, with the same defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, overload

import numpy.typing as npt

from tidybert.catalog import DEFAULT_MODEL
from tidybert.errors import DataWarning, UsageError, in_python, param, suggestion
from tidybert.files.reading import ReadOptions
from tidybert.files.rows import as_list, count_of
from tidybert.finetuning.finetuning_job import FinetuningJob, FinetuningOptions
from tidybert.finetuning.keywords import EvaluateOptions, FinetuneOptions
from tidybert.inference.measurement import measure
from tidybert.inference.options import MeasureOptions, PredictorOptions
from tidybert.inference.predictor import Predictor
from tidybert.system.reporter import Reporter
from tidybert.system.terminal import progress_bar, warn_user
from tidybert.tasks.answer_types import (
    Answer,
    ChoiceAnswer,
    ChoiceMetrics,
    ClassAnswer,
    ClassMetrics,
    LabelSetAnswer,
    LabelSetMetrics,
    ScoreAnswer,
    ScoreMetrics,
    SpanAnswer,
    SpanMetrics,
    TagAnswer,
    TagMetrics,
    VectorAnswer,
    VectorMetrics,
)
from tidybert.tasks.labelled_examples import split_options
from tidybert.tasks.registry import task_flags, task_names
from tidybert.training.interruption import as_in_python, tell
from tidybert.training.reports import StepReport
from tidybert.training.training_arguments import RowsOption, TrainingArguments

if TYPE_CHECKING:
    from tidybert.finetuning.finetuned_model import FinetunedModel

    _Model = str | Path | FinetunedModel[Any]
    _Answering = FinetunedModel[Answer] | Predictor[Answer]

TaskName = Literal["classify", "regress", "choose", "answer", "tag", "embed"]


class FinetuneKeywords(FinetuneOptions, total=False):
    """Every keyword argument but ``multi_label``, for the overloads of ``finetune``."""

    dev: Any
    dev_fraction: float | None
    unlabelled: Any
    out: str | Path | None
    verbose: bool


class EvaluateKeywords(EvaluateOptions, total=False):
    """Every keyword argument, for the overloads of ``evaluate``."""

    report: str | Path | None
    verbose: bool


# What a training says in Python: findings as warnings, notes, a bar, and its history.

_STEPS_PER_LINE: Final = 10

History = list[dict[str, float | None]]
"""A row for each step: step, epoch, loss, learning_rate and, after an evaluation, its scores."""


@contextmanager
def noted_training(history: History, *, verbose: int, rows: str = "position") -> Iterator[Reporter]:
    """Reporter that write a training's ``history`` and, above 0, say how it goes.

    ``rows`` names the rows of examples.
    """

    def say(line: str) -> None:
        tell(line, rows)

    with progress_bar("fit", wanted=verbose > 0) as pace:

        def stage(name: str, done: int, total: int) -> None:
            if pace is not None:
                of = f"{done:,} of {total:,}"
                pace(done, total, lambda _, rate: f"{of}, {name}, {rate:.1f}/s")

        def step(done: StepReport) -> None:
            history.append(
                {
                    "step": done.step,
                    "epoch": done.epoch,
                    "loss": done.loss,
                    "learning_rate": done.learning_rate,
                }
            )
            figures = f"loss {done.loss:.4f}, rate {done.learning_rate:.1e}"
            stage(figures, done.step, done.num_steps)
            is_told = done.step % _STEPS_PER_LINE == 0 or done.step == done.num_steps
            if verbose and is_told and pace is None:
                speed = f"{done.num_examples / done.seconds:.0f} examples/s"
                say(f"step {done.step} of {done.num_steps}: loss {done.loss:.4f}, {speed}")

        def metrics(step: int, found: dict[str, Any]) -> None:
            scores = {name: each for name, each in found.items() if isinstance(each, float)}
            if step:
                history[-1].update(scores)
            if verbose:
                shown = ", ".join(f"{name} {each:.4f}" for name, each in scores.items())
                say(f"step {step}: {shown} on the part held out")

        yield Reporter(
            note=say if verbose else lambda _line: None,
            spell=str,
            stage=stage,
            step=step,
            metrics=metrics,
            rows=rows,
        )


@overload
def finetune(
    data: Any,
    task: Literal["classify"] = ...,
    model: _Model = ...,
    *,
    multi_label: Literal[False] | None = ...,
    **options: Unpack[FinetuneKeywords],
) -> FinetunedModel[ClassAnswer]: ...
@overload
def finetune(
    data: Any,
    task: Literal["classify"] = ...,
    model: _Model = ...,
    *,
    multi_label: Literal[True],
    **options: Unpack[FinetuneKeywords],
) -> FinetunedModel[LabelSetAnswer]: ...
@overload
def finetune(
    data: Any,
    task: list[Any] | tuple[Any, ...] | npt.NDArray[Any],
    model: _Model = ...,
    *,
    multi_label: Literal[False] | None = ...,
    **options: Unpack[FinetuneKeywords],
) -> FinetunedModel[ClassAnswer]: ...
@overload
def finetune(
    data: Any, task: Literal["regress"], model: _Model = ..., **options: Unpack[FinetuneKeywords]
) -> FinetunedModel[ScoreAnswer]: ...
@overload
def finetune(
    data: Any, task: Literal["choose"], model: _Model = ..., **options: Unpack[FinetuneKeywords]
) -> FinetunedModel[ChoiceAnswer]: ...
@overload
def finetune(
    data: Any, task: Literal["answer"], model: _Model = ..., **options: Unpack[FinetuneKeywords]
) -> FinetunedModel[SpanAnswer]: ...
@overload
def finetune(
    data: Any, task: Literal["tag"], model: _Model = ..., **options: Unpack[FinetuneKeywords]
) -> FinetunedModel[TagAnswer]: ...
@overload
def finetune(
    data: Any, task: Literal["embed"], model: _Model = ..., **options: Unpack[FinetuneKeywords]
) -> FinetunedModel[VectorAnswer]: ...
def finetune(
    data: Any,
    task: TaskName | list[Any] | tuple[Any, ...] | npt.NDArray[Any] = "classify",
    model: _Model = DEFAULT_MODEL,
    *,
    multi_label: bool | None = None,
    dev: Any = None,
    dev_fraction: float | None = None,
    unlabelled: Any = None,
    out: str | Path | None = None,
    verbose: bool = False,
    **options: Unpack[FinetuneOptions],
) -> FinetunedModel[Any]:
    """Fine-tune ``model`` on labelled data, and keep the weights that do best on ``dev``.

    What the checks find in the data, and a model that collapsed, is a Python warning.

    Args:
        data: the path of a file; a DataFrame of pandas, polars or Arrow; a Dataset; dicts or
            tuples, such as (text, label), in a list; or two lists, (texts, labels).
        task: classify, regress, choose, answer, tag or embed; or the labels of ``data``, the texts,
            to classify them.
        model: a MODEL: installed weights, a directory, a size with another MODEL's ``vocab``, or a
            model in memory.
        multi_label: for classify: a text has any number of labels.
        dev: data to measure on, of the same kinds, or the share of ``data`` to hold out for it, 0
            for none; None holds a tenth of 1,000 examples and more out.
        dev_fraction: such a share, under the name that the shell has for it.
        unlabelled: a file, or texts as ``Predictor.predict`` takes them, which ``teacher`` answers.
        out: a new directory for the RUN; None keeps the model in memory.
        verbose: print notes on the data and the training on stderr.
        options: columns of the data by name (``text``, ``text_pair``, ``label``), and every other
            flag of ``tidybert finetune`` that reads, checks or trains, under its name.

    Raises UsageError for a parameter, DataError for data that cannot be trained on, and the errors
    of loading ``model``.
    """
    rows = "line" if isinstance(data, str | Path) else "row"

    def training(_job: FinetuningJob, _metric: str) -> AbstractContextManager[Reporter]:
        return noted_training([], verbose=verbose, rows=rows)

    with as_in_python(rows):
        chosen: Any = task
        if not isinstance(task, str) and hasattr(task, "__len__"):
            data, chosen = _with_labels(data, task), "classify"
        if chosen not in task_names():
            raise UsageError(
                f"{param('task')} is {chosen!r:.60}; expected one of {', '.join(task_names())}"
                f"{suggestion(chosen, task_names())}"
            )
        if out is not None and not isinstance(out, str | Path):
            raise UsageError(f"{param('out')} is {out!r:.40}; expected the path of a directory")
        if dev is None:
            dev = dev_fraction
        elif dev_fraction is not None:
            raise UsageError(f"{param('dev')} and {param('dev_fraction')} say the same: give one")
        share, held_out = _share(dev)
        given = split_options(
            {**options, "multi_label": multi_label},
            {"job": FinetuningOptions, "read": ReadOptions, "task": task_flags(),
             "training": TrainingArguments},
        )  # fmt: skip
        job = FinetuningJob(
            chosen,
            model,
            data,
            held_out,
            TrainingArguments(**given["training"]),
            read=ReadOptions(**given["read"]),
            task_options=task_flags()(**given["task"]),
            dev_fraction=share,
            unlabelled=unlabelled,
            out=None if out is None else Path(out),
            **given["job"],
        )
        note: Callable[[str], None] = (
            (lambda line: tell(line, rows)) if verbose else lambda _line: None
        )
        from tidybert.finetuning.run_finetuning import run_finetuning

        return run_finetuning(job, Reporter(note, str, training=training, rows=rows))


def _with_labels(texts: Any, labels: Any) -> tuple[Any, Any]:
    """The data of two arguments, texts and labels, as estimators of scikit-learn take them."""
    given = [texts] if isinstance(texts, str | Path) else as_list(texts, "texts")
    if len(given) != len(labels):
        raise UsageError(
            f"finetune got {count_of(len(given), 'text')} and {count_of(len(labels), 'label')}: "
            "give one label for each text, or one object with both, such as a DataFrame"
        )
    found = as_list(labels, "labels")
    scores = [each for each in found if isinstance(each, float) and each % 1]
    if scores:
        raise UsageError(
            f"the labels are numbers such as {scores[0]}: for scores give "
            'finetune((texts, scores), "regress")'
        )
    return given, found


def _share(dev: Any) -> tuple[float | None, Any]:
    """The share to hold out (None: by the rule), and the data to measure on in its place."""
    if isinstance(dev, bool):
        raise UsageError(
            f"{param('dev')} is {dev}: expected labelled data, or a fraction such as 0.1"
        )
    if dev is None or not isinstance(dev, int | float):
        return None, dev
    if not 0 <= dev < 1:
        raise UsageError(
            f"{param('dev')} is {dev}: expected labelled data, or a fraction from 0 to below 1"
        )
    return dev, None


@overload
def evaluate(
    run: _Answering[ClassAnswer], data: Any, **options: Unpack[EvaluateKeywords]
) -> ClassMetrics: ...
@overload
def evaluate(
    run: _Answering[LabelSetAnswer], data: Any, **options: Unpack[EvaluateKeywords]
) -> LabelSetMetrics: ...
@overload
def evaluate(
    run: _Answering[ScoreAnswer], data: Any, **options: Unpack[EvaluateKeywords]
) -> ScoreMetrics: ...
@overload
def evaluate(
    run: _Answering[ChoiceAnswer], data: Any, **options: Unpack[EvaluateKeywords]
) -> ChoiceMetrics: ...
@overload
def evaluate(
    run: _Answering[SpanAnswer], data: Any, **options: Unpack[EvaluateKeywords]
) -> SpanMetrics: ...
@overload
def evaluate(
    run: _Answering[TagAnswer], data: Any, **options: Unpack[EvaluateKeywords]
) -> TagMetrics: ...
@overload
def evaluate(
    run: _Answering[VectorAnswer], data: Any, **options: Unpack[EvaluateKeywords]
) -> VectorMetrics: ...
@overload
def evaluate(
    run: str | Path | FinetunedModel | Predictor,
    data: Any,
    **options: Unpack[EvaluateKeywords],
) -> dict[str, Any]: ...
def evaluate(
    run: str | Path | FinetunedModel[Any] | Predictor[Any],
    data: Any,
    *,
    report: str | Path | None = None,
    verbose: bool = False,
    **options: Unpack[EvaluateOptions],
) -> Any:
    """The metrics of a fine-tuned model on labelled data, by name, with counts of how it was read.

    A Python warning says where the data trained the model or chose its weights.

    Args:
        run: a RUN, or a model in memory.
        data: labelled data of the kinds that ``finetune`` takes; columns are as in training.
        report: a directory to write a page to look at, and its figures, into.
        verbose: print notes on the data on stderr.
        options: the flags of ``tidybert evaluate`` under their names.

    Returns the metrics of the task: ``tidybert.tasks.answer_types`` has a class of each, which a
    type checker knows where it knows the task.

    Raises what ``Predictor`` raises, and DataError for data that cannot be measured on.
    """
    rows = "line" if isinstance(data, str | Path) else "row"
    with as_in_python(rows):
        given = split_options(
            options,
            {"read": ReadOptions, "rows": RowsOption, "predictor": PredictorOptions,
             "measured": MeasureOptions},
        )  # fmt: skip
        measured = MeasureOptions(**given["measured"])
        if isinstance(run, str | Path):
            predictor: Any = Predictor(run, **given["predictor"])
        else:
            for name in given["predictor"]:
                raise UsageError(
                    f"{param(name)} is for a RUN on disk; give it to Predictor, and that as run"
                )
            # Not by FinetunedModel: its module loads PyTorch, and a Predictor may do without.
            predictor = run if isinstance(run, Predictor) else getattr(run, "predictor", None)
            if not isinstance(predictor, Predictor):
                raise UsageError(
                    f"{param('run')} is of type {type(run).__name__}; expected a RUN, a model of "
                    "tidybert.finetune or a Predictor; an estimator measures itself by score(X, y) "
                    "and report(X, y)"
                )
        found = measure(
            predictor,
            data,
            ReadOptions(**given["read"]),
            **given["rows"],
            tell=(lambda line: tell(line, rows)) if verbose else lambda _line: None,
            warn=lambda line: warn_user(in_python(line, rows=rows), DataWarning),
            warns=True,
            texts=measured.texts,
        )
        if report is not None:
            from tidybert.reporting.evaluation import evaluation_of
            from tidybert.reporting.writing import write_report

            evaluation = evaluation_of(
                found.answers,
                found.metrics,
                run=str(predictor.directory or "a model in memory"),
                file=found.file,
                max_seq_length=predictor.max_seq_length,
                num_resamples=measured.resamples,
                is_dev=found.is_dev,
            )
            write_report(evaluation, report)
    return found.metrics
