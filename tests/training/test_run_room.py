"""The room that a run needs is the room that it takes."""

import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from tidybert.errors import DiskError
from tidybert.training.runs.run_directory import require_room_for_run, trained_bytes

Usage = namedtuple("Usage", "total used free")
MODEL = nn.Linear(999, 1)  # 4,000 bytes of weights and bias, 12,000 a checkpoint


def has_room(run: Path, free: int, monkeypatch: pytest.MonkeyPatch, **given: Any) -> bool:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 1000 * free))
    values = {"save_total_limit": 1, "num_saves": 5, "keeps_best": True, **given}
    try:
        require_room_for_run(run, MODEL, moments=2 * trained_bytes(MODEL), **values)
    except DiskError:
        return False
    return True


def test_checkpoints_best_weights_and_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"

    def needs(kilobytes: int, **given: Any) -> bool:
        return has_room(run, kilobytes, monkeypatch, **given) and not has_room(
            run, kilobytes - 1, monkeypatch, **given
        )

    assert needs(2 * 12 + 4)
    assert needs(2 * 12 + 4, save_total_limit=0)
    assert needs(4 * 12 + 4, save_total_limit=3)
    assert needs(12 + 4 + 4, num_saves=1)
    assert needs(12 + 4, num_saves=1, keeps_best=False)
    (run / "checkpoints" / "step-1").mkdir(parents=True)
    (run / "checkpoints" / "step-1" / "a").write_bytes(bytes(12_000))
    assert needs(12 + 4)


def test_the_message_says_what_is_needed_and_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 7_000))
    with pytest.raises(DiskError, match=r"need 28\.0 kB in .*run, where 7\.0 kB are free: make"):
        require_room_for_run(
            tmp_path / "run",
            MODEL,
            moments=8000,
            save_total_limit=1,
            num_saves=2,
            keeps_best=True,
        )
