"""examples/team.sh: run whole, in processes that can be killed, on a tiny model."""

import json
import os
import random
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "team.sh"
SMALL = {
    "STEPS": "120",
    "MORE": "130",
    "SAVE": "20",
    "DECAY": "20",
    "RATE": "1e-2",
    "HELD_OUT": "0.2",
    "EPOCHS": "1",
    "TUNE": "--max-seq-length 16",
    "OMP_NUM_THREADS": "1",
    "FLAGS": "--tokens-per-step 64 --max-seq-length 16 --eval-tokens 128 --initial-weights random",
}


# What stands for tidybert on the script's PATH: it hands its words and files over, and waits.
CLIENT = """#!{python} -SE
import json, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [json.dumps(sys.argv[1:]).encode()], [0, 1, 2])
sys.exit(int(server.recv(8)))
"""


def answer(client: socket.socket, begin: Callable[..., Any], folder: Path) -> None:
    """Run one command in a process that has loaded torch; it dies with its client."""
    words, files, _, _ = socket.recv_fds(client, 2**16, 3)
    names = ("stdin", "stdout", "stderr")
    command = begin(*json.loads(words), cwd=folder, **dict(zip(names, files, strict=True)))
    for each in files:
        os.close(each)
    while command.poll() is None:
        gone, _, _ = select.select([client], [], [], 0.02)
        if gone:
            command.kill()
            return
    client.send(str(command.poll()).encode())


@pytest.fixture
def run_here(tmp_path: Path, begin: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Runs the script; each command is a process of its own, which a kill of its client ends."""
    folder = tmp_path / "bin"
    folder.mkdir()
    address = str(folder / "socket")
    fake = folder / "tidybert"
    fake.write_text(CLIENT.format(python=sys.executable, address=address))
    fake.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    answer(client, begin, tmp_path)
                    client.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield lambda *arguments, **settings: run(tmp_path, folder, *arguments, **settings)
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def run(
    folder: Path, programs: Path, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    return subprocess.run(
        ["sh", str(SCRIPT), *arguments],
        cwd=folder,
        env={**os.environ, **SMALL, **settings, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def write_texts(folder: Path, words: tuple[str, ...], seed: int) -> None:
    generator = random.Random(seed)
    documents = [
        "\n".join(" ".join(generator.choices(words, k=7)) + f" {n}" for _ in range(3))
        for n in range(80)
    ]
    folder.mkdir()
    (folder / "texts.txt").write_text("\n\n".join(documents) + "\n")


def test_a_run_is_killed_extended_diverges_and_is_branched(
    tiny_model: Path, tmp_path: Path, run_here: Callable[..., Any]
) -> None:
    write_texts(tmp_path / "first", ("the", "red", "cat", "is", "near", "a", "dog"), 0)
    write_texts(tmp_path / "second", ("we", "saw", "a", "hen", "and", "the", "cow"), 1)
    rows = [f"the {word} is near {n},{word}" for n in range(30) for word in ("cat", "dog")]
    (tmp_path / "labelled.csv").write_text("text,label\n" + "\n".join(rows) + "\n")

    model = {"SIZE": str(tiny_model), "VOCAB": str(tiny_model)}
    done = run_here("first", "second", "labelled.csv", **model)

    assert done.returncode == 0, done.stderr + done.stdout
    out = tmp_path / "team"
    steps = [
        (line["step"], "skipped" in line)
        for line in map(json.loads, (out / "decayed/metrics.jsonl").read_text().splitlines())
        if "eval_loss" not in line
    ]
    assert [step for step, _ in steps] == list(range(1, steps[-1][0] + 1))
    assert sum(skipped for _, skipped in steps) == 3
    changes = json.loads((out / "run/arguments.json").read_text())["record"]["changed_on_the_way"]
    assert [each["max_steps"] for each in changes] == [[120, 130]]
    assert "probe_labelled" in (out / "run/metrics.jsonl").read_text()
    assert "the loss leaped from" in done.stdout
    assert (out / "encoder/config.json").exists()
    assert (out / "classifier/tidybert.json").exists()
    again = run_here("first", "second", "labelled.csv")
    assert (again.returncode, "team exists" in again.stderr) == (2, True)


def test_what_is_wrong_is_said_before_anything_is_written(tmp_path: Path) -> None:
    programs = Path(sys.executable).parent
    assert "got 1 arguments" in run(tmp_path, programs, "first").stderr
    assert "first does not exist" in run(tmp_path, programs, "first", "second", "third").stderr
    assert list(tmp_path.iterdir()) == []
