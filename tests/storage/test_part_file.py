"""A file that grows: whatever stops the writing, what is whole is kept and nothing else is."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.errors import DataError, DiskError, TidyBertError, UsageError
from tidybert.storage import part_file
from tidybert.storage.output_lock import journal_of, output_lock
from tidybert.storage.own_files import GrowingFile
from tidybert.storage.part_file import Form, Written, grow_file, has_part, new_file
from tidybert.system.reporter import Reporter

SETTINGS = {"weights": "abc", "layers": (1, 2)}


@pytest.fixture(autouse=True)
def saved_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_file, "SECONDS_BETWEEN_SAVES", 0.0)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out.bin"


class Headed(Form):
    def begin(self) -> bytes:
        return b"HEAD"


def grow(
    target: Path, items: Sequence[bytes], stop: int | None = None, **given: Any
) -> Written | None:
    """Write a piece for each item; KeyboardInterrupt after ``stop`` of them in this run."""

    def pieces(left: Iterator[bytes], num_done: int) -> Iterator[Any]:
        for number, item in enumerate(left):
            if number == stop:
                raise KeyboardInterrupt
            yield item, [item], item == b"two"

    form = Headed()
    form.make = given.pop("make", form.make)  # type: ignore[method-assign]
    named = {**SETTINGS, **given.pop("changed", {})}
    with suppress(KeyboardInterrupt):
        return grow_file(target, named, items, pieces, form, **given)
    return None


def part_of(target: Path) -> Path:
    with output_lock(target) as lock:
        part = lock.part_of(target)
    assert part is not None
    return part


def test_only_a_finished_file_has_the_name(target: Path) -> None:
    told: list[tuple[int, bool, bool]] = []

    def advance(num_items: int) -> None:
        told.append((num_items, has_part(target), target.exists()))

    written = grow(target, [b"one", b"two"], reporter=Reporter(advance=advance))

    assert told == [(0, False, False), (1, True, False), (2, True, False)]
    assert written == Written(2, 1, 0)
    assert target.read_bytes() == b"HEADonetwo"
    assert list(target.parent.iterdir()) == [target]


def test_it_goes_on_after_the_last_whole_piece(target: Path) -> None:
    grow(target, [b"one", b"two", b"three"], stop=2)
    with part_of(target).open("ab") as file:
        file.write(b"half of a pie")

    assert grow(target, [b"one", b"two", b"three"], resume=True) == Written(3, 1, 2)
    assert target.read_bytes() == b"HEADonetwothree"


def test_a_file_that_came_meanwhile_costs_no_part(target: Path) -> None:
    grow(target, [b"one", b"two"], stop=1)
    target.write_bytes(b"mine")
    with pytest.raises(UsageError, match="is there already"):
        grow(target, [b"one", b"two"], resume=True)

    target.unlink()
    assert grow(target, [b"one", b"two"], resume=True) == Written(2, 1, 1)


# Each example waits for the disk many times.
@settings(max_examples=15)
@given(contents=st.lists(st.binary(max_size=20), min_size=1, max_size=6), data=st.data())
def test_any_number_of_stops_makes_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], data: st.DataObject
) -> None:
    target = tmp_path_factory.mktemp("parts") / "out.bin"
    while not target.exists():
        grow(target, contents, data.draw(st.integers(1, len(contents))), resume=True)

    assert target.read_bytes() == b"HEAD" + b"".join(contents)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("killed_after", [1, 2])
def test_a_kill_costs_what_was_not_saved(
    target: Path, killed_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def advance(num_items: int) -> None:
        if num_items == killed_after:
            os._exit(0)
        if num_items == 1:
            monkeypatch.setattr(part_file, "SECONDS_BETWEEN_SAVES", 3600.0)

    child = os.fork()
    if not child:
        grow(target, [b"one", b"two" * 100_000], reporter=Reporter(advance=advance))
    os.waitpid(child, 0)
    assert (part_of(target).stat().st_size > 100_000) == (killed_after == 2)

    assert grow(target, [b"one"], resume=True) == Written(1, 0, 1)
    assert target.read_bytes() == b"HEADone"


def test_a_stop_before_the_first_piece_leaves_nothing(target: Path) -> None:
    grow(target, [b"one"], stop=0)

    assert list(target.parent.iterdir()) == []
    assert grow(target, [], resume=True) == Written(0, 0, 0)


def test_a_file_that_cannot_be_made_keeps_its_part(target: Path) -> None:
    def full(file: GrowingFile, _target: Path) -> None:
        file.write(b"TAIL")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        grow(target, [b"one"], make=full)

    assert has_part(target)
    assert grow(target, [b"one"], resume=True) == Written(1, 0, 1)
    assert target.read_bytes() == b"HEADone"


def test_a_kill_after_the_name_was_given_leaves_nothing_to_resume(target: Path) -> None:
    def make(file: GrowingFile, target: Path) -> None:
        target.write_bytes(file.path.read_bytes())
        raise KeyboardInterrupt

    grow(target, [b"one"], make=make)
    assert len(list(target.parent.iterdir())) == 4  # the file, its lock, the part and its journal

    with pytest.raises(UsageError, match="is there already"):
        grow(target, [b"one"], resume=True)
    assert list(target.parent.iterdir()) == [target]


def test_a_file_that_came_in_the_meantime_stays(target: Path) -> None:
    with pytest.raises(DiskError, match=r"by somebody else in the meantime.* work is .*\.part"):
        grow(target, [b"one"], reporter=Reporter(advance=lambda _: target.write_bytes(b"mine")))
    assert target.read_bytes() == b"mine"
    assert has_part(target)


def test_other_settings_and_items_are_refused(target: Path) -> None:
    grow(target, [b"one", b"two"], stop=1)

    with pytest.raises(
        UsageError,
        match=r"(?s)\.part was begun .*  weights: abc before, xyz now\n  layers: ",
    ):
        grow(target, [b"one"], resume=True, changed={"weights": "xyz", "layers": [1]})
    for items in ([], [b"two"]):
        with pytest.raises(DataError, match=r"\.part was begun with other texts"):
            grow(target, items, resume=True)
    assert grow(target, [b"one", b"two"], resume=True) == Written(2, 1, 1)


def test_damage_is_found(target: Path) -> None:
    grow(target, [b"one", b"two", b"three"], stop=2)
    part = part_of(target)
    journal = journal_of(part)
    whole = journal.read_text()

    part.write_bytes(b"HEADon")
    with pytest.raises(TidyBertError, match=r"\.part has lost bytes: 10 were written, 6 are there"):
        grow(target, [], resume=True)
    for damaged in (whole[:20], '{"bytes": 3}', whole.replace('"texts": 2', '"texts": null')):
        journal.write_text(damaged)
        with pytest.raises(DataError, match=r"\.part\.json is damaged: .*to start again"):
            grow(target, [], resume=True)


def test_what_the_version_before_left_is_gone_on_with(target: Path) -> None:
    """The journal had no checksum, and no "truncated" before the first text was cut."""
    grow(target, [b"one", b"two"], stop=1)
    journal = journal_of(part_of(target))
    state = json.loads(journal.read_text())
    assert state.keys() == {"bytes", "progress", "settings", "done", "checksum"}
    del state["progress"]["truncated"], state["checksum"]
    journal.write_text(json.dumps(state))

    assert grow(target, [b"one", b"two"], resume=True) == Written(2, 1, 1)


def test_the_journal_has_no_lock_of_its_own(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill while it was written would leave one that nobody removes."""
    opened, real = [], os.open
    monkeypatch.setattr(os, "open", lambda path, *a: (opened.append(str(path)), real(path, *a))[1])
    grow(target, [b"one", b"two"])

    assert any(".part.json." in name for name in opened)
    locks = {name for name in opened if name.endswith("-lock")}
    assert locks == {str(target.with_name(".out.bin.tidybert-lock"))}


def test_what_is_there_is_never_overwritten(target: Path) -> None:
    def begin(at: Path = target, *, resume: bool = False) -> None:
        with new_file(at, resume):
            pass

    begin()
    begin(resume=True)
    grow(target, [b"one", b"two"], stop=1)
    begin(resume=True)
    with pytest.raises(UsageError, match=r"a stopped run has left .*; resume continues"):
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
    grow(target.with_name("v"), [b"one"])
    assert {path.name for path in target.parent.iterdir()} == {
        "out.bin", "v", "v.part", "v.part.json",
    }  # fmt: skip
