"""From labelled examples to a finished RUN on disk: once, with several seeds, or as a search."""

from tidybert.finetuning.collapse import collapse_message, collapsed_to
from tidybert.finetuning.entrance import evaluate, finetune
from tidybert.finetuning.few_labels import choose_way, recommend_few
from tidybert.finetuning.finetuned_model import FinetunedModel, save
from tidybert.finetuning.finetuning_run import Callbacks, finetune_examples
from tidybert.finetuning.first_weights import model_sources
from tidybert.finetuning.head_start import ProbeMemory
from tidybert.finetuning.trials import (
    Trials,
    check_search,
    run_trials,
    search_variants,
    seed_variants,
)
from tidybert.finetuning.trials_file import Trial, shared_settings
from tidybert.training.run_directory import clear_run, is_finished, is_resumed_in_vain, owned_run

__all__ = [
    "Callbacks",
    "FinetunedModel",
    "ProbeMemory",
    "Trial",
    "Trials",
    "check_search",
    "choose_way",
    "clear_run",
    "collapse_message",
    "collapsed_to",
    "evaluate",
    "finetune",
    "finetune_examples",
    "is_finished",
    "is_resumed_in_vain",
    "model_sources",
    "owned_run",
    "recommend_few",
    "run_trials",
    "save",
    "search_variants",
    "seed_variants",
    "shared_settings",
]
