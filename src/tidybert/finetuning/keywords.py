"""The keyword arguments of ``tidybert.finetune`` and ``evaluate``, and the estimators' parameters.

They are made from the options that flags are made from; keywords.pyi has them in writing, for type
checkers and editors.
"""

from typing import Any, Literal

from tidybert.files.formats import FORMATS
from tidybert.files.reading import ReadOptions
from tidybert.finetuning.finetuning_job import FinetuningOptions
from tidybert.inference.options import MeasureOptions, PredictorOptions
from tidybert.options import keywords, parameters
from tidybert.tasks.registry import task_flags
from tidybert.tasks.task_options import WindowOptions
from tidybert.training.training_arguments import RowsOption, TrainingArguments

_FORMAT: Any = Literal[tuple(FORMATS)] | None  # type: ignore[valid-type]

FinetuneOptions = keywords(
    __name__,
    "FinetuneOptions",
    ReadOptions,
    task_flags(),
    TrainingArguments,
    FinetuningOptions,
    # finetune has them as parameters, and dev_fraction as a value of dev.
    left_out=("out", "dev_fraction", "multi_label"),
    format=_FORMAT,
)
EvaluateOptions = keywords(
    __name__,
    "EvaluateOptions",
    ReadOptions,
    RowsOption,
    PredictorOptions,
    MeasureOptions,
    # evaluate has it as a parameter.
    left_out=("report",),
    format=_FORMAT,
)
TrainingParameters = parameters(
    __name__, "TrainingParameters", FinetuningOptions, WindowOptions, TrainingArguments
)
