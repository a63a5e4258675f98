"""Standard streams that are closed, full or in ASCII: messages get lost, work does not."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidybert.cli.main import LastingStderr


def shell(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the shell; $TIDYBERT is the program."""
    command = f"'{sys.executable}' -m tidybert"
    return subprocess.run(
        ["sh", "-c", script.replace("$TIDYBERT", command)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ("$TIDYBERT models --json >&-", 0, "stdout is closed"),
        ("$TIDYBERT models --json <&- >&- 2>&-", 0, ""),
        ("$TIDYBERT models --json >/dev/full", 1, "error: [Errno 28] No space left on device"),
        ("$TIDYBERT models --nonsense 2>/dev/full", 2, ""),
    ],
)
def test_no_state_of_a_stream_shows_a_traceback(script: str, status: int, words: str) -> None:
    done = shell(script)

    assert done.returncode == status
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == bool(words)


def test_no_file_takes_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    path = tmp_path / "file"
    program = (
        "import os; from tidybert.cli.main import prepare_streams; prepare_streams(); "
        f"file = open({str(path)!r}, 'w'); os.write(1, b'lost'); print('lost'); print('lost', "
        "file=__import__('sys').stderr); file.write(str(file.fileno()))"
    )
    subprocess.run(["sh", "-c", f"'{sys.executable}' -c \"{program}\" <&- >&- 2>&-"], check=True)

    assert int(path.read_text()) > 2


@pytest.mark.parametrize(
    "encoding",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)
def test_ascii_shows_what_it_lacks_as_escapes(encoding: dict[str, str]) -> None:
    done = shell("$TIDYBERT info caf\u00e9; $TIDYBERT models", **encoding)

    assert "Traceback" not in done.stderr
    assert done.stdout.isascii()
    assert done.stderr.isascii()


def test_messages_that_got_lost_are_counted_once_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "log"
    full, log = os.open("/dev/full", os.O_WRONLY), os.open(path, os.O_WRONLY | os.O_CREAT)
    stream = io.TextIOWrapper(LastingStderr(full), encoding="utf-8", write_through=True)

    print("lost", file=stream)
    stream.flush()
    os.dup2(log, full)
    print("kept", file=stream, flush=True)
    print("kept too", file=stream, flush=True)

    assert path.read_text() == "(5 bytes of messages could not be written here)\nkept\nkept too\n"
    os.close(full)
    os.close(log)
