"""Labels of a program come back from tidybert.json as they were; an enum only where it is known."""

import enum
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidybert.checkpoints.metadata import LabelValues, ModelMetadata, restored_values, stored_values
from tidybert.errors import ConfigError, DataError, DataWarning


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (["1", "2"], [1, 2]),
        (["false", "true"], [False, True]),
        (["0.5", "2"], [0.5, 2.0]),
        (["RED", "BLUE"], [Colour.RED, Colour.BLUE]),
    ],
)
def test_values_come_back_as_they_were(names: list[str], values: list[Any]) -> None:
    stored = stored_values(names, dict(zip(names, values, strict=True)))

    found = restored_values(
        names, ModelMetadata("classify", tuple(names), label_values=stored).label_values
    )

    assert list(found) == names
    assert list(found.values()) == values
    assert [type(each) for each in found.values()] == [type(each) for each in values]


def test_scalars_of_numpy_become_those_of_python() -> None:
    given = {"3": np.int64(3), "4": np.int8(4)}

    assert stored_values(["3", "4"], given) == LabelValues(values=[3, 4])


def test_texts_are_not_stored() -> None:
    assert stored_values(["a", "b"], {"a": "a"}) is None
    assert "label_values" not in ModelMetadata("classify", ("a", "b")).to_json()
    assert restored_values(["a", "b"], None) == {}


def test_an_enum_that_nobody_imported_gives_its_names() -> None:
    stored = LabelValues(enum="absent_module:Colour", values=["RED"])

    with pytest.warns(DataWarning, match="import the module first") as warned:
        assert restored_values(["RED"], stored) == {}

    assert warned[0].filename == __file__


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"1": 1, "true": True}, "takes two of them for equal"),
        ({"1": 1, "true": Colour.RED}, "only one enum"),
        ({"1": 1, "true": b"x"}, "of type bytes, which cannot be saved"),
    ],
)
def test_what_cannot_be_stored(values: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        stored_values(["1", "true"], values)


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ({}, "label_values: missing key 'values'"),
        ({"values": [1]}, "label_values needs a value for each of label_names"),
        ({"values": [1, []]}, r"label_values, values: item 2 is \[\]; .* or a string is needed"),
        ({"values": [1, 2], "enum": "a:B"}, "label_values needs a value"),
        ([1, 2], r"label_values is \[1, 2\]; a JSON object or null is needed"),
    ],
)
def test_a_damaged_file_is_refused(stored: Any, said: str, tmp_path: Path) -> None:
    ModelMetadata("classify", ("a", "b")).write(tmp_path)
    path = tmp_path / "tidybert.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "label_values": stored}))
    with pytest.raises(ConfigError, match=f"tidybert.json: {said}"):
        ModelMetadata.read(tmp_path)
