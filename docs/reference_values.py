"""Parameters of dataclasses as they are: an extension of Griffe, which mkdocstrings reads code by.

``seed: int = TrainingArguments.seed`` says where a default is declared, and a reader wants ``42``.
A field of a base class has its text below it there, and a reader wants it with the other ones.
"""

import inspect
from importlib import import_module
from typing import Any

import griffe
from reference_pages import python_names


class Values(griffe.Extension):
    """Gives the parameters of public dataclasses the kinds, defaults and texts that they have."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        paths = (each.rpartition(".") for found in python_names().values() for each in found)
        public = [getattr(import_module(module), name) for module, _, name in paths]
        inherited = {}
        for value in public:
            bases = {
                each: pkg[f"{each.__module__}.{each.__name__}".removeprefix(f"{pkg.path}.")]
                for each in getattr(value, "__mro__", ())
                if "__dataclass_fields__" in vars(each)
            }
            for shown in bases.values():
                correct(shown)
            describe(list(bases.values()))
            inherited.update({each: shown for each, shown in bases.items() if each not in public})
        for shown in inherited.values():
            # What inherits these fields has them as parameters.
            for attribute in shown.attributes.values():
                attribute.docstring = None


def correct(shown: griffe.Class) -> None:
    """Give the made __init__ of a dataclass its kinds and defaults."""
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


def describe(bases: list[griffe.Class]) -> None:
    """Add the texts of inherited fields to the parameters that a class's docstring lists."""
    sections = bases[0].docstring.parsed if bases and bases[0].docstring else []
    lists = [each for each in sections if each.kind.value == "parameters"]
    listed = {name for each in lists for part in each.value for name in part.name.split(", ")}
    for each in bases[0].parameters if lists else ():
        owner = next((base for base in bases[1:] if each.name in base.attributes), None)
        text = owner.attributes[each.name].docstring if owner else None
        if text is not None and each.name not in listed:
            lists[0].value.append(
                griffe.DocstringParameter(
                    each.name,
                    annotation=each.annotation,
                    description=text.value,
                    value=str(each.default),
                )
            )
