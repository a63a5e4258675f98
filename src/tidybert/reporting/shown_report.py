"""A report as an object: its page shows itself in a notebook, and can be written."""

from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from tidybert.reporting.contents import report_contents
from tidybert.reporting.evaluation import Evaluation
from tidybert.reporting.report_page import report_page
from tidybert.reporting.writing import write_report


class ShownReport:
    """The page of an evaluation."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation

    @cached_property
    def contents(self) -> dict[str, Any]:
        """The values of report.json; docs/trust.md has the keys."""
        return report_contents(self.evaluation)

    @property
    def metrics(self) -> dict[str, Any]:
        """By name: value, low and high of the interval, baseline and meaning."""
        found: dict[str, Any] = self.contents["metrics"]
        return found

    def save(self, directory: str | Path) -> Path:
        """Write report.html and report.json; returns the page's path.  See ``write_report``."""
        return write_report(self.evaluation, directory)

    def __repr__(self) -> str:
        shown = self.evaluation
        return f"{type(self).__name__}(model={shown.model!r}, data={shown.data!r})"

    def _repr_html_(self) -> str:
        # A frame of its own keeps the notebook's styles and the page's apart.
        page = escape(report_page(self.contents))
        return f'<iframe srcdoc="{page}" style="width:100%;height:40em;border:0"></iframe>'
