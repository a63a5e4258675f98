"""curves.svg: every figure at its place, in a file that needs nothing else."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reporting.trees import checked, found, number, words

from tidybert.reporting.pretraining_curves import _amount, curves_picture, write_curves
from tidybert.reporting.training_history import TrainingHistory


def step(at: int, **figures: float) -> dict[str, float]:
    return {"step": at, "num_tokens": 1000 * at, "learning_rate": 1e-3, **figures}


def drawn(
    steps: Sequence[dict[str, float]], evaluations: Sequence[dict[str, float]] = ()
) -> ET.Element:
    return checked(curves_picture(TrainingHistory(list(steps), list(evaluations))).svg)


def lines(root: ET.Element, class_: str) -> list[list[tuple[float, ...]]]:
    return [
        [tuple(map(float, pair.split(","))) for pair in each.get("points", "").split()]
        for each in found(root, "polyline", **{"class": class_})
    ]


def dots(root: ET.Element) -> list[ET.Element]:
    """The circles with a title; the legend's has none."""
    return [each for each in found(root, "circle") if len(each)]


STEPS = [step(n, mlm_loss=8 - n / 100, nsp_loss=0.7 - n / 2000) for n in range(10, 501, 10)]
EVALUATIONS = [{"step": n, "mlm_loss": 8.5 - n / 100, "nsp_loss": 0.6} for n in (250, 500)]


def test_a_panel_for_each_part_and_one_for_the_rate() -> None:
    root = drawn(STEPS, EVALUATIONS)

    assert words(root, "panel") == ["masked words", "pairs of segments", "learning rate"]
    assert "Pre-training up to step 500, 500 k tokens" in words(root, "heading")
    assert words(drawn([step(1, mlm_loss=2)]), "panel") == ["masked words", "learning rate"]
    for said in ("training, as logged", "training, smoothed", "held-out text"):
        assert said in words(root)


def test_the_figures_it_ends_at_are_told() -> None:
    steps = [step(n, mlm_loss=4.0) for n in range(1, 101)]
    root = drawn(steps, [{"step": 50, "mlm_loss": 5.0}, {"step": 100, "mlm_loss": 4.5}])

    assert "training 4.000, held-out text 4.500" in words(root, "name")
    (described,) = found(root, "desc")
    assert described.text == (
        "masked words: training 4.000, held-out text 4.500; learning rate: 1e-3"
    )


def test_points_lie_at_their_steps_and_losses() -> None:
    root = drawn(STEPS, EVALUATIONS)
    (raw, *_), (smooth, *_) = lines(root, "line raw"), lines(root, "line")
    held_out = [(number(each, "cx"), number(each, "cy")) for each in dots(root)[:2]]

    # Both lines end at the right edge, where the last measurement is.
    assert raw[-1][0] == smooth[-1][0] == pytest.approx(held_out[1][0], abs=0.1)
    half = (held_out[0][0] - 52) / (held_out[1][0] - 52)
    assert half == pytest.approx(0.5, abs=1e-3)
    # SVG's y grows downwards: 0.5 more is 0.5/2.4 of what the loss falls from 5.4 to 3.
    at = dict(raw)
    places = sorted(at)
    unit = (at[places[-1]] - at[places[-25]]) / 2.4
    assert held_out[1][1] == pytest.approx(at[places[-1]] - 0.5 * unit, abs=0.2)


def test_tokens_stand_below_their_steps() -> None:
    root = drawn(STEPS, EVALUATIONS)
    places: dict[str, list[str]] = {}
    for each in found(root, "text", **{"text-anchor": "middle", "class": "tick"}):
        places.setdefault(each.get("x", ""), []).append(each.text or "")

    assert list(places.values()) == [
        ["0", "0"],
        *([f"{step}", f"{step} k"] for step in range(100, 501, 100)),
    ]
    assert "step, and tokens so far" in words(root)


def test_without_tokens_only_steps_are_named() -> None:
    root = drawn([{"step": 4, "mlm_loss": 2.0}])

    assert set(words(root, "name")) == {"training 2.000", "loss", "step"}
    assert not any(each.endswith(" k") for each in words(root))


def test_no_step_is_named_between_two() -> None:
    root = drawn([step(n, mlm_loss=2.0) for n in (1, 2, 3)])
    named = [each for each in words(root, "tick") if re.fullmatch(r"\d", each)]
    assert {"1", "2", "3"} <= set(named)
    assert not {"0.5", "1.5", "2.5"} & set(words(root, "tick"))


def test_a_loss_that_falls_at_once_leaves_room_for_the_rest_and_says_so() -> None:
    steps = [step(n, mlm_loss=40.0 if n == 10 else 3 - n / 1000) for n in range(10, 1001, 10)]
    root = drawn(steps)
    (raw,) = lines(root, "line raw")

    assert "training 2.010, up to 40.000 in the first steps" in words(root, "name")
    # It leaves the panel at its top, where the lines are cut.
    assert raw[0][1] < -1000
    assert max(y for _, y in raw) - min(y for _, y in raw[1:]) > 150
    (clip,) = found(root, "clipPath")
    assert found(root, "g", **{"clip-path": f"url(#{clip.get('id')})"})


def test_one_logged_step_is_a_dot() -> None:
    assert len(dots(drawn([step(7, mlm_loss=2.0)]))) == 1
    assert len(dots(drawn([], [{"step": 7, "mlm_loss": 2.0}]))) == 1


@pytest.mark.parametrize(("count", "radius"), [(49, "3.5"), (499, "2")])
def test_many_measurements_get_small_dots(count: int, radius: str) -> None:
    entries = [{"step": n, "mlm_loss": 2.0} for n in range(1, count + 1)]
    assert {each.get("r") for each in dots(drawn([], entries))} == {radius}


def test_the_file_of_a_long_run_is_small() -> None:
    steps = [step(n, mlm_loss=2 + n % 7, nsp_loss=n % 3) for n in range(10, 200_001, 10)]
    assert len(curves_picture(TrainingHistory(steps, [])).svg) < 100_000


finite = st.floats(-1e6, 1e6)


@given(
    losses=st.lists(finite, max_size=40),
    measured=st.dictionaries(st.integers(1, 60), finite, max_size=5),
    every=st.integers(1, 1000),
)
def test_whatever_was_logged_can_be_drawn(
    losses: list[float], measured: dict[int, float], every: int
) -> None:
    steps = [step(every * n, mlm_loss=loss) for n, loss in enumerate(losses, start=1)]
    evaluations = [{"step": n, "nsp_loss": loss} for n, loss in sorted(measured.items())]
    if steps or evaluations:
        root = drawn(steps, evaluations)
        assert len(words(root, "panel")) == 2 * bool(steps) + bool(evaluations)


def test_it_is_drawn_from_the_log_and_again(tmp_path: Path) -> None:
    assert write_curves(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    entries: list[dict[str, Any]] = [
        {"step": 10, "num_tokens": 81920, "loss": 10.4, "mlm_loss": 9.7, "nsp_loss": 0.7},
        {"step": 10, "eval_loss": 10.3, "eval_mlm_loss": 9.6, "eval_nsp_loss": 0.7},
    ]
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps(each) + "\n" for each in entries) + '{"step": 20, "lo')

    path = write_curves(tmp_path)

    assert path == tmp_path / "curves.svg"
    first = path.read_text(encoding="utf-8")
    assert "training 9.700, held-out text 9.600" in first
    assert "81.9 k" in first
    skipped = [{"step": step, "skipped": True} for step in (11, 12, 13, 17)]
    lines_of_log = [*skipped, {**entries[0], "step": 20}]
    log.write_text("".join(json.dumps(each) + "\n" for each in lines_of_log))
    write_curves(tmp_path)
    again = path.read_text(encoding="utf-8")
    assert "up to step 20" in again
    assert "after step 10: the data of steps 11 to 13 are passed over" in again
    assert "after step 16: the data of steps 17 to 17 are passed over" in again
    assert sorted(each.name for each in tmp_path.iterdir()) == ["curves.svg", "metrics.jsonl"]


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0"),
        (850, "850"),
        (16_384, "16.4 k"),
        (999_400, "999 k"),
        (999_950, "1 M"),
        (81_920_000, "81.9 M"),
        (3.2e9, "3.2 G"),
    ],
)
def test_amounts(count: float, shown: str) -> None:
    assert _amount(count) == shown


def test_names_of_probes_stand_one_above_the_other() -> None:
    measured = [{"step": n, "probe_a": 0.7 + n / 100, "probe_b": 0.7 + n / 99} for n in (1, 2)]
    named = [each for each in found(drawn(STEPS, measured), "text") if each.text in ("a", "b")]

    assert [each.text for each in named] == ["a", "b"]
    assert number(named[0], "y") - number(named[1], "y") == pytest.approx(12, abs=0.1)
