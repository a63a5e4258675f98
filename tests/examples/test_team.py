"""examples/team.sh: run whole, in processes that can be killed, on a tiny model."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

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


def run(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
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
    tiny_model: Path, tmp_path: Path
) -> None:
    write_texts(tmp_path / "first", ("the", "red", "cat", "is", "near", "a", "dog"), 0)
    write_texts(tmp_path / "second", ("we", "saw", "a", "hen", "and", "the", "cow"), 1)
    rows = [f"the {word} is near {n},{word}" for n in range(30) for word in ("cat", "dog")]
    (tmp_path / "labelled.csv").write_text("text,label\n" + "\n".join(rows) + "\n")

    done = run(
        tmp_path, "first", "second", "labelled.csv", SIZE=str(tiny_model), VOCAB=str(tiny_model)
    )

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
    again = run(tmp_path, "first", "second", "labelled.csv")
    assert (again.returncode, "team exists" in again.stderr) == (2, True)


def test_what_is_wrong_is_said_before_anything_is_written(tmp_path: Path) -> None:
    assert "got 1 arguments" in run(tmp_path, "first").stderr
    assert "first does not exist" in run(tmp_path, "first", "second", "third").stderr
    assert list(tmp_path.iterdir()) == []
