"""metrics.jsonl and its like: one JSON object a line, which a full disk delays but never loses."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidybert.errors import DiskError, TrainingError
from tidybert.storage.atomic_files import append_text, atomic_write_text
from tidybert.storage.json_objects import plain_json, read_json_lines
from tidybert.storage.model_files import METRICS_FILE
from tidybert.storage.opening import present


class MetricsLog:
    """One of these files, written nowhere without a RUN.

    A line that cannot be written ends no training: ``tell`` gets a warning, and the line waits in
    memory for the next one.

    Args:
        run: the folder of the file, or None.
        tell: called with lines of text.
    """

    def __init__(
        self,
        run: Path | None,
        file: str = METRICS_FILE,
        tell: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.path = None if run is None else run / file
        self.tell = tell
        self._waiting: list[str] = []
        self._lock = threading.Lock()

    def rewind(self, step: int, source: Path | None = None) -> None:
        """Drop the lines after ``step``, which a resumed run writes again.

        ``source``: take the lines of this file in place of the log's own.
        """
        source = source or self.path
        if self.path is None or source is None or not present(source, error=TrainingError):
            return
        kept, unreadable = [], 0
        for line, entry in read_json_lines(source, error=TrainingError):
            done = None if entry is None else entry.get("step")
            if not isinstance(done, int | float):
                unreadable += 1
            elif done <= step:
                kept.append(line + "\n")
        # A kill can leave half a line at the end.
        if unreadable > 1:
            self.tell(f"warning: {source}: {unreadable} lines cannot be read and are dropped")
        atomic_write_text(self.path, "".join(kept))

    def last(self, name: str, most: int) -> list[tuple[int, float]]:
        """The last lines' steps and their values of ``name``, at most ``most``."""
        if self.path is None or not present(self.path, error=TrainingError):
            return []
        entries = [entry for _, entry in read_json_lines(self.path, error=TrainingError) if entry]
        found = [(each["step"], each[name]) for each in entries if name in each]
        return [(int(step), float(value)) for step, value in found[-most:]]

    def write(self, values: dict[str, Any]) -> None:
        """Append one line, after those that wait."""
        if self.path is None:
            return
        with self._lock:
            self._waiting.append(json.dumps(plain_json(values), allow_nan=False) + "\n")
            try:
                append_text(self.path, "".join(self._waiting))
            except DiskError as error:
                if len(self._waiting) == 1:
                    self.tell(
                        f"warning: {error.message}. The training continues; the lines wait in "
                        "memory until there is room, and are lost if it ends before"
                    )
                return
            if len(self._waiting) > 1:
                self.tell(
                    f"{self.path} can be written again, and has all {len(self._waiting)} "
                    "lines that waited"
                )
            self._waiting.clear()
