"""Probes: their scores, their faults, and that they change nothing."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from tidybert import Embedder
from tidybert.errors import DataError, UsageError
from tidybert.reporting.pretraining_curves import run_picture
from tidybert.system.reporter import Reporter

Small = Callable[..., Any]


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Texts of two animals, some of which a word gives away."""
    generator = random.Random(0)
    path = tmp_path / "animals.csv"
    rows = []
    for number in range(60):
        animal = generator.choice(("cat", "dog"))
        word = animal if generator.random() < 0.8 else "hen"
        rows.append(f"the {word} is near {number},{animal}")
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    return path


def evaluations(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "eval_loss" in line]


def test_probes_are_logged_and_change_no_bit(
    labelled: Path, small: Small, tmp_path: Path, capsys: Any
) -> None:
    notes: list[str] = []
    other = tmp_path / "other.csv"
    other.write_bytes(labelled.read_bytes())
    probe = [str(labelled), str(other)]

    result = small(tmp_path / "probed", probe=probe, reporter=Reporter(note=notes.append))
    small(tmp_path / "plain")

    scores = [line["eval_probe_animals"] for line in evaluations(tmp_path / "probed")]
    assert len(scores) == 2
    assert all(0.5 <= score <= 1 for score in scores)
    assert scores == [line["eval_probe_other"] for line in evaluations(tmp_path / "probed")]
    assert result.metrics["probe_animals"] in scores
    assert any(note.startswith("probe animals: 60 of 60 texts, 2 labels") for note in notes)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("probed", "plain")]
    assert weights[0] == weights[1]
    picture = run_picture(tmp_path / "probed")
    assert picture is not None
    assert f"animals {scores[-1]:.1%}" in str(picture)


def test_the_score_is_scikit_learns(labelled: Path, small: Small, tmp_path: Path) -> None:
    small(tmp_path / "run", probe=[str(labelled)], eval_steps=100, max_steps=40)
    rows = [line.split(",") for line in labelled.read_text().splitlines()[1:]]
    vectors = Embedder(tmp_path / "run", pooling="mean").embed([text for text, _ in rows])

    theirs = cross_val_score(
        LogisticRegression(max_iter=2000), np.asarray(vectors), [label for _, label in rows], cv=5
    ).mean()

    (line,) = evaluations(tmp_path / "run")
    assert line["eval_probe_animals"] == pytest.approx(theirs, abs=0.12)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\na\nb\n", "a probe's file has a column text and a column label"),
        ("text,label\n" + "a red cat,x\n" * 20, "has 20 texts and 1 label; a probe needs 10"),
        ("text,label\na,x\nb,y\n", "has 2 texts and 2 labels"),
    ],
)
def test_a_file_that_is_no_probe_is_refused_before_the_first_step(
    content: str, message: str, small: Small, tmp_path: Path
) -> None:
    path = tmp_path / "probe.csv"
    path.write_text(content)

    with pytest.raises(DataError, match=message):
        small(tmp_path / "run", probe=[str(path)])

    assert not (tmp_path / "run").exists()


def test_two_files_of_one_name_are_refused(labelled: Path, small: Small, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two files are named animals"):
        small(tmp_path / "run", probe=[str(labelled)] * 2)


def test_the_long_phase_is_measured_and_chooses_the_best(small: Small, tmp_path: Path) -> None:
    from tidybert.pretraining.batches.instance_options import InstanceOptions

    given = {"instances": InstanceOptions(max_seq_length=16), "long_seq_length": 32}
    result = small(tmp_path / "run", long_share=0.5, max_steps=6, eval_steps=2, **given)

    lines = evaluations(tmp_path / "run")
    assert len(lines) == 3
    for line in lines:
        assert line["eval_mlm_loss"] != line["eval_mlm_loss/sequences of 16"]
        assert line["eval_loss"] == pytest.approx(line["eval_mlm_loss"] + line["eval_nsp_loss"])
    assert result.metrics["loss"] == min(line["eval_loss"] for line in lines)
    metadata = json.loads((tmp_path / "run/tidybert.json").read_text())
    assert metadata["max_seq_length"] == 32
