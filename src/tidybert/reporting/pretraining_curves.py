"""curves.svg: the course of pre-training, drawn from a RUN's metrics.jsonl.

Each part of the loss has a panel, and the learning rate has one. All panels have the same steps;
the lowest also shows the number of tokens.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from markupsafe import Markup

from tidybert.reporting.drawing import (
    Frame,
    Picture,
    around,
    element,
    exponent,
    moved,
    short,
    shown,
    straight,
    text,
    ticks,
)
from tidybert.reporting.training_history import (
    Points,
    TrainingHistory,
    course_of,
    extremes,
    read_training_history,
    smooth_course,
    thinned,
)
from tidybert.storage.model_files import CURVES_FILE
from tidybert.training.runs.provenance import changes_of_run, measured_text

Courses = list[tuple[str, Points]]

# The part of the objective that each loss measures.
_PARTS: Final = {
    "mlm_loss": "masked words",
    "lm_loss": "next tokens",
    "nsp_loss": "pairs of segments",
}
_RATE: Final = "learning_rate"
_PROBE: Final = "probe_"
_WIDTH: Final = 780.0
# Room beside the panels for half of the last number of steps; above and below them for the legend
# and the tokens.
_RIGHT, _HEAD, _FOOT = 42.0, 78.0, 18.0
_HEIGHT, _SMALL_HEIGHT = 270.0, 170.0
# A loss falls so far in its first steps that they would squeeze the rest.
_FIRST_SHARE: Final = 0.02
# The range in which two decimals tell the grid lines apart.
_NARROWEST: Final = 0.1
_MOST_LARGE_DOTS: Final = 50
# Between two names, one above the other.
_LINE: Final = 12.0
_UNITS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def write_curves(run: Path) -> Path | None:
    """Draw RUN/metrics.jsonl into RUN/curves.svg; None while the log is empty."""
    picture = run_picture(run)
    if picture is None:
        return None
    path = run / CURVES_FILE
    picture.save(path)
    return path


def run_picture(run: Path) -> Picture | None:
    """The picture of a RUN so far; None while its log is empty."""
    history = read_training_history(run, ("num_tokens", _RATE, *_PARTS))
    if history is None or not any(each["step"] for each in (*history.steps, *history.evaluations)):
        return None
    return curves_picture(history, measured_text(run), changes_of_run(run))


def curves_picture(
    history: TrainingHistory,
    measured_on: str = "held-out text",
    changes: Sequence[tuple[int, str]] = (),
) -> Picture:
    """The picture of all panels; ``changes`` are steps at which arguments changed, with words."""
    steps, evaluations = history.steps, history.evaluations
    passed = [
        (first - 1, f"the data of steps {first:,} to {end:,} are passed over")
        for first, end in history.skipped_ranges()
    ]
    last = max(each["step"] for each in (*steps, *evaluations))
    tokens = [(0.0, 0.0), *course_of(steps, "num_tokens")]
    panels = []
    for key, name in _PARTS.items():
        trained, whole = course_of(steps, key), course_of(evaluations, key)
        if trained or whole:
            apart = _courses(evaluations, f"{key}/")
            courses = [(measured_on, whole), *apart] if whole else apart
            panels.append(_panel(name, courses, last, trained=trained, named=apart))
    if probes := _courses(evaluations, _PROBE):
        panels.append(_panel("probes", probes, last, trained=[], named=probes, of_shares=True))
    if rates := course_of(steps, _RATE):
        # With a single logged step, the schedule may already be at 0.
        top = max(rate for _, rate in rates) * 1.08 or 1e-3
        frame = Frame((0, last), (0, top), _WIDTH, _SMALL_HEIGHT, right=_RIGHT)
        line = frame.line(thinned(rates), "line rate")
        panels.append(_Panel(frame, "learning rate", exponent(rates[-1][1]), "", exponent, [line]))
    kind = "Training" if any("lm_loss" in each for each in steps) else "Pre-training"
    title = f"{kind} up to step {last:,.0f}"
    if tokens[-1][1]:
        title += f", {_amount(tokens[-1][1])} tokens"
    drawn, y = [text(title, 52, 26, "heading"), _legend(measured_on)], _HEAD
    for panel in panels:
        # An upright line at each step at which arguments changed, with words under the pointer.
        marks = [
            element(
                "<g><title>{}</title>{}</g>",
                f"after step {step:,}: {words}",
                panel.frame.upright(step, *panel.frame.y, "ideal"),
            )
            for step, words in (*changes, *passed)
            if step <= last
        ]
        drawn.append(moved(0, y, _grid(panel, panel is panels[-1], tokens), *marks, *panel.drawn))
        y += panel.frame.height
    figures = "; ".join(f"{panel.name}: {panel.figures}" for panel in panels)
    return Picture("curves", title, figures, _WIDTH, y + _FOOT, drawn)


@dataclass(frozen=True)
class _Panel:
    """A frame with its name, its last figures, and its drawings."""

    frame: Frame
    name: str
    figures: str
    y_name: str
    y_text: Callable[[float], str]
    drawn: list[Markup]


def _courses(evaluations: Sequence[Mapping[str, float]], prefix: str) -> Courses:
    """What was measured under names that begin with ``prefix``, by the rest of the name."""
    names = {name for each in evaluations for name in each if name.startswith(prefix)}
    return [(name.removeprefix(prefix), course_of(evaluations, name)) for name in sorted(names)]


def _panel(
    name: str,
    courses: Courses,
    last: float,
    *,
    trained: Points,
    named: Courses,
    of_shares: bool = False,
) -> _Panel:
    """Losses or shares: the training's line, and dots for each course, which may be named."""
    later = [y for x, y in trained if x > _FIRST_SHARE * last] or [y for _, y in trained]
    values = [y for _, course in courses for _, y in course]
    low, high = around(values + later)
    missing = max(0.0, _NARROWEST - (high - low)) / 2
    top = min(high + missing, 1.0 if of_shares and high <= 1 else math.inf)
    height = _SMALL_HEIGHT if of_shares else _HEIGHT
    frame = Frame((0, last), (low - missing, top), _WIDTH, height, right=_RIGHT)
    short_form, long_form = (".1%", ".1%") if of_shares else (".3f", ".4f")
    figures = [f"{said} {course[-1][1]:{short_form}}" for said, course in courses]
    lines = [frame.line(course, "line held-out") for _, course in courses]
    if trained:
        smooth = smooth_course(trained)
        lines = [frame.line(extremes(trained), "line raw"), frame.line(thinned(smooth)), *lines]
        figures.insert(0, f"training {smooth[-1][1]:.3f}")
    highest = max([*values, *(y for _, y in trained)])
    if highest > top:
        figures.append(f"up to {highest:.3f} in the first steps")
    radius = 3.5 if len(courses[0][1] if courses else ()) <= _MOST_LARGE_DOTS else 2.0
    drawn = [frame.within(f"within-{name.replace(' ', '-')}", lines)]
    for said, course in courses:
        for x, y in course:
            hover = f"{said}, step {x:,}: {y:{long_form}}"
            drawn.append(frame.dot(x, y, hover, radius, "dot measured"))
    if len(trained) == 1:
        # A line needs two points.
        drawn.append(frame.dot(*trained[0], f"training, step {last:,}"))
    # A name stands beside the end of its line, and not on another name.
    lowest = math.inf
    for said, course in sorted(named, key=lambda one: one[1][-1][1]):
        x, y = course[-1]
        lowest = min(frame.at_y(y) - 6, lowest - _LINE)
        drawn.append(text(said, frame.at_x(x) - 6, lowest, "tick", "end"))
    y_name = "accuracy" if of_shares else "loss"
    return _Panel(frame, name, ", ".join(figures), y_name, shown, drawn)


def _grid(panel: _Panel, is_lowest: bool, tokens: Points) -> Markup:
    """The panel's heading and axes; the lowest panel names the steps and the tokens up to each."""
    frame = panel.frame
    whole = [step for step in ticks(*frame.x) if abs(step - round(step)) < 1e-9]
    drawn = [
        element(
            '<text x="{}" y="{}"><tspan class="panel">{}</tspan>'
            '<tspan class="name" dx="10">{}</tspan></text>',
            *(frame.left, frame.top - 8, panel.name, panel.figures),
        ),
        frame.axes(
            y_name=panel.y_name,
            y_text=panel.y_text,
            x_text=short if is_lowest else None,
            x_ticks=whole,
            upright=True,
        ),
    ]
    if is_lowest:
        base = frame.height - frame.bottom
        if len(tokens) > 1:
            places, numbers = np.array(tokens).T
            so_far = np.interp(whole, places, numbers, right=math.nan)
            for step, number in zip(whole, so_far.tolist(), strict=True):
                words = "" if math.isnan(number) else _amount(number)
                drawn.append(text(words, frame.at_x(step), base + 32, "tick", "middle"))
        name = "step, and tokens so far" if tokens[-1][1] else "step"
        drawn.append(text(name, frame.at_x(frame.x[1] / 2), base + 52, "name", "middle"))
    return Markup().join(drawn)


def _amount(number: float) -> str:
    """A count in three digits: 850, 16.4 k, 1.02 M.

    >>> _amount(16_384), _amount(999_950), _amount(0)
    ('16.4 k', '1 M', '0')
    """
    for size, unit in _UNITS:
        # A number that three digits round up to the unit takes that unit.
        if number >= 0.9995 * size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def _legend(measured_on: str) -> Markup:
    samples = [
        ("line raw", "training, as logged", 52),
        ("line", "training, smoothed", 214),
        ("line held-out", measured_on, 380),
    ]
    drawn = []
    for class_, words, x in samples:
        drawn += [straight(class_, x, 45, x + 26, 45), text(words, x + 33, 49)]
    dot = Markup('<circle cx="393" cy="45" r="3.5" class="dot measured"/>')
    return Markup().join([*drawn, dot])
