"""Notes for --verbose: the settings that tidybert chooses by itself, and why.

A module says it to its logger: ``logging.getLogger(__name__).info("device: cpu, …")``.  A program
that uses tidybert as a library sees the same lines through Python's logging.
"""

import logging

from tidybert.cli.output import note


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def show_decisions(wanted: bool) -> None:
    """Show what the package's loggers say, or no longer."""
    logger = logging.getLogger("tidybert")
    logger.setLevel(logging.INFO if wanted else logging.NOTSET)
    logger.handlers = [_Notes()] if wanted else []
