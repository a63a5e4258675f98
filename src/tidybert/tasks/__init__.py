"""The jobs BERT is known for, one file each: features, head, loss, metric and decoding."""

from tidybert.tasks.classification import Classification
from tidybert.tasks.regression import Regression
from tidybert.tasks.task import Task, task_for

__all__ = ["Classification", "Regression", "Task", "task_for"]
