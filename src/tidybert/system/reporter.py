"""Who hears of a long work: one object for its lines of text, its progress and its figures.

A face gives the functions that it needs; the others do nothing.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from tidybert.errors import in_python


def _nothing(*_: Any) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Reporter:
    """Functions that a work calls while it goes on.

    note: gets each line of text for the reader.
    spell: writes the parameters that a line names, as ``errors.in_python`` or ``in_shell`` do.
    advance: gets the number of items that are done.
    begun: gets the numbers of files that were done before, and of all, before a cluster starts.
    track: gets figures by their names and their step, for each line that is logged.
    stage: gets what comes before the first step, such as a probe, in words, and how much of it is
        done, of how much.
    step: gets the StepReport of each step.
    metrics: gets each evaluation's step and metrics.
    data: gets the report on the data of a fine-tuning.
    provenance: gets what the data are, once they are read.
    training: gives the reporter of a training that begins, from its job and the metric that
        decides; a job may have several of them.  None: this is its reporter.
    rows: what the rows of examples are to a program, such as position; what the checks find, and a
        collapse, are then Python warnings at its line.  None notes them, as the shell does.
    """

    note: Callable[[str], None] = _nothing
    spell: Callable[[str], str] = in_python
    track: Callable[[Mapping[str, float], int], None] | None = None
    advance: Callable[[int], None] = _nothing
    begun: Callable[[int, int], None] = _nothing
    stage: Callable[[str, int, int], None] = _nothing
    step: Callable[[Any], None] = _nothing
    metrics: Callable[[int, dict[str, Any]], None] = _nothing
    data: Callable[[Any], None] = _nothing
    provenance: Callable[[Any], None] = _nothing
    training: "Callable[[Any, str], AbstractContextManager[Reporter]] | None" = None
    rows: str | None = None

    def tell(self, line: str) -> None:
        """Give a line to ``note``; work goes on where it cannot be written."""
        with suppress(OSError):
            self.note(self.spell(line))

    def of_stage(self, name: str, total: int) -> "Reporter":
        """The same, which is told by ``advance`` how much of a stage is done."""
        self.stage(name, 0, total)
        return replace(self, advance=lambda done: self.stage(name, done, total))

    def plot(self, kind: str, figures: Mapping[str, float], step: int) -> None:
        """Give figures to ``track``, under names such as train/loss."""
        if self.track is not None:
            self.track({f"{kind}/{name}": value for name, value in figures.items()}, step)


SILENT: Final = Reporter()
