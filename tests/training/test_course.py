"""What a resumed run must share: every difference is named, with both values."""

import pytest

from tidybert.errors import TrainingError, in_shell
from tidybert.training.runs.run_identity import RunIdentity

BEFORE = RunIdentity(
    {"learning_rate": 0.001, "label_names": ("a", "b"), "save_steps": 10, "seed": 1, "freeze": 2},
    {"data": "d1", "weights": "w1"},
).to_dict()


def refused(contents: dict[str, str], **settings: object) -> str:
    now = RunIdentity({**BEFORE["settings"], **settings}, {**BEFORE["contents"], **contents})
    with pytest.raises(TrainingError) as caught:
        now.changes(BEFORE, 5, "step-5")
    return in_shell(caught.value.message)


def test_each_setting_is_named_with_both_values() -> None:
    message = refused({"data": "d2"}, learning_rate=0.002, freeze=None)

    head, *lines = message.splitlines()
    assert head.endswith("repeat those to continue, or give a new --out:")
    assert lines == [
        "  --learning-rate: 0.001 before, 0.002 now",
        "  --freeze: 2 before, not given now",
        "  the examples as the model reads them: not the same as before",
    ]


def test_weights_that_follow_from_the_seed_are_not_named_beside_it() -> None:
    assert "weights" in refused({"weights": "w2"})
    assert "weights" not in refused({"weights": "w2"}, seed=2)


def test_what_may_change_is_returned() -> None:
    now = RunIdentity(
        {**BEFORE["settings"], "save_steps": 20}, BEFORE["contents"], free=("save_steps",)
    )

    assert now.changes(BEFORE, 5, "step-5") == {"save_steps": [10, 20]}
    assert now.changes(now.to_dict(), 5, "step-5") == {}


def test_a_refusal_gives_its_reason_and_knows_the_step() -> None:
    def refusal(name: str, before: object, step: int) -> str | None:
        return f"not after {step} steps with {before}" if step > 3 else None

    now = RunIdentity({**BEFORE["settings"], "seed": 2}, BEFORE["contents"], refusal=refusal)

    assert now.changes(BEFORE, 3, "step-3") == {"seed": [1, 2]}
    with pytest.raises(TrainingError, match="seed: 1 before, 2 now: not after 4 steps with 1"):
        now.changes(BEFORE, 4, "step-4")
