"""Sides take turns, and their medians and ratios are of the same rounds."""

import pytest

from tidybert.timing.rounds import in_turn, step_times, summarize, take_rounds
from tidybert.timing.setting import SIDES


def test_the_sides_take_turns_in_going_first() -> None:
    order = [side for number in range(3) for side in in_turn(SIDES, number)]
    assert order == ["ours", "transformers", "transformers", "ours", "ours", "transformers"]


def test_medians_and_the_median_of_the_rounds_ratios() -> None:
    samples = {"ours": {"speed": [6.0, 8.0, 9.0]}, "transformers": {"speed": [3.0, 1.0, 9.0]}}

    assert summarize(samples) == {
        "samples": samples,
        "medians": {"ours": {"speed": 8.0}, "transformers": {"speed": 3.0}},
        "ratios": {"speed": 2.0},
    }


def test_one_side_has_no_ratio() -> None:
    assert summarize({"ours": {"speed": [4.0]}})["ratios"] == {}


def test_two_sides_of_any_name_have_a_ratio() -> None:
    samples = {"made": {"rate": [6.0]}, "used": {"rate": [2.0]}}

    assert summarize(samples)["ratios"] == {"rate": 3.0}


def test_every_side_is_measured_once_a_round() -> None:
    values = iter(range(4))
    notes: list[str] = []

    samples = take_rounds(
        SIDES, 2, lambda side: ({"place": next(values)}, f"of {side}"), notes.append
    )

    assert samples == {"ours": {"place": [0, 3]}, "transformers": {"place": [1, 2]}}
    assert notes[0] == "round 1 of 2: ours of ours"
    assert notes[-1] == "round 2 of 2: ours of ours"


def test_a_steps_time_ends_with_it() -> None:
    assert step_times([1.0, 1.5, 3.0]) == pytest.approx([0.5, 1.5])
