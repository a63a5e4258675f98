"""From labelled examples to a trained model and a finished RUN: config, build, train, save.

The shell and the scikit-learn estimators both call ``finetune_examples``.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tidybert.configuration import BertConfig
from tidybert.data.checks import DataReport, TrainingData
from tidybert.data.text_hashes import text_hashes
from tidybert.data.training_texts import write_training_texts
from tidybert.errors import (
    CollapseWarning,
    UsageError,
    in_python,
    param,
)
from tidybert.finetuning.collapse import collapse_message, collapsed_to
from tidybert.finetuning.finetuned_model import FinetunedModel, save
from tidybert.finetuning.first_weights import built_from, model_sources
from tidybert.finetuning.head_start import ProbeMemory, start_with_probe, with_head_start
from tidybert.finetuning.run_card import write_run_card
from tidybert.inference.answer_precision import as_trained
from tidybert.inference.forward import run_features
from tidybert.inference.loading import fitting_length, to_device
from tidybert.modeling.architectures import encoder_of
from tidybert.storage.model_files import RECORD
from tidybert.system.user_warnings import warn_user
from tidybert.tasks.answers import Answers
from tidybert.tasks.task import AnyTask
from tidybert.training.determinism import repeating
from tidybert.training.fine_tuning import FineTuning
from tidybert.training.frozen_states import freeze
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.loop import TrainingLoop
from tidybert.training.random_numbers import weights_drawn_with
from tidybert.training.reports import TrainingCallbacks, TrainingResult
from tidybert.training.run_checkpoints import remove_best, remove_checkpoints
from tidybert.training.run_directory import clear_run, owning_run, write_arguments
from tidybert.training.run_identity import INTERVALS, RunIdentity, sha256_of, weights_sha256
from tidybert.training.run_origin import RunOrigin, environment
from tidybert.training.run_room import require_room_for_run, trained_bytes
from tidybert.training.training_arguments import TrainingArguments


@dataclass(frozen=True)
class Callbacks(TrainingCallbacks):
    """The same functions, and one that gets the report on the data.

    rows: what the rows of examples are to a program, such as position; what the checks find, and a
        collapse, are then Python warnings at its line.  None notes them, as the shell does.
    """

    data: Callable[[DataReport], None] = lambda _report: None
    rows: str | None = None


@owning_run
@repeating
def finetune_examples(
    task: AnyTask,
    model: "str | Path | FinetunedModel",
    train: Sequence[Any],
    dev: Sequence[Any] | None,
    arguments: TrainingArguments,
    *,
    max_seq_length: int | None = None,
    vocab: str | Path | None = None,
    run: Path | None = None,
    resume: bool = False,
    new_head: bool = False,
    device: str = "auto",
    allow_pickle: bool = False,
    example_weights: Sequence[float] | None = None,
    keep_checkpoints: bool = False,
    force: bool = False,
    made_from: RunOrigin | None = None,
    probe: ProbeMemory | None = None,
    callbacks: Callbacks | None = None,
) -> FinetunedModel:
    """Train ``model`` on ``train``, keep the weights that do best on ``dev``, and save the RUN.

    Args:
        model: a MODEL, or one in memory.  A size (``mini``) has random weights and needs ``vocab``.
        dev: None trains without evaluations: the last weights are kept.
        max_seq_length: tokens an example is cut to; the task's default where not given.
        vocab: a MODEL whose vocabulary is used; only with a size.
        run: the directory to write; None keeps everything in memory.
        resume: go on from the last checkpoint in ``run``.
        new_head: reinitialise the head even if ``model`` has one for this task and these labels;
            without it that head is trained further.
        example_weights: one a training example, its share in the loss.
        keep_checkpoints: keep RUN/checkpoints when the run is finished.
        force: replace a RUN that is at ``run``, once training can begin.
        made_from: further entries of arguments.json.
        probe: what runs that differ in ``arguments`` alone share, so that they fit one probe.

    Raises UsageError, DataError, ModelNotFoundError, ConfigError, WeightsError, TrainingError, and
    TrainingInterrupted once a checkpoint is written.
    """
    callbacks, made_from = callbacks or Callbacks(), made_from or RunOrigin()
    if max_seq_length is None:
        max_seq_length = task.default_max_seq_length
    config, tokenizer, origin = model_sources(model, vocab)
    if arguments.early_stopping_patience is not None and not dev:
        raise _needs_dev("early_stopping_patience")
    arguments, config = _with_defaults(arguments, task, config, callbacks.tell)
    fitting_length(config, max_seq_length)
    # A new head's initial weights follow from the seed alone.
    with weights_drawn_with(arguments.seed):
        network, has_head = built_from(task, config, origin, new_head, allow_pickle, callbacks.tell)
    freeze(network, arguments.freeze_layers, arguments.freeze_embeddings)
    chosen = to_device(network, device)
    _require_room(run, network, arguments, len(train), has_dev=bool(dev))
    train_features = task.features(train, tokenizer, max_seq_length)
    dev_features = task.features(dev, tokenizer, max_seq_length) if dev else []
    data = TrainingData(train, dev, train_features, dev_features, max_seq_length)
    _check_data(data, task, callbacks)
    _weigh(data, example_weights)
    if not has_head:
        task.start(network, train_features)
    measure = _measured(data, as_trained(arguments.precision, chosen))
    identity = _identity(task, network, data, arguments)
    objective = FineTuning(
        network,
        train_features,
        task.loss,
        arguments,
        evaluate=(lambda each: measure(task, each).metrics()) if dev else None,
        metric=task.metric,
        note=callbacks.tell,
    )
    trainer = TrainingLoop(objective, run=run, identity=identity, callbacks=callbacks)
    given = {"task": task.name, "model": str(model), "max_seq_length": max_seq_length}
    given |= {**made_from.flags, **asdict(arguments)}
    record = _record(data, made_from, objective.settings.num_steps, chosen)
    if run is not None:
        if resume:
            trainer.resume()
        elif force:
            clear_run(run)
        write_arguments(run, {**given, RECORD: record})
    if not has_head and arguments.head_start != "random" and trainer.state.step == 0:
        start_with_probe(task, trainer, None if origin is None else probe)
    result, interrupted = _trained(trainer)
    answers = _calibrated(task, network, measure) if dev else None
    if answers is not None:
        task, result.metrics = answers.task, answers.metrics()
    collapsed = _collapse(answers, callbacks)
    about = collapsed, task.inputs_of(train), made_from, given, run, data.held_out
    finished = FinetunedModel(task, network, tokenizer, config, max_seq_length, result, *about)
    if interrupted is not None:
        raise interrupted.keeping(finished)
    if run is not None:
        record["seconds"] = round(trainer.state.progress["seconds"], 3)
        _finish(run, finished, {**given, RECORD: record}, data, answers)
        (remove_best if keep_checkpoints else remove_checkpoints)(run)
    return finished


def _finish(
    run: Path,
    finished: FinetunedModel,
    arguments: Mapping[str, Any],
    data: TrainingData[Any],
    answers: Answers[Any, Any] | None,
) -> None:
    """Write what a RUN tells of itself, and then the model, which makes it finished."""
    write_arguments(run, arguments)
    write_training_texts(run, text_hashes(map(finished.task.identity, data.train)))
    write_run_card(run, finished.task, arguments, answers, finished.inputs, finished.made_from.name)
    save(finished, run)


def _needs_dev(name: str) -> UsageError:
    return UsageError(f"{param(name)} needs examples to evaluate on: give {param('dev')}")


def _with_defaults(
    arguments: TrainingArguments, task: AnyTask, config: BertConfig, tell: Callable[[str], None]
) -> tuple[TrainingArguments, BertConfig]:
    """The arguments with the rate and the start that none names, and the encoder that pools so."""
    if arguments.learning_rate is None:
        arguments = arguments.for_width(config.hidden_size, of_tokens=not task.has_pooling)
        tell(
            f"learning rate {arguments.peak_rate:g} for an encoder of width {config.hidden_size}; "
            f"{param('learning_rate')} sets another"
        )
    config = _with_pooling(config, arguments.pooling, task)
    if arguments.dropout is not None:
        config = config.with_dropout(arguments.dropout)
    return with_head_start(arguments, task), config


def _with_pooling(config: BertConfig, pooling: str | None, task: AnyTask) -> BertConfig:
    """The configuration of an encoder that pools as asked for; UsageError where it has no use."""
    if task.has_pooling:
        return config if pooling is None else config.with_pooling(pooling)
    if pooling is not None:
        raise UsageError(
            f"{param('pooling', pooling)}: the head of {task.name} reads every token; leave it out"
        )
    return config.with_pooling("cls")


def _trained(
    trainer: TrainingLoop[FineTuning],
) -> tuple[TrainingResult, TrainingInterrupted | None]:
    """Train, and return the result; also what ended it early with a result worth keeping."""
    try:
        return trainer.train(), None
    except TrainingInterrupted as error:
        if not isinstance(error.kept, TrainingResult):
            raise
        return error.kept, error


def _calibrated(
    task: AnyTask,
    model: nn.Module,
    measure: Callable[[AnyTask, nn.Module], Answers[Any, Any]],
) -> Answers[Any, Any]:
    """The answers to dev of the task that is calibrated on them."""
    # Temperature and thresholds change what is measured, so it is measured once more.
    answers = measure(task, model)
    return task.calibrated(answers).answers(answers.outputs, answers.features, answers.examples)


def _weigh(data: TrainingData[Any], weights: Sequence[float] | None) -> None:
    """Multiply each training example's share in the loss by its weight, if there are any."""
    if weights is None:
        return
    if len(weights) != len(data.train):
        raise ValueError(f"{len(weights)} weights for {len(data.train)} examples")
    for one in data.train_features:
        one.weight *= float(weights[one.example])


def _record(
    data: TrainingData[Any], made_from: RunOrigin, num_steps: int, device: torch.device
) -> dict[str, Any]:
    """What arguments.json says of a run that begins, beside its arguments."""
    return {
        "files": dict(made_from.files),
        "num_train": len(data.train),
        "num_dev": len(data.held_out),
        "num_steps": num_steps,
        **environment(device),
    }


def _require_room(
    run: Path | None,
    network: nn.Module,
    arguments: TrainingArguments,
    num_examples: int,
    *,
    has_dev: bool,
) -> None:
    """Raise DiskError unless the disk has room for what the run, if any, writes at least.

    Long texts may have several windows, and then there are more steps than are counted here.
    """
    if run is None:
        return
    per_epoch = math.ceil(num_examples / arguments.train_batch_size)
    steps = math.ceil(per_epoch * arguments.num_train_epochs)
    steps = min(steps, arguments.max_steps or steps)
    # The words that occur in no example have no moments, and they may be nearly all.
    words = encoder_of(network).word_embeddings.weight
    require_room_for_run(
        run,
        network,
        moments=2 * (trained_bytes(network) - words.nbytes * words.requires_grad),
        save_total_limit=arguments.save_total_limit,
        num_saves=max(1, steps // (arguments.save_steps or max(1, per_epoch))),
        keeps_best=has_dev,
    )


def _check_data(data: TrainingData[Any], task: AnyTask, callbacks: Callbacks) -> None:
    """Check the data, say what was found, and label their features.  Raises DataError."""
    report = task.check(data)
    report.raise_on_errors()
    for line in report.lines(callbacks.spell, with_warnings=callbacks.rows is None):
        callbacks.tell(line)
    if callbacks.rows is not None:
        report.warn(callbacks.rows)
    callbacks.data(report)
    task.add_labels(data.train_features, data.train)
    task.add_labels(data.dev_features, data.held_out)


def _measured(
    data: TrainingData[Any], precision: str
) -> Callable[[AnyTask, nn.Module], Answers[Any, Any]]:
    """The function that has a model answer dev, in the precision that it will answer in later."""

    def measure(task: AnyTask, model: nn.Module) -> Answers[Any, Any]:
        outputs = run_features(task, model, data.dev_features, precision=precision)
        return task.answers(outputs, data.dev_features, data.held_out)

    return measure


def _collapse(answers: Answers[Any, Any] | None, callbacks: Callbacks) -> str | None:
    """What the answers to dev collapsed to, if they did; a program is warned."""
    collapsed = None if answers is None else collapsed_to(answers)
    if collapsed is not None and callbacks.rows is not None:
        warn_user(in_python(collapse_message(collapsed)), CollapseWarning)
    return collapsed


def _identity(
    task: AnyTask, model: nn.Module, data: TrainingData[Any], arguments: TrainingArguments
) -> RunIdentity:
    def pieces() -> Iterator[bytes]:
        for _, _, features in data.parts():
            yield f"{len(features)} examples".encode()
            for one in features:
                yield one.input_ids.tobytes()
                rest = (one.token_type_ids.tobytes(), one.lengths, one.label, one.weight)
                yield repr(rest).encode()

    return RunIdentity(
        settings={
            "task": task.name,
            "label_names": task.label_names,
            "max_seq_length": data.max_seq_length,
            **asdict(arguments),
        },
        contents={"data": sha256_of(pieces()), "weights": weights_sha256(model)},
        free=(*INTERVALS, "tokens_per_batch", "precision", "deterministic"),
        refusal=_refusal,
    )


def _refusal(name: str, _before: Any, _step: int) -> str:
    """Why a setting must not change on the way."""
    if name in ("max_steps", "num_train_epochs"):
        return "the learning rates of the steps so far follow from the number of all steps"
    return ""
