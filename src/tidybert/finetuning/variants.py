"""The runs of a search or of several seeds: each a name, and the arguments that it changes."""

from collections.abc import Sequence
from typing import Any, Final

from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, param
from tidybert.training.argument_checks import check_seed
from tidybert.training.training_arguments import TrainingArguments

SEARCHED: Final = ("learning_rate", "train_batch_size", "num_train_epochs")
_BATCH_SIZES: Final = (32, 16)
_EPOCHS: Final = (3.0, 2.0, 4.0)
# Appendix A.3 of the paper, for base and large.
_RATES: Final = (5e-5, 3e-5, 2e-5)
# What the published miniatures were tuned over: small models want larger steps.
_RATES_OF_SMALL: Final = (3e-4, 1e-4, 5e-5, 3e-5)
_SMALL: Final = 50_000_000

Variants = Sequence[tuple[str, dict[str, Any]]]
"""Names, and the arguments that each changes."""


def seed_variants(arguments: TrainingArguments, count: int) -> Variants:
    """``count`` seeds from the arguments' own on.  Raises UsageError for a seed too high."""
    check_seed(arguments.seed + count - 1)
    seeds = range(arguments.seed, arguments.seed + count)
    return [(f"seed-{seed}", {"seed": seed}) for seed in seeds]


def search_variants(config: BertConfig) -> Variants:
    """The paper's grid (A.3), in order of importance: at three epochs, each learning rate.

    Below 50 M parameters the learning rates are those of the published miniatures.
    """
    rates = _RATES_OF_SMALL if config.num_parameters < _SMALL else _RATES
    return [
        (
            f"rate-{rate:g}-batch-{size}-epochs-{epochs:g}",
            {"learning_rate": rate, "train_batch_size": size, "num_train_epochs": epochs},
        )
        for epochs in _EPOCHS
        for size in _BATCH_SIZES
        for rate in rates
    ]


def check_search(arguments: TrainingArguments) -> None:
    """Raise UsageError where an argument is given that the search will set."""
    defaults = TrainingArguments()
    for name in SEARCHED:
        if getattr(arguments, name) != getattr(defaults, name):
            raise UsageError(
                f"{param(name)} is given, but {param('search')} sets it: leave out one of them"
            )
