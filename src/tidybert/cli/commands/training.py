"""Commands that train, or measure what was trained: finetune, evaluate, pretrain and train-lm."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import typer

from tidybert.catalog import DEFAULT_MODEL, find_model
from tidybert.cli import flags
from tidybert.cli.commands.texts import check_format
from tidybert.cli.flags import PanelCommand, command
from tidybert.cli.output import SHELL, note, print_json, print_line, print_table
from tidybert.cli.progress import shown_finetuning, shown_pretraining, shown_texts
from tidybert.errors import UsageError, in_shell, suggestion
from tidybert.files.reading import ReadOptions
from tidybert.files.rows import count_of
from tidybert.finetuning.finetuning_job import FinetuningJob, FinetuningOptions
from tidybert.inference.options import MeasureOptions, PredictorOptions, TrainedLengthOption
from tidybert.options import option, values_of
from tidybert.pretraining.batches.instance_options import (
    InstanceOptions,
    MaskingOptions,
    NextTokenOptions,
)
from tidybert.pretraining.pretraining_arguments import (
    LanguageModelArguments,
    PretrainingArguments,
    is_what_it_was,
)
from tidybert.pretraining.pretraining_job import (
    BranchOption,
    ModelShape,
    PretrainingJob,
    PretrainingOptions,
    TextCorpusOptions,
)
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.model_files import ARGUMENTS_FILE, CURVES_FILE, RECORD
from tidybert.system.reporter import Reporter
from tidybert.system.terminal import clock
from tidybert.tasks.registry import task_flags, task_names, unused_flags
from tidybert.tasks.task_options import ScoreOption, TaskOptions
from tidybert.training.runs.provenance import recorded_files
from tidybert.training.training_arguments import RunOptions, TrainingArguments

if TYPE_CHECKING:
    from tidybert.finetuning.finetuned_model import FinetunedModel, Trials
    from tidybert.tasks.task import AnyTask
    from tidybert.training.reports import TrainingResult

# Tasks that are commands themselves; finetune has all others.
_COMMANDS: Final = ("pretrain", "train-lm")


def take_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the arguments in a file the defaults of a command's flags and arguments.

    Raises ConfigError for a file that is not a JSON object, and UsageError for an argument that the
    command does not have.
    """
    if path is None:
        return None
    values = read_json_object(path)
    values.pop(RECORD, None)
    name, params = context.command.name, context.command.params
    # What --log-to was in earlier versions.
    if values.pop("tensorboard", False):
        values["log_to"] = ["tensorboard"]
    task = values.get("task")
    if "task" not in values or (task if task in _COMMANDS else "finetune") != name:
        other = task if task in _COMMANDS else "another program"
        if "hidden_size" in values and name == "pretrain":
            raise UsageError(
                f"--config {path}: this is a model's config.json; name it as SIZE_OR_MODEL: "
                f"tidybert pretrain {shlex.quote(str(path))} …"
            )
        raise UsageError(f"--config {path}: these are the arguments of {other}, not of {name}")
    if name in _COMMANDS:
        schedule = str(values.get("schedule"))
        values = {key: one for key, one in values.items() if not is_what_it_was(key, one, schedule)}
    unrecorded = getattr(context.command.callback, "unrecorded", ())
    known = {each.name for each in params if each.name} | {"task"}
    for key in values:
        if key not in known or key in unrecorded:
            raise UsageError(
                f"--config {path}: {name} has no argument {key!r}{suggestion(key, known)}"
            )
    repeated = {each.name for each in params if getattr(each, "multiple", False)}
    context.default_map = {
        key: [one] if key in repeated and isinstance(one, str) else one
        for key, one in values.items()
        if one is not None
    }
    return path


def take_branch(context: typer.Context, checkpoint: str | None) -> str | None:
    """Make the arguments of the RUN whose checkpoint it is the defaults; raises as take_config."""
    if checkpoint is not None:
        run, sign, _ = checkpoint.rpartition("@")
        if not sign:
            raise UsageError(f"--branch {checkpoint}: expected RUN@STEP, a checkpoint of a RUN")
        find_model(checkpoint)
        take_config(context, Path(run) / ARGUMENTS_FILE)
    return checkpoint


@flags.flags
class RunFlags(RunOptions):
    PANEL: ClassVar = "Checkpoints"

    config: Path | None = option(None, recorded=False, callback=take_config)
    """``--config FILE``: Repeat the run whose arguments.json this is; flags on the command line
    win."""
    log_to: list[str] | None = None
    """``--log-to TRACKER``: Also log figures to tensorboard, wandb, mlflow, or PACKAGE:function.
    Give it again for more."""
    # Its help is that of RunOptions; the shell needs one.
    out: Path = option(recorded=False)

    @property
    def is_done(self) -> bool:
        """Whether the run to resume is finished, which a note says."""
        from tidybert.training.runs.run_directory import is_resumed_in_vain

        if not (self.resume and is_resumed_in_vain(self.out, self.keep_checkpoints)):
            return False
        note(f"the run in {self.out} is finished: there is nothing to resume")
        return True

    def note_changed(self, files: Mapping[str, Any]) -> None:
        """Warn of data that are not those of the run which ``--config`` repeats."""
        if self.config is None:
            return
        recorded = recorded_files(self.config)
        for part, now in files.items():
            if part in recorded and recorded[part].get("sha256") != now.get("sha256"):
                note(
                    f"warning: {now['file']} is not the --{part} data of the run in "
                    f"{self.config.parent}: its content differs, so this run will differ too"
                )


class TaskCommand(PanelCommand):
    """A command whose help, after a TASK, shows the flags that this task has a use for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the TASK, because --help ends the parsing before it has a value."""
        ctx.meta["task"] = next((word for word in args if word in task_names()), None)
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        task = ctx.meta.get("task") or "TASK"
        formatter.write_usage(ctx.command_path, f"{task} [MODEL] --train FILE --out RUN [OPTIONS]")

    def shown_params(self, ctx: Any) -> list[Any]:
        task = ctx.meta.get("task")
        unused = unused_flags(task) if task else ()
        return [each for each in super().shown_params(ctx) if each.name not in unused]


@command(
    "finetune", "train", "dev", "out", "text", "label", "max_seq_length", "num_train_epochs",
    "learning_rate", "seed", "resume", cls=TaskCommand,
)  # fmt: skip
class Finetune(flags.ModelArgument, RunFlags, FinetuningOptions, flags.ThreadsFlag, flags.JsonFlag):
    """Fine-tune MODEL on labelled examples and write a RUN, which is a MODEL.

    tidybert checks the data first, and keeps the weights that do best on dev. See tidybert finetune
    TASK --help for the options of one task.
    """

    task: str
    """``TASK``: One of {tasks}."""
    train: str = option(panel="Data")
    """``--train FILE``: Labelled examples to train on."""
    dev: str | None = option(None, panel="Data")
    """``--dev FILE``: Labelled examples to measure on."""
    unlabelled: str | None = option(None, panel="Data")
    """``--unlabelled FILE``: Examples without labels, which the RUN of --teacher answers; with
    --num-layers (not for embed) its states are learned first."""
    report: Path | None = option(None, panel="Data", recorded=False)
    """``--report DIR``: Write a page to look at, and its figures, into DIR: on dev, or in folds
    where nothing is held out."""
    model: str = DEFAULT_MODEL
    read: ReadOptions
    options: Annotated[TaskOptions, task_flags()]
    arguments: TrainingArguments

    def run(self) -> None:
        job = FinetuningJob(
            self.task,
            self.model,
            self.train,
            self.dev,
            self.arguments,
            read=self.read,
            task_options=self.options,
            recorded_too={"log_to": self.log_to, "threads": self.threads},
            unlabelled=self.unlabelled,
            **values_of(self, FinetuningOptions),
        )
        if self.is_done:
            return
        from tidybert.finetuning.run_finetuning import run_finetuning
        from tidybert.reporting.writing import owned_report
        from tidybert.training.trackers import tracked

        @contextmanager
        def training(job: FinetuningJob, metric: str) -> Iterator[Reporter]:
            assert job.out is not None
            with (
                tracked(job.out, self.log_to, SHELL) as track,
                shown_finetuning(metric, job.arguments.batch_size, track) as reporter,
            ):
                yield reporter

        def provenance(found: Any) -> None:
            self.note_changed(found.files)

        with nullcontext() if self.report is None else owned_report(self.report):
            done = run_finetuning(
                job, Reporter(note, in_shell, provenance=provenance, training=training)
            )
            if done.trials is not None:
                print_trials(done.trials, done.task, str(self.out), as_json=self.json)
            else:
                self._show(done)
            if self.report is not None:
                self._report(done, self.report)

    def _report(self, done: "FinetunedModel[Any]", directory: Path) -> None:
        """Write the report on what was held out, if anything was."""
        if not done.held_out and done.folds is None:
            note(
                "no report: nothing measured this training; give --dev FILE, or --dev-fraction 0.2 "
                "for a fifth of --train"
            )
            return
        note("computing the report's confidence intervals: up to a minute")
        note(f"report: {done.report().save(directory)}")

    def _show(self, done: "FinetunedModel[Any]") -> None:
        """Print the metrics, and say how the training went."""
        from tidybert.finetuning.train import collapse_message

        result, out = done.result, self.out
        if self.json:
            found = {"collapsed": done.collapsed, "cross_validated": result.cross_validated}
            print_json({**trained_figures(result, out), **found})
            return
        print_metrics(done.task, result.metrics)
        if result.cross_validated:
            _print_cross_validated(done.task, result.cross_validated)
        if done.collapsed is not None:
            note(f"warning: {collapse_message(done.collapsed)}")
        early = ", stopped early" if result.stopped_early else ""
        note_trained(result, result.num_examples, "examples", early)
        note(f"the model is in {out}; next: tidybert predict {shlex.quote(str(out))} FILE")


@command("evaluate")
class Evaluate(MeasureOptions, ScoreOption, TrainedLengthOption, flags.AnswerFlags):
    """Measure a finished RUN on labelled examples."""

    model: str
    """``RUN``: A finished RUN."""
    file: str
    """``FILE``: Labelled examples."""
    json: bool = option(False, recorded=False)
    """``--json``: Print one JSON object whose keys are the metrics."""
    read: ReadOptions

    def run(self) -> None:
        if self.report is None:
            self._evaluate()
            return
        from tidybert.reporting.writing import owned_report

        with owned_report(self.report):
            self._evaluate()

    def _evaluate(self) -> None:
        from tidybert.inference.measurement import measure
        from tidybert.inference.predictor import Predictor

        check_format(self.model, self.file, self.read)
        predictor: Predictor[Any] = Predictor(self.model, **values_of(self, PredictorOptions))
        found = measure(
            predictor,
            self.file,
            self.read,
            skip_bad_rows=self.skip_bad_rows,
            tell=note,
            warn=lambda line: note(f"warning: {line}"),
            advance=lambda: shown_texts("evaluating"),
            texts=self.texts,
        )
        try:
            if self.json:
                print_json(found.metrics)
            else:
                print_metrics(predictor.task, found.metrics)
            sys.stdout.flush()
        finally:
            # A reader such as head, which closes the pipe early, still gets its report.
            if self.report is not None:
                from tidybert.reporting.evaluation import evaluation_of
                from tidybert.reporting.writing import write_report

                note("computing the report's confidence intervals: up to a minute")
                evaluation = evaluation_of(
                    found.answers,
                    found.metrics,
                    run=self.model,
                    file=self.file,
                    max_seq_length=predictor.max_seq_length,
                    num_resamples=self.resamples,
                    is_dev=found.is_dev,
                )
                note(f"report: {write_report(evaluation, self.report)}")


@command(
    "pretrain", "data", "out", "recipe", "objective", "max_steps", "tokens_per_step",
    "max_seq_length", "learning_rate", "seed", "resume",
)  # fmt: skip
class Pretrain(RunFlags, PretrainingOptions, flags.ThreadsFlag, flags.JsonFlag):
    """Pre-train on a corpus, to predict masked words and whether sentences follow each other.

    Several devices: torchrun --nproc-per-node N -m tidybert pretrain …
    """

    PANEL: ClassVar = "Checkpoints"

    model: str
    """``SIZE_OR_MODEL``: A size such as mini or base, a config.json without weights, or weights to
    continue from."""
    data: list[str]
    """``--data DIR[:WEIGHT]``: Corpus that build-corpus wrote. Give it again for more, whose
    weights divide the tokens: --data wiki:3 --data books:1."""
    # Its help is that of BranchOption.
    branch: str | None = option(None, recorded=False, callback=take_branch)
    instances: InstanceOptions
    masking: MaskingOptions
    arguments: PretrainingArguments
    shape: ModelShape

    def run(self) -> None:
        job = PretrainingJob(
            self.model,
            self.data,
            self.arguments,
            instances=self.instances,
            masking=self.masking,
            shape=self.shape,
            **values_of(self, PretrainingOptions),
        )
        pretrain(
            job,
            self,
            f"tidybert finetune classify {shlex.quote(str(self.out))} --train FILE --out RUN",
        )


@command(
    "train-lm", "out", "model", "max_steps", "tokens_per_step", "max_seq_length", "learning_rate",
    "vocab", "seed", "resume",
)  # fmt: skip
class TrainLM(RunFlags, BranchOption, TextCorpusOptions, flags.ThreadsFlag, flags.JsonFlag):
    """Train a language model that predicts each next token from those before it.

    Then: tidybert generate RUN "A beginning".
    """

    data: str
    """``CORPUS``: A directory that build-corpus wrote, or a file, folder or glob of text, with a
    blank line between documents."""
    model: str = option("transformer-tiny", panel="Task")
    """``--model SIZE``: Size of the model: transformer-tiny, transformer-mini, or transformer, the
    original one (6 layers, width 512)."""
    max_seq_length: int = option(128, panel="Task")
    """Most tokens that the model reads at once, [SOS] included; longer documents are cut."""
    positions: str = option("sinusoidal", panel="Task")
    """Position vectors: sinusoidal, computed once, or learned."""
    # Its help is that of BranchOption.
    branch: str | None = option(None, recorded=False, callback=take_branch)
    arguments: LanguageModelArguments

    def run(self) -> None:
        length = self.max_seq_length
        job = PretrainingJob(
            self.model,
            self.data,
            self.arguments,
            instances=NextTokenOptions(max_seq_length=length, positions=self.positions),
            **values_of(self, RunOptions, BranchOption, TextCorpusOptions),
        )
        pretrain(job, self, f'tidybert generate {shlex.quote(str(self.out))} "A beginning"')


def pretrain(job: PretrainingJob, given: Pretrain | TrainLM, then: str) -> None:
    """Run a job, alone or as one of torchrun's processes, and show it; ``then`` is a command."""
    if given.is_done:
        return
    from tidybert.pretraining.pretraining_run import run_pretraining
    from tidybert.training.distributed import processes
    from tidybert.training.trackers import tracked

    with (
        tracked(job.out, given.log_to, SHELL) as track,
        processes(job.device) as group,
        shown_pretraining(job.out, track) as reporter,
    ):
        result = run_pretraining(job, reporter, group)
        is_first = group.is_first
    if is_first:
        _show_pretrained(result, job.out, then, as_json=given.json)


# The metrics of a pre-training in the order of its table, and what they mean.
_MEANINGS: Final = {
    "loss": "sum of the losses below",
    "mlm_loss": "mean of -ln(probability of the masked word)",
    "lm_loss": "mean of -ln(probability of the next token)",
    "perplexity": "exp(loss of the words): between how many the model chooses",
    "mlm_accuracy": "fraction of the masked words that are right",
    "lm_accuracy": "fraction of the next tokens that are right",
    "nsp_loss": "mean of -ln(probability of the pair's class)",
    "nsp_accuracy": "fraction of the pairs that are right",
    "probe": "accuracy of a linear probe on the frozen states",
}


def _show_pretrained(result: "TrainingResult", out: Path, then: str, *, as_json: bool) -> None:
    """Draw the curves, print the metrics, and say how the training went; ``then`` is a command."""
    from tidybert.cli.progress import draw_curves, metric_kind
    from tidybert.training.runs.provenance import measured_text

    is_drawn = draw_curves(out)
    if as_json:
        counts = {"num_tokens": result.num_tokens, "num_bad_steps": result.num_bad_steps}
        print_json({**trained_figures(result, out), **counts})
        return

    def meaning(name: str) -> str:
        corpus = name.partition("/")[2]
        return f"the same, in {corpus}" if corpus else _MEANINGS[metric_kind(name)]

    names = [one for kind in _MEANINGS for one in result.metrics if metric_kind(one) == kind]
    rows = [(name, result.metrics[name], meaning(name)) for name in names]
    print_table({measured_text(out): "", "value": ".4f", "meaning": ""}, rows)
    if result.num_bad_steps:
        bad = count_of(result.num_bad_steps, "step")
        note(f"{bad} had no finite loss or gradient and updated nothing: bad_steps.jsonl")
    note_trained(result, result.num_tokens, "tokens")
    if is_drawn:
        note(f"the losses are drawn in {out / CURVES_FILE}")
    note(f"the model is in {out}; next: {then}")


# What is shown of scores: a task's metrics, those of each class, the confusions, and trials.


def print_metrics(task: "AnyTask", metrics: Mapping[str, Any]) -> None:
    """Print a task's metrics on stdout as a table; for classes, also a line each and confusions.

    Empty ``metrics``, where nothing was measured, print nothing.
    """
    names = task.label_names
    rows = [(key, metrics[key], _meaning(task, key)) for key in task.meanings if key in metrics]
    if not rows:
        return
    print_table({"metric": "", "value": ".4f", "meaning": ""}, rows)
    if "per_label" in metrics:
        print_line()
        _print_classes(metrics["per_label"])
    if "confusion_matrix" in metrics and names:
        import numpy as np

        from tidybert.metrics.text_scores import confusion_table

        print_line()
        print_line(confusion_table(np.array(metrics["confusion_matrix"]), names))


def _print_cross_validated(task: "AnyTask", found: Mapping[str, Any]) -> None:
    """Print what a probe scores where nothing was held out to measure the model."""
    metrics, ends = found["metrics"], found["intervals"]
    columns = {"cross-validated": "", "value": ".4f", "95 % interval": "", "meaning": ""}
    rows = []
    for name, value in metrics.items():
        interval = ends.get(name) and f"{ends[name]['low']:.4f} to {ends[name]['high']:.4f}"
        rows.append((name, value, interval, _meaning(task, name)))
    print_table(columns, rows)
    note(
        f"these are figures of a probe, a linear layer on MODEL's states, in {found['folds']} "
        f"folds of the {found['num_examples']:,} examples; --dev or --dev-fraction measures the "
        "model itself"
    )


def _meaning(task: "AnyTask", metric: str) -> str:
    names = task.label_names
    return task.meanings[metric].format(positive=names[1] if names and len(names) == 2 else "")


def _print_classes(classes: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a line for each class, with its threshold if classes have their own."""
    scores = ("precision", "recall", "f1", "average_precision", "threshold")
    # Average precision is that of some classes alone, but of none where a class has no threshold.
    shown = [score for score in scores if any(score in each for each in classes.values())]
    columns = {"class": "", **{one.replace("_", " "): ".4f" for one in shown}, "examples": ","}
    print_table(
        columns,
        [
            (name, *(each.get(one) for one in shown), each["support"])
            for name, each in classes.items()
        ],
    )
    untuned = [name for name, one in classes.items() if one.get("threshold", 0.5) is None]
    if untuned:
        from tidybert.metrics.text_scores import LEAST_POSITIVES

        print_line(
            f"\n- not tuned, so 0.5 decides: {', '.join(untuned)} (tuning takes {LEAST_POSITIVES} "
            f"dev texts with the label and {LEAST_POSITIVES} without)"
        )


def print_trials(trials: "Trials", task: "AnyTask", run: str, *, as_json: bool) -> None:
    """Print a line a trial, the mean and deviation over them, and the best one's metrics."""
    mean, deviation = trials.spread(task.metric)
    if as_json:
        from msgspec import to_builtins

        print_json(
            {
                **trials.best.metrics,
                "best": trials.best.name,
                "mean": {task.metric: mean},
                "deviation": {task.metric: deviation},
                "trials": to_builtins(trials.trials),
                "num_failed": trials.num_failed,
                "num_untried": trials.num_untried,
                "run": run,
            }
        )
        return
    rows = []
    for each in trials.trials:
        remark = "" if each.collapsed is None else f"collapsed to {each.collapsed!r:.20}"
        remark = "best" if each is trials.best else remark if each.error is None else "failed"
        score = None if each.error is not None else each.metrics[task.metric]
        rows.append((each.name, score, each.seconds, remark))
    print_table({"trial": "", task.metric: ".4f", "seconds": ".0f", "": ""}, rows)
    print_line(f"{task.metric}: mean {mean:.4f}, deviation {deviation:.4f}")
    if trials.num_failed:
        note(
            f"{trials.num_failed} of {len(trials.trials)} trials failed: mean and deviation are of "
            f"the others; {run}/trials.json says why"
        )
    if trials.num_untried:
        note(f"{trials.num_untried} more were not tried: --time-limit left no time for them")
    print_line()
    print_metrics(task, trials.best.metrics)
    note(f"the best model is in {run}; next: tidybert predict {shlex.quote(str(run))} FILE")


def trained_figures(result: "TrainingResult", run: Path) -> dict[str, Any]:
    """How a training went, for --json."""
    names = ("best_step", "num_steps", "seconds", "stages")
    return {**result.metrics, **{each: getattr(result, each) for each in names}, "run": str(run)}


def note_trained(result: "TrainingResult", count: int, unit: str, more: str = "") -> None:
    """Note how long a training on ``count`` examples or tokens took; its weights are of a step."""
    before = [f"{each} {clock(result.stages[each])}" for each in result.stages if each != "steps"]
    stages = f"before the steps: {', '.join(before)}"
    if result.num_steps:
        seconds = result.steps_seconds
        rate = count / seconds if seconds else 0.0
        start = "" if result.best_step else ", the start, which no later one beats"
        steps = count_of(result.num_steps, "step")
        note(
            f"{steps}, {count:,} {unit} in {clock(seconds)} ({rate:,.0f} "
            f"{unit}/s){more}; the weights are from step {result.best_step:,}{start}"
        )
    if before:
        note(stages if result.num_steps else f"no steps; {stages}")
