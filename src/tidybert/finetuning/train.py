"""From labelled examples to a trained model and a finished RUN: config, build, train, save."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from tidybert.catalog import PRETRAINED
from tidybert.checkpoints.example_kinds import TEXT, ExampleKind, name_of
from tidybert.checkpoints.model_card import write_card
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.configuration import BertConfig
from tidybert.data.checks import TrainingData
from tidybert.data.features import NO_EXAMPLE, Features
from tidybert.data.splits import text_hashes, write_training_texts
from tidybert.errors import CollapseWarning, UsageError, in_python, in_shell, param
from tidybert.files.rows import count_of
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.distillation import Supervision, learn_states, supervision_of
from tidybert.finetuning.finetuned_model import FinetunedModel, save, shown_metrics, write_weights
from tidybert.finetuning.finetuning_job import (
    FEWEST_TO_HOLD_OUT,
    FinetuningJob,
    FinetuningOptions,
)
from tidybert.finetuning.head_start import (
    ProbeMemory,
    built_from,
    keep_layers,
    model_sources,
    start_dense,
    start_with_probe,
    with_head_start,
)
from tidybert.finetuning.training_examples import (
    TrainingExamples,
    described_classes,
    examine_unlabelled,
)
from tidybert.inference.forward import as_trained, run_features
from tidybert.inference.loading import fitting_length, to_device
from tidybert.inference.zero_shot import class_texts, nameless, shortened
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.heads import ARCHITECTURES
from tidybert.options import changes_of, named, values_of
from tidybert.storage.model_files import RECORD
from tidybert.system.reporter import Reporter
from tidybert.system.terminal import warn_user
from tidybert.tasks.answers import Answers
from tidybert.tasks.task import AnyTask
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.tokenization import BertTokenizer
from tidybert.training.determinism import weights_drawn_with
from tidybert.training.fine_tuning import CALIBRATED, freeze
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.loop import TrainingLoop
from tidybert.training.precision import decided, go_on_as_begun
from tidybert.training.reports import TrainingResult
from tidybert.training.runs.provenance import environment
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


def with_defaults(
    arguments: TrainingArguments, task: AnyTask, config: BertConfig, reporter: Reporter
) -> tuple[TrainingArguments, BertConfig]:
    """The arguments with the rate, the epochs and the start, and the encoder that pools so."""
    epochs, batch_size, pooling = arguments.epochs, arguments.batch_size, arguments.pooling
    arguments = replace(arguments, num_train_epochs=epochs, train_batch_size=batch_size)
    if arguments.learning_rate is None:
        arguments = arguments.for_width(config.hidden_size, of_tokens=not task.has_pooling)
        reporter.tell(
            f"learning rate {arguments.peak_rate:g} for an encoder of width {config.hidden_size}; "
            f"{param('learning_rate')} sets another"
        )
    if task.pools_itself:
        pooling = "cls"
    elif not task.has_pooling:
        if pooling is not None:
            what = param("pooling", pooling)
            raise UsageError(f"{what}: the head of {task.name} reads every token; leave it out")
        pooling = "cls"
    config = config if pooling is None else config.with_pooling(pooling)
    if arguments.dropout is not None:
        config = config.with_dropout(arguments.dropout)
    return with_head_start(arguments, task), config


def identity_of(
    job: FinetuningJob,
    task: AnyTask,
    model: nn.Module,
    data: TrainingData[Any],
    supervision: Supervision,
    arguments: TrainingArguments,
) -> RunIdentity:
    """What a resumed run must share: settings; hashes of examples, first weights and teacher."""
    options = type(job.task_options)
    taken = {name for name in task.options_class.field_names() if name in options.field_names()}
    settings, contents = values_of(job.task_options, options), {}
    settings = {name: value for name, value in settings.items() if name in taken}
    if supervision.teacher:
        settings |= {name: getattr(job, name) for name in named(FinetuningOptions, needs="teacher")}
        contents = {"teacher": supervision.teacher["sha256"]}

    def pieces() -> Iterator[bytes]:
        parts = [data.train_features, data.dev_features]
        # A run without a teacher keeps the hash that older versions recorded.
        parts += [supervision.features[len(data.train_features) :]] if supervision.teacher else []
        for features in parts:
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
        kinds=changes_of(arguments, options),
        later=taken,
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
    before = go_on_as_begun(run, job.resume)
    config, tokenizer, pretrained = model_sources(
        job.model, job.vocab, allow_pickle=job.allow_pickle
    )
    # As other programs read it, whichever way the weights were trained before.
    tokenizer = tokenizer.reading(special_tokens_in_text=True)
    begun = pretrained if isinstance(pretrained, ModelDirectory) else None
    task = task.begun_from(begun, job.arguments.pooling)
    if isinstance(pretrained, FinetunedModel):
        task = task.following(pretrained.task)
    # What is said of the model comes after what is said of the data, which the user knows.
    of_model: list[str] = []
    later = replace(reporter, note=of_model.append)
    arguments, config = with_defaults(job.arguments, task, config, later)
    fitting_length(config, length)
    # A new head's initial weights follow from the seed alone.
    with weights_drawn_with(arguments.seed):
        # A head that learned to read the last layer would be no good start for an earlier one.
        new_head = job.new_head or job.num_layers is not None
        network, has_head = built_from(task, config, pretrained, new_head, later)
    if job.num_layers is not None:
        config = keep_layers(network, job.num_layers, later)
    freeze(network, arguments.freeze_layers, arguments.freeze_embeddings)
    device = to_device(network, job.device)
    _require_room(job, network, arguments, examples)
    data = TrainingData(
        examples.train,
        examples.held_out,
        task.features(examples.train, tokenizer, length),
        task.features(examples.held_out or [], tokenizer, length),
        length,
        tokenizer,
    )
    unlabelled = task.features(examples.unlabelled, tokenizer, length)
    report = task.check(data)
    examine_unlabelled(report, task, data, examples.unlabelled, unlabelled)
    report.raise_on_errors()
    for line in report.lines(reporter.spell, with_warnings=reporter.rows is None):
        reporter.tell(line)
    if reporter.rows is not None:
        report.warn(reporter.rows)
    reporter.data(report)
    for line in of_model:
        reporter.tell(line)
    task.add_labels(data.train_features, data.train)
    task.add_labels(data.dev_features, data.held_out)
    if (weights := job.example_weights) is not None:
        if len(weights) != len(data.train):
            raise ValueError(f"{len(weights)} weights for {len(data.train)} examples")
        for one in data.train_features:
            one.weight *= float(weights[one.example])
    for one in unlabelled:
        one.example += len(data.train)
    features = [*data.train_features, *unlabelled]
    supervision = supervision_of(job, examples, task, tokenizer, features, reporter)
    new_dense = None
    if supervision.space is not None and isinstance(task, SentenceVectors):
        with weights_drawn_with(arguments.seed):
            taught = task.taught(network, *supervision.space)
        new_dense = taught if taught.dense is not task.dense else None
        task = taught
    if not has_head:
        task.start(network, data.train_features)
    precision = decided(arguments.precision, device, config.hidden_size, reporter, before)
    computed = replace(arguments, precision=precision)
    # The precision that the model will answer in later.
    answering = as_trained(computed.precision, device, config.hidden_size)

    def measure(task: AnyTask, model: nn.Module) -> Answers[Any, Any]:
        outputs = run_features(task, model, data.dev_features, precision=answering)
        return task.answers(outputs, data.dev_features, data.held_out)

    identity = identity_of(job, task, network, data, supervision, arguments)
    # The answers to dev with the best weights, so that they are not computed again at the end.
    known: list[tuple[dict[str, Any], Answers[Any, Any]]] = []

    def evaluate(model: nn.Module) -> dict[str, Any]:
        known[:] = [one for one in known if one[0] is loop.state.best_metrics]
        answers = measure(task, model)
        found = answers.metrics()
        if "log_loss" in found and loop.state.best_step == 0:
            calibrated = task.calibrated(answers)
            again = calibrated.answers(answers.outputs, answers.features, answers.examples)
            found[CALIBRATED] = again.metrics()["log_loss"]
        known.append((found, answers))
        return found

    objective = task.objective(
        network,
        supervision.features,
        supervision.loss,
        computed,
        evaluate=evaluate if data.held_out else None,
        metric=task.metric,
        reporter=reporter,
    )
    trained = FinetunedModel(
        *(task, network, tokenizer, config, length, TrainingResult(0, 0, {}, 0.0, 0, 0)),
        inputs=name_of(task.inputs_of(examples.train)),
        provenance=examples.provenance,
    )
    loop = TrainingLoop(
        objective,
        run=run,
        identity=identity,
        reporter=reporter,
        as_model=partial(write_weights, trained),
        keep_every=job.keep_every,
    )
    given = {**job.recorded(), **asdict(arguments)}
    record = {
        "files": dict(examples.provenance.files),
        "read": dict(examples.provenance.read),
        "num_train": len(data.train),
        "num_dev": len(data.held_out),
        "num_steps": objective.settings.num_steps,
        **environment(device, job.model),
        "precision": computed.precision,
    }
    if drawn := task.drawn_counts([*data.train, *data.held_out]):
        record["drawn"] = drawn
    if supervision.teacher:
        record |= {"teacher": supervision.teacher, "num_unlabelled": len(examples.unlabelled)}
    if run is not None:
        if job.resume:
            loop.resume(change=job.change)
        elif job.force:
            clear_run(run)
        write_arguments(run, {**given, RECORD: record})
    if supervision.encoder is not None and loop.state.step == 0:
        learn_states(loop, supervision.encoder)
    if new_dense is not None and job.arguments.head_start != "random" and loop.state.step == 0:
        start_dense(new_dense, loop, answering)
    folds = None
    supervision = replace(supervision, encoder=None)  # whose memory is free from here on
    if not has_head and arguments.head_start != "random" and loop.state.step == 0:
        named = _named_features(job, task, examples.train, tokenizer, reporter)
        # A job of files has no other figures; a program that holds examples measures by itself.
        is_asked = not data.held_out and isinstance(job.task, str)
        few = data.train if is_asked and len(data.train) < FEWEST_TO_HOLD_OUT else ()
        shared = None if pretrained is None else probe
        folds = start_with_probe(task, loop, supervision.summed_loss, shared, named, few)
    interrupted = None
    try:
        # A head at random is no start to keep.
        result = loop.train(measures_start=has_head or arguments.head_start != "random")
    except TrainingInterrupted as error:
        if not isinstance(error.kept, TrainingResult):
            raise
        result, interrupted = error.kept, error
    answers = collapsed = None
    if data.held_out:
        best = next((answers for metrics, answers in known if metrics is result.metrics), None)
        best = best or measure(task, network)
        # Temperature and thresholds change what is measured.
        answers = task.calibrated(best).answers(best.outputs, best.features, best.examples)
        task, result.metrics, collapsed = answers.task, answers.metrics(), collapsed_to(answers)
        if collapsed is not None and reporter.rows is not None:
            warn_user(in_python(collapse_message(collapsed)), CollapseWarning)
    finished = replace(
        trained,
        task=task,
        result=result,
        collapsed=collapsed,
        arguments={**given, RECORD: record},
        run=run,
        held_out=data.held_out,
        folds=folds,
    )
    if interrupted is not None:
        raise interrupted.keeping(finished)
    if run is not None:
        record["stages"] = {name: round(each, 3) for name, each in result.stages.items()}
        record["seconds"] = round(sum(result.stages.values()), 3)
        if result.cross_validated:
            record["cross_validated"] = result.cross_validated
        write_arguments(run, finished.arguments)
        texts = map(task.identity, [*data.train, *examples.unlabelled])
        write_training_texts(run, text_hashes(texts))
        inputs, name = finished.metadata.inputs, examples.provenance.name
        write_run_card(
            *(run, task, finished.arguments, answers, inputs, length, name),
            in_transformers=config.model_type != "bert-mean",
        )
        save(finished, run)  # which makes it finished
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
    given = described_classes(job)
    is_asked = bool(given) if job.class_names is None else job.class_names
    if not is_asked or name_of(task.inputs_of(train)) != TEXT.name:
        return []
    if isinstance(job.task, str):
        # Of a job that reads its labels, what is left out has been told.
        given = {name: given[name] for name in given if name in task.names}
    texts = class_texts(task.names, given)
    if left_out := nameless(task.names):
        reporter.tell(f"names of classes that tell nothing apart: {shortened(left_out)}")
    examples = [TextExample(text, None, name, 0) for name in texts for text in texts[name]]
    features = task.features(examples, tokenizer, job.length)
    task.add_labels(features, examples)
    whole = [replace(one, example=NO_EXAMPLE) for one in features if not one.truncated]
    if features:
        cut = f"; {len(features) - len(whole):,} are too long" if len(whole) < len(features) else ""
        reporter.tell(
            f"{count_of(len(whole), 'text')} that name or describe classes are examples too{cut}"
        )
    return whole


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


def write_run_card(
    run: Path,
    task: AnyTask,
    arguments: Mapping[str, Any],
    answers: Answers[Any, Any] | None,
    inputs: ExampleKind | None,
    max_seq_length: int,
    name: str | None = None,
    *,
    in_transformers: bool = True,
) -> bool:
    """Write the card, README.md, unless the RUN has one of the user's; returns whether it did."""
    record = arguments[RECORD]
    metrics, intervals = ({}, {}) if answers is None else shown_metrics(answers)
    # What model hubs call the work of the task's model.
    head = ARCHITECTURES.get(task.architecture)
    is_encoder = task.architecture == "BertModel"
    tag = "sentence-similarity" if is_encoder else head and head.pipeline_tag
    unused = () if arguments.get("teacher") else named(FinetuningOptions, needs="teacher")
    data = record["files"].get("dev") or record["files"].get("train")
    return write_card(
        run,
        "run.md.j2",
        name=name or run.name,
        task=task,
        arguments=arguments,
        record=record,
        left_out=(RECORD, "task", "model", "train", "dev", *unused),
        data=data and Path(data["file"]).name,
        count=answers and len(answers.examples),
        metrics=metrics,
        intervals=intervals,
        tag=tag,
        tags=["tidybert", "bert"],
        library="transformers" if tag and in_transformers else None,
        package=PRETRAINED.get(str(arguments["model"])),
        teacher=record.get("teacher"),
        inputs=inputs,
        max_seq_length=max_seq_length,
        truncation=in_shell(task.truncation),
        temperature=task.settings().get("temperature", 1.0),
    )
