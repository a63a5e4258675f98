"""What a resumed run must share: every difference is named, with both values."""

from dataclasses import fields

import pytest

from tidybert.errors import TrainingError, in_shell
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.options import MODEL, NOTHING, ORDER, STEPS, changes_of, declared
from tidybert.pretraining.batches.instance_options import (
    InstanceOptions,
    MaskingOptions,
    NextTokenOptions,
)
from tidybert.pretraining.pretraining_arguments import LanguageModelArguments, PretrainingArguments
from tidybert.training.runs.run_checkpoints import RunIdentity
from tidybert.training.training_arguments import TrainingArguments

BEFORE = RunIdentity(
    {"learning_rate": 0.001, "label_names": ("a", "b"), "save_steps": 10, "seed": 1, "freeze": 2},
    {"data": "d1", "weights": "w1"},
).to_dict()
KINDS = {"learning_rate": STEPS, "save_steps": NOTHING, "seed": STEPS | ORDER}


def of(contents: dict[str, str], **settings: object) -> RunIdentity:
    return RunIdentity(
        {**BEFORE["settings"], **settings}, {**BEFORE["contents"], **contents}, KINDS
    )


def refused(contents: dict[str, str], *, allowed: bool = False, **settings: object) -> list[str]:
    with pytest.raises(TrainingError) as caught:
        of(contents, **settings).changes(BEFORE, "step-5", allowed=allowed)
    return in_shell(caught.value.message).splitlines()


def test_what_no_run_can_change_is_named_with_both_values() -> None:
    head, *lines = refused({"data": "d2"}, allowed=True, learning_rate=0.002, freeze=None)

    assert head.endswith("repeat them to continue, or give a new --out:")
    assert lines == [
        "  --freeze: 2 before, not given now",
        "  the examples as the model reads them: not the same as before",
    ]


def test_what_changes_the_steps_is_named_with_the_flag_that_allows_it() -> None:
    head, line = refused({}, learning_rate=0.002, save_steps=20)

    assert "--change changes them from here on" in head
    assert line == "  --learning-rate: 0.001 before, 0.002 now"
    now = of({}, learning_rate=0.002, save_steps=20)
    expected = {"learning_rate": [0.001, 0.002], "save_steps": [10, 20]}
    assert now.changes(BEFORE, "step-5", allowed=True) == expected
    assert now.changes(now.to_dict(), "step-5") == {}


def test_what_earlier_versions_did_not_record_is_as_now() -> None:
    later = {"doc_stride": 32, "seed": 1}
    now = RunIdentity({**BEFORE["settings"], **later}, BEFORE["contents"], KINDS, tuple(later))

    assert now.changes(BEFORE, "step-5") == {}
    again = RunIdentity({**now.settings, "doc_stride": 64}, now.contents, KINDS, tuple(later))
    with pytest.raises(TrainingError, match="doc_stride: 32 before, 64 now"):
        again.changes(now.to_dict(), "step-5")


def test_what_changes_no_step_may_always_change() -> None:
    assert of({}, save_steps=20).changes(BEFORE, "step-5") == {"save_steps": [10, 20]}


def test_weights_that_follow_from_the_seed_are_not_named_beside_it() -> None:
    assert "weights" in refused({"weights": "w2"})[-1]
    assert of({"weights": "w2"}, seed=2).changes(BEFORE, "step-5", allowed=True) == {"seed": [1, 2]}


def test_a_setting_of_an_earlier_version_may_do_what_is_done_now() -> None:
    now = RunIdentity(
        {name: each for name, each in BEFORE["settings"].items() if name != "freeze"},
        BEFORE["contents"],
        was_so=lambda name, value: (name, value) == ("freeze", 2),
    )

    assert now.changes(BEFORE, "step-5") == {}


@pytest.mark.parametrize(
    "group",
    [
        PretrainingArguments, LanguageModelArguments, TrainingArguments, InstanceOptions,
        NextTokenOptions, MaskingOptions,
    ],
)  # fmt: skip
def test_every_argument_says_what_another_value_changes(group: type) -> None:
    assert all(declared(each).changes is not None for each in fields(group))


def test_sizes_and_heads_cannot_change_and_intervals_always_may() -> None:
    kinds = changes_of(PretrainingArguments, InstanceOptions, TrainingArguments)

    assert {kinds[name] for name in ("objective", "optimizer", "pooling")} == {MODEL}
    assert {kinds[name] for name in ("save_steps", "micro_batch", "sharding")} == {NOTHING}
    assert changes_of(FinetuningJob)["model"] is MODEL
