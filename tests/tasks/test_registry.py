"""From a name, options and tidybert.json to the task."""

from collections.abc import Callable
from typing import Any

import pytest

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.configuration import BertConfig
from tidybert.errors import ConfigError, UsageError
from tidybert.tasks import registry
from tidybert.tasks.classification import Classification
from tidybert.tasks.registry import task_class, task_flags, task_for
from tidybert.tasks.regression import Regression


@pytest.mark.parametrize("task", [Classification(["x", "y", "z"], None, 1.5), Regression()])
def test_a_task_is_found_again_by_its_metadata(
    task: Any, tiny_config: Callable[..., BertConfig]
) -> None:
    found = task_for(
        ModelMetadata(task=task.name, label_names=task.label_names, settings=task.settings())
    )

    assert type(found) is type(task)
    assert found.label_names == task.label_names
    assert found.settings() == task.settings()
    shapes = {
        name: each.shape for name, each in found.build_model(tiny_config()).state_dict().items()
    }
    assert shapes["classifier.weight"] == (len(task.label_names or "1"), 16)


def test_a_task_that_is_unknown_is_named() -> None:
    with pytest.raises(ConfigError, match="the task 'translate'; this program knows classify,"):
        task_for(ModelMetadata(task="translate"))
    with pytest.raises(UsageError, match="TASK is 'translate'; expected one of classify, regress"):
        task_class("translate")


def test_classes_without_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="classify needs label_names"):
        task_for(ModelMetadata("classify"))


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("regress", {"class_weight": "balanced"}, "class_weight has no meaning for regress"),
        ("classify", {"max_answer_length": 3}, "max_answer_length has no meaning for classify"),
    ],
)
def test_an_option_of_another_task_is_refused(
    task: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        task_class(task, task_flags()(**options))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"class_weight": "heavy"}, "class_weight is 'heavy'; expected balanced"),
        ({"long": "all"}, "long is 'all'; expected truncate or head-tail or windows"),
        ({"doc_stride": 0}, "doc_stride is 0; expected a number above 0"),
    ],
)
def test_a_value_that_fits_no_task_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        task_flags()(**given)


def test_a_task_of_ones_own_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Louder(Regression):
        name = "louder"

    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))
    registry.register(Louder)

    assert task_class("louder") is Louder
    assert isinstance(task_for(ModelMetadata("louder")), Louder)
