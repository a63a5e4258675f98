"""Signatures of dataclasses as they are: an extension of Griffe, which reads mkdocstrings' source.

``seed: int = TrainingArguments.seed`` says where a default is declared, and a reader wants ``42``.
"""

import inspect
from importlib import import_module
from typing import Any

import griffe
import reference_pages


class Values(griffe.Extension):
    """Gives the parameters of public dataclasses the kinds and defaults that they have."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for path in (each for found in reference_pages.python_names().values() for each in found):
            module, _, name = path.rpartition(".")
            for each in getattr(getattr(import_module(module), name), "__mro__", ()):
                made = "__init__" in vars(each) and "__dataclass_fields__" in vars(each)
                if made and each.__module__.startswith(f"{pkg.path}."):
                    correct(pkg[f"{each.__module__}.{each.__name__}".removeprefix(f"{pkg.path}.")])


def correct(shown: griffe.Class) -> None:
    init = shown.members.get("__init__")
    if not isinstance(init, griffe.Function):
        return
    given = inspect.signature(getattr(import_module(shown.module.path), shown.name)).parameters
    known = {each.name: each for each in init.parameters if each.name in ("self", *given)}
    for each in given.values():
        known[each.name].kind = griffe.ParameterKind(each.kind.description)
        if isinstance(each.default, str | int | float | None):
            known[each.name].default = repr(each.default)
    init.parameters = griffe.Parameters(*(known[name] for name in ("self", *given)))
