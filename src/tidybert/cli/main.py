"""The program ``tidybert``: its commands, and each error as a message and an exit status.

To add a command, make a class of flags one with ``flags.command``, and name it below.
Its standard streams end no work, whether they are closed, full, gone or ASCII alone.

Exit status: 0 done, 1 failed, 2 wrong usage, 128 + the signal where one ended the command.
"""

import copy
import functools
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, Final, NoReturn, cast

import typer

from tidybert.cli.flags import app, check_paths, register
from tidybert.cli.output import complain
from tidybert.errors import OTHER_NAMES, TidyBertError, is_out_of_memory, missing_package
from tidybert.system.signals import command_signals

COMMANDS: Final = {
    "quickstart": "quickstart", "topics": "data", "label": "labelling", "check": "data",
    "finetune": "training", "evaluate": "training", "predict": "texts", "fill-mask": "texts",
    "next-sentence": "texts", "embed": "texts", "index": "texts", "search": "data", "mine": "data",
    "duplicates": "data", "build-corpus": "corpus", "inspect": "corpus", "pretrain": "training",
    "train-lm": "training", "generate": "inside", "score": "texts", "serve": "serving",
    "page": "serving", "train-vocab": "corpus", "extend-vocab": "corpus", "tokenize": "inside",
    "attention": "inside", "similar": "inside", "info": "models", "convert": "models",
    "models": "models", "download": "models",
}  # fmt: skip
"""By name, in the order of the help, the module in commands/ that has a command."""
_PLACES: Final = {name: place for place, name in enumerate(COMMANDS)}

# typer raises this for an unknown command or flag, but exports only its child.
_WrongUsage: Final = cast(type[typer.BadParameter], typer.BadParameter.__mro__[1])
INTERRUPTED: Final = 130


def _print_version(wanted: bool) -> None:
    if wanted:
        from tidybert import __version__

        print(f"tidybert {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def tidybert(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Show an error's traceback; this flag may be anywhere in the line."
        ),
    ] = False,
) -> None:
    """BERT, whole: labelled text in, a trusted model out.

    MODEL is the name of installed weights (tidybert-small), a size with random weights (mini), or
    a directory; see tidybert models. Results go to stdout, notes and progress go to stderr.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


@functools.cache
def program(only: str | None = None) -> Any:
    """The program, made once, with all its commands or one: to load all takes a quarter second."""
    for module in [COMMANDS[only]] if only else dict.fromkeys(COMMANDS.values()):
        import_module(f"tidybert.cli.commands.{module}")
    register(only)
    shown, known = copy.copy(app), app.registered_commands
    shown.registered_commands = sorted(
        (each for each in known if only in (None, each.name)),
        key=lambda each: _PLACES.get(str(each.name), len(_PLACES)),
    )
    return typer.main.get_command(shown)


def run(arguments: Sequence[str]) -> int:
    """Run one command line, without the program's name, and return its exit status.

    A user's mistake becomes a message on stderr; a bug is raised.
    """
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    debug = "--debug" in given[:end]
    given = [each for each in given[:end] if each != "--debug"] + given[end:]
    try:
        command = program(given[0] if given and given[0] in COMMANDS else None)
        check_paths(given)
        with command.make_context("tidybert", given) as context:
            command.invoke(context)
        finish_stdout()
    except BaseException as error:
        status = _say_why(error, debug)
        if status is None:
            raise
        return status
    return 0


def _say_why(error: BaseException, debug: bool) -> int | None:
    """Tell the user why a command ended, and return its exit status; None for a bug of ours."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        with suppress(OSError):
            finish_stdout()
        return 1
    if isinstance(error, _WrongUsage):
        complain(f"error: {_with_our_name(error)}")
        complain(f"see: {error.ctx.command_path if error.ctx else 'tidybert'} --help")
        return 2
    if debug:
        complain("".join(traceback.format_exception(error)).rstrip())
    interrupted = command_signals.interrupted
    if interrupted is not None:
        # Whatever else was raised: a library may turn the interrupt into an error of its own.
        return interrupted.exit_status
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        complain("interrupted")
        return INTERRUPTED
    error = missing_package(error) or error
    if isinstance(error, TidyBertError | OSError):
        complain(f"error: {error.message if isinstance(error, TidyBertError) else error}")
        return error.exit_status if isinstance(error, TidyBertError) else 1
    if is_out_of_memory(error):
        first, *_ = [*str(error).splitlines(), ""]
        complain(
            f"error: the machine has too little memory{first and f': {first}'}; end other "
            "programs, read less at once, or take a smaller model or batch"
        )
        return 1
    return None


def _with_our_name(error: Any) -> str:
    """The message of a wrong usage, with our name of what other programs call otherwise."""
    message: str = error.format_message()
    found = re.match(r"(No such (option: --|command '))([\w-]+)('?)", message)
    if found is None:
        return message
    ours = OTHER_NAMES.get(found[3].replace("-", "_"), "").replace("_", "-")
    if found[2] == "command '":
        return f"{found[0]}; it is {ours!r}" if ours in COMMANDS else message
    flags = {flag for each in error.ctx.command.params for flag in each.opts}
    return f"{found[0]}; it is --{ours}" if f"--{ours}" in flags else message


def main() -> NoReturn:
    """Entry point of the installed command."""
    if "_TIDYBERT_COMPLETE" in os.environ:
        program().main(prog_name="tidybert")
    if not prepare_streams():
        complain("warning: stdout is closed, so results are shown nowhere")
    command_signals.is_working = True
    status = run(sys.argv[1:])
    command_signals.is_working = False
    with suppress(OSError):
        finish_stdout()
    sys.exit(status)


_STDIN, _STDOUT, _STDERR = range(3)


class LastingStderr(io.FileIO):
    """Standard error that never raises: it counts lost messages, and reports them later.

    So a full disk, a terminal that has gone or a reader that has ended costs messages, and not the
    work that they are about.
    """

    def __init__(self, descriptor: int = _STDERR) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._lost = 0

    def write(self, data: Any, /) -> int:
        """Write all of ``data``, as far as anybody can receive it."""
        left = bytes(data)
        size = len(left)
        if self._lost:
            left = b"(%d bytes of messages could not be written here)\n" % self._lost + left
        try:
            while left:
                # None: whoever shares the stream made it non-blocking, and it is full.
                left = left[super().write(left) or len(left) :]
            self._lost = 0
        except OSError:
            self._lost += size
        return size


def prepare_streams() -> bool:
    """Make the three streams of this process such that no message and no result is a traceback.

    A closed stream gets the null device, so that no file of the command takes its number and is
    written to by whoever prints.  Standard output spells what its encoding lacks as an escape.
    """
    closed = [number for number in (_STDIN, _STDOUT, _STDERR) if _is_closed(number)]
    for _ in closed:
        # The lowest free number each.  Reading from a closed stdin is then still an error.
        os.open(os.devnull, os.O_WRONLY)
    if _STDIN in closed:
        sys.stdin = open(_STDIN, encoding="utf-8", closefd=False)  # noqa: SIM115
    if _STDOUT in closed:
        sys.stdout = open(_STDOUT, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # Without a buffer, because a signal's handler may write in the midst of another write.
    sys.stderr = io.TextIOWrapper(
        LastingStderr(),
        encoding=getattr(sys.stderr, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=True,
        write_through=True,
    )
    return _STDOUT not in closed


def _is_closed(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return True
    return False


def finish_stdout() -> None:
    """Flush stdout.  Raises OSError, once, where its reader has ended."""
    try:
        sys.stdout.flush()
    except OSError:
        # Python flushes stdout once more at its end, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
