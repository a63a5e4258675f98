"""From labelled examples to a trained model and a finished RUN: config, build, train, save."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tidybert.checkpoints.example_kinds import TEXT, name_of
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.configuration import BertConfig
from tidybert.data.checks import TrainingData
from tidybert.data.features import Features
from tidybert.data.splits import text_hashes, write_training_texts
from tidybert.errors import CollapseWarning, UsageError, in_python, param
from tidybert.files.rows import count_of
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.distillation import Lessons, learn_states, lessons_of
from tidybert.finetuning.finetuned_model import FinetunedModel, save, write_weights
from tidybert.finetuning.finetuning_job import FinetuningJob, FinetuningOptions
from tidybert.finetuning.head_start import (
    ProbeMemory,
    built_from,
    keep_layers,
    model_sources,
    start_with_probe,
    with_head_start,
)
from tidybert.finetuning.run_card import write_run_card
from tidybert.finetuning.training_examples import TrainingExamples, examine_unlabelled
from tidybert.inference.forward import as_trained, run_features
from tidybert.inference.loading import fitting_length, to_device
from tidybert.inference.zero_shot import class_texts, nameless, read_descriptions, shortened
from tidybert.modeling.architectures import encoder_of
from tidybert.options import changes_of, named
from tidybert.storage.model_files import RECORD
from tidybert.system.reporter import Reporter
from tidybert.system.terminal import warn_user
from tidybert.tasks.answers import Answers
from tidybert.tasks.task import AnyTask
from tidybert.tokenization import BertTokenizer
from tidybert.training.determinism import weights_drawn_with
from tidybert.training.fine_tuning import FineTuning, freeze
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.loop import TrainingLoop
from tidybert.training.precision import decided
from tidybert.training.reports import TrainingResult
from tidybert.training.runs.run_checkpoints import (
    RunIdentity,
    remove_best,
    remove_checkpoints,
    sha256_of,
    weights_sha256,
)
from tidybert.training.runs.run_directory import (
    clear_run,
    require_room_for_run,
    trained_bytes,
    write_arguments,
)
from tidybert.training.runs.run_origin import RunOrigin, before_resuming, environment
from tidybert.training.training_arguments import TrainingArguments

# A model that gives every example the same answer: how it is found, and what to say.


def collapsed_to(answers: Answers[Any, Any]) -> str | None:
    """The one answer that the model gives to all examples although several are right, or None."""
    judgements = answers.judgements()
    first = next(judgements)
    is_one_right = True
    for one in judgements:
        if one.predicted != first.predicted:
            return None
        is_one_right &= one.expected == first.expected
    return None if is_one_right else first.predicted


def collapse_message(answer: str) -> str:
    """Say what happened and what to try, where ``collapsed_to`` found one answer to all."""
    return (
        f"the model collapsed: it gives every dev example the answer {answer!r:.80}; try another "
        f"{param('seed')}, a lower {param('learning_rate')}, or more {param('num_train_epochs')}"
    )


# The defaults of a fine-tuning: rate, epochs, batch size, start and pooling.


def with_defaults(
    arguments: TrainingArguments, task: AnyTask, config: BertConfig, reporter: Reporter
) -> tuple[TrainingArguments, BertConfig]:
    """The arguments with the rate, the epochs and the start, and the encoder that pools so."""
    arguments = replace(
        arguments, num_train_epochs=arguments.epochs, train_batch_size=arguments.batch_size
    )
    if arguments.learning_rate is None:
        arguments = arguments.for_width(config.hidden_size, of_tokens=not task.has_pooling)
        reporter.tell(
            f"learning rate {arguments.peak_rate:g} for an encoder of width {config.hidden_size}; "
            f"{param('learning_rate')} sets another"
        )
    config = _with_pooling(config, arguments.pooling, task)
    if arguments.dropout is not None:
        config = config.with_dropout(arguments.dropout)
    return with_head_start(arguments, task), config


def _with_pooling(config: BertConfig, pooling: str | None, task: AnyTask) -> BertConfig:
    """The configuration of an encoder that pools as asked for; UsageError where it has no use."""
    if task.pools_itself:
        return config.with_pooling("cls")
    if task.has_pooling:
        return config if pooling is None else config.with_pooling(pooling)
    if pooling is not None:
        raise UsageError(
            f"{param('pooling', pooling)}: the head of {task.name} reads every token; leave it out"
        )
    return config.with_pooling("cls")


# What a resumed fine-tuning must share with the run that wrote the checkpoint.


def identity_of(
    job: FinetuningJob,
    task: AnyTask,
    model: nn.Module,
    data: TrainingData[Any],
    lessons: Lessons,
    arguments: TrainingArguments,
) -> RunIdentity:
    """Settings, and hashes of the examples, the first weights and the teacher."""
    settings, contents = {}, {}
    if lessons.teacher:
        settings = {name: getattr(job, name) for name in named(FinetuningOptions, needs="teacher")}
        contents = {"teacher": lessons.teacher["sha256"]}

    def pieces() -> Iterator[bytes]:
        unlabelled = lessons.features[len(data.train_features) :]
        for features in (data.train_features, data.dev_features, unlabelled):
            # So a run without a teacher keeps the hash that older versions recorded.
            if features is unlabelled and not lessons.teacher:
                continue
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
            **settings,
            **asdict(arguments),
        },
        contents={"data": sha256_of(pieces()), "weights": weights_sha256(model), **contents},
        kinds=changes_of(arguments),
    )


def train(
    job: FinetuningJob,
    examples: TrainingExamples,
    reporter: Reporter,
    probe: ProbeMemory | None = None,
) -> FinetunedModel:
    """Train once, keep the weights that do best on the examples held out, and save the RUN, if any.

    Args:
        examples: those of the job, or some of them.
        probe: what runs that differ in their arguments alone share, so that they fit one probe.

    Raises UsageError, DataError, ModelNotFoundError, ConfigError, WeightsError, TrainingError, and
    TrainingInterrupted once a checkpoint is written.
    """
    task, run, length = examples.task, job.out, job.length
    config, tokenizer, origin = model_sources(job.model, job.vocab, allow_pickle=job.allow_pickle)
    begun = origin if isinstance(origin, ModelDirectory) else None
    task = task.begun_from(begun, job.arguments.pooling)
    arguments, config = with_defaults(job.arguments, task, config, reporter)
    fitting_length(config, length)
    # A new head's initial weights follow from the seed alone.
    with weights_drawn_with(arguments.seed):
        # A head that learned to read the last layer would be no good start for an earlier one.
        new_head = job.new_head or job.num_layers is not None
        network, has_head = built_from(task, config, origin, new_head, reporter)
    if job.num_layers is not None:
        config = keep_layers(network, job.num_layers, reporter)
    freeze(network, arguments.freeze_layers, arguments.freeze_embeddings)
    device = to_device(network, job.device)
    has_dev = bool(examples.held_out)
    _require_room(job, network, arguments, examples)
    data = TrainingData(
        examples.train,
        examples.held_out,
        task.features(examples.train, tokenizer, length),
        task.features(examples.held_out or [], tokenizer, length),
        length,
    )
    unlabelled = task.features(examples.unlabelled, tokenizer, length)
    _check_data(data, task, reporter, examples.unlabelled, unlabelled)
    _weigh(data, job.example_weights)
    for one in unlabelled:
        one.example += len(data.train)
    features = [*data.train_features, *unlabelled]
    lessons = lessons_of(job, examples, task, tokenizer, features, reporter)
    if not has_head:
        task.start(network, data.train_features)
    before = None if run is None else before_resuming(run, job.resume)
    computed = replace(
        arguments,
        precision=decided(arguments.precision, device, config.hidden_size, reporter, before),
    )
    measure = _measured(data, as_trained(computed.precision, device, config.hidden_size))
    identity = identity_of(job, task, network, data, lessons, arguments)
    # The answers to dev with the best weights, so that they are not computed again at the end.
    known: list[tuple[dict[str, Any], Answers[Any, Any]]] = []

    def evaluate(model: nn.Module) -> dict[str, Any]:
        known[:] = [one for one in known if one[0] is loop.state.best_metrics]
        answers = measure(task, model)
        known.append((answers.metrics(), answers))
        return known[-1][0]

    objective = task.objective(
        network,
        lessons.features,
        lessons.loss,
        computed,
        evaluate=evaluate if data.held_out else None,
        metric=task.metric,
        reporter=reporter,
    )
    trained = FinetunedModel(
        *(task, network, tokenizer, config, length, TrainingResult(0, 0, {}, 0.0, 0, 0)),
        inputs=name_of(task.inputs_of(examples.train)),
        made_from=examples.origin,
    )
    loop = _loop(job, objective, identity, reporter, trained)
    given = {**job.recorded(), **asdict(arguments)}
    record = _record(job, data, examples.origin, objective.settings.num_steps, device)
    record["precision"] = computed.precision
    if lessons.teacher:
        record |= {"teacher": lessons.teacher, "num_unlabelled": len(examples.unlabelled)}
    if run is not None:
        if job.resume:
            loop.resume(change=job.change)
        elif job.force:
            clear_run(run)
        write_arguments(run, {**given, RECORD: record})
    if lessons.encoder is not None and loop.state.step == 0:
        learn_states(loop, lessons.encoder)
    lessons = replace(lessons, encoder=None)  # whose memory is free from here on
    if not has_head and arguments.head_start != "random" and loop.state.step == 0:
        named = _named_features(job, task, examples.train, tokenizer, reporter)
        start_with_probe(task, loop, lessons.summed_loss, None if origin is None else probe, named)
    result, interrupted = _trained(loop)
    answers = None
    if has_dev:
        best = next((answers for metrics, answers in known if metrics is result.metrics), None)
        answers = _calibrated(task, best or measure(task, network))
        task, result.metrics = answers.task, answers.metrics()
    finished = replace(
        trained,
        task=task,
        result=result,
        collapsed=_collapse(answers, reporter),
        arguments={**given, RECORD: record},
        run=run,
        held_out=data.held_out,
    )
    if interrupted is not None:
        raise interrupted.keeping(finished)
    if run is not None:
        record["seconds"] = round(loop.state.progress["seconds"], 3)
        texts = [*data.train, *examples.unlabelled]
        _finish(run, finished, {**given, RECORD: record}, texts, answers)
        (remove_best if job.keep_checkpoints else remove_checkpoints)(run)
    return finished


def _named_features(
    job: FinetuningJob,
    task: AnyTask,
    train: Sequence[Any],
    tokenizer: BertTokenizer,
    reporter: Reporter,
) -> list[Features]:
    """Names and descriptions of the classes as further examples, if the job asks for them."""
    if not job.learns_names or name_of(task.inputs_of(train)) != TEXT.name:
        return []
    given = job.descriptions
    texts = class_texts(
        task.names, read_descriptions(given) if isinstance(given, str | Path) else given
    )
    if left_out := nameless(task.names):
        reporter.tell(f"names of classes that tell nothing apart: {shortened(left_out)}")
    examples = [TextExample(text, None, name, 0) for name in texts for text in texts[name]]
    features = task.features(examples, tokenizer, job.length)
    task.add_labels(features, examples)
    whole = [one for one in features if not one.truncated]
    if features:
        cut = f"; {len(features) - len(whole):,} are too long" if len(whole) < len(features) else ""
        reporter.tell(
            f"{count_of(len(whole), 'text')} that name or describe classes are examples too{cut}"
        )
    return whole


def _finish(
    run: Path,
    finished: FinetunedModel,
    arguments: Mapping[str, Any],
    texts: Sequence[Any],
    answers: Answers[Any, Any] | None,
) -> None:
    """Write what a RUN tells of itself, and then the model, which makes it finished."""
    write_arguments(run, arguments)
    write_training_texts(run, text_hashes(map(finished.task.identity, texts)))
    length, name = finished.max_seq_length, finished.made_from.name
    write_run_card(
        *(run, finished.task, arguments, answers, finished.metadata.inputs, length, name),
        in_transformers=finished.config.model_type != "bert-mean",
    )
    save(finished, run)


def _loop(
    job: FinetuningJob,
    objective: FineTuning,
    identity: RunIdentity,
    reporter: Reporter,
    trained: FinetunedModel,
) -> TrainingLoop[FineTuning]:
    """The loop, whose checkpoints are MODELs."""
    return TrainingLoop(
        objective,
        run=job.out,
        identity=identity,
        reporter=reporter,
        as_model=partial(write_weights, trained),
        keep_every=job.keep_every,
    )


def _trained(
    loop: TrainingLoop[FineTuning],
) -> tuple[TrainingResult, TrainingInterrupted | None]:
    """Train, and return the result; also what ended it early with a result worth keeping."""
    try:
        return loop.train(), None
    except TrainingInterrupted as error:
        if not isinstance(error.kept, TrainingResult):
            raise
        return error.kept, error


def _calibrated(task: AnyTask, answers: Answers[Any, Any]) -> Answers[Any, Any]:
    """The answers to dev of the task that is calibrated on them."""
    # Temperature and thresholds change what is measured.
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
    job: FinetuningJob,
    data: TrainingData[Any],
    made_from: RunOrigin,
    num_steps: int,
    device: torch.device,
) -> dict[str, Any]:
    """What arguments.json says of a run that begins, beside its arguments."""
    return {
        "files": dict(made_from.files),
        "read": dict(made_from.read),
        "num_train": len(data.train),
        "num_dev": len(data.held_out),
        "num_steps": num_steps,
        **environment(device, job.model),
    }


def _require_room(
    job: FinetuningJob,
    network: nn.Module,
    arguments: TrainingArguments,
    examples: TrainingExamples,
) -> None:
    """Raise DiskError unless the disk has room for what the run, if any, writes at least.

    Long texts may have several windows, and then there are more steps than are counted here.
    """
    if job.out is None:
        return
    num_examples = len(examples.train) + len(examples.unlabelled)
    per_epoch = math.ceil(num_examples / arguments.batch_size)
    steps = math.ceil(per_epoch * arguments.epochs)
    steps = min(steps, arguments.max_steps or steps)
    # The words that occur in no example have no moments, and they may be nearly all.
    words = encoder_of(network).word_embeddings.weight
    require_room_for_run(
        job.out,
        network,
        moments=2 * (trained_bytes(network) - words.nbytes * words.requires_grad),
        save_total_limit=arguments.save_total_limit,
        num_saves=max(1, steps // (arguments.save_steps or max(1, per_epoch))),
        keep_every=job.keep_every,
        keeps_best=bool(examples.held_out),
    )


def _check_data(
    data: TrainingData[Any],
    task: AnyTask,
    reporter: Reporter,
    unlabelled: Sequence[Any],
    features: Sequence[Features],
) -> None:
    """Check the data, say what was found, and label their features.  Raises DataError."""
    report = task.check(data)
    examine_unlabelled(report, task, data, unlabelled, features)
    report.raise_on_errors()
    for line in report.lines(reporter.spell, with_warnings=reporter.rows is None):
        reporter.tell(line)
    if reporter.rows is not None:
        report.warn(reporter.rows)
    reporter.data(report)
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


def _collapse(answers: Answers[Any, Any] | None, reporter: Reporter) -> str | None:
    """What the answers to dev collapsed to, if they did; a program is warned."""
    collapsed = None if answers is None else collapsed_to(answers)
    if collapsed is not None and reporter.rows is not None:
        warn_user(in_python(collapse_message(collapsed)), CollapseWarning)
    return collapsed
