"""A file in parts: whatever stops the writing, what is whole is kept and nothing else is."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.atomic_files import rename_synced
from tidybert.errors import DataError, UsageError
from tidybert.inference import part_file
from tidybert.inference.part_file import PartFile, check_target, has_part

SETTINGS = {"weights": "abc", "layers": (1, 2)}


@pytest.fixture(autouse=True)
def saved_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_file, "SECONDS_BETWEEN_SAVES", 0.0)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out.bin"


def opened(target: Path, *, resume: bool = False, **changed: Any) -> PartFile:
    return PartFile(target, {**SETTINGS, **changed}, b"HEAD", resume=resume)


def left(target: Path, *contents: bytes) -> None:
    """What a run leaves that is stopped in the midst of the part after ``contents``."""
    with suppress(KeyboardInterrupt), opened(target) as part:
        for number, content in enumerate(contents, start=1):
            part.append(content, {"done": number})
        part._file.write(b"half of a par")
        raise KeyboardInterrupt


def test_only_a_finished_file_has_the_name(target: Path) -> None:
    with opened(target) as part:
        part.append(b"one", {"done": 1})
        assert not target.exists()
        assert has_part(target)
        part.append(b"two", {"done": 2})
        part.finish(rename_synced)

    assert target.read_bytes() == b"HEADonetwo"
    assert list(target.parent.iterdir()) == [target]


def test_it_goes_on_after_the_last_whole_part(target: Path) -> None:
    left(target, b"one", b"two")

    with opened(target, resume=True) as part:
        assert part.progress == {"done": 2}
        part.append(b"three", {"done": 3})
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
            begin = part.progress.get("done", 0)
            for number in range(begin, min(begin + stop, len(contents))):
                part.append(contents[number], {"done": number + 1})
            if begin + stop > len(contents):
                part.finish(rename_synced)

    assert target.read_bytes() == b"HEAD" + b"".join(contents)


def test_a_kill_costs_what_was_not_saved(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = opened(target)
    killed.append(b"one", {"done": 1})
    monkeypatch.setattr(part_file, "SECONDS_BETWEEN_SAVES", 3600.0)
    killed.append(b"two", {"done": 2})
    killed._file.flush()  # and here it is killed

    assert opened(target, resume=True).progress == {"done": 1}
    assert target.with_name("out.bin.part").read_bytes() == b"HEADone"


def test_a_stop_before_the_first_part_leaves_nothing(target: Path) -> None:
    left(target)

    assert list(target.parent.iterdir()) == []
    with opened(target, resume=True) as part:
        assert part.progress == {}


def test_a_file_that_cannot_be_made_keeps_its_parts(target: Path) -> None:
    def full(_part: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    with opened(target) as part:
        part.append(b"one", {"done": 1})
        with pytest.raises(OSError, match="No space"):
            part.finish(full)

    assert has_part(target)
    with opened(target, resume=True) as part:
        assert part.progress == {"done": 1}
        part.finish(rename_synced)
    assert target.read_bytes() == b"HEADone"


def test_other_settings_are_refused_by_name(target: Path) -> None:
    left(target, b"one")

    with pytest.raises(UsageError, match=r"out\.bin\.part was begun with other weights, layers: "):
        opened(target, resume=True, weights="xyz", layers=[1])

    with opened(target, resume=True) as part:
        assert part.progress == {"done": 1}


def test_damage_is_found(target: Path) -> None:
    left(target, b"one", b"two")
    journal = target.with_name("out.bin.part.json")
    part = target.with_name("out.bin.part")
    whole = journal.read_text()

    part.write_bytes(b"HEADon")
    with pytest.raises(DataError, match=r"out\.bin\.part has lost bytes, 10 were written"):
        opened(target, resume=True)
    for damaged in (whole[:20], json.dumps({"bytes": 3})):
        journal.write_text(damaged)
        with pytest.raises(DataError, match=r"out\.bin\.part\.json is damaged .*to start again"):
            opened(target, resume=True)


def test_what_is_there_is_never_overwritten(target: Path) -> None:
    check_target(target, resume=False)
    check_target(target, resume=True)
    left(target, b"one")
    check_target(target, resume=True)
    with pytest.raises(UsageError, match=r"a stopped run has left .*\.part; resume goes on"):
        check_target(target, resume=False)
    target.write_bytes(b"mine")
    for resume in (False, True):
        with pytest.raises(UsageError, match="is there already; name a new file"):
            check_target(target, resume)
    with pytest.raises(UsageError, match=r"the folder .*absent does not exist; make it first"):
        check_target(target.parent / "absent" / "out", resume=False)
