"""metrics.jsonl and its like: one JSON object a line, a step's figures or an evaluation's."""

import json
from pathlib import Path
from typing import Any

from tidybert.atomic_files import atomic_write_text
from tidybert.model_files import METRICS_FILE


class MetricsLog:
    """Appends to a file of the RUN, or nowhere without a RUN."""

    def __init__(self, run: Path | None, file: str = METRICS_FILE) -> None:
        self.path = None if run is None else run / file

    def rewind(self, step: int) -> None:
        """Drop the lines after ``step``, which a resumed run writes again."""
        if self.path is None or not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8").split("\n"):
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except (ValueError, KeyError, TypeError):
                continue  # a kill can leave half a line at the end
        atomic_write_text(self.path, "".join(kept))

    def write(self, values: dict[str, Any]) -> None:
        """Append one line."""
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
