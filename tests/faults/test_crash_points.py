"""Faults at the calls by which commands change files: nothing is lost, nothing is left behind.

After a kill, an error of the disk or a signal the same command runs again, and the folder must hold
the same bytes as after an undisturbed run, and no other file.  TIDYBERT_FAULTS is the number of
calls to try for each command and fault, or "all"; the short form tries one of some commands.
"""

import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

COMMANDS = (
    "finetune",
    "pretrain",
    "predict",
    "predict-sheet",
    "embed",
    "index",
    "replace",
    "words",
    "delete",
    "compact",
    "mine",
    "build-corpus",
    "train-vocab",
    "extend-vocab",
    "convert",
    "evaluate",
    "save",
)
WANTED = os.environ.get("TIDYBERT_FAULTS", "")
GetTrial = Callable[[str], Any]

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="forks, and reads /proc")


def in_short(*names: str) -> Sequence[str]:
    """All commands in the long form, these in the short one."""
    return COMMANDS if WANTED else names


def points(trial: Any, fault: str) -> list[int]:
    """The calls to try, the same each time."""
    calls = range(1, trial.calls + 1)
    if WANTED == "all":
        return list(calls)
    chosen = random.Random(f"{trial.name} {fault}").sample(calls, min(int(WANTED or 1), len(calls)))
    return sorted(chosen)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_kill_costs_nothing(name: str, trial: GetTrial) -> None:
    tried = trial(name)
    for at in points(tried, "kill"):
        kinds = ("kill-before", "kill-after")
        for kind in kinds if WANTED else (kinds[at % 2],):
            work = tried.work()
            assert tried.run(work, kind, at).status == -9, (kind, at)
            tried.go_on(work)


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO"])
@pytest.mark.parametrize(
    "name", in_short("finetune", "predict-sheet", "build-corpus", "extend-vocab")
)
def test_an_error_of_the_disk_is_a_message_and_costs_nothing(
    name: str, fault: str, trial: GetTrial
) -> None:
    tried = trial(name)
    for at in points(tried, fault):
        work = tried.work()
        ended = tried.run(work, fault, at)
        assert "Traceback" not in ended.messages, (at, ended.messages)
        assert ended.status in (0, 1), (at, ended.messages)
        reason = {"ENOSPC": "No space left on device", "EIO": "Input/output error"}[fault]
        # An error while clearing up after success changes nothing for the user.
        assert ended.status == 0 or re.search(rf"error: .*/.*{reason}", ended.messages), at
        tried.go_on(work)


@pytest.mark.parametrize("name", ("finetune", "pretrain", "save") if WANTED else ("pretrain",))
def test_a_disk_that_takes_a_part_of_a_file_costs_nothing(name: str, trial: GetTrial) -> None:
    tried = trial(name)
    # The messages are in a file too.
    sizes = sorted({len(content) for content in tried.whole.values() if len(content) > 4000})
    for size in sizes if WANTED else sizes[len(sizes) // 2 :][:1]:
        work = tried.work()
        ended = tried.run(work, "limit", size - 50)
        assert "Traceback" not in ended.messages, (size, ended.messages)
        assert ended.status == 1, (size, ended.messages)
        assert "File too large" in ended.messages
        tried.go_on(work)


@pytest.mark.parametrize("fault", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("name", in_short("pretrain"))
def test_a_signal_ends_a_command_with_its_status_and_costs_nothing(
    name: str, fault: str, trial: GetTrial
) -> None:
    if name == "save":
        pytest.skip("the program that calls save decides what a signal does")
    tried = trial(name)
    for at in points(tried, fault):
        work = tried.work()
        ended = tried.run(work, fault, at)
        assert "Traceback" not in ended.messages, (at, ended.messages)
        # 0: the run was past its last step.
        expected = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}[fault]
        assert ended.status in (0, expected), (at, ended.messages)
        tried.go_on(work)


@pytest.mark.parametrize("name", in_short("finetune", "predict", "build-corpus"))
def test_of_two_processes_on_one_output_one_finishes_and_the_other_says_why_not(
    name: str, trial: GetTrial
) -> None:
    tried = trial(name)
    for at in points(tried, "two"):
        work = tried.work()
        line = tried.line(tried.target(work))
        first = tried.server.start(line, work, "stop", at)
        assert tried.server.wait(first) is None
        second = tried.run(work, "beside")
        tried.server.go(first)
        ended = tried.server.wait(first)
        assert "Traceback" not in ended.messages + second.messages
        assert 0 in (ended.status, second.status), (at, ended.messages, second.messages)
        for each in (ended, second):
            assert each.status == 0 or re.search(
                "in use by|already|not empty|holds a RUN|somebody else", each.messages
            ), (at, each.messages)
        tried.check(work)
