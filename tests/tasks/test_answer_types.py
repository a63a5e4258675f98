"""The types of answers say what the answers' classes say: python tests/tasks/test_answer_types.py
writes them anew."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from tidybert.tasks import answer, answer_types
from tidybert.tasks.answer import ABSENT, OwnAnswer, TaskAnswer

FILE = Path(answer_types.__file__)
BEGIN, END = "# --- answers, written from tasks/answer.py\n", "# --- metrics\n"
READ = '''class Read(TypedDict):
    """How an input was read: its tokens before truncation, and whether it was cut."""

    num_tokens: int
    truncated: bool
'''


def kinds() -> list[type[TaskAnswer]]:
    every = (each for each in vars(answer).values() if isinstance(each, type))
    return [
        each
        for each in every
        if issubclass(each, TaskAnswer) and hasattr(each, "dict_name") and each is not OwnAnswer
    ]


def written(kind: Any) -> str:
    """A type as a program writes it."""
    shown = (
        kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else repr(kind)
    )
    return re.sub(r"\b(typing|tidybert\.[a-z._]+)\.", "", shown)


def typed(kind: type[TaskAnswer]) -> str:
    types = get_type_hints(kind)
    lines = [f"class {kind.dict_name}(Read):", f'    """{kind.__doc__}"""', ""]
    for each in kind.own_fields():
        type_text = written(types[each.name])
        lines.append(f"    {each.name}: " + (
            f"NotRequired[{type_text}]" if each.default is ABSENT else type_text
        ))  # fmt: skip
    if kind.has_windows:
        lines.append("    num_windows: NotRequired[int]")
    return "\n".join(lines) + "\n"


def section() -> str:
    return BEGIN + "\n\n" + "\n\n".join([READ, *map(typed, kinds())]) + "\n\n"


def test_the_types_are_those_of_the_answers() -> None:
    text = FILE.read_text(encoding="utf-8")
    begin, end = text.index(BEGIN), text.index(END)

    assert text[begin:end] == section(), f"run python {Path(__file__).name}"


def test_a_dict_is_the_answer_that_it_came_from() -> None:
    for kind in kinds():
        values = {each.name: each.name for each in kind.own_fields()}
        found = kind(**values, read=answer.Read(num_tokens=3, truncated=False))

        assert TaskAnswer.of(found.as_dict()) == found
    own = {"rating": 3, "num_tokens": 2, "truncated": True}
    assert isinstance(TaskAnswer.of(own), OwnAnswer)
    assert TaskAnswer.of(own).as_dict() == own
    assert [each.name for each in fields(answer.Read)][1:] == ["num_tokens", "truncated"]


if __name__ == "__main__":
    text = FILE.read_text(encoding="utf-8")
    FILE.write_text(text[: text.index(BEGIN)] + section() + text[text.index(END) :])
