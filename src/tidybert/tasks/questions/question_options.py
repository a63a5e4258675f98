"""Options of answering questions; loads no torch."""

from dataclasses import dataclass

from tidybert.tasks.task_options import WindowOptions


@dataclass(frozen=True)
class QuestionOptions(WindowOptions):
    """None is the default of QuestionAnswering."""

    max_query_length: int | None = None
    """answer: tokens that a question is cut to."""
    max_answer_length: int | None = None
    """answer: tokens of the longest answer that is considered."""
    n_best_size: int | None = None
    """answer: how many answers to give to each question."""
    null_score_diff_threshold: float | None = None
    """answer: by how much "no answer" must be the likelier to be given; fitted on dev where not
    set."""

    def __post_init__(self) -> None:
        self.check_above_0("max_query_length", "max_answer_length", "n_best_size")
        super().__post_init__()
