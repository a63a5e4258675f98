"""A program that loads tidybert once, and forks a process for each command with a fault.

Reads JSON lines, and answers each with one:

{"start": argv, "root": DIR, "log": FILE, "kind": KIND, "at": N} starts a command, whose N-th call
that changes files under DIR goes wrong; answers {"pid": ...}.
{"wait": pid} answers {"stopped": true}, or {"status": ..., "calls": ...}; a signal is negative.
{"go": pid} lets a stopped command go on.

KIND is count (nothing goes wrong), kill-before, kill-after, stop, an error such as ENOSPC, which
stays, or EIO, which comes once, a signal such as SIGTERM, or limit (no file may have more than N
bytes).  A command ["save", FROM, TO] saves an estimator.
"""

import builtins
import contextlib
import errno
import importlib
import io
import itertools
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tidybert.cli.main
from tidybert.__main__ import main
from tidybert.errors import TidyBertError, UsageError
from tidybert.estimators import BertClassifier

# All that the commands load, so that no forked process has to.
for _name in (
    "torch._dynamo",
    "torch.distributed.tensor",
    "tidybert.corpus.building",
    "tidybert.finetuning.api",
    "tidybert.search.hard_negatives",
    "tidybert.inference.predictor",
    "tidybert.inference.answer_files",
    "tidybert.pretraining.pretraining_run",
    "tidybert.reporting.evaluation",
    "tidybert.reporting.pretraining_curves",
    "tidybert.reporting.writing",
    "tidybert.search.index_files",
    "tidybert.tokenization.learning.new_pieces",
    "tidybert.tokenization.learning.vocabulary_training",
):
    importlib.import_module(_name)

_PATHS = ("mkdir", "rmdir", "unlink", "remove", "rename", "replace")
_DESCRIPTORS = ("write", "fsync", "ftruncate")
_NEEDS_ROOM = ("open", "write", "mkdir")


class Faults:
    """Wraps the calls that change files under ``root``; see above."""

    def __init__(self, root: str, kind: str, at: int) -> None:
        self.root, self.kind, self.at = os.path.realpath(root), kind, at
        self.calls = 0
        self._numbers = itertools.count(1)

    def install(self) -> None:
        if self.kind == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.at, resource.RLIM_INFINITY))
        for name in _PATHS:
            self._wrap(os, name, lambda path, *_, dir_fd=None: self._is_ours(path, dir_fd))
        for name in _DESCRIPTORS:
            self._wrap(os, name, lambda descriptor, *_: self._is_ours("", descriptor))
        changes = os.O_WRONLY | os.O_RDWR | os.O_CREAT
        self._wrap(
            os, "open", lambda path, flags, *_, **__: flags & changes and self._is_ours(path)
        )
        for module in (builtins, io):
            self._wrap(module, "open", self._is_opened_to_write)

    def _is_opened_to_write(self, file: Any, mode: str = "r", *_: Any, **__: Any) -> bool:
        return not isinstance(file, int) and not mode.startswith("r") and self._is_ours(file)

    def _is_ours(self, path: Any, descriptor: int | None = None) -> bool:
        where = os.fsdecode(path)
        if descriptor is not None:
            where = f"{os.path.realpath(f'/proc/self/fd/{descriptor}')}/{where}"
        return os.path.realpath(where).startswith(self.root)

    def _wrap(self, module: Any, name: str, is_counted: Callable[..., bool]) -> None:
        real = getattr(module, name)

        def wrapped(*given: Any, **named: Any) -> Any:
            if not is_counted(*given, **named):
                return real(*given, **named)
            number = self.calls = next(self._numbers)
            self._before(name, number)
            try:
                return real(*given, **named)
            finally:
                if number == self.at and self.kind == "kill-after":
                    os.kill(os.getpid(), signal.SIGKILL)

        setattr(module, name, wrapped)

    def _before(self, name: str, number: int) -> None:
        is_now = number == self.at
        if self.kind == "kill-before" and is_now:
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "stop" and is_now:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.kind.startswith("SIG") and is_now:
            os.kill(os.getpid(), getattr(signal, self.kind))
        elif (self.kind == "EIO" and is_now) or (
            self.kind == "ENOSPC" and number >= self.at and name in _NEEDS_ROOM
        ):
            code = getattr(errno, self.kind)
            raise OSError(code, os.strerror(code))


def save(source: str, target: str) -> None:
    """Load an estimator and save it elsewhere."""
    try:
        BertClassifier.load(source).save(target)
    except TidyBertError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)


def start(argv: list[str], root: str, log: str, kind: str, at: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status: Any = 0
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        faults = Faults(root, kind, at)
        faults.install()
        sys.argv = ["tidybert", *argv]
        if argv[0] == "save":
            save(*argv[1:])
        else:
            main()
    except SystemExit as error:
        status = error.code
    except BaseException:
        traceback.print_exc()
        status = 99
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        Path(f"{log}.calls").write_text(str(faults.calls))
        sys.stderr.flush()
        os._exit(status or 0)
    return pid


def serve() -> None:
    # Builds the command line, which takes a while the first time.
    with contextlib.redirect_stdout(io.StringIO()):
        tidybert.cli.main.run(["--help"])
    logs: dict[int, str] = {}
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        if "start" in request:
            pid = start(*(request[name] for name in ("start", "root", "log", "kind", "at")))
            logs[pid] = request["log"]
            answer = {"pid": pid}
        elif "go" in request:
            os.kill(request["go"], signal.SIGCONT)
            answer = {}
        else:
            pid, found = os.waitpid(request["wait"], os.WUNTRACED)
            if os.WIFSTOPPED(found):
                answer = {"stopped": True}
            else:
                calls = Path(f"{logs[pid]}.calls")
                answer = {
                    "status": os.waitstatus_to_exitcode(found),
                    "calls": int(calls.read_text()) if calls.exists() else 0,
                }
        print(json.dumps(answer), flush=True)
    # PyTorch takes seconds to clear up.
    os._exit(0)


if __name__ == "__main__":
    serve()
