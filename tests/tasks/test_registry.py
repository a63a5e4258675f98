"""From a name, options and tidybert.json to the task."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import HeadDescription
from tidybert.configuration import BertConfig
from tidybert.data.long_texts import LongTexts
from tidybert.errors import ConfigError, UsageError
from tidybert.tasks import registry
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.multiple_choice import MultipleChoice
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.registry import foreign_metadata, task_class, task_flags, task_for
from tidybert.tasks.regression import Regression
from tidybert.tasks.tags.tagging import Tagging


@pytest.mark.parametrize(
    ("task", "outputs"),
    [
        (Classification(["x", "y", "z"], None, 1.5), 3),
        (MultiLabelClassification(["x", "y"], {"x": 0.25}, 1.5, LongTexts("windows", 7)), 2),
        (Regression(LongTexts("head-tail")), 1),
        (MultipleChoice(1.5), 1),
        (QuestionAnswering(no_answers=True, doc_stride=5, n_best_size=2, temperature=2.0), 2),
        (QuestionAnswering(null_score_diff_threshold=-1.5), 2),
        (Tagging(["O", "B-x", "I-x"], 1.5, 9), 3),
        (Tagging(["DT", "NN"]), 2),
    ],
)
def test_a_task_is_found_again_by_its_metadata(
    task: Any, outputs: int, tiny_config: Callable[..., BertConfig]
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
    assert shapes[f"{task.head}.weight"] == (outputs, 16)


def test_a_task_that_is_unknown_is_named() -> None:
    with pytest.raises(ConfigError, match="the task 'translate'; this program knows classify,"):
        task_for(ModelMetadata(task="translate"))
    with pytest.raises(UsageError, match="TASK is 'translate'; expected one of classify, regress"):
        task_class("translate")


def test_a_misspelt_task_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'classify'"):
        task_class("clasify")


@pytest.mark.parametrize("task", ["classify", "multi-label", "tag"])
def test_classes_without_names_are_refused(task: str) -> None:
    with pytest.raises(ConfigError, match=f"{task} needs label_names"):
        task_for(ModelMetadata(task))


def test_another_programs_model_has_no_settings() -> None:
    assert task_for(ModelMetadata("answer")).settings() == QuestionAnswering().settings()


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
        ({"class_weight": "heavy"}, "class_weight is heavy; expected balanced"),
        ({"long": "all"}, "long is all; expected truncate, head-tail or windows"),
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


def test_the_flags_of_all_tasks_load_no_torch() -> None:
    program = (
        "import sys; from tidybert.tasks.registry import task_flags; "
        "print('doc_stride' in task_flags().field_names(), 'torch' in sys.modules)"
    )

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert found.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("name", ["classify", "regress", "choose", "answer", "tag", "embed"])
def test_a_task_declares_the_flags_that_the_table_shows(name: str) -> None:
    assert issubclass(task_flags(), task_class(name).options_class)
    given = dict.fromkeys(task_class(name).options_class.field_names())
    assert task_class(name, task_flags()(**given)) is task_class(name)


@pytest.mark.parametrize(
    ("head", "task"),
    [
        (("BertForSequenceClassification", None, None), "classify"),
        (("BertForSequenceClassification", ("a",), None), "regress"),
        (("BertForSequenceClassification", ("a", "b"), "regression"), "regress"),
        (("BertForSequenceClassification", ("a",), "multi_label_classification"), "multi-label"),
        (("BertForMultipleChoice", None, None), "choose"),
        (("BertForQuestionAnswering", None, None), "answer"),
        (("BertForTokenClassification", ("O",), None), "tag"),
        (("BertForTokenClassification", None, None), None),
        (("BertForMaskedLM", None, None), None),
    ],
)
def test_one_task_alone_reads_a_foreign_head(head: Any, task: str | None) -> None:
    architecture, names, problem_type = head
    found = HeadDescription((architecture,), names, problem_type)

    metadata = foreign_metadata(found, 64)

    assert (metadata and metadata.task) == task
    # Other tests register tasks of their own, as classes.
    own = [name for name, each in registry._TASKS.items() if isinstance(each.task, str)]
    assert sum(registry._task(each).reads_head(found) for each in own) <= 1
    if metadata is not None:
        assert metadata.max_seq_length == 64
        task_for(metadata)


def test_a_misspelt_setting_is_refused() -> None:
    metadata = ModelMetadata("classify", ("a", "b"), settings={"tempreature": 2.0})

    with pytest.raises(ConfigError, match="unknown setting 'tempreature'; did you mean 'temper"):
        task_for(metadata)
