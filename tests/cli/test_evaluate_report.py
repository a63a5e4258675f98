"""``tidybert evaluate --report``: both files, beside the same metrics; what is refused, at once."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.main import run as shell
from tidybert.inference import predictor


def test_a_report_is_written_beside_the_metrics(
    tiny_run: Path, toy_file: Callable[..., Path], tmp_path: Path, capsys
) -> None:
    file, report = str(toy_file("dev.csv", 64, seed=1)), tmp_path / "report"

    assert shell(["evaluate", str(tiny_run), file, "--report", str(report), "--json"]) == 0

    out, err = capsys.readouterr()
    assert f"report: {report / 'report.html'}" in err
    contents = json.loads((report / "report.json").read_text(encoding="utf-8"))
    printed = json.loads(out)
    for name, metric in contents["metrics"].items():
        assert metric["value"] == printed[name]
        assert metric["low"] <= metric["high"]
    assert (contents["model"], contents["data"]) == (str(tiny_run), file)
    assert contents["training"]["evaluations"]
    assert "<!doctype html>" in (report / "report.html").read_text(encoding="utf-8")


def test_a_report_of_scores(
    tiny_score_run: Path, toy_file: Callable[..., Path], tmp_path: Path, capsys
) -> None:
    file = str(toy_file("dev.csv", 64, seed=1, scores=True))

    assert shell(["evaluate", str(tiny_score_run), file, "--report", str(tmp_path / "r")]) == 0

    assert json.loads((tmp_path / "r" / "report.json").read_text())["scores"]["points"]
    assert "pearson" in capsys.readouterr().out


def test_a_training_reports_on_what_it_holds_out(
    tiny_model: Path, toy_file: Callable[..., Path], tmp_path: Path, capsys: Any
) -> None:
    train, report = toy_file("train.csv", 60), tmp_path / "report"
    command = ["finetune", "classify", str(tiny_model), "--train", str(train), "--max-steps", "1"]
    command += ["--max-seq-length", "16", "--head-start", "random", "--report", str(report)]

    assert shell([*command, "--dev-fraction", "0.5", "--out", str(tmp_path / "run")]) == 0
    assert f"report: {report / 'report.html'}" in capsys.readouterr().err
    contents = json.loads((report / "report.json").read_text(encoding="utf-8"))
    assert (contents["num_examples"], contents["is_dev"]) == (30, True)
    assert contents["data"] == f"{train}, a part held out"
    assert contents["model"] == str(tmp_path / "run")

    # Where nothing is held out, a probe answers in folds.
    folds = ["--head-start", "probe", "--out", str(tmp_path / "folds"), "--force"]
    assert shell([*command, *folds]) == 0
    contents = json.loads((report / "report.json").read_text(encoding="utf-8"))
    assert contents["data"] == f"{train}, 5 folds"
    assert (contents["num_examples"], contents["is_dev"]) == (60, None)
    assert "figures of a probe" in contents["notes"][0]
    recorded = json.loads((tmp_path / "folds/arguments.json").read_text())["record"]
    assert contents["metrics"]["accuracy"]["value"] == pytest.approx(
        recorded["cross_validated"]["metrics"]["accuracy"]
    )
    assert shell([*command, "--out", str(tmp_path / "random")]) == 0
    assert "no report: nothing measured this training" in capsys.readouterr().err

    other = toy_file("other.csv", 24, seed=1)
    for file, is_dev in ((train, None), (other, False)):
        evaluation = ["evaluate", str(tmp_path / "run"), str(file), "--resamples", "100"]
        assert shell([*evaluation, "--report", str(report)]) == 0
        assert json.loads((report / "report.json").read_text())["is_dev"] is is_dev

    (tmp_path / "mine").write_text("mine")
    command[-1] = str(tmp_path / "mine")
    assert shell([*command, "--out", str(tmp_path / "other")]) == 2
    assert "mine is a file; name a directory" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("is_told", [True, False], ids=["notes are read", "nor notes"])
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["table", "json"])
def test_a_reader_who_leaves_early_does_not_take_the_report_along(
    flags: list[str],
    is_told: bool,
    begin: Callable[..., Any],
    tiny_run: Path,
    toy_file: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """As head does, once it has its lines; with 2>&1 notes have no reader either."""
    file, report = str(toy_file("dev.csv", 64, seed=1)), tmp_path / "report"
    command = ["evaluate", tiny_run, file, *flags, "--report", report]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = begin(*command, stdout=writing, stderr=subprocess.PIPE if is_told else writing)
        err = process.communicate()[1]
    finally:
        os.close(writing)

    assert process.returncode == 1
    assert "accuracy" in json.loads((report / "report.json").read_text())["metrics"]
    if is_told:
        assert f"report: {report / 'report.html'}" in err
        assert "Traceback" not in err


def test_foreign_files_are_refused_before_the_model_is_read(
    tiny_run: Path,
    toy_file: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    monkeypatch.setattr(predictor, "Predictor", None)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    file = str(toy_file("dev.csv", 4))

    assert shell(["evaluate", str(tiny_run), file, "--report", str(tmp_path / "mine")]) == 2

    assert "holds 'letter.txt'" in capsys.readouterr().err
