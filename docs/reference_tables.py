"""The pages of metrics, answers, files and routes, from the classes that declare them."""

import inspect
import json
import re
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
from reference_text import code, paragraphs, plain, table

from tidybert.errors import UsageError


@cache
def tasks() -> dict[str, Any]:
    """The class of each task by the name in tidybert.json."""
    from tidybert.tasks.registry import task_class, task_flags, task_names

    options = task_flags()
    found = []
    for name in task_names():
        found.append(task_class(name))
        for chosen in options.chooses:
            # Any other task refuses the option.
            with suppress(UsageError):
                found.append(task_class(name, options(**{chosen: True})))
    # A program may have registered its own.
    return {each.name: each for each in found if each.__module__.startswith("tidybert.")}


def metrics_page() -> str:
    """What each metric of each task means."""
    from tidybert.metrics.metric import scale_of

    lines = [
        "# Metrics",
        "",
        "`tidybert evaluate` prints these, and its report shows each with an interval.",
        "",
    ]
    for name, task in tasks().items():
        chosen = getattr(task, "metric", None)
        rows = [
            [
                code(key),
                "{:g} to {:g}".format(*scale_of(key)).replace("inf", "∞"),
                plain(text.replace("{positive}", "that is second by name")),
            ]
            for key, text in task.meanings.items()
        ]
        lines += [f"## {name}", "", summary(task), ""]
        if isinstance(chosen, str):
            lines += [f"Training keeps the weights with the best {code(chosen)}.", ""]
        lines += table(["metric", "range", "what it is"], rows)
    return "\n".join(lines)


def summary(value: Any) -> str:
    """The first paragraph of a docstring."""
    return plain(paragraphs(value.__doc__ or "")[0])


def answers_page() -> str:
    """The keys of answers and of what ``evaluate`` returns, from their types."""
    from tidybert.tasks import answer_types

    kinds = [
        each
        for each in vars(answer_types).values()
        if typing.is_typeddict(each) and not each.__name__.endswith("Scores")
    ]
    lines = [
        "# Answers",
        "",
        "`tidybert predict`, `Predictor` and the server give these objects, by task.",
        "",
        f"For type checkers they are classes of `{answer_types.__name__}`.",
        "",
    ]
    for each in kinds:
        rows = [
            [
                code(key),
                code(type_text(kind)),
                "" if key in each.__required_keys__ else "not always",
            ]
            for key, kind in typing.get_type_hints(each).items()
        ]
        lines += [f"## {each.__name__}", ""]
        lines += [plain(one) + "\n" for one in paragraphs(each.__doc__ or "")]
        lines += table(["key", "type", "there"], rows)
    return "\n".join(lines)


def type_text(kind: Any) -> str:
    """A type as a program writes it."""
    shown = kind.__name__ if inspect.isclass(kind) and not typing.get_args(kind) else repr(kind)
    return re.sub(r"\b(typing|tidybert[\w.]*)\.", "", shown)


def files_page() -> str:
    """Formats that are read, the keys of tidybert.json, and the limits."""
    from tidybert.checkpoints.metadata import ModelMetadata
    from tidybert.corpus.token_shards import Manifest
    from tidybert.finetuning.finetuned_model import Trial
    from tidybert.search.index_files import IndexState
    from tidybert.storage import limits

    lines = ["# Files", "", "## Labelled examples", ""]
    lines += ["The suffix says the format; `--format` overrides it.", ""]
    lines += ["Each file may be packed as `.gz`, except Parquet.", ""]
    by_formats: dict[str, list[str]] = {}
    for name, task in tasks().items():
        shown = ", ".join(formats_of(task.read.formats))
        by_formats.setdefault(shown, []).append(code(name))
    rows = [[", ".join(names), shown] for shown, names in by_formats.items()]
    lines += table(["task", "formats, and suffixes"], rows)
    lines += ["## tidybert.json", "", "What a finished RUN has beside the files of a model.", ""]
    lines += table(
        ["key", "what it is"],
        [[code(key), plain(text)] for key, text in documented(ModelMetadata).items()],
    )
    rows = [[code(name), ", ".join(map(code, settings_of(task)))] for name, task in tasks().items()]
    lines += table(["task", "its `settings`"], rows)
    for name, kind in (
        ("corpus.json", Manifest),
        ("index.json", IndexState),
        ("A trial of trials.json", Trial),
    ):
        lines += [f"## {name}", "", *struct_tables(kind)]
    lines += ["## Limits", "", plain(paragraphs(limits.__doc__ or "")[1]), ""]
    lines += table(
        ["limit for", "most"],
        [
            [plain(each.name), f"{each.value:,} {each.unit}"]
            for each in vars(limits).values()
            if isinstance(each, limits.Limit)
        ],
    )
    return "\n".join(lines)


def struct_tables(kind: type) -> list[str]:
    """The keys of a file that a Struct decodes, and of the objects in it."""
    (schema,), parts = msgspec.json.schema_components([kind], ref_template="#/{name}")
    first = schema_name(schema)
    lines = field_table(parts.pop(first))
    for name, each in parts.items():
        lines += [f"### {name}", "", *map(plain, paragraphs(each.get("description", ""))[:1]), ""]
        lines += field_table(each)
    return lines


def formats_of(formats: Any) -> Iterator[str]:
    """The name of each format with the suffixes that mean it."""
    for name in formats.names:
        suffixes = [code(each) for each, other in formats.suffixes.items() if other == name]
        yield code(name) + (f" ({' '.join(suffixes)})" if suffixes else "")


def settings_of(task: Any) -> list[str]:
    """The keys that a task may have under ``settings``."""
    from tidybert.checkpoints.metadata import ModelMetadata

    # A task on texts stores how it reads long ones only where it does not cut them.
    given = {"long": "windows", "doc_stride": 64}
    made = task.from_metadata(ModelMetadata(task.name, ("a", "b"), settings=given))
    return sorted(made.settings())


def documented(value: type) -> dict[str, str]:
    """The arguments that a docstring lists, by name."""
    text = inspect.cleandoc(value.__doc__ or "").partition("Args:\n")[2].partition("\n\n")[0]
    found = re.finditer(r"^    (\w+): (.+(?:\n {8}.+)*)", text, re.MULTILINE)
    return {each[1]: " ".join(each[2].split()) for each in found}


# Routes


def document() -> dict[str, Any]:
    """The server's OpenAPI document."""
    from tidybert.server.app import make_app
    from tidybert.server.engine import Engine
    from tidybert.server.settings import ServerSettings

    made: dict[str, Any] = make_app(Engine(ServerSettings(models={}, device="cpu"))).openapi()
    return made


def routes_page() -> str:
    """Each route with its request's and its answer's fields."""
    found = document()
    by_tag: dict[str, dict[tuple[str, str], list[str]]] = {}
    operations: dict[tuple[str, str], Mapping[str, Any]] = {}
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            key = (operation["summary"], operation.get("description", ""))
            operations[key] = operation
            shown = f"{method.upper()} {path}"
            by_tag.setdefault(operation["tags"][0], {}).setdefault(key, []).append(shown)
    lines = [
        "# HTTP routes",
        "",
        "The routes of `tidybert serve`, as its `/openapi.json` describes them.",
        "",
        "[Serving](../serving.md) and [clients](../serving-clients.md) show how to use them.",
        "",
    ]
    schemas = found["components"]["schemas"]
    for tag in ("native", *(each for each in by_tag if each != "native")):
        lines += [f"## {tag}", ""]
        for (title, text), paths in by_tag[tag].items():
            lines += [f"### {title}", "", " ".join(code(each) for each in sorted(paths)), ""]
            lines += [plain(each) + "\n" for each in text.split("\n\n") if each]
            lines += fields_of(operations[title, text], schemas)
    lines += ["## Objects", "", "What requests and answers are made of.", ""]
    bodies = {schema_name(each) for each in requests(found)}
    for name, schema in schemas.items():
        if name not in bodies:
            lines += [f"### {name}", "", plain(schema.get("description", "")), ""]
            lines += field_table(schema)
    return "\n".join(lines)


def requests(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for methods in found["paths"].values():
        for operation in methods.values():
            if "requestBody" in operation:
                yield content_of(operation["requestBody"])


def content_of(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a request's or an answer's JSON."""
    return part.get("content", {}).get("application/json", {}).get("schema", {})


def schema_name(schema: Mapping[str, Any]) -> str:
    return schema.get("$ref", "").rpartition("/")[2]


def fields_of(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> list[str]:
    """The fields of an operation's request, and the type of its answer where it has one."""
    lines = []
    if body := schema_name(content_of(operation.get("requestBody", {}))):
        lines += field_table(schemas[body])
    answer = json_type(content_of(operation["responses"]["200"]))
    return [*lines, f"Answers {answer}.", ""] if answer else lines


def field_table(schema: Mapping[str, Any]) -> list[str]:
    needed = schema.get("required", ())
    rows = [
        [
            code(name),
            json_type(each),
            "required" if name in needed else default_json(each),
            plain(each.get("description", "")),
        ]
        for name, each in schema.get("properties", {}).items()
    ]
    return table(["field", "type", "default", "what it is"], rows) if rows else []


def default_json(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    return "" if value is None else code(json.dumps(value))


def json_type(schema: Mapping[str, Any]) -> str:
    """A schema's type in words, with links to the objects that it names."""
    if name := schema_name(schema):
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        kinds = [json_type(each) for each in schema["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds)).replace("whole number or number", "number")
    if "enum" in schema:
        return " or ".join(code(f'"{each}"') for each in schema["enum"])
    if "prefixItems" in schema:
        return f"[{', '.join(map(json_type, schema['prefixItems']))}]".replace("[", "\\[", 1)
    if schema.get("type") == "array":
        return f"list of {json_type(schema.get('items', {})) or 'values'}"
    if isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {json_type(schema['additionalProperties']) or 'values'}"
    words = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    kind = schema.get("type", "")
    low = schema.get("minimum")
    return words.get(kind, kind) + (f" of at least {low:g}" if low is not None else "")
