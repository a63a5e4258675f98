"""A short fine-tuning that any test here may change."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.tasks.classification import Classification
from tidybert.training.training_arguments import TrainingArguments

Examples = Callable[..., list[TextExample]]
Arguments = Callable[..., TrainingArguments]
NAMES = ("animal", "colour")


@pytest.fixture
def toy(tiny_model: Path, toy_examples: Examples, toy_arguments: Arguments) -> Callable[..., Any]:
    """Fine-tunes the tiny model for 16 steps, 4 an epoch; keywords change any of it."""

    def run_toy(**given: Any) -> FinetunedModel:
        names = TrainingArguments.__dataclass_fields__
        arguments = {name: given.pop(name) for name in list(given) if name in names}
        task = given.pop("task", None) or Classification(NAMES)
        model = given.pop("model", tiny_model)
        train = given.pop("train", None) or toy_examples(60)
        dev = given.pop("dev", toy_examples(20, seed=1))
        reporter = given.pop("reporter", None)
        given = {"max_seq_length": 16, "out": given.pop("run", None), **given}
        job = FinetuningJob(task, model, train, dev, toy_arguments(**arguments), **given)
        return run_finetuning(job, reporter)

    return run_toy
