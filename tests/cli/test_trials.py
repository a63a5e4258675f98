"""``tidybert finetune --seeds`` and ``--search``: the table, the RUN, and what is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.main import run as shell
from tidybert.cli.results import print_trials
from tidybert.finetuning import Trial, Trials, is_finished
from tidybert.tasks.classification import Classification

QUICK = ["--learning-rate", "0.01", "--train-batch-size", "16", "--max-seq-length", "16"]


def test_three_seeds_in_one_command(
    tiny_model: Path, toy_file: Callable[..., Path], tmp_path: Path, capsys: Any
) -> None:
    train, dev, run = toy_file("a.csv", 96), toy_file("b.csv", 32, seed=1), tmp_path / "run"
    arguments = ["finetune", "classify", str(tiny_model), "--train", str(train), "--dev", str(dev)]
    arguments += ["--out", str(run), "--seeds", "3", "--num-train-epochs", "2", *QUICK]

    assert shell(arguments) == 0

    out, err = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("seed-4") == 3
    assert "accuracy: mean 0." in out
    assert "trial 3 of 3: seed-44" in err
    assert is_finished(run)
    assert shell(["evaluate", str(run), str(dev), "--json"]) == 0
    accuracy = json.loads(capsys.readouterr().out)["accuracy"]
    trials = json.loads((run / "trials.json").read_text())
    assert accuracy == max(each["metrics"]["accuracy"] for each in trials)


def test_a_failed_trial_is_shown_and_counted(capsys: Any) -> None:
    best, other = (Trial(f"seed-{at}", {}, {"accuracy": at / 4}, 1.0) for at in (3, 1))
    failed = Trial("seed-2", {"seed": 2}, {}, 1.0, error="the loss is nan")
    trials, task = Trials((best, failed, other), best, 0), Classification(("a", "b"))

    print_trials(trials, task, "run", as_json=False)

    out, err = capsys.readouterr()
    assert re.search(r"seed-2 +- +1 +failed", out)
    assert "accuracy: mean 0.5000, deviation 0.3536" in out
    assert "1 of 3 trials failed: mean and deviation are of the others" in err

    print_trials(trials, task, "run", as_json=True)

    printed = json.loads(capsys.readouterr().out)
    assert (printed["num_failed"], printed["mean"]) == (1, {"accuracy": 0.5})
    assert [each["error"] for each in printed["trials"]] == [None, "the loss is nan", None]


def test_where_every_seed_diverges_it_says_so(
    tiny_model: Path, toy_file: Callable[..., Path], tmp_path: Path, capsys: Any
) -> None:
    arguments = ["finetune", "classify", str(tiny_model), "--train", str(toy_file("a.csv", 96))]
    arguments += ["--out", str(tmp_path / "run"), "--seeds", "2", *QUICK, "--learning-rate", "1e38"]

    assert shell(arguments) == 1

    err = capsys.readouterr().err
    assert "seed-42: it failed: at step" in err
    assert "all 2 trials failed" in err
    assert not is_finished(tmp_path / "run")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seeds", "2", "--search"], "--search and --seeds"),
        (["--time-limit", "3"], "--time-limit is 3; .* only with --search"),
        (["--search", "--time-limit", "-1"], "--time-limit is -1"),
        (["--search", "--learning-rate", "1e-3"], "--learning-rate is given, but --search"),
    ],
)
def test_what_does_not_go_together_is_refused(
    flags: list[str],
    message: str,
    tiny_model: Path,
    toy_file: Callable[..., Path],
    tmp_path: Path,
    capsys: Any,
) -> None:
    arguments = ["finetune", "classify", str(tiny_model), "--train", str(toy_file("a.csv", 40))]

    assert shell([*arguments, "--out", str(tmp_path / "run"), *flags]) == 2

    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "run").exists()
