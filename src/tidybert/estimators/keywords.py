"""The parameters of the estimators that are options of their tasks; keywords.pyi has them too."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from tidybert.options import parameters
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.task_options import ClassOptions, QuestionOptions, ScoreOption, TextOptions

_DEFAULTS: Final = {
    "long": "truncate",
    "max_query_length": QuestionAnswering.max_query_length,
    "max_answer_length": QuestionAnswering.max_answer_length,
}
"""Of options whose None is the task's default."""
TextParameters = parameters(__name__, "TextParameters", TextOptions, defaults=_DEFAULTS)
ClassParameters = parameters(
    __name__,
    "ClassParameters",
    ClassOptions,
    ScoreOption,
    defaults=_DEFAULTS,
    class_weight=Literal["balanced"] | Mapping[Any, float] | None,
)
QuestionParameters = parameters(
    __name__,
    "QuestionParameters",
    QuestionOptions,
    defaults=_DEFAULTS,
    max_query_length=int,
    max_answer_length=int,
)
