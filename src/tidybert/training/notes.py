"""Notes: lines of text that a run has for a reader, each with its parameters spelled."""

from collections.abc import Callable
from dataclasses import dataclass

from tidybert.errors import in_python


@dataclass(frozen=True)
class Notes:
    """Base of the callbacks of a run.

    note: called with each line.
    spell: writes the parameters that a line names, as ``errors.in_python`` or ``in_shell`` do.
    """

    note: Callable[[str], None] = lambda _line: None
    spell: Callable[[str], str] = in_python

    def tell(self, line: str) -> None:
        """Give a line to ``note``."""
        self.note(self.spell(line))
