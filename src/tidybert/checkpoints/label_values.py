"""Labels as a program gave them, such as 3, True or Colour.RED, beside the names of files.

A label's name is text, in files and in label_names.  tidybert.json keeps the values under
label_values: {"values": [1, 2]} in the order of label_names, or {"enum": "shop:Colour", "values":
["RED", "BLUE"]} with the names of an enum's members.  Labels that are texts need none of this.
"""

import sys
from collections.abc import Mapping, Sequence
from enum import Enum, EnumType
from typing import Any

import numpy as np

from tidybert.errors import ConfigError, DataError, DataWarning
from tidybert.system.user_warnings import warn_user


def stored_values(names: Sequence[str], values: Mapping[str, object]) -> dict[str, Any] | None:
    """The entry of labels in tidybert.json; None where all are texts.

    Args:
        names: the labels in the order of their ids.
        values: by name, what a program gave; a name that is not there is its own value.

    Raises DataError for labels that JSON cannot hold, and for two that Python takes for equal.
    """
    given = [_plain(values.get(name, name)) for name in names]
    kinds = {type(value) for value in given}
    if kinds <= {str}:
        return None
    if len(set(given)) < len(given):
        raise DataError(
            f"the labels are {_shown(given)}, and Python takes two of them for equal: give labels "
            "of one type"
        )
    if any(issubclass(kind, Enum) for kind in kinds):
        if len(kinds) > 1:
            raise DataError(f"the labels are {_shown(given)}: give members of only one enum")
        (kind,) = kinds
        where = f"{kind.__module__}:{kind.__qualname__}"
        return {"enum": where, "values": [value.name for value in given]}
    for value in given:
        if not isinstance(value, str | int | float):
            raise DataError(
                f"the label {value!r:.40} is of type {type(value).__name__}, which cannot be "
                "saved: give labels that are str, int, float, bool or an enum's members"
            )
    return {"values": given}


def restored_values(names: Sequence[str], stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """By name, the labels that ``stored_values`` stored; empty where all are texts.

    An enum is looked up in a module that the program has imported: a file must not choose code to
    run.  Warns, and gives texts, where the program has no such enum.
    """
    if stored is None:
        return {}
    if "enum" not in stored:
        return dict(zip(names, stored["values"], strict=True))
    module, _, path = stored["enum"].partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if isinstance(found, EnumType):
        members: Mapping[str, Any] = found.__members__
        if all(name in members for name in stored["values"]):
            return {name: members[each] for name, each in zip(names, stored["values"], strict=True)}
    warn_user(
        f"the labels are members of the enum {path} of the module {module}, which this program has "
        "not imported, so answers have their names: import the module first",
        DataWarning,
    )
    return {}


def check_label_values(names: Sequence[str] | None, stored: Any) -> None:
    """Raise ConfigError for a label_values that ``stored_values`` cannot have given."""
    values = stored.get("values") if isinstance(stored, Mapping) else None
    good = (
        isinstance(values, list)
        and names is not None
        and len(values) == len(names)
        and all(isinstance(value, str | int | float) for value in values)
        and stored.keys() <= {"values", "enum"}
        and isinstance(stored.get("enum", ""), str)
        and ("enum" not in stored or all(isinstance(value, str) for value in values))
    )
    if not good:
        raise ConfigError(
            f"label_values is {stored!r:.80}; an object with a value for each of label_names is "
            "needed"
        )


def _plain(value: Any) -> Any:
    """NumPy's scalars as Python's, which are equal."""
    return value.item() if isinstance(value, np.generic) else value


def _shown(values: Sequence[object]) -> str:
    more = ", …" if len(values) > 5 else ""
    return ", ".join(f"{value!r:.40}" for value in values[:5]) + more
