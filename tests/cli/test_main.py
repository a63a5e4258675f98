"""The shell: exit statuses, messages, suggestions, and what a light command may import."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidybert import errors
from tidybert.cli import main as shell
from tidybert.tasks.registry import task_names

HEAVY = ("torch", "sklearn", "scipy", "pyarrow", "fastapi", "transformers", "numpy", "rich")


@pytest.fixture
def command() -> Iterator[list[BaseException]]:
    """Registers a command ``raise-it`` that raises what the test puts into the list."""
    to_raise: list[BaseException] = []

    def raise_it() -> None:
        for error in to_raise:
            raise error

    shell.program()
    shell.app.command("raise-it", hidden=True)(raise_it)
    shell.program.cache_clear()
    yield to_raise
    shell.app.registered_commands.pop()
    shell.program.cache_clear()


def tidybert(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidybert", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def test_the_version_is_the_installed_one(capsys) -> None:
    from importlib.metadata import version

    assert shell.run(["--version"]) == 0
    assert capsys.readouterr().out == f"tidybert {version('tidybert')}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command_on_stdout(arguments: list[str], capsys) -> None:
    assert shell.run(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for registered in shell.app.registered_commands:
        assert registered.name in out


def test_a_command_is_made_from_its_own_module_alone() -> None:
    code = "import sys; from tidybert.cli.main import program; print(*program('predict').commands)"
    report = "print(*(each for each in sys.modules if each.startswith('tidybert.cli.commands.')))"

    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )

    assert done.stdout == "predict\ntidybert.cli.commands.texts\n"


def test_each_command_is_in_the_module_that_the_program_names() -> None:
    assert list(shell.program().commands) == list(shell.COMMANDS)
    for name in shell.COMMANDS:
        assert list(shell.program(name).commands) == [name]


def test_every_command_and_every_option_has_a_help_text() -> None:

    group = shell.program()
    for name, command in group.commands.items():
        assert command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", None), (name, parameter.name)


@pytest.mark.parametrize(
    "words", [*([name] for name in shell.COMMANDS), *(["finetune", each] for each in task_names())]
)
def test_help_speaks_only_of_flags_that_it_shows(words: list[str], capsys) -> None:
    assert shell.run([*words, "--help"]) == 0
    shown = re.sub(r"-\n +", "-", capsys.readouterr().out)
    flag = r"(?<![\w-])--[a-z][a-z-]*"
    own = {each for line in re.findall(r"^  --.*", shown, re.M) for each in re.findall(flag, line)}
    # Of other programs and commands.
    others = {"pretrain": {"--nproc-per-node"}, "train-vocab": {"--vocab"}}.get(words[0], set())

    assert {*re.findall(flag, shown)} - own - {"--help"} == others


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["modles"], "Did you mean 'models'?"),
        (["models", "--jsn"], "--json"),
        (["models", "surplus"], "surplus"),
        (["download"], "NAME"),
        (["--vresion"], "--version"),
        (["train", "classify"], "No such command 'train'; it is 'finetune'"),
        (["finetune", "classify", "--lr", "1e-4"], "No such option: --lr; it is --learning-rate"),
        (["finetune", "classify", "--epochs=3"], "it is --num-train-epochs"),
        (["train-vocab", "--vocab-size", "300"], "it is --size"),
        (["pretrain", "tiny", "--corpus", "shards"], "No such option: --corpus; it is --data"),
        (["predict", "--epochs", "3"], "No such option: --epochs"),
    ],
)
def test_wrong_usage_is_named_and_exits_2(arguments: list[str], message: str, capsys) -> None:
    assert shell.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert "--help" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.DataError("train.csv:7: no label"), 1),
        (errors.UsageError("--seed is -1; give 0 or more"), 2),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "train.csv"), 1),
    ],
)
def test_a_users_error_is_a_message_without_a_traceback(
    command: list[BaseException], error: Exception, status: int, capsys
) -> None:
    command.append(error)
    assert shell.run(["raise-it"]) == status
    assert capsys.readouterr() == ("", f"error: {error}\n")


@pytest.mark.parametrize("arguments", [["--debug", "raise-it"], ["raise-it", "--debug"]])
def test_debug_shows_the_traceback_before_the_message(
    command: list[BaseException], arguments: list[str], capsys
) -> None:
    command.append(errors.WeightsError("the file is damaged"))
    assert shell.run(arguments) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert "in raise_it" in err
    assert err.endswith("error: the file is damaged\n")


def test_debug_behind_two_dashes_is_an_argument(capsys) -> None:
    assert shell.run(["download", "--", "--debug"]) == 1
    assert "'--debug'" in capsys.readouterr().err


@pytest.mark.parametrize("error", [AssertionError("ours"), EOFError("ours"), KeyError("ours")])
def test_a_mistake_of_our_own_is_raised(command: list[BaseException], error: Exception) -> None:
    command.append(error)
    with pytest.raises(type(error)):
        shell.run(["raise-it"])


def test_an_interrupt_is_a_short_message_and_130(command: list[BaseException], capsys) -> None:
    command.append(KeyboardInterrupt())
    assert shell.run(["raise-it"]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "tidybert", "models", "--json"],
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.stderr == b""
    assert done.returncode == 1


def test_statuses_reach_the_operating_system() -> None:
    assert tidybert("models", "--jsn").returncode == 2
    done = tidybert("download", "minlm")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "did you mean 'minilm'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_a_real_interrupt_ends_with_130() -> None:
    script = (
        "import os, signal, threading, time\n"
        "from tidybert.cli import main\n"
        "def wait() -> None:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(30)\n"
        "main.app.command('wait')(wait)\n"
        "raise SystemExit(main.run(['wait']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(
    "code",
    [
        "import tidybert; dir(tidybert)",
        "from tidybert.cli.main import run; run(['--help'])",
        "from tidybert.cli.main import run; run(['--version'])",
        "from tidybert.cli.main import run; run(['models', '--help'])",
        "from tidybert.cli.main import run; run(['download', '--help'])",
    ],
)
def test_light_commands_load_nothing_heavy(code: str) -> None:
    report = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", report], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}
    assert sorted(loaded.intersection(HEAVY)) == []


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
@pytest.mark.parametrize("command", ["predict", "embed"])
def test_too_little_memory_is_a_message(
    command: str, begin: Callable[..., Any], tiny_run: Path, tiny_model: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "a red cat,colour\nthe dog,animal\n" * 60_000)
    words = {
        "predict": ["predict", tiny_run, rows, "--out", tmp_path / "o.jsonl"],
        "embed": ["embed", tiny_model, rows, "--out", tmp_path / "o.npy"],
    }

    process = begin(*words[command], stderr=subprocess.PIPE, TIDYBERT_TEST_MIB="8")
    err = process.communicate()[1]

    assert process.returncode == 1, err
    assert "too little memory" in err
    assert "Traceback" not in err
