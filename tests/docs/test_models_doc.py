"""What docs/models.md says of tidybert.json is what the code writes."""

import re
from dataclasses import fields
from pathlib import Path

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.tasks.registry import task_class, task_for, task_names

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def rows(header: str) -> dict[str, str]:
    """The cells of a table's first two columns, by the first."""
    table = PAGE.read_text(encoding="utf-8").split(f"{header}\n|---|---|\n")[1].split("\n\n")[0]
    cells = (line.strip("|").split("|") for line in table.splitlines())
    return {first.strip(): second for first, second in cells}


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_the_keys_are_those_of_the_metadata() -> None:
    keys = [key for row in rows("| key | |") for key in code(row)]

    assert sorted(keys) == sorted(field.name for field in fields(ModelMetadata))


def test_the_settings_are_those_of_the_tasks() -> None:
    settings = {
        code(name)[0]: code(keys) for name, keys in rows("| task | its `settings` |").items()
    }

    assert list(settings) == code(rows("| key | |")["`task`"])
    assert settings.pop("pretrain") == ["objective"]
    # Other tests register tasks of their own.
    ours = {name for name in task_names() if task_class(name).__module__.startswith("tidybert.")}
    assert ours < set(settings)
    for name, keys in settings.items():
        given = {"long": "windows", "doc_stride": 64}
        task = task_for(ModelMetadata(name, ("a", "b"), settings=given))
        assert sorted(keys) == sorted(task.settings()), name
