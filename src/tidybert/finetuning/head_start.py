"""The first weights of a new head: a linear probe of the encoder, fitted before any training.

A head drawn at random spends its first epoch learning what a regression finds in seconds, and
disturbs the encoder meanwhile.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.catalog import is_size
from tidybert.checkpoints.activations import IDENTITY
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_form import DENSE
from tidybert.configuration import BertConfig
from tidybert.configuration.relatives import ModernBertConfig
from tidybert.data.batching import Batch
from tidybert.data.features import NO_EXAMPLE, Features
from tidybert.data.splits import folds_of
from tidybert.errors import ConfigError, UsageError, WeightsError, param
from tidybert.files.rows import count_of
from tidybert.files.text_examples import plain_form
from tidybert.finetuning.finetuned_model import FinetunedModel, shown_metrics
from tidybert.inference.forward import run_batches, run_features
from tidybert.inference.loading import read_finished
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.heads import reorder_labels
from tidybert.system.reporter import Reporter
from tidybert.tasks.answers import Answers
from tidybert.tasks.classification import likeliest
from tidybert.tasks.task import AnyTask, Task
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.tokenization import BertTokenizer
from tidybert.training.fine_tuning import FineTuning
from tidybert.training.linear_probe import (
    PENALTIES,
    LinearProbe,
    ProbeLoss,
    fit_probe,
    outputs_without,
)
from tidybert.training.loop import TrainingLoop
from tidybert.training.reports import StepReport
from tidybert.training.training_arguments import HeadStart, TrainingArguments

# Contrastive training: the encoder learns which texts share a class, before a head is fitted.
#
# The method is SetFit's (Tunstall et al. 2022, section 3): the loss of two texts is the squared
# difference between the cosine of their states and 1 for one class, 0 for two.  SetFit draws pairs
# and encodes both texts of each.  Here a group of texts is encoded once, and each of its pairs
# counts.  G texts of a group, H width.

GROUP: Final = 16
"""Texts of a group."""
_MOST_CLASSES: Final = 8
"""Classes of a group, so that each has two texts at least."""
_GROUPS_A_STEP: Final = 2
_PASSES: Final = 4
"""How often a text is in a group, on average, between the limits that follow."""
_FEWEST_GROUPS: Final = 80
_MOST_GROUPS: Final = 320
_PENALTIES_AFTER: Final = PENALTIES[:3]
"""The penalties of a probe after contrastive training, 10 to 0.46.  The encoder has already seen
the texts of the folds, so these would choose smaller ones that do not suit new texts."""


def train_by_contrast(
    task: AnyTask, trainer: TrainingLoop[FineTuning], named: Sequence[Features] = ()
) -> None:
    """Train the encoder of a classification on groups of its training texts, and note how it went.

    The rate and the rest are the trainer's arguments, and so the seed decides the groups.  A pooler
    begins as one that passes [CLS] through.  ``named`` are further texts.
    """
    begin = time.perf_counter()
    model, arguments = trainer.objective.model, trainer.objective.arguments
    with trainer.whole_model(), trainer.stage("contrast") as each:
        pooler = encoder_of(model).pooler
        if pooler is not None:
            pooler.pass_through()
        labelled = [one for one in trainer.objective.features if one.label is not None]
        groups = draw_groups([*labelled, *named], arguments.seed)
        arguments = replace(
            arguments, num_train_epochs=1.0, max_steps=None, train_batch_size=_GROUPS_A_STEP
        )
        stage = FineTuning(model, groups, _Contrast(task), arguments)
        losses = trained_before(stage, trainer, "contrastive training", each)
    trainer.reporter.tell(
        f"the encoder learned which texts share a class, from {len(groups)} groups of up to "
        f"{GROUP}: {losses}; {time.perf_counter() - begin:.1f} s"
    )


def trained_before(
    objective: FineTuning, trainer: TrainingLoop[FineTuning], name: str, losses: list[float]
) -> str:
    """Train an objective whose steps come before the trainer's, and return how its loss fell.

    ``losses`` get that of each step.
    """

    def step(done: StepReport) -> None:
        losses.append(done.loss)
        trainer.reporter.stage(f"{name}, loss {done.loss:.4f}", done.step, done.num_steps)

    trainer.reporter.stage(name, 0, objective.settings.num_steps)
    TrainingLoop(objective, reporter=Reporter(step=step)).train()
    return f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last"


def draw_groups(features: Sequence[Features], seed: int) -> list[Features]:
    """Groups of texts, each of several classes with about equally many texts.

    A group is one Features of many sequences, and its label has the class of each.
    """
    by_class: dict[int, list[int]] = {}
    for number, one in enumerate(features):
        by_class.setdefault(likeliest(one.label), []).append(number)
    members = list(by_class.values())
    num_classes = min(len(members), _MOST_CLASSES)
    wanted = math.ceil(_PASSES * len(features) / GROUP)
    random = np.random.default_rng(seed)
    groups = []
    for _ in range(min(max(wanted, _FEWEST_GROUPS), _MOST_GROUPS)):
        chosen = random.permutation(len(members))[:num_classes]
        drawn = [random.permutation(members[each])[: GROUP // num_classes] for each in chosen]
        groups.append(_group([features[number] for number in np.concatenate(drawn).tolist()]))
    return groups


def _group(texts: Sequence[Features]) -> Features:
    return Features(
        np.concatenate([one.input_ids for one in texts]),
        np.concatenate([one.token_type_ids for one in texts]),
        sum(one.num_tokens for one in texts),
        lengths=tuple(len(one.input_ids) for one in texts),
        label=[one.label for one in texts],
    )


class _Contrast:
    """The loss of a batch of groups: the sum of theirs."""

    def __init__(self, task: AnyTask) -> None:
        self.task = task

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        states = self.task.head_inputs(model, batch).float()
        begin, total = 0, states.new_zeros(())
        for one in batch.features:
            end = begin + len(one.label)
            total = total + group_loss(states[begin:end], one.label)
            begin = end
        return total


def group_loss(states: Tensor, classes: Sequence[int] | Sequence[tuple[float, ...]]) -> Tensor:
    """The mean loss of the pairs of one class plus that of the pairs of two; a scalar.

    Where classes have probabilities, a pair counts for both by the chance that its class is one.
    """
    directions = functional.normalize(states, dim=1)
    first, second = torch.triu_indices(len(classes), len(classes), 1, device=states.device)
    of = torch.tensor(classes, device=states.device)
    alike = (of @ of.T)[first, second] if of.ndim > 1 else (of[first] == of[second]).float()
    cosines = (directions @ directions.T)[first, second]
    total = states.new_zeros(())
    for share, target in ((alike, 1.0), (1 - alike, 0.0)):
        # A group of one class has no pairs of two.
        total = total + ((cosines - target).square() * share).sum() / share.sum().clamp_min(1)
    return total


MOST_FEATURES: Final = 32_768
"""Texts, questions, sentences or windows that a probe is fitted to."""
MOST_ROWS: Final = 131_072
"""Rows of their states: 192 MiB at a width of 384, and twice that while the penalty is chosen."""


@dataclass
class ProbeMemory:
    """The probe of one encoder and its training data, for several runs on both.

    Not for an encoder of random weights: these follow from the seed, and a probe of them with it.
    """

    probe: LinearProbe | None = None


def with_head_start(arguments: TrainingArguments, task: AnyTask) -> TrainingArguments:
    """The arguments with the task's default where they name no start."""
    if arguments.head_start == "contrastive" and task.name != "classify":
        raise UsageError(
            f"{param('head_start', 'contrastive')} is for classify, not for {task.name}; leave "
            f"{param('head_start')} out"
        )
    if arguments.head_start == "probe" and task.head is None:
        raise UsageError(
            f"{param('head_start', 'probe')}: the head of {task.name} can only begin at random; "
            f"leave {param('head_start')} out"
        )
    default: HeadStart = "random" if task.head is None else "probe"
    return replace(arguments, head_start=arguments.head_start or default)


def start_with_probe(
    task: AnyTask,
    trainer: TrainingLoop[FineTuning],
    summed_loss: ProbeLoss,
    memory: ProbeMemory | None,
    named: Sequence[Features] = (),
    unmeasured: Sequence[Any] = (),
) -> Answers[Any, Any] | None:
    """Set the head to a probe of the encoder, and note how good it is and how long it took.

    Contrastive training comes before it where the arguments ask for it.  Both learn from what is
    ``named`` too.  Returns what a probe of the encoder, as it was before, answers to the
    ``unmeasured`` examples of its features, in folds; the trainer's state gets its scores.

    A pooler, which is between the encoder and the head, begins as one that passes [CLS] through.
    Where the probe is not better than chance, head and pooler stay as they are, unless no step
    follows: then a probe is the best there is.
    """
    folds = None
    is_trained_before = trainer.objective.arguments.head_start == "contrastive"
    if is_trained_before:
        if unmeasured:
            _, folds = _fitted(task, trainer, summed_loss, named, unmeasured, PENALTIES)
        train_by_contrast(task, trainer, named)
        memory, unmeasured = None, ()
    begin = time.perf_counter()
    model, memory = trainer.objective.model, memory or ProbeMemory()
    pooler = encoder_of(model).pooler
    before = None if pooler is None else {k: v.clone() for k, v in pooler.state_dict().items()}
    if pooler is not None:
        pooler.pass_through()
    if memory.probe is None:
        penalties = _PENALTIES_AFTER if is_trained_before else PENALTIES
        memory.probe, found = _fitted(task, trainer, summed_loss, named, unmeasured, penalties)
        folds = folds or found
    probe = memory.probe
    losses = f"mean loss {probe.loss:.3f} on held-out examples, {probe.chance:.3f} by chance"
    if is_trained_before:
        losses += "; the encoder has learned from these too, so new texts lose more"
    features, chosen = _read_by(task, trainer.objective, named)
    if len(chosen) < len(features):
        losses += f"; fitted to {count_of(len(chosen), 'example')} of {len(features):,}"
    is_trained_after = trainer.objective.settings.num_steps > 0
    if probe.beats_chance or (probe.is_finite and not is_trained_after):
        note = f"the new head begins as a probe of the encoder: {losses}"
        if not probe.beats_chance:
            note = f"the new head is a probe of the encoder, but no better than chance: {losses}"
        share = task.probe_share if is_trained_after else 1.0
        with trainer.whole_model(), torch.no_grad():
            head = model.get_submodule(task.head or "")
            head.get_parameter("weight").copy_(share * probe.weight)
            head.get_parameter("bias").copy_(share * probe.bias)
    else:
        note = f"the new head begins at random: a probe of the encoder does not help: {losses}"
        if pooler is not None and before is not None:
            pooler.load_state_dict(before)
    trainer.reporter.tell(f"{note}; {time.perf_counter() - begin:.1f} s")
    return folds


def _read_by(
    task: AnyTask, objective: FineTuning, named: Sequence[Features]
) -> tuple[Sequence[Features], list[int]]:
    """The features that a probe learns from, the named ones last, and the numbers of a sample.

    It has at most MOST_FEATURES, with at most MOST_ROWS rows; the seed changes nothing.
    """
    counts = np.array([task.num_head_rows(one) for one in objective.features])
    order = np.random.default_rng(0).permutation(len(objective.features))[:MOST_FEATURES]
    fitting = order[np.cumsum(counts[order]) <= max(MOST_ROWS, counts[order[0]])]
    chosen = sorted(number for number in fitting.tolist() if counts[number])
    if objective.frozen_states is not None:
        # Names have no states that are kept.
        return objective.features, chosen
    count = len(objective.features)
    return [*objective.features, *named], [*chosen, *range(count, count + len(named))]


def _fitted(
    task: AnyTask,
    trainer: TrainingLoop[FineTuning],
    summed_loss: ProbeLoss,
    named: Sequence[Features],
    unmeasured: Sequence[Any],
    penalties: Sequence[float],
) -> tuple[LinearProbe, Answers[Any, Any] | None]:
    """A probe of the encoder as it is, and its answers to ``unmeasured``, in folds."""
    objective, telling = trainer.objective, trainer.reporter.of_stage
    model = objective.model.eval()
    pooler = encoder_of(model).pooler
    if pooler is not None:
        pooler.pass_through()
    num_outputs = len(model.get_submodule(task.head or "").get_parameter("bias"))
    features, chosen = _read_by(task, objective, named)
    some = [features[number] for number in chosen]
    with trainer.whole_model(), trainer.stage("probe"):
        reading = telling("probe: the encoder's states", len(some))
        states = _states(task, objective, features, chosen, reading)
        advance = telling("probe: a linear layer", len(penalties)).advance
        probe = fit_probe(states, some, num_outputs, summed_loss, advance, penalties)
        found, num_folds = None, 0
        if unmeasured:
            found, num_folds = _cross_validated(
                task, unmeasured, objective.features, some, lambda folds: outputs_without(
                    folds, states, some, num_outputs, summed_loss, probe.penalty
                ),
            )  # fmt: skip
        if unmeasured and found is None:
            trainer.reporter.tell(
                "not cross-validated: the examples are nearly the same, so there are no two folds"
            )
        if found is not None:
            metrics, intervals = shown_metrics(found)
            trainer.state.cross_validated = {
                "of": "a probe",
                "folds": num_folds,
                "num_examples": len(found.examples),
                "metrics": metrics,
                "intervals": {
                    name: asdict(intervals[name]) for name in intervals if name in metrics
                },
            }
    return probe, found


FOLDS: Final = 5
# Texts that a Dense is fitted to, and how many of them its first weight stands for.
_MOST_FITTED: Final = 4096
_PENALTY: Final = 10.0


def _cross_validated(
    task: AnyTask,
    examples: Sequence[Any],
    features: Sequence[Features],
    some: Sequence[Features],
    outputs_without: Callable[[npt.NDArray[np.int64]], Sequence[npt.NDArray[np.float32]]],
) -> tuple[Answers[Any, Any] | None, int]:
    """What a probe answers to examples of folds that it was not fitted to, and how many there are.

    With fewer than two folds it returns None.  Each fit also learns from the features of
    NO_EXAMPLE, and from examples of which ``some`` lacks a part; these get no answer.
    """
    parts = Counter(one.example for one in features)
    parts.subtract(one.example for one in some)
    whole = [number for number in range(len(examples)) if parts[number] == 0]
    held_out = [examples[number] for number in whole]
    fold_of = np.empty(0, dtype=np.int64)
    if held_out:
        same = [task.identity(one) for one in held_out]
        fold_of = folds_of(same, task.strata(held_out, FOLDS), FOLDS)
    if (num_folds := len(np.unique(fold_of))) < 2:
        return None, 0
    place_of = {number: place for place, number in enumerate(whole)}
    places = [place_of.get(one.example, NO_EXAMPLE) for one in some]
    found = outputs_without(np.where(np.array(places) < 0, NO_EXAMPLE, fold_of[places]))
    own = [replace(one, example=at) for one, at in zip(some, places, strict=True)]
    rows = [task.as_outputs(*each) for each in zip(found, own, strict=True) if each[1].example >= 0]
    return task.answers(rows, [one for one in own if one.example >= 0], held_out), num_folds


def _states(
    task: AnyTask,
    objective: FineTuning,
    features: Sequence[Features],
    chosen: Sequence[int],
    reporter: Reporter,
) -> list[npt.NDArray[np.float32]]:
    """The rows (r, H) that the head reads of each chosen one of the features."""
    number_of = {id(features[number]): number for number in chosen}
    model, frozen_states = objective.model, objective.frozen_states
    on_cpu = objective.device.type == "cpu"

    def read(batch: Batch) -> Tensor:
        if frozen_states is not None:
            numbers = [number_of[id(one)] for one in batch.features]
            batch = frozen_states.attach(batch, np.array(numbers))
        return task.head_inputs(model, batch)

    return run_batches(
        read,
        [features[number] for number in chosen],
        [task.num_head_rows(features[number]) for number in chosen],
        objective.device,
        reporter=reporter,
        precision="bfloat16" if on_cpu and objective.is_mixed else "float32",
    )


def start_dense(task: SentenceVectors, trainer: TrainingLoop[FineTuning], precision: str) -> None:
    """Fit a student's last Dense to its teacher's vectors of some texts, and note how near it is.

    It is a ridge regression from the encoder's vectors as they are.  What it shrinks to is the
    Dense's first weight times the number that fits best, so few texts change little.
    """
    objective = trainer.objective
    model, features = objective.model.eval(), objective.features
    order = np.random.default_rng(0).permutation(len(features))[:_MOST_FITTED]
    some = [features[number] for number in sorted(order)]
    with trainer.whole_model(), trainer.stage("dense"), torch.no_grad():
        dense = model.get_submodule(DENSE)
        assert isinstance(dense, nn.Sequential)
        model.add_module(DENSE, dense[:-1])
        telling = trainer.reporter.of_stage("dense: the encoder's vectors", len(some))
        found = run_features(task, model, some, reporter=telling, precision=precision)
        model.add_module(DENSE, dense)
        linear = dense[-1].get_submodule("linear")
        weight, bias = linear.get_parameter("weight"), linear.get_parameter("bias")
        vectors = np.concatenate(found).astype(np.float64)
        wanted = np.concatenate([one.taught for one in some]).astype(np.float64)
        mean, middle = vectors.mean(0), wanted.mean(0)
        inputs, outputs = vectors - mean, wanted - middle
        first = weight.cpu().double().numpy()
        given = inputs @ first.T
        first = first * ((given * outputs).sum() / max(np.square(given).sum(), 1e-12))
        products = inputs.T @ inputs
        penalty = _PENALTY * np.trace(products) / products.size**0.5 / len(inputs) + 1e-12
        products[np.diag_indices_from(products)] += penalty
        first += np.linalg.solve(products, inputs.T @ (outputs - inputs @ first.T)).T
        weight.copy_(torch.from_numpy(first))
        bias.copy_(torch.from_numpy(middle - first @ mean))
        apart = np.square(inputs @ first.T - outputs).sum(1).mean()
    trainer.reporter.tell(
        f"the Dense begins as a fit to the teacher's vectors of {count_of(len(some), 'text')}: "
        f"squared distance {apart:.4f}"
    )


# The weights that fine-tuning begins with: a MODEL's, its head where it fits, or random ones.


def model_sources(
    model: str | Path | FinetunedModel, vocab: str | Path | None, *, allow_pickle: bool = False
) -> tuple[BertConfig, BertTokenizer, ModelDirectory | FinetunedModel | None]:
    """Configuration, tokenizer, and what has the weights (None for random ones)."""
    if isinstance(model, FinetunedModel):
        return model.config, model.tokenizer, model
    if is_size(model):
        if vocab is None:
            raise UsageError(
                f"{model} is a size with random weights and has no vocabulary: name one with "
                f"{param('vocab')} MODEL"
            )
        tokenizer = BertTokenizer.from_pretrained(vocab)
        return BertConfig.from_name(str(model), vocab_size=tokenizer.vocab_size), tokenizer, None
    if vocab is not None:
        raise UsageError(
            f"{param('vocab')} goes with a size (mini, …); {model} has a vocabulary of its own"
        )
    directory = ModelDirectory.open(model, allow_pickle=allow_pickle)
    directory.require_bert()
    return directory.config, directory.tokenizer, directory


def built_from(
    task: AnyTask,
    config: BertConfig,
    pretrained: ModelDirectory | FinetunedModel | None,
    new_head: bool,
    reporter: Reporter,
) -> tuple[nn.Module, bool]:
    """The task's model with a MODEL's weights or, from a size, with random ones.

    Also returns whether it has a head that is trained further.
    """
    if pretrained is None:
        reporter.tell(f"random weights, {config.num_parameters / 1e6:.1f} M parameters")
        return task.build_model(config), False
    # A head that learned to read another state would be no good start.
    new_head |= config.model_type != pretrained.config.model_type
    labels = None if new_head else _labels_of_head(pretrained, task, reporter)
    if isinstance(pretrained, FinetunedModel):
        network = task.build_model(config)
        task.attach(network)
        has_head = labels is not None
        given = pretrained.model
        taken, given = (network, given) if has_head else (encoder_of(network), encoder_of(given))
        # Encoders differ in a pooler, and in the Dense modules that vectors alone go through.
        loaded = taken.load_state_dict(given.state_dict(), strict=has_head)
        if loaded.missing_keys:
            reporter.tell(f"new: {', '.join(loaded.missing_keys)}")
    else:
        network, report = pretrained.build(task.build_model, config=config, new_head=labels is None)
        task.attach(network)
        reporter.tell(report.summary())
        has_head = labels is not None and not report.new
    if has_head and labels:
        reorder_labels(network, [labels.index(name) for name in task.label_names or ()])
    return network, has_head


def _labels_of_head(
    pretrained: ModelDirectory | FinetunedModel, task: AnyTask, reporter: Reporter
) -> tuple[str, ...] | None:
    """The labels, in their order, of a head that was trained for this task and its labels.

    () where the task has no labels, None where MODEL has no head that fits.  Notes what it found.
    """
    try:
        found = (
            pretrained.task if isinstance(pretrained, FinetunedModel) else read_finished(pretrained)
        )
    except (ConfigError, WeightsError):
        # A head without a name cannot be trained further; the encoder's files are checked later.
        return None
    if (found.name if isinstance(found, Task) else found.task) != task.name:
        return None
    settings = found.settings() if isinstance(found, Task) else found.settings
    if settings.get("activation", IDENTITY) != IDENTITY:
        reporter.tell(
            f"{pretrained}: its scores pass through {settings['activation']}, so a new head is "
            "initialised"
        )
        return None
    needed = task.label_names or ()
    # Files are read with 1 for the 1.0 that an earlier version took as it was written.
    spelt = {plain_form(one) or one: one for one in needed}
    names = [spelt.get(plain_form(one) or one, one) for one in found.label_names or ()]
    if len(names) != len(needed) or set(names) != set(needed):
        shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        reporter.tell(
            f"{pretrained}: its head has other labels ({shown}), so a new one is initialised"
        )
        return None
    reporter.tell(
        f"{pretrained}: its head is trained further because the task is the same; "
        f"{param('new_head')} initialises a new one"
    )
    return tuple(names)


def keep_layers(network: nn.Module, count: int, reporter: Reporter) -> BertConfig:
    """Keep this many of the encoder's layers, evenly spread, the lowest first; in place."""
    encoder = encoder_of(network)
    of = len(encoder.layers)
    if not 1 <= count <= of:
        raise UsageError(
            f"{param('num_layers')} is {count}, but the model has {of} layers: give 1 to {of}"
        )
    if count < of and isinstance(encoder.config, ModernBertConfig):
        raise UsageError(
            f"{param('num_layers', count)}: the layers of a modernbert see all tokens and windows "
            "in turn, so none can be left out; leave it out"
        )
    kept = [number * of // count for number in range(count)]
    encoder.encoder.layers = nn.ModuleList([encoder.layers[number] for number in kept])
    config = replace(encoder.config, num_hidden_layers=count)
    encoder.config = config
    network.config = config  # type: ignore[assignment]
    reporter.tell(f"begins with {count} of {of} layers: {', '.join(map(str, kept))}")
    return config
