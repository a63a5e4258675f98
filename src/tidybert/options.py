"""Options: a field says all that is to be known of one, and every face is made from it.

    class Lengths(Options):
        max_seq_length: int = option(128, STEPS, at_least=2)
        \"\"\"Most tokens of a sequence.\"\"\"

The field has the name, the type (with its choices, if that is a Literal) and the default.  The text
below it is the help.  ``option`` says the range, what another value changes in a run under way, and
where the option has no place.  Flags, keyword arguments, the parameters of estimators, records,
checks and reference pages are made from that, so no other place names the option.
"""

import ast
import inspect
import math
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass
from enum import Flag, auto
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypedDict, TypeVar

from tidybert.errors import UsageError, param, suggestion

_KEY: Final = "option"


class Changes(Flag):
    """What another value changes in a run under way.

    NOTHING: no arithmetic, but for rounding and the draws of dropout.  STEPS: the steps from there
    on.  ORDER: the instances that come next, so a new order of the documents begins.  MEASURE: what
    is measured, so that the best weights are chosen again.  MODEL: what the run trains.

    NOTHING may change whenever a run resumes; STEPS, ORDER and MEASURE change from there on, where
    ``--change`` allows it; MODEL cannot change.
    """

    NOTHING = 0
    STEPS = auto()
    ORDER = auto()
    MEASURE = auto()
    MODEL = auto()


NOTHING: Final = Changes.NOTHING
STEPS: Final = Changes.STEPS
ORDER: Final = Changes.ORDER
MEASURE: Final = Changes.MEASURE
MODEL: Final = Changes.MODEL


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What ``option`` says of a field beside its default.

    changes: what another value changes in a run under way; None where no run resumes by it.
    at_least, above, at_most, below: the range of a number.
    choices: of a text, where the type is no Literal that has them.
    expected: the allowed values in the words of a message, where the range says too little.
    panel: the section of the help, where it is not the PANEL of the class.
    recorded: whether arguments.json has it; what only says how a run is begun is not recorded.
    shared: whether the trials of one RUN must have the same value, also when it is resumed.
    estimator: whether the estimators have it as a parameter.
    commands: whose help shows it; () for all that take it.
    part: of an option about files, what a file must have for it to be of use: see ReadOptions.
    needs: another option, without which this one has no use.
    searched: whether a search sets it, so that nobody else may.
    of_steps: whether a value asks for steps of fine-tuning, which contrastive training has not.
    listed: "module:NAME" of the table whose names stand for {names} in the help.
    callback: of the shell's flag, called before other flags are read.
    """

    changes: Changes | None = None
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    expected: str | None = None
    panel: str | None = None
    recorded: bool = True
    shared: bool = True
    estimator: bool = True
    commands: tuple[str, ...] = ()
    part: str | None = None
    needs: str | None = None
    searched: bool = False
    of_steps: bool = False
    listed: str = ""
    callback: Callable[..., Any] | None = None

    def is_in_range(self, value: float) -> bool:
        return not (
            (self.at_least is not None and value < self.at_least)
            or (self.above is not None and value <= self.above)
            or (self.at_most is not None and value > self.at_most)
            or (self.below is not None and value >= self.below)
        )

    def range_text(self) -> str:
        """The range as a message says it."""
        low = self.above if self.at_least is None else self.at_least
        high = self.below if self.at_most is None else self.at_most
        if high is None:
            return f"a number {'above' if self.at_least is None else 'of at least'} {low:,}"
        if low is None:
            return f"a number {'below' if self.at_most is None else 'of at most'} {high:,}"
        noun = "a fraction" if low >= 0 and high == 1 else "a number"
        if self.at_least is None:
            return f"{noun} above {low:,}, {'below' if self.at_most is None else 'up to'} {high:,}"
        return f"{noun} from {low:,} to {'below ' if self.at_most is None else ''}{high:,}"


def option(default: Any = MISSING, changes: Changes | None = None, **said: Any) -> Any:
    """The field of an option, for a dataclass that derives from Options.

    Without a default the option must be given.  ``said``: the other fields of Declared.
    """
    return field(default=default, metadata={_KEY: Declared(changes=changes, **said)})


SEED: Final[dict[str, Any]] = {
    "at_least": 0,
    "below": 2**64,
    "expected": "a whole number from 0 to 2**64 - 1",
}
"""The range of seeds that PyTorch's generators take."""

_PLAIN: Final = Declared()


def declared(each: Field[Any]) -> Declared:
    """What a field's ``option`` says; of a plain field nothing."""
    told: Declared = each.metadata.get(_KEY, _PLAIN)
    return told


def values_of(given: Any, *groups: type) -> dict[str, Any]:
    """The values that an object has for the options of some dataclasses, by name."""
    return {each.name: getattr(given, each.name) for group in groups for each in fields(group)}


def flags_of(given: Any, *groups: type) -> list[str]:
    """The flags that make an object's values for the options of some dataclasses, no defaults."""
    words: list[str] = []
    for each in (each for group in groups for each in fields(group)):
        value, flag = getattr(given, each.name), each.name.replace("_", "-")
        if is_given(each, value):
            if isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                words += [f"--{flag}", "tab" if value == "\t" else str(value)]
    return words


def listed(value: str | None) -> list[str]:
    """The names that a flag has with commas between them, and perhaps spaces."""
    return [each.strip() for each in (value or "").split(",") if each.strip()]


def changes_of(*groups: Any) -> dict[str, Changes]:
    """By name, what each option of some dataclasses changes; MODEL where none says it."""
    return {
        each.name: MODEL if (found := declared(each).changes) is None else found
        for group in groups
        for each in fields(group)
    }


def unknown_name(name: str, known: Collection[str]) -> UsageError:
    """The error of a keyword that is not among the known ones, with the one that was meant."""
    return UsageError(f"{param(name)} is not a parameter{suggestion(name, known)}")


class KnownNames:
    """Base of dataclasses that raise UsageError for a keyword which they do not have."""

    def __new__(cls, *_given: Any, **named: Any) -> Any:
        known = {each.name for each in fields(cls) if each.init}  # type: ignore[arg-type]
        for name in named:
            if name not in known:
                raise unknown_name(name, known)
        return super().__new__(cls)


class Options(KnownNames):
    """Base of dataclasses of options: their values are checked when an object is made.

    A subclass that checks how its options fit each other does so after ``super().__post_init__()``.
    """

    def __post_init__(self: Any) -> None:
        """Raises UsageError for a value of another type or out of range, naming its option."""
        for each in fields(self):
            if _KEY not in each.metadata:
                continue
            value, needed = getattr(self, each.name), declared(each).needs
            _check(each, value)
            if needed is not None and not getattr(self, needed) and is_given(each, value):
                raise UsageError(
                    f"{param(each.name)} needs {param(needed)}: give both, or leave it out"
                )


def is_given(each: Field[Any], value: Any) -> bool:
    """Whether an option has another value than its default."""
    # Data in memory may compare by element.
    return value is not None if each.default is None else bool(value != each.default)


def named(group: Any, **said: Any) -> list[str]:
    """The names of a dataclass's fields of which ``option`` says this: ``shared=False``."""
    return [
        each.name
        for each in fields(group)
        if all(getattr(declared(each), key) == value for key, value in said.items())
    ]


# What Python's faces take.  A type checker reads no classes that a program makes, so the .pyi file
# beside a module that makes some has them; ``tests/stubs.py --write`` writes it.


def keywords(
    module: str, name: str, *groups: type, left_out: Sequence[str] = (), **others: Any
) -> Any:
    """A TypedDict of keyword arguments: the options of some dataclasses, none of them required.

    ``left_out`` are options that a function has as parameters; ``others`` are types of keywords
    that no option has, or that are narrower.
    """
    kinds = {
        each.name: each.type
        for group in groups
        for each in fields(group)
        if each.name not in left_out
    }
    made = TypedDict(name, {**kinds, **others}, total=False)  # type: ignore[misc]
    return _made_of(made, module, groups)


def parameters(
    module: str,
    name: str,
    *groups: type,
    defaults: Mapping[str, Any] = MappingProxyType({}),
    **types: Any,
) -> Any:
    """A dataclass of the options that estimators have, each with its default, as keywords.

    ``defaults`` and ``types``: by name, where they are not the option's, whose None may stand for a
    task's default.
    """
    found = {
        each.name: (
            each.name,
            types.get(each.name, each.type),
            field(default=defaults.get(each.name, each.default)),
        )
        for group in groups
        for each in fields(group)
        if declared(each).estimator
    }
    made = make_dataclass(
        name, found.values(), bases=(KnownNames,), eq=False, repr=False, kw_only=True
    )
    return _made_of(made, module, groups)


def _made_of(made: Any, module: str, groups: tuple[type, ...]) -> Any:
    made.__module__, made._option_groups = module, groups
    return made


F = TypeVar("F", bound=Callable[..., Any])


def spelled_out(group: type) -> Callable[[F], F]:
    """Show ``**options`` of a function as the options of a dataclass, to ``help`` and to editors.

    The docstring of a class, if the function is its __init__, is completed by ``documented``.
    """

    def decorate(function: F) -> F:
        found = inspect.signature(function)
        own = [each for each in found.parameters.values() if each.kind is not each.VAR_KEYWORD]
        made = [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=each.type,
            )
            for each in fields(group)
        ]
        function.__signature__ = found.replace(parameters=[*own, *made])  # type: ignore[attr-defined]
        return function

    return decorate


T = TypeVar("T")


def documented(*groups: type) -> Callable[[type[T]], type[T]]:
    """Complete the ``Args`` of a class's docstring by the options of dataclasses that it lacks."""

    def decorate(kind: type[T]) -> type[T]:
        texts = {
            each.name: python_helps(group)[each.name] for group in groups for each in fields(group)
        }
        own, attributes, rest = (kind.__doc__ or "").partition("\n    Attributes:\n")
        lines = [
            textwrap.fill(
                f"{name}: {text}", 100, initial_indent="        ", subsequent_indent=12 * " "
            )
            for name, text in texts.items()
            if not re.search(rf"^ {{8}}([\w, ]+, )?{name}[,:]", own, re.M)
        ]
        kind.__doc__ = "\n".join([own.rstrip(), *lines]) + "\n" + attributes + rest
        return kind

    return decorate


def check_value(group: type, name: str, value: Any) -> None:
    """Raise UsageError for a value that the option of a dataclass cannot have."""
    (found,) = (each for each in fields(group) if each.name == name)
    _check(found, value)


def _check(each: Field[Any], value: Any) -> None:
    kind: Any = each.type
    check_type(each.name, value, kind)
    if value is None or isinstance(value, bool):
        return
    told = declared(each)
    if isinstance(value, int | float) and not told.is_in_range(value):
        raise bad_value(each.name, value, told.expected or told.range_text())
    allowed = told.choices or choices_of(kind)
    if isinstance(value, str) and allowed and value not in allowed:
        raise bad_value(each.name, value, told.expected or one_of(allowed))


def bad_value(name: str, value: object, expected: str) -> UsageError:
    """The error of an option whose value cannot be used."""
    return UsageError(f"{param(name)} is {value!s:.60}; expected {expected}")


def one_of(names: Sequence[str]) -> str:
    """Names as a message lists them: auto, float32 or bfloat16."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


_WORDS: Final = {
    int: "a whole number", float: "a number", bool: "true or false", str: "a name", Path: "a path",
    list: "a list", Sequence: "a list", types.NoneType: "none",
}  # fmt: skip


def check_type(name: str, value: object, kind: Any) -> None:
    """Raise UsageError for a value of another type than ``kind``, a type or a union of types."""
    if kind is Any:
        return
    allowed = _members(kind)
    # To Python, True is an int; here it is not a number of steps.
    if isinstance(value, bool):
        fits = bool in allowed
    else:
        fits = isinstance(value, (*allowed, int) if float in allowed else allowed)
    if not fits:
        words = dict.fromkeys(_WORDS.get(each, each.__name__) for each in allowed)
        raise bad_value(name, repr(value), " or ".join(words))
    if isinstance(value, float) and not math.isfinite(value):
        raise bad_value(name, value, "a finite number")


@cache
def _members(kind: Any) -> tuple[type, ...]:
    """The types of a union; str for a Literal, and list for a list of anything."""
    if typing.get_origin(kind) is Literal:
        return (str,)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(one for each in typing.get_args(kind) for one in _members(each))
    return (typing.get_origin(kind) or kind,)


@cache
def choices_of(kind: Any) -> tuple[str, ...]:
    """The names that a Literal has, alone or in a union with None; () for another type."""
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    return tuple(one for each in typing.get_args(kind) for one in choices_of(each))


# The help of an option is the text below its field, which Python does not keep: it is read from the
# source.


def helps(group: type) -> dict[str, str]:
    """The help of each field of a dataclass, or of a class that was made of several."""
    found: dict[str, str] = {}
    for base in reversed(group.__mro__):
        if (parts := vars(base).get("_option_groups")) is None:
            found |= {name: plain_help(text) for name, text in texts(base).items()}
        for part in parts or ():
            found |= helps(part)
    return found


def python_helps(group: type) -> dict[str, str]:
    """The same with options as Python spells them: max_seq_length for --max-seq-length."""
    return {
        name: re.sub(r"--([a-z][a-z-]*)", lambda flag: flag[1].replace("-", "_"), text)
        for name, text in helps(group).items()
    }


@cache
def texts(group: type) -> dict[str, str]:
    """The text below each field of a class; fields without one share that of the next field."""
    found: dict[str, str] = {}
    waiting: list[str] = []
    if not inspect.get_annotations(group):
        # A class without fields of its own may have been made by a program.
        return found
    for statement in _statements(group):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            waiting.append(statement.target.id)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            text = " ".join(str(statement.value.value).split())
            found.update((name, _with_names(group, name, text)) for name in waiting)
            waiting = []
    return found


def _with_names(group: type, name: str, text: str) -> str:
    """A help with the names of the table that its option is from."""
    each = vars(group).get("__dataclass_fields__", {}).get(name)
    if each is None or not (listed := declared(each).listed):
        return text
    module, _, table = listed.partition(":")
    return text.replace("{names}", one_of(list(getattr(import_module(module), table))))


def plain_help(text: str) -> str:
    """Without the flag's name and marks of code; code that begins it keeps its small letter."""
    text = re.sub(r"^``(--[^`]*|[A-Z_]+)``: ", "", text)
    return (text[:1].upper() + text[1:]).replace("``", "")


def _statements(group: type) -> list[ast.stmt]:
    """The statements of a class's body."""
    found: list[ast.stmt] = _parsed(group.__module__).body
    for name in group.__qualname__.replace(".<locals>", "").split("."):
        found = next(
            each.body
            for each in found
            if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name == name
        )
    return found


@cache
def _parsed(module: str) -> ast.Module:
    # inspect.getsource of a class goes through the whole module each time, which is slow.
    return ast.parse(inspect.getsource(sys.modules[module]))
