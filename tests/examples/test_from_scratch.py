"""examples/from_scratch.sh: run whole on a little text, and refused before anything is written."""

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tidybert.cli.main import run as tidybert

SCRIPT = Path(__file__).parents[2] / "examples" / "from_scratch.sh"
SMALL = {
    "STEPS": "3",
    "TOKENS_PER_STEP": "512",
    "VOCAB_SIZE": "1000",
    "HELD_OUT": "0.2",
    "EPOCHS": "1",
    "OMP_NUM_THREADS": "1",
}


def run(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    # The command is where the Python of these tests is.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["sh", str(SCRIPT), *arguments],
        cwd=folder,
        env={**os.environ, **SMALL, **settings, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def run_here(tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Runs the script; this process, which has loaded torch, runs its commands.

    Gives its status and what it wrote itself.  What stands for tidybert on its PATH sends the
    words to a pipe, and waits for the status in another one.
    """
    folder = tmp_path / "bin"
    words, status = folder / "words", folder / "status"

    def run_script(*arguments: str, **settings: str) -> tuple[int, str, str]:
        folder.mkdir()
        os.mkfifo(words)
        os.mkfifo(status)
        fake = folder / "tidybert"
        fake.write_text(
            f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{words}'\nread -r s < '{status}'\nexit $s\n"
        )
        fake.chmod(0o755)
        path = os.pathsep.join([str(folder), os.environ["PATH"]])
        with subprocess.Popen(
            ["sh", str(SCRIPT), *arguments],
            env={**os.environ, **SMALL, **settings, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as script:
            # No words are the end of the script.
            ended = threading.Thread(target=lambda: (script.wait(), words.write_text("")))
            ended.start()
            while command := words.read_text().splitlines():
                status.write_text(f"{tidybert(command)}\n")
            ended.join()
            out, err = script.communicate()
        return script.returncode, out, err

    return run_script


def write_texts(folder: Path) -> None:
    generator = random.Random(0)
    words = ("the", "cat", "saw", "a", "red", "house", "near", "that", "old", "river", "again")
    documents = [
        "\n".join(" ".join(generator.choices(words, k=9)) + f" {n}." for _ in range(3))
        for n in range(120)
    ]
    folder.mkdir()
    (folder / "texts.txt").write_text("\n\n".join(documents) + "\n")


def test_from_text_to_answers(
    run_here: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path / "my texts")
    rows = [f"the {word} {n},{word}" for n in range(12) for word in ("cat", "river")]
    (tmp_path / "train.csv").write_text("text,label\n" + "\n".join(rows[:16]) + "\n")
    (tmp_path / "dev.csv").write_text("text,label\n" + "\n".join(rows[16:]) + "\n")

    status, shown, err = run_here("my texts", "train.csv", "dev.csv", OUT="made here")

    assert status == 0, err + capsys.readouterr().err
    out = tmp_path / "made here"
    answers = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    assert len(answers) == 8
    assert {answer["label"] for answer in answers} <= {"cat", "river"}
    assert sorted(path.name for path in out.iterdir()) == [
        "classifier", "corpus", "encoder", "predictions.jsonl", "report", "vocab",
    ]  # fmt: skip
    assert (out / "encoder" / "curves.svg").exists()
    for number in range(1, 8):
        assert f"\n== {number}. " in shown
    assert "$ tidybert pretrain tiny " in shown
    # A second time nothing is overwritten.
    again = run(tmp_path, "my texts", OUT="made here")
    assert again.returncode == 2
    assert "made here exists" in again.stderr


def test_labels_without_others_to_measure_on(tmp_path: Path) -> None:
    """What stands for tidybert here writes down how it was called."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "train.csv").touch()
    fake = tmp_path / "bin" / "tidybert"
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/sh\necho "$@" >> calls\nmkdir -p "$OUT"\n[ "$1" != predict ] || echo "{}" > "$5"\n'
    )
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{fake.parent}{os.pathsep}{os.environ['PATH']}"}

    def calls(*arguments: str, out: str, **settings: str) -> list[str]:
        (tmp_path / "calls").unlink(missing_ok=True)
        subprocess.run(
            ["sh", str(SCRIPT), "texts", *arguments],
            cwd=tmp_path,
            env={**environment, "OUT": out, **settings},
            capture_output=True,
            check=True,
        )
        return (tmp_path / "calls").read_text().splitlines()

    alone = calls("train.csv", out="one")
    assert [line.split()[0] for line in alone] == [
        "train-vocab", "build-corpus", "pretrain", "fill-mask", "finetune", "predict",
    ]  # fmt: skip
    assert "--dev " not in alone[4]
    assert alone[5] == "predict one/classifier train.csv --out one/predictions.jsonl"
    assert alone[2].endswith("--eval-steps 100")
    tickets = calls(out="two", FLAGS="--schedule linear --seed 7")
    assert tickets[2].endswith("--eval-steps 100 --schedule linear --seed 7")
    assert len(tickets) == 7
    named = [word for line in tickets for word in line.split() if "/tickets/" in word]
    assert {Path(word).name for word in named} == {"train.csv", "dev.csv", "new.txt"}
    assert all((tmp_path / word).exists() for word in named)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected TEXTS [TRAIN [DEV [NEW]]], got 0 arguments"),
        (["a", "b", "c", "d", "e"], "got 5 arguments"),
        (["absent"], "absent does not exist"),
        ([".", "absent.csv"], "absent.csv does not exist"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = run(tmp_path, *arguments)

    assert done.returncode == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []
