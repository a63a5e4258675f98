"""TaskOptions: what one task or another can be told beyond its data, one field a flag."""

from dataclasses import dataclass, fields
from typing import ClassVar

from tidybert.errors import UsageError, param


@dataclass(frozen=True)
class TaskOptions:
    """What is given to a task; each field is the flag of the same name, None where not given.

    Raises UsageError for a value that fits no task.
    """

    PANEL: ClassVar = "Task"

    multi_label: bool | None = None
    """classify: any number of classes a text, each with its own threshold."""
    class_weight: str | None = None
    """classify: balanced, so that rare classes weigh more in the loss."""
    long: str | None = None
    """classify, regress: what becomes of a text longer than --max-seq-length: truncate keeps its
    beginning, head-tail its beginning and its end, windows reads it all and averages."""
    doc_stride: int | None = None
    """Tokens from the beginning of one window over a long text to that of the next, as in Google's
    code."""
    max_query_length: int | None = None
    """answer: tokens that a question is cut to."""
    max_answer_length: int | None = None
    """answer: tokens of the longest answer that is considered."""
    n_best_size: int | None = None
    """answer: how many answers to each question are told."""
    null_score_diff_threshold: float | None = None
    """answer: by how much "no answer" must be the likelier to be given; fitted on dev where not
    set."""

    def __post_init__(self) -> None:
        for name in ("doc_stride", "max_query_length", "max_answer_length", "n_best_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{param(name)} is {value}; expected a number above 0")
        for name, allowed in (
            ("class_weight", ("balanced",)),
            ("long", ("truncate", "head-tail", "windows")),
        ):
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise UsageError(f"{param(name)} is {value!r}; expected {' or '.join(allowed)}")

    def refuse_others(self, task: str, takes: frozenset[str]) -> None:
        """Raise UsageError where an option is given that the task does not take."""
        for each in fields(self):
            if getattr(self, each.name) is not None and each.name not in takes:
                known = ", ".join(sorted(map(param, takes))) or "none of these options"
                raise UsageError(
                    f"{param(each.name)} has no meaning for {task}, which takes {known}"
                )
