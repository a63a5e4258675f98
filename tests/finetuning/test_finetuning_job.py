"""FinetuningJob: what contradicts itself is refused by name, and what arguments.json has of it."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.commands.training import Finetune
from tidybert.errors import UsageError
from tidybert.files.reading import ReadOptions
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.options import named
from tidybert.tasks.classification import Classification
from tidybert.tasks.registry import task_flags
from tidybert.training.training_arguments import TrainingArguments

RUN = {"out": Path("run")}


def a_job(task: Any = "classify", **given: Any) -> FinetuningJob:
    names = {each.name for each in fields(TrainingArguments)}
    arguments = TrainingArguments(**{name: given.pop(name) for name in names & given.keys()})
    return FinetuningJob(task, "minilm", "a.csv", given.pop("dev", None), arguments, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dev_fraction": 1.0}, "^dev_fraction is 1.0; expected a fraction from 0 to below 1"),
        ({"dev_fraction": -0.1}, "^dev_fraction is -0.1"),
        ({"seeds": 0}, "^seeds is 0; expected a number from 1 to 1,000"),
        ({"seeds": 1001}, "^seeds is 1001"),
        ({"max_seq_length": "12"}, "^max_seq_length is '12'; expected a whole number"),
        ({"search": True, "seeds": 2}, "^give search and seeds one after the other"),
        ({"time_limit": 3.0}, "^time_limit needs search"),
        ({"time_limit": 0.0, "search": True}, "^time_limit is 0.0; expected a number above 0"),
        ({"task": "tag", "corrections": "c.csv"}, "^corrections is for classify, not for tag yet"),
        ({"search": True, "learning_rate": 0.1, **RUN}, "^learning_rate is given, but search sets"),
        ({"search": True, "train_batch_size": 8, **RUN}, "^train_batch_size is given, but search"),
        ({"seeds": 2}, "^seeds trains several models: give out, a directory for them"),
        ({"search": True}, "^search trains several models: give out"),
        ({"seed": 2**64 - 2, "seeds": 3, **RUN}, "^seed is 18446744073709551616; expected a whole"),
        ({"early_stopping_patience": 2, "dev_fraction": 0}, "needs examples to evaluate on: give"),
        ({"early_stopping_patience": 2, "task": Classification("ab")}, "^early_stopping_patience"),
        ({"task": "clasify"}, "expected one of classify, .* did you mean 'classify'"),
    ],
)
def test_what_contradicts_itself_is_refused_when_the_job_is_made(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        a_job(**given)


def test_what_goes_together_is_taken() -> None:
    last = a_job(seed=2**64 - 2, seeds=2, **RUN)
    assert last.has_trials
    assert a_job(search=True, time_limit=0.5, seed=3, **RUN).has_trials
    assert not a_job(early_stopping_patience=2, dev="b.csv").has_trials


def test_a_tenth_of_a_thousand_examples_is_held_out_unless_the_job_says_otherwise() -> None:
    def share(count: int, **given: Any) -> float:
        return a_job(**given).share_held_out(count)

    assert (share(999), share(1000)) == (0, 0.1)
    assert share(1000, dev_fraction=0) == share(1000, dev="b.csv") == 0
    assert share(5, dev_fraction=0.4) == 0.4
    assert share(1000, task=Classification("ab")) == 0
    measured = [{"seeds": 2, **RUN}, {"search": True, **RUN}, {"eval_steps": 5}]
    measured.append({"early_stopping_patience": 2})
    assert [share(20, **given) for given in measured] == [0.1] * 4
    assert (a_job().length, a_job("answer").length, a_job(max_seq_length=9).length) == (128, 384, 9)


def test_arguments_json_has_the_flags_by_name() -> None:
    given = a_job(corrections=Path("c.csv"), vocab=Path("v"), learning_rate=0.1, **RUN)
    recorded = given.recorded()
    begun = {"read", "options", "arguments", *named(Finetune, recorded=False)}
    groups = (Finetune, ReadOptions, TrainingArguments, task_flags())
    # A task has some of all options.
    of_task = {each.name for each in fields(task_flags())}
    expected = {each.name for group in groups for each in fields(group)} - begun - of_task
    assert recorded.keys() - of_task == expected | {"task", "model"}
    assert (recorded["train"], recorded["dev"], recorded["corrections"]) == ("a.csv", None, "c.csv")
    assert (recorded["vocab"], recorded["max_seq_length"]) == ("v", None)
    assert (recorded["learning_rate"], recorded["threads"]) == (0.1, None)
    in_memory = a_job(Classification("ab"), dev=[], learning_rate=0.1).recorded()
    arguments = {each.name for each in fields(TrainingArguments)}
    assert in_memory.keys() == {"task", "model", "max_seq_length"} | arguments
    assert (in_memory["task"], in_memory["max_seq_length"]) == ("classify", 128)
