"""What is done is read back, damage is said with a way out, and other settings by name."""

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest

from tidybert.errors import DataError, TrainingError, UsageError, in_python
from tidybert.storage.journal import Count, Journal, Log, check_settings, difference, is_begun
from tidybert.storage.json_objects import SHA256, decoded, one_of
from tidybert.storage.limits import LOG_BYTES


class Place(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    num: Count = 0
    sha256: dict[str, Annotated[str, msgspec.Meta(pattern=SHA256)]] = {}


class State(msgspec.Struct, forbid_unknown_fields=True):
    settings: dict[str, Any]
    places: dict[str, list[Place]] = {}
    share: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.5
    form: Annotated[str, one_of(["csv", "npy"])] = "csv"
    pair: tuple[str, int] | None = None
    key: int | str | None = None


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "progress.json", State)
    state = State({"rate": np.float32(0.5), "loss": float("nan")}, {"a": [Place("x", 3)]})

    journal.write(state)

    state.settings = {"rate": 0.5, "loss": None}
    assert journal.read() == state
    content = json.loads(journal.path.read_text())
    # Earlier versions wrote some of them without one.
    del content["checksum"]
    journal.path.write_text(json.dumps(content))
    assert journal.read() == state


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "a JSON object was expected, not list"),
        ('{"settings": {}, "share": 0.25, "checksum": "00"}', "its content has another checksum"),
        ('{"settings": {}, "settings": {}}', "not valid JSON: the key 'settings' appears twice"),
        ('{"settings": {"a": NaN}}', "not valid JSON: NaN is not a finite number"),
        ('{"settings": []}', "settings is []; a JSON object is needed"),
    ],
)
def test_damage_is_said_with_the_way_out(text: str, said: str, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.json", State, "build it again", error=TrainingError)
    journal.path.write_text(text)

    with pytest.raises(TrainingError) as raised:
        journal.read()

    message = str(raised.value)
    assert message.startswith(f"{journal.path} is damaged: {said}")
    assert message.endswith("; build it again")


HASH = "0" * 64


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "the value is []; a JSON object is needed"),
        ({}, "missing key 'settings'"),
        ({"setings": {}, "settings": {}}, "unknown key 'setings'; did you mean 'settings'?"),
        ({"settings": {}, "share": "a"}, "share is 'a'; a number is needed"),
        ({"settings": {}, "share": 1}, "share is 1; a number below 1.0 is needed"),
        ({"settings": {}, "share": True}, "share is True; a number is needed"),
        ({"settings": {}, "form": "tsv"}, "form is 'tsv'; one of csv, npy is needed"),
        ({"settings": {}, "key": [1]}, "key is [1]; a whole number, a string or null is needed"),
        ({"settings": {}, "pair": ["a"]}, "pair is ['a']; a list of 2 is needed"),
        ({"settings": {}, "pair": ["a", "b"]}, "pair: item 2 is 'b'; a whole number is needed"),
        ({"settings": {}, "places": {"a": None}}, "places: a is None; a list is needed"),
        (
            {"settings": {}, "places": {"a": [{"name": "x"}], "b": [{"name": "x", "num": -1}]}},
            "places, b, item 1: num is -1; a whole number of at least 0 is needed",
        ),
        (
            {"settings": {}, "places": {"a": [{"name": "x", "sha256": {"t": HASH, "u": "0"}}]}},
            "places, a, item 1, sha256: u is '0'; a sha256 is needed",
        ),
        ({"settings": {}, "places": {"a": [{"num": 1}]}}, "places, a, item 1: missing key 'name'"),
        ({"settings": {}, "x` - at `$.a": 1}, "x` - at `$.a"),
    ],
)
def test_what_is_not_of_its_type_is_named(value: Any, said: str) -> None:
    with pytest.raises(DataError) as raised:
        decoded(value, State, "F", error=DataError)

    assert str(raised.value).startswith("F: ")
    assert said in str(raised.value)


def test_an_error_of_a_record_keeps_its_message() -> None:
    class Strict(msgspec.Struct):
        a: int

        def __post_init__(self) -> None:
            raise UsageError("not this one")

    with pytest.raises(DataError, match=r"^F: not this one$"):
        decoded({"a": 1}, Strict, "F", error=DataError)


def test_a_log_keeps_whole_lines(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl", Place, "name a new folder", LOG_BYTES)

    def begin(**settings: int) -> list[Place]:
        return log.begin(settings, "F holds a job", "give the same")

    assert begin(seed=3) == []
    log.add([Place("a"), Place("b", 2)])
    with log.path.open("a") as file:
        file.write('{"name": "c')
    assert begin(seed=3) == [Place("a"), Place("b", 2)]
    log.add([Place("c")])
    assert begin(seed=3) == [Place("a"), Place("b", 2), Place("c")]
    before = log.path.read_text()
    with pytest.raises(UsageError, match=r"F holds a job with other settings; .*\n  seed: 3 bef"):
        begin(seed=4)
    assert log.path.read_text() == before
    log.path.write_text(before + '{"num": 3}\n')
    with pytest.raises(DataError, match=r"is damaged: missing key 'name'; name a new folder"):
        begin(seed=3)
    log.path.write_text('{"name": "a"}\n')
    with pytest.raises(DataError, match="is damaged: its first line does not hold settings; name"):
        begin(seed=3)


def test_other_settings_are_named_with_both_values() -> None:
    before = {
        "task": "classify", "model": HASH, "seed": 1, "prompt": "a ", "new_head": False, "old": 1,
        "options": {"device": "cpu", "precision": "auto", "gone": 1},
        "files": [["a.txt", 1], ["b.txt", 2], ["c.txt", 3]],
    }  # fmt: skip
    now = {
        "task": "tag", "model": "mini", "seed": None, "prompt": "", "new_head": True,
        "options": {"device": "cuda", "precision": "auto"},
        "files": [["a.txt", 1], ["b.txt", 9], *([f"{name}.txt", 1] for name in "defg")],
    }  # fmt: skip
    check_settings(before, before, "F was made", "give the same")

    with pytest.raises(UsageError) as raised:
        check_settings(before, now, "F was made", "give the same")

    assert str(raised.value).splitlines() == [
        "F was made with other settings; give the same:",
        "  TASK: classify before, tag now",
        "  MODEL: not the same as before",
        "  seed: 1 before, not given now",
        "  prompt: 'a ' before, '' now",
        "  new_head: not given before, given now",
        "  device: cpu before, cuda now",
        "  gone: 1 before, not given now",
        "  file b.txt: changed",
        "  file c.txt: missing",
        "  file d.txt: new",
        "  and 3 more files",
    ]
    assert in_python(difference("texts", "x" * 61, "y")) == "the texts: not the same as before"


def test_a_directory_with_other_things_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    assert not is_begun(target, ["a.json"], "corpus")
    (target / ".x.tidybert-lock").touch()
    assert not is_begun(target, ["a.json"], "corpus")
    (target / "mine").touch()
    with pytest.raises(UsageError, match="is not empty, and no corpus was begun there; name a new"):
        is_begun(target, ["a.json"], "corpus")
    (target / "a.json").touch()
    assert is_begun(target, ["b.json", "a.json"], "corpus")
