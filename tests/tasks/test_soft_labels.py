"""Labels that are probabilities: their files, their loss, and the training and check on them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tasks.fixed_outputs import make_features
from torch.nn import functional

from tidybert import load_data
from tidybert.cli.main import run as shell
from tidybert.data.batching import collate
from tidybert.errors import DataError, UsageError
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples
from tidybert.finetuning.head_start import group_loss
from tidybert.tasks.classification import Classification, SoftClassification, likeliest
from tidybert.tasks.labelled_examples import read_all
from tidybert.tasks.registry import task_class
from tidybert.tasks.task_options import ClassOptions

FILES = {
    "a.jsonl": '{"text": "a", "label": {"x": 0.75, "y": 0.25}}\n{"text": "b", "label": "y"}\n',
    "a.json": '[{"text": "a", "label": {"x": 3, "y": 1}}, {"text": "b", "label": {"y": 1}}]',
    "columns.csv": "text,x,y\na,0.75,0.25\nb,,1\n",
    "objects.csv": 'text,label\na,"{""x"": 0.75, ""y"": 0.25}"\nb,y\n',
    "repr.csv": "text,label\na,\"{'x': 0.75, 'y': 0.25}\"\nb,y\n",
    "people.csv": "text,label\na,x\nb,y\na,x\na,y\na,x\n",
}


@pytest.mark.parametrize("name", FILES)
def test_each_form_of_a_file_says_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    options = {"label": "x,y"} if name == "columns.csv" else {}

    found = load_data(str(path), soft=True, **options)

    assert [(one.text, one.label) for one in found] == [("a", "x"), ("b", "y")]
    assert [dict(one.soft or {}) for one in found] == [{"x": 0.75, "y": 0.25}, {"y": 1.0}]


def studio(text: str, *chosen: str, **more: Any) -> dict[str, Any]:
    """A task of Label Studio with the choice of each annotator."""
    results = [[{"from_name": "team", "value": {"choices": [name]}}] for name in chosen]
    return {"data": {"text": text}, "annotations": [{"result": each} for each in results], **more}


def argilla(text: str, *chosen: str, **more: Any) -> dict[str, Any]:
    """A record of Argilla with the response of each annotator, of two questions."""
    given = [{"value": name, "user_id": at} for at, name in enumerate(chosen)]
    notes = [{"value": f"note {at}", "user_id": at} for at in range(len(chosen))]
    return {"fields": {"text": text}, "responses": {"label": given, "why": notes}, **more}


@pytest.mark.parametrize("form", [studio, argilla])
@pytest.mark.parametrize("in_memory", [False, True])
def test_annotators_of_a_tool_are_votes(tmp_path: Path, form: Any, in_memory: bool) -> None:
    tasks = [form("a", "x", "y", "x", "x"), form("b", "y")]
    path = tmp_path / "export.json"
    path.write_text(json.dumps(tasks))

    found = load_data(tasks if in_memory else str(path), soft=True)

    assert [(one.text, one.label) for one in found] == [("a", "x"), ("b", "y")]
    assert [dict(one.soft or {}) for one in found] == [{"x": 0.75, "y": 0.25}, {"y": 1.0}]


def test_an_annotator_of_two_classes_has_no_vote(tmp_path: Path) -> None:
    task = studio("a", "x", "y")
    task["annotations"][1]["result"][0]["value"]["choices"] = ["y", "z"]
    path = tmp_path / "a.json"
    path.write_text(json.dumps([task]))

    with pytest.raises(DataError, match="it has 2 labels"):
        load_data(str(path), soft=True)


def test_the_last_row_of_each_person_is_a_vote(tmp_path: Path) -> None:
    rows = [("x", "ada"), ("x", "ben"), ("y", "ada"), ("y", "cem"), ("y", "dan")]
    path = tmp_path / "labels.csv"
    lines = [f"a,{label},labelled,random,1,{by},2026-01-01\n" for label, by in rows]
    path.write_text("text,label,label_status,drawn,row,by,at\n" + "".join(lines))

    (found,) = load_data(str(path), soft=True)

    assert (found.label, found.soft) == ("y", {"x": 0.25, "y": 0.75})
    assert [one.label for one in load_data(str(path))] == ["y"]


def test_texts_of_several_rows_are_counted(tmp_path: Path) -> None:
    path, report = tmp_path / "people.csv", ReadReport()
    path.write_text(FILES[path.name])
    read_all(SoftClassification, str(path), ReadOptions(), need_label=True, report=report)
    several = "4 rows are of 1 text with several: a text has the mean of its labels"
    assert [each for each in report.notes if "several" in each] == [several]


def test_without_the_option_files_mean_what_they_meant(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(FILES["people.csv"])

    assert [one.soft for one in load_data(str(path))] == [None] * 5
    (tmp_path / "a.jsonl").write_text(FILES["a.jsonl"])
    with pytest.raises(DataError, match=r"a\.jsonl:1: the label is an object"):
        load_data(str(tmp_path / "a.jsonl"))


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ('{"x": -1}', "the label 'x' is '-1'; expected a number from 0 on"),
        ('{"x": "much"}', "the label 'x' is 'much'"),
        ('{"x": true}', "the label 'x' is 'True'"),
        ('{"x": 0}', "no label is above 0"),
        ("{}", "no label is above 0"),
    ],
)
def test_what_is_no_share_is_a_bad_row(tmp_path: Path, label: str, said: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "a", "label": {label}}}\n')

    with pytest.raises(DataError, match=said):
        load_data(str(path), soft=True)


def test_a_cell_that_begins_as_an_object_is_no_class(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,label\na,"{""x"": 0.5"\n')
    with pytest.raises(DataError, match="cannot be read; expected classes with a number each"):
        load_data(str(path), soft=True)


def test_one_text_has_one_class_here() -> None:
    with pytest.raises(UsageError, match="soft is for one class a text, not multi_label"):
        ClassOptions(multi_label=True, soft=True)
    assert task_class("classify", ClassOptions(soft=True)) is SoftClassification
    assert SoftClassification.name == "classify"


def test_the_loss_is_the_cross_entropy_with_the_probabilities() -> None:
    examples = [
        TextExample("a", None, "x", 1, soft={"x": 0.7, "y": 0.3}),
        TextExample("b", None, "y", 2),
        TextExample("c", None, "z", 3, soft={"z": 1.0}),
    ]
    task, features = SoftClassification.from_examples(examples), make_features(3)
    task.add_labels(features, examples)
    logits = torch.tensor([[1.0, 2.0, 0.5], [0.0, 1.0, 3.0], [2.0, 0.0, 1.0]])

    losses = task.losses(logits, collate(features))

    p = torch.tensor([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(losses, -(p * logits.log_softmax(1)).sum(1))
    assert [likeliest(one.label) for one in features] == [0, 1, 2]
    hard = Classification(task.names)
    hard.add_labels(features, examples)
    expected = functional.cross_entropy(logits, torch.tensor([0, 1, 2]), reduction="none")
    torch.testing.assert_close(hard.losses(logits, collate(features)), expected)


def test_pairs_of_sure_texts_count_as_those_of_classes() -> None:
    states = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    classes = [0, 1, 0, 2, 1, 0]
    sure = [tuple(row) for row in np.eye(3)[classes].tolist()]

    torch.testing.assert_close(group_loss(states, sure), group_loss(states, classes))
    doubtful = [(0.5, 0.5, 0.0)] * 6
    # Each pair is as much one of a class as of two.
    cosines = functional.normalize(states) @ functional.normalize(states).T
    pairs = cosines[tuple(torch.triu_indices(6, 6, 1))]
    expected = (pairs - 1).square().mean() + pairs.square().mean()
    torch.testing.assert_close(group_loss(states, doubtful), expected)


@pytest.mark.parametrize("start", ["probe", "contrastive"])
def test_soft_labels_train_are_checked_and_measured_by_hard_ones(
    start: str,
    toy_examples: Callable[..., list[Any]],
    tiny_model: Path,
    tmp_path: Path,
    capsys: Any,
) -> None:
    file, dev, run = tmp_path / "a.jsonl", tmp_path / "dev.csv", tmp_path / "run"
    other = {"animal": "colour", "colour": "animal"}
    with file.open("w") as rows:
        for one in toy_examples(24):
            soft = {one.label: 0.8, other[one.label]: 0.2}
            rows.write(json.dumps({"text": one.text, "label": soft}) + "\n")
            rows.write(json.dumps({"text": one.text, "label": one.label}) + "\n")
    dev.write_text(
        "text,label\n" + "".join(f"{e.text},{e.label}\n" for e in toy_examples(9, seed=1))
    )
    short = ["--max-seq-length", "16"]
    begin = ["finetune", "classify", str(tiny_model), "--soft", "--train", str(file), *short]
    steps = [] if start == "contrastive" else ["--max-steps", "2"]

    assert shell([*begin, "--dev", str(dev), "--head-start", start, *steps, "--out", str(run)]) == 0

    record = json.loads((run / "arguments.json").read_text())
    num_texts = len({one.text for one in toy_examples(24)})
    assert record["soft"] is True
    assert record["record"]["num_train"] == num_texts
    assert json.loads((run / "tidybert.json").read_text())["task"] == "classify"
    assert shell(["evaluate", str(run), str(dev), "--json"]) == 0
    capsys.readouterr()
    # A file of answers is read as that of the training.
    assert shell(["evaluate", str(run), str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_examples"] == num_texts
    if start == "probe":
        assert (
            shell(["check", str(file), "--soft", "--model", str(tiny_model), *short, "--json"]) == 0
        )
        found = json.loads(capsys.readouterr().out)
        assert found["report"]["num_train"] == num_texts
        assert found["labels"]["agreement"] > 0


def test_a_run_reads_the_columns_of_its_classes_again(
    tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    file, run, out = tmp_path / "a.csv", tmp_path / "run", tmp_path / "out.csv"
    rows = [f"the cat {at},{at % 2},{0.9 * (1 - at % 2)}\n" for at in range(8)]
    file.write_text("said,animal,colour\n" + "".join(rows))
    columns = ["--text", "said", "--label", "animal,colour"]
    how = ["--soft", *columns, "--max-steps", "1", "--max-seq-length", "16"]
    begin = ["finetune", "classify", str(tiny_model), "--head-start", "random"]
    assert shell([*begin, "--train", str(file), *how, "--out", str(run)]) == 0
    capsys.readouterr()

    assert shell(["evaluate", str(run), str(file), "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["num_examples"] == 8
    file.write_text("said,animal,colour\nthe cat,,not known yet\n")
    assert shell(["predict", str(run), str(file), "--out", str(out)]) == 0
    assert "no text has the label" not in capsys.readouterr().err
    header, row = out.read_text("utf-8-sig").splitlines()
    assert header.startswith("said,animal,colour,")
    assert row.startswith("the cat,,not known yet,")


@pytest.mark.parametrize("name", ["a.jsonl", "objects.csv", "repr.csv"])
def test_an_object_names_the_flag_that_reads_it_where_there_is_one(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    with pytest.raises(DataError, match=r"an object, and .*; soft=True reads probabilities"):
        load_data(str(path))
    with pytest.raises(DataError) as caught:
        list(read_examples(str(path), None, need_label=True, known=("x", "y")))
    assert "soft" not in caught.value.message
