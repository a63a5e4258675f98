"""--quiet, --verbose and --threads mean the same in every command."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.core import TyperGroup

from tidybert.cli import main
from tidybert.cli.main import run as shell


def test_every_command_has_them() -> None:
    group = main.program()
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        for each in command.commands.values() if isinstance(command, TyperGroup) else [command]:
            flags = {flag for one in each.params for flag in one.opts}
            assert {"--quiet", "--verbose"} <= flags, name
            assert "--threads" in flags or "--device" not in flags, name


def test_quiet_leaves_results_and_errors(
    tiny_run: Path, toy_file: Callable[..., Path], capsys
) -> None:
    command = ["evaluate", str(tiny_run), str(toy_file("dev.csv", 8)), "--quiet", "--json"]
    assert shell(command) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["num_examples"] == 8

    assert shell([*command[:2], "missing.csv", "--quiet"]) == 1
    assert capsys.readouterr().err.startswith("error: missing.csv")


def test_verbose_says_what_is_decided_and_why(
    tiny_run: Path, toy_file: Callable[..., Path], capsys
) -> None:
    command = ["evaluate", str(tiny_run), str(toy_file("dev.csv", 8))]
    assert shell([*command, "--verbose"]) == 0
    err = capsys.readouterr().err
    assert "device: " in err
    assert ", because " in err
    assert "uncased, " in err

    assert shell(command) == 0
    assert "device: " not in capsys.readouterr().err


def test_quiet_and_verbose_contradict(capsys) -> None:
    assert shell(["models", "--quiet", "--verbose"]) == 2
    assert "contradict" in capsys.readouterr().err


def test_threads_are_pytorchs_and_those_of_processes_that_follow(
    tiny_run: Path, toy_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    command = ["evaluate", str(tiny_run), str(toy_file("dev.csv", 8)), "--threads", "3"]

    assert shell(command) == 0

    assert seen[0] == 3
    assert os.environ["OMP_NUM_THREADS"] == os.environ["MKL_NUM_THREADS"] == "3"
