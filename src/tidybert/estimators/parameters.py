"""The parameters of every estimator that trains: the options of a training, with their defaults.

parameters.pyi has them in writing, for type checkers and editors.
"""

from tidybert.finetuning.finetuning_job import FinetuningOptions
from tidybert.options import parameters
from tidybert.tasks.task_options import WindowOptions
from tidybert.training.training_arguments import TrainingArguments

TrainingParameters = parameters(
    __name__, "TrainingParameters", FinetuningOptions, WindowOptions, TrainingArguments
)
