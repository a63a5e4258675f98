"""The defaults of a fine-tuning: rate, epochs, batch size, start and pooling."""

from collections.abc import Callable
from dataclasses import replace

from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, param
from tidybert.finetuning.head_start import with_head_start
from tidybert.tasks.task import AnyTask
from tidybert.training.training_arguments import TrainingArguments


def with_defaults(
    arguments: TrainingArguments, task: AnyTask, config: BertConfig, tell: Callable[[str], None]
) -> tuple[TrainingArguments, BertConfig]:
    """The arguments with the rate, the epochs and the start, and the encoder that pools so."""
    arguments = replace(
        arguments, num_train_epochs=arguments.epochs, train_batch_size=arguments.batch_size
    )
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
    if task.pools_itself:
        return config.with_pooling("cls")
    if task.has_pooling:
        return config if pooling is None else config.with_pooling(pooling)
    if pooling is not None:
        raise UsageError(
            f"{param('pooling', pooling)}: the head of {task.name} reads every token; leave it out"
        )
    return config.with_pooling("cls")
