"""Names and descriptions of classes as further examples for a new head."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.errors import UsageError
from tidybert.finetuning import head_start
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.system.reporter import Reporter
from tidybert.tasks.registry import task_flags
from tidybert.training.linear_probe import PENALTIES
from tidybert.training.training_arguments import TrainingArguments

Train = Callable[..., tuple[FinetunedModel[Any], list[str]]]
EXAMPLES = "texts that name or describe classes are examples too"


@pytest.fixture
def train(tiny_run: Path, toy_examples: Callable[..., list[Any]]) -> Train:
    """Begins a head by the given start, and trains no further; also returns what was told."""

    def run(
        start: str = "probe", rows: Any = None, task: str = "classify", **options: Any
    ) -> tuple[FinetunedModel[Any], list[str]]:
        notes: list[str] = []
        toy = [(one.text, one.label) for one in toy_examples(40)]
        job = FinetuningJob(
            task, tiny_run, rows or toy, None,
            TrainingArguments(head_start=start, num_train_epochs=0.0),
            task_options=task_flags()(), new_head=True, max_seq_length=16, **options,
        )  # fmt: skip
        return run_finetuning(job, Reporter(notes.append)), notes

    return run


@pytest.mark.parametrize("start", ["probe", "contrastive"])
def test_names_and_descriptions_are_examples_of_a_new_head(train: Train, start: str) -> None:
    plain, notes = train(start)
    assert not any(EXAMPLES in line for line in notes)

    named, notes = train(start, descriptions={"animal": "we saw the old dog"})

    assert f"3 {EXAMPLES}" in notes
    ours, theirs = (each.model.classifier.weight for each in (named, plain))
    assert not ours.equal(theirs)
    again, _ = train(start, descriptions={"animal": "we saw the old dog"}, class_names=True)
    assert ours.equal(again.model.classifier.weight)


def test_they_are_what_further_rows_would_be(
    train: Train, toy_examples: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows are held out too while a penalty is chosen.
    monkeypatch.setattr(head_start, "PENALTIES", PENALTIES[:1])
    toy = [(one.text, one.label) for one in toy_examples(40)]

    named, _ = train(class_names=True)
    longer, _ = train(rows=[*toy, ("animal", "animal"), ("colour", "colour")])

    assert named.model.classifier.weight.equal(longer.model.classifier.weight)


def test_names_that_tell_nothing_apart_are_left_out(train: Train) -> None:
    rows = [("a red", "0"), ("a cat", "1"), ("blue", "0"), ("the dog", "1")] * 4

    _, notes = train(rows=rows, class_names=True)

    assert "names of classes that tell nothing apart: 0, 1" in notes
    assert not any(EXAMPLES in line for line in notes)


def test_a_description_that_is_too_long_is_told(train: Train, tmp_path: Path) -> None:
    file = tmp_path / "classes.csv"
    file.write_text("label,text\nanimal," + "dog " * 20 + "\ncolour,red and blue\n")

    _, notes = train(descriptions=file)

    assert f"3 {EXAMPLES}; 1 are too long" in notes


def test_pairs_have_no_names(train: Train) -> None:
    rows = [("a red", "cat", "x"), ("a cat", "dog", "y")] * 8

    _, notes = train(rows=rows, class_names=True)

    assert not any(EXAMPLES in line for line in notes)


@pytest.mark.parametrize("start", ["probe", "contrastive"])
@pytest.mark.parametrize("labels", [["plant", "colour"], "colour, plant"])
def test_a_class_that_no_text_has_is_known_by_its_name(
    train: Train, start: str, labels: Any
) -> None:
    found, notes = train(start, labels=labels)

    assert "classes that no text has, known by names and descriptions alone: plant" in notes
    assert "classes: 'animal' 20, 'colour' 20, 'plant' 0" in notes
    assert found.task.names == ("animal", "colour", "plant")
    described, _ = train(start, descriptions={"plant": "we saw"})
    assert described.task.names == found.task.names
    of_plant = [each.predict(["we saw"])[0]["scores"]["plant"] for each in (found, described)]
    assert of_plant[1] > 1.5 * of_plant[0]


@pytest.mark.parametrize(
    "options",
    [
        {"labels": ["7"]},
        {"labels": ["plant"], "start": "random"},
        {"labels": ["plant"], "rows": [("a", "b", "x"), ("c", "d", "y")] * 4},
    ],
)
def test_a_name_that_can_teach_nothing_is_told_and_left_out(
    train: Train, options: dict[str, Any]
) -> None:
    (name,) = options["labels"]

    found, notes = train(**options)

    assert f"classes left out, which no text has and no name can teach: {name}" in notes
    assert len(found.task.names) == 2


def test_bad_input_is_refused(train: Train) -> None:
    with pytest.raises(UsageError, match="descriptions is for classify, not for regress"):
        train(task="regress", descriptions={"1": "a tree"})
    for option in ("descriptions", "labels"):
        with pytest.raises(UsageError, match=f"class_names=False contradicts {option}"):
            train(class_names=False, **{option: {"plant": "a tree"}})
