"""``tidybert finetune --seeds`` and ``--search``: the table, the RUN, and what is refused."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.checkpoints.tensor_files import read_tensors, write_tensors
from tidybert.cli.commands.training import print_trials
from tidybert.cli.main import run as shell
from tidybert.finetuning import run_finetuning as run_module
from tidybert.finetuning.finetuned_model import Trial, Trials
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.tasks.classification import Classification
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.runs.run_directory import is_finished

QUICK = ["--learning-rate", "0.01", "--train-batch-size", "16", "--max-seq-length", "16"]


@pytest.fixture
def stopped(
    tiny_model: Path, toy_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The command of two seeds, into run and from a.csv here, that was stopped after the first."""
    monkeypatch.chdir(tmp_path)
    toy_file("a.csv", 96)
    command = ["finetune", "classify", str(tiny_model), "--train", "a.csv", "--out", "run"]
    command += ["--seeds", "2", "--num-train-epochs", "1", *QUICK]
    train = run_module.train

    def stops(job: FinetuningJob, *given: Any) -> Any:
        if job.arguments.seed == 43:
            raise TrainingInterrupted("stopped", 2)
        return train(job, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "train", stops)
        assert shell(command) == 130
    return command


def test_force_begins_the_trials_again(stopped: list[str], capsys: Any) -> None:
    capsys.readouterr()
    assert shell([*stopped, "--max-steps", "1", "--force"]) == 0
    assert "trial 1 of 2: seed-42" in capsys.readouterr().err


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
    trials = json.loads((run / "trials.json").read_text())["trials"]
    assert accuracy == max(each["metrics"]["accuracy"] for each in trials)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--learning-rate", "0.02"], "--learning-rate: 0.01 before, 0.02 now"),
        (
            ["--class-weight", "balanced"],
            "--class-weight: not given before, balanced now",
        ),
        (["--train", "other.csv"], "--train: not the same as before"),
        (["--dev", "other.csv"], r"--dev-fraction: 0.1 before, not given now\n  --dev: not"),
    ],
)
def test_trials_go_on_with_the_same_settings_alone(
    flags: list[str],
    message: str,
    stopped: list[str],
    toy_file: Callable[..., Path],
    capsys: Any,
) -> None:
    toy_file("other.csv", 40, seed=2)

    assert shell([*stopped, "--resume", *flags]) == 2

    assert re.search(rf"the trials in run/trials.json .*\n  {message}", capsys.readouterr().err)


def test_trials_go_on_with_a_model_and_data_that_were_moved(
    stopped: list[str],
    tiny_model: Path,
    capsys: Any,
) -> None:
    shutil.copytree(tiny_model, "model")
    shutil.move("a.csv", "b.csv")
    moved = [*stopped, "--resume", "--train", "b.csv"]
    moved[2] = "model"

    assert shell(moved) == 0

    err = capsys.readouterr().err
    assert "trial 1 of" not in err
    assert "trial 2 of 2: seed-43" in err
    assert is_finished(Path("run"))


def test_with_other_weights_trials_do_not_go_on(
    stopped: list[str],
    tiny_model: Path,
    capsys: Any,
) -> None:
    shutil.copytree(tiny_model, "model")
    tensors = {name: value + 1e-3 for name, value in read_tensors(Path("model")).items()}
    write_tensors(Path("model"), tensors)
    other = [*stopped, "--resume"]
    other[2] = "model"

    assert shell(other) == 2

    assert re.search(
        r"other settings; .*\n  MODEL: not the same as before", capsys.readouterr().err
    )


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
        (["--time-limit", "3"], "--time-limit needs --search"),
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
