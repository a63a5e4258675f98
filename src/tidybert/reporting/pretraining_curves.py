"""curves.svg: the course of pre-training, drawn from a RUN's metrics.jsonl.

Each part of the loss has a panel, and the learning rate has one. All panels have the same steps;
the lowest also shows the number of tokens.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Final

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
from tidybert.training.runs.run_origin import changes_of_run, measured_text

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
_PART_HEIGHT, _RATE_HEIGHT = 270.0, 170.0
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
    if history is None:
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
        trained, measured = course_of(steps, key), course_of(evaluations, key)
        if trained or measured:
            apart = {
                name_of: course_of(evaluations, f"{key}/{name_of}")
                for name_of in _corpora(evaluations, key)
            }
            panels.append(_part(name, trained, measured, last, measured_on, apart))
    probes = sorted({name for each in evaluations for name in each if name.startswith(_PROBE)})
    if probes:
        panels.append(_probes({name: course_of(evaluations, name) for name in probes}, last))
    if rates := course_of(steps, _RATE):
        panels.append(_learning_rate(rates, last))
    kind = "Training" if any("lm_loss" in each for each in steps) else "Pre-training"
    title = f"{kind} up to step {last:,.0f}"
    if tokens[-1][1]:
        title += f", {_amount(tokens[-1][1])} tokens"
    drawn, top = [text(title, 52, 26, "heading"), _legend(measured_on)], _HEAD
    for panel in panels:
        marks = _marks(panel.frame, [each for each in (*changes, *passed) if each[0] <= last])
        grid = _grid(panel, panel is panels[-1], tokens)
        drawn.append(moved(0, top, grid, *marks, *panel.drawn))
        top += panel.frame.height
    figures = "; ".join(f"{panel.name}: {panel.figures}" for panel in panels)
    return Picture("curves", title, figures, _WIDTH, top + _FOOT, drawn)


@dataclass(frozen=True)
class _Panel:
    """A frame with its name, its last figures, and its drawings."""

    frame: Frame
    name: str
    figures: str
    y_name: str
    y_text: Callable[[float], str]
    drawn: list[Markup]


def _marks(frame: Frame, changes: Sequence[tuple[int, str]]) -> list[Markup]:
    """An upright line at each step at which arguments changed, with words under the pointer."""
    return [
        element(
            "<g><title>{}</title>{}</g>",
            f"after step {step:,}: {words}",
            frame.upright(step, *frame.y, "ideal"),
        )
        for step, words in changes
    ]


def _probes(courses: Mapping[str, Points], last: float) -> _Panel:
    """The accuracy of each probe."""
    low, high = around([value for course in courses.values() for _, value in course])
    missing = max(0.0, _NARROWEST - (high - low)) / 2
    range_ = (low - missing, min(1.0, high + missing))
    frame = Frame((0, last), range_, _WIDTH, _RATE_HEIGHT, right=_RIGHT)
    drawn, figures = [], []
    for name, course in courses.items():
        shown_name = name.removeprefix(_PROBE)
        drawn.append(frame.line(course, "line held-out"))
        drawn += [
            frame.dot(x, y, f"{shown_name}, step {x:,}: {y:.1%}", 3.5, "dot measured")
            for x, y in course
        ]
        x, y = course[-1]
        drawn.append(text(shown_name, frame.at_x(x) - 6, frame.at_y(y) - 8, "tick", "end"))
        figures.append(f"{shown_name} {y:.1%}")
    return _Panel(frame, "probes", ", ".join(figures), "accuracy", shown, drawn)


def _corpora(evaluations: Sequence[Mapping[str, float]], key: str) -> list[str]:
    """The corpora that a loss was measured on apart."""
    named = {name.removeprefix(f"{key}/") for each in evaluations for name in each if "/" in name}
    return sorted(name for name in named if any(f"{key}/{name}" in each for each in evaluations))


def _part(
    name: str,
    trained: Points,
    measured: Points,
    last: float,
    measured_on: str,
    apart: Mapping[str, Points],
) -> _Panel:
    later = [value for step, value in trained if step > _FIRST_SHARE * last]
    courses = [measured, *apart.values()]
    values = [value for course in courses for _, value in course]
    low, high = around(values + (later or [y for _, y in trained]))
    missing = max(0.0, _NARROWEST - (high - low)) / 2
    frame = Frame((0, last), (low - missing, high + missing), _WIDTH, _PART_HEIGHT, right=_RIGHT)
    figures, lines = [], []
    if trained:
        smooth = smooth_course(trained)
        lines = [frame.line(extremes(trained), "line raw"), frame.line(thinned(smooth))]
        figures.append(f"training {smooth[-1][1]:.3f}")
    if measured:
        lines.append(frame.line(measured, "line held-out"))
        figures.append(f"{measured_on} {measured[-1][1]:.3f}")
    for corpus, course in apart.items():
        lines.append(frame.line(course, "line held-out"))
        figures.append(f"{corpus} {course[-1][1]:.3f}")
    highest = max([*values, *(value for _, value in trained)])
    if highest > frame.y[1]:
        figures.append(f"up to {highest:.3f} in the first steps")
    radius = 3.5 if len(measured) <= _MOST_LARGE_DOTS else 2.0
    dots = [
        frame.dot(x, y, f"{measured_on}, step {x:,}: {y:.4f}", radius, "dot measured")
        for x, y in measured
    ]
    dots += [
        frame.dot(x, y, f"{corpus}, step {x:,}: {y:.4f}", radius, "dot measured")
        for corpus, course in apart.items()
        for x, y in course
    ]
    if len(trained) == 1:
        # A line needs two points.
        dots.append(frame.dot(*trained[0], f"training, step {last:,}"))
    drawn = [_within(frame, name, lines), *dots, *_labels(frame, apart)]
    return _Panel(frame, name, ", ".join(figures), "loss", shown, drawn)


def _labels(frame: Frame, courses: Mapping[str, Points]) -> Iterator[Markup]:
    """The corpora's names beside the ends of their lines, none on another one."""
    lowest = math.inf
    for corpus, course in sorted(courses.items(), key=lambda one: one[1][-1][1]):
        x, y = course[-1]
        lowest = min(frame.at_y(y) - 6, lowest - _LINE)
        yield text(corpus, frame.at_x(x) - 6, lowest, "tick", "end")


def _within(frame: Frame, name: str, lines: Sequence[Markup]) -> Markup:
    """Lines, cut at the edges of the frame."""
    key = f"within-{name.replace(' ', '-')}"
    left, top = frame.at_x(0), frame.at_y(frame.y[1])
    return element(
        '<clipPath id="{}"><rect x="{}" y="{}" width="{}" height="{}"/></clipPath>'
        '<g clip-path="url(#{})">{}</g>',
        *(key, left, top, frame.at_x(frame.x[1]) - left + 1, frame.at_y(frame.y[0]) - top),
        *(key, Markup().join(lines)),
    )


def _learning_rate(rates: Points, last: float) -> _Panel:
    # With a single logged step, the schedule may already be at 0.
    top = max(rate for _, rate in rates) * 1.08 or 1e-3
    frame = Frame((0, last), (0, top), _WIDTH, _RATE_HEIGHT, right=_RIGHT)
    drawn = [frame.line(thinned(rates), "line rate")]
    return _Panel(frame, "learning rate", exponent(rates[-1][1]), "", exponent, drawn)


def _grid(panel: _Panel, is_lowest: bool, tokens: Points) -> Markup:
    """The panel's heading and axes; the lowest panel names the steps and the tokens up to each."""
    frame = panel.frame
    drawn = [
        element(
            '<text x="{}" y="{}"><tspan class="panel">{}</tspan>'
            '<tspan class="name" dx="10">{}</tspan></text>',
            *(frame.left, frame.top - 8, panel.name, panel.figures),
        )
    ]
    whole = [step for step in ticks(*frame.x) if abs(step - round(step)) < 1e-9]
    drawn.append(
        frame.axes(
            y_name=panel.y_name,
            y_text=panel.y_text,
            x_text=short if is_lowest else None,
            x_ticks=whole,
            upright=True,
        )
    )
    if is_lowest:
        base = frame.height - frame.bottom
        for step in whole:
            words = _tokens_at(step, tokens)
            drawn.append(text(words, frame.at_x(step), base + 32, "tick", "middle"))
        name = "step, and tokens so far" if tokens[-1][1] else "step"
        drawn.append(text(name, frame.at_x(frame.x[1] / 2), base + 52, "name", "middle"))
    return Markup().join(drawn)


def _tokens_at(step: float, tokens: Points) -> str:
    """The tokens up to ``step``, interpolated between logged steps; empty outside the log."""
    after = bisect_left(tokens, step, key=itemgetter(0))
    if after == len(tokens) or len(tokens) == 1:
        return ""
    (x0, y0), (x1, y1) = tokens[max(0, after - 1)], tokens[after]
    return _amount(y0 if x1 == x0 else y0 + (y1 - y0) * (step - x0) / (x1 - x0))


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
