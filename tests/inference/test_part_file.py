"""A file in parts: whatever stops the writing, what is whole is kept and nothing else is."""

import json
import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.errors import DiskError, TidyBertError, UsageError
from tidybert.inference import part_file
from tidybert.inference.part_file import PartFile, has_part, new_file
from tidybert.inference.part_file import part_file as opened_part
from tidybert.storage.atomic_files import rename_synced
from tidybert.storage.output_lock import journal_of, output_lock

SETTINGS = {"weights": "abc", "layers": (1, 2)}


@pytest.fixture(autouse=True)
def saved_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_file, "SECONDS_BETWEEN_SAVES", 0.0)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out.bin"


def opened(target: Path, *, resume: bool = False, **changed: Any) -> "Opened":
    return opened_part(target, {**SETTINGS, **changed}, b"HEAD", resume=resume)


Opened = AbstractContextManager[PartFile]


def left(target: Path, *contents: bytes) -> None:
    """What a run leaves that is stopped in the midst of the part after ``contents``."""
    with suppress(KeyboardInterrupt), opened(target) as part:
        for content in contents:
            part.append(content, [content])
        part._file.write(b"half of a par")
        raise KeyboardInterrupt


def part_of(target: Path) -> Path:
    with output_lock(target) as lock:
        part = lock.part_of(target)
    assert part is not None
    return part


def test_only_a_finished_file_has_the_name(target: Path) -> None:
    with opened(target) as part:
        part.append(b"one", ["a"])
        assert not target.exists()
        assert has_part(target)
        part.append(b"two", ["b"])
        part.finish(rename_synced)

    assert target.read_bytes() == b"HEADonetwo"
    assert list(target.parent.iterdir()) == [target]


def test_it_goes_on_after_the_last_whole_part(target: Path) -> None:
    left(target, b"one", b"two")

    with opened(target, resume=True) as part:
        assert part.progress["texts"] == 2
        part.skip_done(iter([b"one", b"two", b"three"]))
        part.append(b"three", [b"three"], cut=1)
        assert part.progress["cut"] == 1
        part.finish(rename_synced)

    assert target.read_bytes() == b"HEADonetwothree"


# Each example waits for the disk many times.
@settings(max_examples=15)
@given(contents=st.lists(st.binary(max_size=20), min_size=1, max_size=6), data=st.data())
def test_any_number_of_stops_makes_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], data: st.DataObject
) -> None:
    target = tmp_path_factory.mktemp("parts") / "out.bin"
    while not target.exists():
        stop = data.draw(st.integers(1, len(contents) + 1))
        with opened(target, resume=True) as part:
            begin = part.progress["texts"]
            part.skip_done(iter(contents))
            for number in range(begin, min(begin + stop, len(contents))):
                part.append(contents[number], [contents[number]])
            if begin + stop > len(contents):
                part.finish(rename_synced)

    assert target.read_bytes() == b"HEAD" + b"".join(contents)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_kill_costs_what_was_not_saved(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = os.fork()
    if not child:
        with opened(target) as killed:
            killed.append(b"one", ["a"])
            monkeypatch.setattr(part_file, "SECONDS_BETWEEN_SAVES", 3600.0)
            killed.append(b"two", ["b"])
            killed._file.flush()
            os._exit(0)
    os.waitpid(child, 0)

    with opened(target, resume=True) as part:
        assert part.progress["texts"] == 1
        assert part.part.read_bytes() == b"HEADone"


def test_a_stop_before_the_first_part_leaves_nothing(target: Path) -> None:
    left(target)

    assert list(target.parent.iterdir()) == []
    with opened(target, resume=True) as part:
        assert part.progress == {"texts": 0}


def test_a_file_that_cannot_be_made_keeps_its_parts(target: Path) -> None:
    def full(_part: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    with opened(target) as part:
        part.append(b"one", ["a"])
        with pytest.raises(OSError, match="No space"):
            part.finish(full)

    assert has_part(target)
    with opened(target, resume=True) as part:
        assert part.progress["texts"] == 1
        part.finish(rename_synced)
    assert target.read_bytes() == b"HEADone"


def test_a_kill_after_the_name_was_given_leaves_nothing_to_resume(target: Path) -> None:
    def make(part: Path, target: Path) -> None:
        target.write_bytes(part.read_bytes())
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), opened(target) as part:
        part.append(b"one", ["a"])
        part.finish(make)
    assert len(list(target.parent.iterdir())) == 4  # the file, its lock, the part and its journal

    with pytest.raises(UsageError, match="is there already"), opened(target, resume=True):
        pass
    assert list(target.parent.iterdir()) == [target]


def test_a_file_that_came_in_the_meantime_stays(target: Path) -> None:
    with opened(target) as part:
        part.append(b"one", ["a"])
        target.write_bytes(b"mine")
        with pytest.raises(DiskError, match=r"by somebody else in the meantime.* work is .*\.part"):
            part.finish(rename_synced)
    assert target.read_bytes() == b"mine"
    assert has_part(target)


def test_other_settings_are_refused_by_name(target: Path) -> None:
    left(target, b"one")

    with (
        pytest.raises(UsageError, match=r"\.part was begun with other weights, layers: "),
        opened(target, resume=True, weights="xyz", layers=[1]),
    ):
        pass
    with opened(target, resume=True) as part:
        assert part.progress["texts"] == 1


def test_damage_is_found(target: Path) -> None:
    left(target, b"one", b"two")
    part = part_of(target)
    journal = journal_of(part)
    whole = journal.read_text()

    def refused(match: str) -> None:
        with pytest.raises(TidyBertError, match=match), opened(target, resume=True):
            pass

    part.write_bytes(b"HEADon")
    refused(r"\.part has lost bytes: 10 were written, 6 are there")
    for damaged in (whole[:20], json.dumps({"bytes": 3})):
        journal.write_text(damaged)
        refused(r"\.part\.json is damaged .*to start again")


def test_what_is_there_is_never_overwritten(target: Path) -> None:
    def begin(at: Path = target, *, resume: bool = False) -> None:
        with new_file(at, resume):
            pass

    begin()
    begin(resume=True)
    left(target, b"one")
    begin(resume=True)
    with pytest.raises(UsageError, match=r"a stopped run has left .*; resume goes on"):
        begin()
    part_of(target).unlink()
    begin()
    target.write_bytes(b"mine")
    for resume in (False, True):
        with pytest.raises(UsageError, match="is there already; name a new file"):
            begin(resume=resume)
    with pytest.raises(UsageError, match=r"the folder .*absent does not exist; make it first"):
        begin(target.parent / "absent" / "out")
    # A file of the user's with the name that a part once had.
    for name in ("v.part", "v.part.json"):
        target.with_name(name).write_text("mine")
    with opened(target.with_name("v")) as part:
        part.append(b"one", ["a"])
        part.finish(rename_synced)
    assert {path.name for path in target.parent.iterdir()} == {
        "out.bin", "v", "v.part", "v.part.json",
    }  # fmt: skip
