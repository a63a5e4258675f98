"""The pages of the commands and their flags, from the program itself."""

import dataclasses
import re
from functools import cache
from typing import Any, Final

from reference_text import ROOT, WIDE, code, paragraphs, plain, table

from tidybert.options import MODEL, NOTHING, Declared, choices_of, declared


@cache
def program() -> Any:
    from tidybert.cli.main import program

    return program()


def commands() -> list[str]:
    """The names of all commands, as the help lists them."""
    return list(program().commands)


def program_page() -> str:
    """What the program says of itself, and its commands."""
    first, *rest = paragraphs(program().help)
    rows = [
        [f"[`{name}`]({name}.md)", plain(paragraphs(each.help)[0])]
        for name, each in program().commands.items()
    ]
    return "\n".join(
        [
            "# The commands",
            "",
            f"`tidybert COMMAND`: {plain(first)}",
            *("\n" + plain(each) for each in rest),
            "",
            *table(["command", "what it does"], rows),
            "## Options of the program",
            "",
            *flag_table(program(), [each for each in program().params if is_flag(each)]),
        ]
    )


def command_page(name: str) -> str:
    """A command: its usage, its text, its arguments and flags, and the guides that show it."""
    command = program().commands[name]
    arguments = [each for each in command.params if not is_flag(each)]
    lines = [*WIDE, f"# tidybert {name}", "", "```text", usage(command), "```", ""]
    for each in paragraphs(command.help):
        lines += [plain(each), ""]
    if found := guides(name):
        lines += [f"Guides: {', '.join(found)}.", ""]
    if arguments:
        rows = [
            [code(each.metavar), default_of(each)[0], plain(each.help or "")] for each in arguments
        ]
        lines += ["## Arguments", "", *table(["argument", "default", "what it is"], rows)]
    for title, flags in panels(command).items():
        lines += [f"## {title}", "", *flag_table(command, flags)]
    return "\n".join(lines)


def usage(command: Any) -> str:
    """The line of the help that shows how the command is called."""
    with command.make_context(f"tidybert {command.name}", [], resilient_parsing=True) as context:
        return " ".join(command.get_usage(context).removeprefix("Usage: ").split())


def is_flag(parameter: Any) -> bool:
    return parameter.param_type_name == "option"


def guides(name: str) -> list[str]:
    """Links to the guides that show a command."""
    found = []
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if re.search(rf"^(?:echo .*\| )?tidybert {name}\b(?!-)", text, re.MULTILINE):
            title = re.search(r"^# (.+)$", text, re.MULTILINE)
            found.append(f"[{title[1] if title else path.stem}](../../{path.name})")
    return found


def panels(command: Any) -> dict[str, list[Any]]:
    """A command's flags in the sections of its help."""
    from tidybert.cli.flags import PANELS, PanelCommand

    flags = {each.name: each for each in command.params if is_flag(each)}
    if not isinstance(command, PanelCommand):
        return {"Options": list(flags.values())}
    made: dict[str, list[Any]] = {title: [] for title in PANELS}
    made["Most used"] = [
        flags.pop(name) for name in getattr(command.callback, "first_flags", ()) if name in flags
    ]
    for each in flags.values():
        made[each.rich_help_panel or PANELS[-1]].append(each)
    return {title: found for title, found in made.items() if found}


def flag_table(command: Any, flags: list[Any]) -> list[str]:
    """A row for each flag; its name is an anchor."""
    rows = []
    for each in flags:
        default, text = default_of(each)
        default = default or by_recipe(command, each)
        names = "".join(f'<a id="{one}"></a>' for one in (*each.opts, *each.secondary_opts))
        rows.append(
            [
                names + shown_flag(each),
                default,
                values_of(command, each),
                plain(text) + tasks_of(command, each),
                on_resume(command, each),
            ]
        )
    return table(["flag", "default", "values", "what it does", "on a resume"], rows)


def shown_flag(flag: Any) -> str:
    """A flag as it is typed, with the word that stands for its value."""
    value = flag.metavar if not flag.is_flag else None
    names = [*flag.opts, *flag.secondary_opts]
    return " ".join(code(f"{one} {value}" if value else one) for one in names)


def default_of(parameter: Any) -> tuple[str, str]:
    """The default of a flag, and its help without the sentence that says it."""
    text = parameter.help or ""
    if found := re.search(r"\s*\bIf not set: (.+?)\.(?=\s|$)", text):
        return plain(found[1]), text[: found.start()] + text[found.end() :]
    if parameter.required:
        return "required", text
    value = parameter.default
    if value is None or (value is False and not getattr(parameter, "secondary_opts", ())):
        return "", text
    return code("on" if value is True else "off" if value is False else shown(value)), text


def by_recipe(command: Any, flag: Any) -> str:
    """The defaults of a flag of pre-training, by recipe."""
    from tidybert.pretraining.pretraining_arguments import RECIPES, PretrainingArguments

    groups = getattr(command.callback, "groups", {}).values()
    if not any(issubclass(each, PretrainingArguments) for each in groups):
        return ""
    found = [(name, values[flag.name]) for name, values in RECIPES.items() if flag.name in values]
    return ", ".join(f"{code(shown(value))} for {name}" for name, value in found)


def shown(value: object) -> str:
    return f"{value:,}".replace(",", "") if isinstance(value, int) else str(value)


_KINDS: Final = {int: "whole number", float: "number"}


def values_of(command: Any, flag: Any) -> str:
    """The names that a flag can have, or the range of its number."""
    if flag.is_flag:
        return ""
    each = field_of(command, flag)
    told = declared(each) if each else Declared()
    if found := told.choices or (choices_of(each.type) if each else ()):
        return ", ".join(map(code, found))
    kind = _KINDS.get(flag.type_descriptor.annotation, "")
    if told.expected and kind:
        return plain(told.expected)
    if kind and {told.at_least, told.above, told.at_most, told.below} != {None}:
        return re.sub("^a (number|fraction)( of)?", kind, told.range_text())
    return kind


def field_of(command: Any, flag: Any) -> dataclasses.Field[Any] | None:
    """The field that declares a flag; None for a flag of the function itself."""
    groups = getattr(command.callback, "groups", {}).values()
    found = (each for group in groups for each in dataclasses.fields(group))
    return next((each for each in found if each.name == flag.name), None)


def on_resume(command: Any, flag: Any) -> str:
    """Whether a training that goes on may have another value of a flag."""
    each = field_of(command, flag)
    changes = declared(each).changes if each else None
    if changes is None:
        return ""
    if changes is NOTHING:
        return "any value"
    return "fixed" if MODEL in changes else "with `--change`"


def tasks_of(command: Any, flag: Any) -> str:
    """For a flag of finetune, the tasks that have no use for it."""
    from tidybert.tasks.registry import task_names, unused_flags

    if command.name != "finetune":
        return ""
    without = [name for name in task_names() if flag.name in unused_flags(name)]
    used = [name for name in task_names() if name not in without]
    return f" Only for {', '.join(map(code, used))}." if without else ""


@cache
def flags() -> dict[str, dict[str, list[str]]]:
    """By flag the texts that say what it does, and by text the commands where it does so."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, command in program().commands.items():
        for flag in filter(is_flag, command.params):
            default, text = default_of(flag)
            text = plain(text)
            if default and default != "required":
                text += f" Default: {default}."
            for each in (*flag.opts, *flag.secondary_opts):
                found.setdefault(each, {}).setdefault(text, []).append(name)
    return dict(sorted(found.items()))


def flags_page() -> str:
    """All flags, each a heading with the commands that have it."""
    lines = ["# Flags, A to Z", "", "Each flag, and the commands that have it.", ""]
    for flag, texts in flags().items():
        lines += [f"## `{flag}` {{ #{flag} }}", ""]
        for text, names in texts.items():
            links = ", ".join(f"[{each}](commands/{each}.md#{flag})" for each in names)
            lines += [text, "", f"In {links}.", ""]
    return "\n".join(lines)
