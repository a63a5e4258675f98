"""tidybert.finetune and tidybert.evaluate: what the shell does, from data of any kind."""

import enum
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import tidybert
from tidybert import Predictor
from tidybert.cli import main as shell
from tidybert.errors import (
    CollapseWarning,
    DataError,
    DataWarning,
    ModelNotFoundError,
    UsageError,
)
from tidybert.files.text_examples import TextExample
from tidybert.finetuning import train as train_module
from tidybert.finetuning.api import TaskName
from tidybert.tasks.answer_types import (
    ChoiceMetrics,
    ClassMetrics,
    LabelSetMetrics,
    ScoreMetrics,
    SpanMetrics,
    TagMetrics,
    VectorMetrics,
)
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.registry import task_class

QUICK: dict[str, Any] = {
    "learning_rate": 0.01,
    "train_batch_size": 16,
    "max_seq_length": 16,
    "num_train_epochs": 1,
}
FLAGS = ["--learning-rate", "0.01", "--train-batch-size", "16", "--max-seq-length", "16"]
FLAGS += ["--num-train-epochs", "1"]
WORDS = ["red", "blue", "white", "dog", "cat", "hen", "cow", "old", "new", "the"]


def texts(count: int) -> list[str]:
    return [" ".join(WORDS[(n * step) % 10] for step in (1, 3, 7)) + f" {n}" for n in range(count)]


@pytest.mark.filterwarnings("ignore::tidybert.errors.CollapseWarning")
@pytest.mark.filterwarnings("ignore::tidybert.errors.DataWarning")
def test_it_makes_the_run_that_the_shell_makes(
    tiny_model: Path, toy_examples: Callable[..., list[TextExample]], tmp_path: Path, capsys: Any
) -> None:
    rows = [{"text": one.text, "label": one.label} for one in toy_examples(96)]
    file = tmp_path / "train.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    command = ["finetune", "classify", str(tiny_model), "--train", str(file), *FLAGS]
    assert shell.run([*command, "--out", str(tmp_path / "shell")]) == 0

    of_file = tidybert.finetune(str(file), model=str(tiny_model), out=tmp_path / "file", **QUICK)
    in_memory = tidybert.finetune(rows, model=tiny_model, **QUICK)

    one, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir() if path.is_file()}
        for name in ("shell", "file")
    )
    assert one.keys() == other.keys()
    for name in ("model.safetensors", "tidybert.json", "config.json", "training_texts.npy"):
        assert one[name] == other[name] or name == "tidybert.json"
    arguments = [json.loads(each["arguments.json"]) for each in (one, other)]
    for each in arguments:
        del each["record"]["seconds"], each["record"]["stages"]
    assert arguments[0] == arguments[1]
    assert in_memory.metrics == of_file.metrics
    answers = [each.predict(["the red cow"]) for each in (in_memory, Predictor(tmp_path / "shell"))]
    assert answers[0] == answers[1]
    in_memory.save(tmp_path / "saved")
    assert Predictor(tmp_path / "saved").predict(["the red cow"]) == answers[0]
    with pytest.raises(UsageError, match="holds a RUN"):
        in_memory.save(tmp_path / "saved")
    capsys.readouterr()

    found = tidybert.evaluate(tmp_path / "file", rows)
    assert shell.run(["evaluate", str(tmp_path / "file"), str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert found["num_trained_on"] == 96
    assert tidybert.evaluate(in_memory, rows)["accuracy"] == found["accuracy"]


TASKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "classify": ([(text, n % 2) for n, text in enumerate(texts(40))], {}),
    "regress": ((texts(40), np.linspace(0, 5, 40)), {}),
    "choose": (
        [(text, [f"a dog {n}", f"the cat {n}"], n % 2) for n, text in enumerate(texts(40))],
        {},
    ),
    "answer": (
        [("the dog", f"the {text}", [text[:3].strip()]) for text in texts(40)],
        {"max_query_length": 4},
    ),
    "multi-label": (
        [(text, ["x", "y"] if n % 2 else ["x"]) for n, text in enumerate(texts(40))],
        {"task": "classify", "multi_label": True},
    ),
    "tag": (
        [(text.split(), ["B-X", "O", "O", "O"][: len(text.split())]) for text in texts(40)],
        {},
    ),
}


TASKS["embed"] = [(text, f"we saw {text}") for text in texts(40)], {}

METRICS: dict[str, Any] = {
    "classify": ClassMetrics,
    "multi-label": LabelSetMetrics,
    "regress": ScoreMetrics,
    "choose": ChoiceMetrics,
    "answer": SpanMetrics,
    "tag": TagMetrics,
    "embed": VectorMetrics,
}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_takes_tuples(task: Any, tiny_model: Path) -> None:
    data, options = TASKS[task]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"task": task, "model": tiny_model, **options}
        found = tidybert.finetune(data, max_steps=1, max_seq_length=24, **options)
        metrics = tidybert.evaluate(found, data)

    assert found.task.name == task
    assert metrics["num_examples"] == 40
    typed = METRICS[task]
    assert typed.__required_keys__ <= {*metrics} <= {*get_type_hints(typed)}


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize(
    "labels", [[3, 10], [False, True], [Colour.RED, Colour.BLUE], np.array([3, 10])]
)
def test_labels_come_back_as_they_were(labels: Any, tiny_model: Path, tmp_path: Path) -> None:
    data = [(text, labels[n % 2]) for n, text in enumerate(texts(40))]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tidybert.finetune(
            data, model=tiny_model, out=tmp_path, max_steps=1, max_seq_length=16
        )

    for predictor in (found, Predictor(tmp_path)):
        answer = predictor.predict("the red dog")
        assert answer["label"] in list(labels)
        assert set(answer["scores"]) == set(labels)
        assert not isinstance(answer["label"], str)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tidybert.evaluate(tmp_path, data)["num_examples"] == 40


RANDOM: dict[str, Any] = {"max_steps": 1, "head_start": "random"}


def test_findings_and_a_collapse_are_warnings_at_the_users_line(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_module, "collapsed_to", lambda _answers: "x")
    data = [(text, "xy"[n % 2]) for n, text in enumerate(texts(36))] + [("red", "y")] * 3

    with pytest.warns(UserWarning, match="collapsed") as warned:
        tidybert.finetune(data, model=tiny_model, dev=0.1, max_seq_length=16, **RANDOM)

    found = {each.category: str(each.message) for each in warned}
    assert {*found} == {DataWarning, CollapseWarning}
    assert {each.filename for each in warned} == {__file__}
    assert "the model collapsed: it gives every dev example the answer" in found[CollapseWarning]
    assert "lower learning_rate" in found[CollapseWarning]
    assert any("(rows 37, 38)" in str(each.message) for each in warned)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"task": "clasify"},
            UsageError,
            r"task is 'clasify'; expected .* did you mean 'classify'",
        ),
        (
            {"learing_rate": 1},
            UsageError,
            "learing_rate is not a parameter; did you mean 'learning_rate'",
        ),
        (
            {"dev": 1.5},
            UsageError,
            "dev is 1.5: expected labelled data, or a fraction from 0 to below 1",
        ),
        ({"dev": True}, UsageError, "dev is True: expected labelled data"),
        ({"dev": [("a", None)]}, DataError, r"dev\[0\]: the label is empty"),
        ({"data": "absent.csv"}, DataError, "absent.csv: cannot be read: no such file"),
        ({"data": 7}, DataError, "data is 7, of type int: expected a file's path"),
        ({"text": "message"}, DataError, "data: text 'message': there is no such column"),
        ({"long": "middle"}, UsageError, "long is middle; expected truncate, head-tail or windows"),
        ({"n_best_size": 3}, UsageError, "n_best_size has no meaning for classify"),
        ({"train_batch_size": 0}, UsageError, "train_batch_size is 0"),
        ({"lr": 1e-4}, UsageError, "lr is not a parameter; it is 'learning_rate' here"),
        ({"multi_label": "yes"}, UsageError, "multi_label is 'yes'; expected true or false"),
        ({"label": ["a", "b"]}, UsageError, r"label is \['a', 'b'\]; expected a name"),
        ({"max_seq_length": "12"}, UsageError, "max_seq_length is '12'; expected a whole number"),
        ({"model": 3}, ModelNotFoundError, "the model is 3, of type int: expected the name"),
        ({"out": 3}, UsageError, "out is 3; expected the path of a directory"),
        (
            {"data": [("a", 0), ("b", False), ("c", 1)]},
            DataError,
            "the labels are 0, False, 1, and Python takes two of them for equal",
        ),
    ],
)
def test_what_goes_wrong_names_the_parameter(
    given: dict[str, Any], error: type[Exception], message: str, tiny_model: Path
) -> None:
    data = given.pop("data", [(text, str(n % 2)) for n, text in enumerate(texts(20))])

    with pytest.raises(error, match=message):
        tidybert.finetune(data, **{"model": tiny_model, **given})


def test_options_may_be_numpys_scalars(tiny_model: Path) -> None:
    data = [(text, str(n % 2)) for n, text in enumerate(texts(20))]
    given = {**RANDOM, "max_seq_length": np.int64(16), "learning_rate": np.float32(0.01)}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tidybert.finetune(data, model=tiny_model, **{**given, "seed": np.int64(7)})

    assert type(found.max_seq_length) is int


def test_an_unknown_label_is_named_with_its_row(tiny_run: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)data: 1 label .*'bird', on row 1"):
        tidybert.evaluate(tiny_run, [("a dog", "animal"), ("a hen", "bird")])
    with pytest.raises(UsageError, match="device is for a RUN on disk"):
        tidybert.evaluate(Predictor(tiny_run), [("a dog", "animal")], device="cpu")
    with pytest.raises(UsageError, match=r"run is of type BertClassifier; .* report\(X, y\)"):
        tidybert.evaluate(tidybert.BertClassifier(), [("a dog", "animal")])  # type: ignore[arg-type]


def test_skipped_rows_are_a_warning(tiny_run: Path) -> None:
    data = [("a dog", "animal"), ("the red", None), ("the blue", "colour")]

    with pytest.warns(DataWarning, match=r"(?s)1 row skipped:.*data\[1\]: the label is empty"):
        found = tidybert.evaluate(tiny_run, data, skip_bad_rows=True)

    assert found["num_examples"] == 2


def test_a_report_is_written(tiny_run: Path, tmp_path: Path) -> None:
    data = [("a dog", "animal"), ("the red", "colour")] * 4

    tidybert.evaluate(tiny_run, data, report=tmp_path / "report", resamples=100)

    assert (tmp_path / "report" / "report.html").is_file()


def test_a_model_reports_on_the_part_held_out(tiny_model: Path, tmp_path: Path) -> None:
    data = [(text, "xy"[n % 2]) for n, text in enumerate(texts(40))]
    found = tidybert.finetune(data, model=tiny_model, max_steps=1, max_seq_length=16, dev=0.5)

    report = found.report(resamples=100)

    assert "few examples, 20" in report._repr_html_()
    shown = "model='TINY', trained_on='data in memory', steps=1, run='a model in memory', task="
    assert repr(found).startswith(f"FinetunedModel({shown.replace('TINY', str(tiny_model))}")
    assert report._repr_html_().startswith('<iframe srcdoc="&lt;!')
    assert report.save(tmp_path / "report").is_file()
    assert repr(report) == "ShownReport(model='a model in memory', data='the dev examples')"
    with pytest.raises(UsageError, match="no examples were held out"):
        replace(found, held_out=()).report()
    given = {"max_steps": 1, "max_seq_length": 16, "dev": 0.5, "out": tmp_path / "run"}
    best = tidybert.finetune(data, model=tiny_model, seeds=2, **given)
    assert best.held_out == found.held_out


def test_every_metric_has_a_type() -> None:
    assert {*METRICS} == {*get_args(TaskName), MultiLabelClassification.name}
    for name, typed in METRICS.items():
        is_set = name == MultiLabelClassification.name
        task = MultiLabelClassification if is_set else task_class(name)
        assert {*task.meanings} <= {*get_type_hints(typed)}


def test_load_data_reads_files_and_rows(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,label\na dog,x\n")

    (from_file,), (from_rows,) = (tidybert.load_data(data) for data in (file, [("a dog", "x")]))

    assert (from_file.text, from_file.label) == (from_rows.text, from_rows.label) == ("a dog", "x")
    (words,) = tidybert.load_data([(["a", "dog"], ["O", "B-x"])], "tag")
    assert words.tags == ("O", "B-x")
    assert tidybert.load_data([("a dog",)], labelled=False)[0].label is None
    swag = {"sent1": ["It rains."], "sent2": ["I"], "ending0": ["go"], "ending1": ["run"]}
    (chosen,) = tidybert.load_data({**swag, "label": [np.int64(1)]}, "choose")
    assert (chosen.continued(), chosen.label) == (["I go", "I run"], 1)
    squad = {"id": "q", "question": "Who?", "context": "Rollo came."}
    answers = {"text": np.array(["Rollo"]), "answer_start": np.array([0])}
    (asked,) = tidybert.load_data([{**squad, "answers": answers}], "answer")
    assert asked.answers == (("Rollo", 0),)
    (sets,) = tidybert.load_data([("a dog", ["x", "y"])], multi_label=True)
    assert sets.labels == ("x", "y")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", [list, tuple, np.array, "Series"])
def test_texts_and_labels_are_two_arguments_too(tiny_model: Path, kind: Any) -> None:
    if kind == "Series":
        kind = pytest.importorskip("pandas").Series
    data, labels = texts(24), ["animal", "colour"] * 12

    model = tidybert.finetune(
        kind(data), kind(labels), tiny_model, dev_fraction=0.25, max_steps=1, max_seq_length=16
    )

    assert model.task.label_names == ("animal", "colour")
    assert len(model.held_out) == 6
    assert model.predict_proba(data[:3]).shape == (3, 2)
    assert model(data[0]) == model.predict(data[0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((texts(24), ["a"] * 23), "got 24 texts and 23 labels: give one label for each text"),
        (("texts.csv", ["a"] * 23), "got 1 text and 23 labels"),
        (
            (texts(2), [0.5, 1.0]),
            "such as 0.5: for scores give finetune",
        ),
        ((texts(2), ["a", "b"], "tiny", 0.1), "dev and dev_fraction say the same: give one"),
    ],
)
def test_two_arguments_that_do_not_fit_are_told(given: Any, message: str) -> None:
    data, labels, *rest = given
    more = {"dev": rest[1], "dev_fraction": 0.1} if rest else {}
    with pytest.raises(UsageError, match=message) as raised:
        tidybert.finetune(data, labels, *rest[:1], **more)
    assert len(str(raised.value)) < 300
