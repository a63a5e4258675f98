"""``tidybert finetune --seeds`` and ``--search``: the table, the RUN, and what is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.main import run as shell
from tidybert.finetuning import is_finished

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
