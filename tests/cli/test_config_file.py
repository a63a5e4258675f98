"""--config repeats a run to the same bits; other files are refused."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tidybert.cli.main import run as shell

SHORT = ("--max-seq-length", "16")


def test_config_repeats_a_run_to_the_same_bits_and_flags_win(
    tiny_model: Path, toy_file: Callable[..., Path], tmp_path: Path, capsys: Any
) -> None:
    train = toy_file("train.csv", 60)
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    command = ["finetune", "classify", str(tiny_model), "--train", str(train), "--out", str(first)]
    flags = ["--max-steps", "3", "--max-seq-length", "16", "--class-weight", "balanced"]
    flags += ["--dev-fraction", "0.1"]
    assert shell([*command, *flags, "--learning-rate", "1e-2", "--no-quoting"]) == 0
    written = json.loads((first / "arguments.json").read_text())
    assert (written["train"], written["dev"], written["dev_fraction"]) == (str(train), None, 0.1)
    record = written["record"]
    assert record["files"]["train"]["bytes"] == train.stat().st_size
    assert len(record["files"]["train"]["sha256"]) == 64
    assert (record["num_train"], record["num_dev"], record["num_steps"]) == (54, 6, 3)
    assert record["seconds"] > 0
    assert record["threads"] == 1
    assert record["processor"]
    assert record["versions"]["torch"]
    reading = json.loads((first / "tidybert.json").read_text())["reading"]
    assert reading["columns"] == {"text": "text", "label": "label"}
    assert reading["quoting"] is False

    repeat = ["finetune", "--config", str(first / "arguments.json"), "--out"]
    assert shell([*repeat, str(again)]) == 0
    assert (again / "model.safetensors").read_bytes() == (first / "model.safetensors").read_bytes()

    train.write_text(train.read_text() + "a new red one,colour\n")
    capsys.readouterr()
    assert shell([*repeat, str(other), "--max-steps", "1"]) == 0
    assert "train.csv is not the --train data of the run" in capsys.readouterr().err
    changed = json.loads((other / "arguments.json").read_text())
    assert (changed["max_steps"], changed["class_weight"]) == (1, "balanced")

    # A RUN that is there is replaced on request alone, and a file of the user stays.
    (other / "notes.txt").write_text("mine")
    assert shell([*repeat, str(other), "--max-steps", "2"]) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert shell([*repeat, str(other), "--max-steps", "2", "--force"]) == 0
    assert json.loads((other / "arguments.json").read_text())["max_steps"] == 2
    assert (other / "notes.txt").read_text() == "mine"
    assert not (other / "checkpoints").exists()


def test_other_files_are_refused(tiny_run: Path, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "arguments.json"
    for content, said in (
        ({"task": "pretrain"}, "these are the arguments of pretrain, not of finetune"),
        ({"task": "classify", "learning_rat": 1}, "no argument 'learning_rat'; did you mean"),
        ({"task": "train-lm"}, "these are the arguments of train-lm, not of finetune"),
        ({"accuracy": 1}, "these are the arguments of another program"),
    ):
        path.write_text(json.dumps(content))
        assert shell(["finetune", "--config", str(path), "--out", str(tmp_path / "run")]) == 2
        assert said in capsys.readouterr().err


def test_a_file_of_an_earlier_version_is_taken_where_it_did_what_is_done_now(
    tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "arguments.json"
    same = {"ramp_share": 0.0, "decay_share": 0.2, "span": False, "max_span_length": 7}
    for values, said in (
        (same, "Missing argument 'SIZE_OR_MODEL'"),
        ({**same, "ramp_share": 0.5}, "pretrain has no argument 'ramp_share'"),
        ({**same, "decay_share": 0.5}, "pretrain has no argument 'decay_share'"),
        ({"schedule": "linear", "decay_share": 1.0}, "Missing argument 'SIZE_OR_MODEL'"),
    ):
        path.write_text(json.dumps({"task": "pretrain", **values}))
        command = ["pretrain", "--config", str(path), "--data", "x", "--out", str(tmp_path / "run")]
        assert shell(command) == 2
        assert said in capsys.readouterr().err


def test_the_texts_that_trained_a_model_are_counted(
    tiny_model: Path, toy_file: Callable[..., Path], tmp_path: Path, capsys: Any
) -> None:
    train, dev = toy_file("train.csv", 60), toy_file("dev.csv", 20, seed=1)
    run = str(tmp_path / "run")
    files = ["--train", str(train), "--dev", str(dev), "--out", run]
    assert shell(["finetune", "classify", str(tiny_model), *files, "--max-steps", "1", *SHORT]) == 0
    assert len(np.load(tmp_path / "run" / "training_texts.npy")) <= 60
    capsys.readouterr()

    report = ["--resamples", "100", "--report"]
    assert shell(["evaluate", run, str(train), "--json", *report, str(tmp_path / "of-train")]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["num_trained_on"] == 60
    assert "trained on 60 of 60 examples in" in printed.err

    assert shell(["evaluate", run, str(dev)]) == 0
    assert f"{dev} chose the best weights" in capsys.readouterr().err


def test_a_run_of_pairs_reads_the_next_file_as_its_own_and_refuses_single_texts(
    tiny_model: Path, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    rows = [f"{word};the old {other};{label}" for word, other, label in (
        ("red", "cat", "colour"), ("hen", "dog", "animal"), ("blue", "hen", "colour"),
        ("cow", "cow", "animal"),
    )]  # fmt: skip
    train = tmp_path / "train.csv"
    train.write_text("\n".join(["first;second;kind", *rows]) + "\n")
    run = str(tmp_path / "run")
    columns = ["--text", "first", "--text-pair", "second", "--label", "kind"]
    command = ["finetune", "classify", str(tiny_model), "--train", str(train), "--dev", str(train)]
    flags = [
        *columns,
        "--delimiter",
        "semicolon",
        "--max-steps",
        "1",
        *SHORT,
        "--log-to",
        "tensorboard",
    ]
    figures: list[str] = []

    class SummaryWriter:
        def __init__(self, _directory: Path, purge_step: int) -> None: ...

        def add_scalar(self, name: str, _value: float, _step: int) -> None:
            figures.append(name)

        def close(self) -> None: ...

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    assert shell([*command, *flags, "--out", run]) == 0
    assert {"train/loss", "eval/accuracy"} <= {*figures}

    # No flag names a column or the delimiter again.
    assert shell(["evaluate", run, str(train), "--json"]) == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"He ate a stone\n")))
    capsys.readouterr()
    assert shell(["predict", run]) == 1
    assert "a single text, but the model was trained on pairs" in capsys.readouterr().err
