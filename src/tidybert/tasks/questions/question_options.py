"""Options of answering questions; loads no torch."""

from dataclasses import dataclass

from tidybert.tasks.task_options import WindowOptions


@dataclass(frozen=True)
class QuestionOptions(WindowOptions):
    """None is the default of QuestionAnswering."""

    max_query_length: int | None = None
    """``answer``: most tokens of a question; a longer one is cut."""
    max_answer_length: int | None = None
    """``answer``: most tokens of an answer."""
    n_best_size: int | None = None
    """``answer``: number of answers to give for each question."""
    null_score_diff_threshold: float | None = None
    """``answer``: give "no answer" where its score is higher than the best answer's by this. If not
    set: fitted on dev."""

    def __post_init__(self) -> None:
        self.check_above_0("max_query_length", "max_answer_length", "n_best_size")
        super().__post_init__()
