"""From tidybert.json to the task, and back."""

from collections.abc import Callable

import pytest

from tidybert.checkpoints.directory import ModelMetadata
from tidybert.configuration import BertConfig
from tidybert.errors import ConfigError
from tidybert.tasks import Classification, Regression, Task, task_for


@pytest.mark.parametrize("task", [Classification(["x", "y", "z"]), Regression()])
def test_a_task_is_found_again_by_its_metadata(
    task: Task, tiny_config: Callable[..., BertConfig]
) -> None:
    found = task_for(ModelMetadata(task=task.name, label_names=task.label_names))

    assert type(found) is type(task)
    assert found.label_names == task.label_names
    shapes = {
        name: each.shape for name, each in found.build_model(tiny_config()).state_dict().items()
    }
    assert shapes["classifier.weight"] == (len(task.label_names or "1"), 16)


@pytest.mark.parametrize("metadata", [ModelMetadata(task="translate"), ModelMetadata("classify")])
def test_a_task_that_is_unknown_is_named(metadata: ModelMetadata) -> None:
    with pytest.raises(ConfigError, match=f"the task '{metadata.task}'"):
        task_for(metadata)
