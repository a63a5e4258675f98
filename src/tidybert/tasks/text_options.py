"""Options of the tasks on single texts and pairs; loads no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tidybert.tasks.task_options import WindowOptions


@dataclass(frozen=True)
class TextOptions(WindowOptions):
    """For every task on texts."""

    long: str | None = None
    """``classify``, regress: cut a text that is too long: truncate keeps its start, head-tail its
    start and end; windows reads it all and averages."""

    def __post_init__(self) -> None:
        self.check_one_of("long", "truncate", "head-tail", "windows")
        super().__post_init__()


@dataclass(frozen=True)
class MultiLabelOptions(TextOptions):
    """For classes of which a text has any number."""

    multi_label: bool | None = None
    """``classify``: give a text any number of classes, each with its own threshold."""


@dataclass(frozen=True)
class ClassOptions(MultiLabelOptions):
    """For classes of which a text has one."""

    chooses: ClassVar[Mapping[str, str]] = {"multi_label": "multi-label"}

    class_weight: str | None = None
    """``classify``: balanced gives rare classes more weight in the loss."""

    def __post_init__(self) -> None:
        self.check_one_of("class_weight", "balanced")
        super().__post_init__()
