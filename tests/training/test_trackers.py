"""Trackers get a run's figures, and none of them can end a training."""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidybert.errors import UsageError
from tidybert.system.reporter import Reporter
from tidybert.training.trackers import tracked

ARGUMENTS = {"task": "pretrain", "seed": 42, "record": {"seconds": 1}}


class Kept:
    """A tracker of somebody's own."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.lines: list[tuple[dict[str, float], int]] = []
        self.is_closed = False

    def log(self, figures: Mapping[str, float], step: int) -> None:
        if step == 3:
            raise ConnectionError("no route to the server")
        self.lines.append((dict(figures), step))

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "arguments.json").write_text(json.dumps(ARGUMENTS))
    return folder


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> list[Kept]:
    made: list[Kept] = []
    module: Any = ModuleType("our_package")
    module.begin = lambda run: made.append(Kept(run)) or made[-1]
    monkeypatch.setitem(sys.modules, "our_package", module)
    return made


def test_a_function_of_any_package_is_a_tracker(run: Path, own: list[Kept]) -> None:
    with tracked(run, ["our_package:begin"], Reporter(note=print)) as track:
        assert track is not None
        assert not own  # RUN must be empty until training has begun
        track({"train/loss": 2.0}, 1)
        track({"eval/loss": 1.5}, 1)

    (tracker,) = own
    assert tracker.run == run
    assert tracker.lines == [({"train/loss": 2.0}, 1), ({"eval/loss": 1.5}, 1)]
    assert tracker.is_closed


def test_a_tracker_that_fails_is_told_once_and_ends_nothing(run: Path, own: list[Kept]) -> None:
    told: list[str] = []
    with tracked(run, ["our_package:begin"], Reporter(note=told.append)) as track:
        assert track is not None
        for step in range(1, 6):
            track({"train/loss": 1.0}, step)

    assert [step for _, step in own[0].lines] == [1, 2]
    (line,) = told
    assert "takes no more figures: no route to the server" in line


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("comet", "expected tensorboard, wandb, mlflow or PACKAGE:function"),
        ("no_such_package:begin", "No module named"),
        ("json:begin", "no attribute"),
    ],
)
def test_what_is_no_tracker_is_refused(run: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message), tracked(run, [name], Reporter(note=print)):
        pass


def test_nothing_is_tracked_where_none_is_named(run: Path) -> None:
    with tracked(run, None, Reporter(note=print)) as track:
        assert track is None


def test_mlflow_keeps_the_figures_in_a_local_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow.tracking")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    told: list[str] = []

    with tracked(run, ["mlflow"], Reporter(note=told.append)) as track:
        assert track is not None
        track({"train/loss": 2.0, "train/mlm_loss": 1.0}, 1)
        track({"train/loss": 1.0}, 2)

    assert told == []
    client = mlflow.MlflowClient((run / "mlruns").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("tidybert").experiment_id])
    assert found.data.params == {"task": "pretrain", "seed": "42"}
    history = client.get_metric_history(found.info.run_id, "train/loss")
    assert [(each.step, each.value) for each in history] == [(1, 2.0), (2, 1.0)]


def test_wandb_keeps_the_figures_in_a_local_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    told: list[str] = []

    with tracked(run, ["wandb"], Reporter(note=told.append)) as track:
        assert track is not None
        track({"train/loss": 2.0}, 1)
        track({"train/loss": 1.0}, 2)

    assert told == []
    (record,) = (run / "wandb").glob("offline-run-*/run-*.wandb")
    # Its own process may still write.
    for _ in range(100):
        if b"train/loss" in (content := record.read_bytes()):
            break
        time.sleep(0.1)
    assert b"train/loss" in content
    assert b"pretrain" in content
