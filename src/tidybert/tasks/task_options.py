"""The base of what a task can be given beyond its data, one field a flag; loads no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from tidybert.errors import UsageError, param


@dataclass(frozen=True)
class TaskOptions:
    """Each field is the flag of the same name, None where it is not given.

    Raises UsageError for a value that no task could use.
    """

    PANEL: ClassVar = "Task"

    chooses: ClassVar[Mapping[str, str]] = {}
    """The name of the task that an option chooses instead, by the option's name."""

    def __post_init__(self) -> None:
        """Check each value by itself; subclasses check theirs, then call this."""

    @classmethod
    def field_names(cls) -> set[str]:
        return {each.name for each in fields(cls)}

    def given(self) -> list[str]:
        """The names of the options that are given."""
        return [each.name for each in fields(self) if getattr(self, each.name) is not None]

    def check_above_0(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{param(name)} is {value}; expected a number above 0")

    def check_one_of(self, name: str, *allowed: str) -> None:
        value = getattr(self, name)
        if value is not None and value not in allowed:
            raise UsageError(f"{param(name)} is {value!r}; expected {' or '.join(allowed)}")


@dataclass(frozen=True)
class WindowOptions(TaskOptions):
    """For tasks that read a long text in windows."""

    doc_stride: int | None = None
    """Tokens from the start of one window over a long text to the start of the next, as in Google's
    code."""

    def __post_init__(self) -> None:
        self.check_above_0("doc_stride")
        super().__post_init__()
