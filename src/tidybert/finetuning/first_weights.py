"""The weights that fine-tuning begins with: a MODEL's, its head where it fits, or random ones."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import nn

from tidybert.catalog import is_size
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.configuration import BertConfig
from tidybert.errors import ConfigError, UsageError, WeightsError, param
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.inference.loading import read_finished
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.heads import reorder_labels
from tidybert.tasks.task import AnyTask, Task
from tidybert.tokenization import BertTokenizer


def model_sources(
    model: str | Path | FinetunedModel, vocab: str | Path | None
) -> tuple[BertConfig, BertTokenizer, ModelDirectory | FinetunedModel | None]:
    """Configuration, tokenizer, and what has the weights (None for random ones).

    Raises UsageError for a size without a vocabulary, and the reverse.
    """
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
    directory = ModelDirectory.open(model)
    directory.require_bert()
    return directory.config, directory.tokenizer, directory


def built_from(
    task: AnyTask,
    config: BertConfig,
    origin: ModelDirectory | FinetunedModel | None,
    new_head: bool,
    allow_pickle: bool,
    note: Callable[[str], None],
) -> tuple[nn.Module, bool]:
    """The task's model with a MODEL's weights or, from a size, with random ones.

    Also returns whether it has a head that is trained further.
    """
    if origin is None:
        note(f"random weights, {config.num_parameters / 1e6:.1f} M parameters")
        return task.build_model(config), False
    # A head that learned to read another state would be no good start.
    new_head |= config.model_type != origin.config.model_type
    labels = None if new_head else _labels_of_head(origin, task, note)
    if isinstance(origin, FinetunedModel):
        network = task.build_model(config)
        has_head = labels is not None
        taken, given = (network, origin.model) if has_head else _encoders(network, origin.model)
        taken.load_state_dict(given.state_dict())
    else:
        network, report = origin.build(
            task.build_model, config=config, new_head=labels is None, allow_pickle=allow_pickle
        )
        note(report.summary())
        has_head = labels is not None and not report.new
    if has_head and labels:
        reorder_labels(network, [labels.index(name) for name in task.label_names or ()])
    return network, has_head


def _encoders(*models: nn.Module) -> tuple[nn.Module, ...]:
    return tuple(encoder_of(each) for each in models)


def _labels_of_head(
    origin: ModelDirectory | FinetunedModel, task: AnyTask, note: Callable[[str], None]
) -> tuple[str, ...] | None:
    """The labels, in their order, of a head that was trained for this task and its labels.

    () where the task has no labels, None where MODEL has no head that fits.  Notes what it found.
    """
    try:
        found = origin.task if isinstance(origin, FinetunedModel) else read_finished(origin)
    except (ConfigError, WeightsError):
        # A head without a name cannot be trained further; the encoder's files are checked later.
        return None
    if (found.name if isinstance(found, Task) else found.task) != task.name:
        return None
    names, needed = found.label_names or (), task.label_names or ()
    if len(names) != len(needed) or set(names) != set(needed):
        shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        note(f"{origin}: its head has other labels ({shown}), so a new one is initialised")
        return None
    note(
        f"{origin}: its head is trained further because the task is the same; {param('new_head')} "
        "initialises a new one"
    )
    return tuple(names)


def keep_layers(network: nn.Module, count: int, note: Callable[[str], None]) -> BertConfig:
    """Keep this many of the encoder's layers, evenly spread, the lowest first; in place.

    Returns the configuration that the network then has.  Raises UsageError for a number that is not
    1 to all of its layers.
    """
    encoder = encoder_of(network)
    of = len(encoder.layers)
    if not 1 <= count <= of:
        raise UsageError(
            f"{param('num_layers')} is {count}, but the model has {of} layers: give 1 to {of}"
        )
    kept = [number * of // count for number in range(count)]
    encoder.encoder.layers = nn.ModuleList([encoder.layers[number] for number in kept])
    config = replace(encoder.config, num_hidden_layers=count)
    encoder.config = config
    network.config = config  # type: ignore[assignment]
    note(f"begins with {count} of {of} layers: {', '.join(map(str, kept))}")
    return config
