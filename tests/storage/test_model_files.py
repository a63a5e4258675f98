"""model_files is the one place that knows the names of a MODEL's and a RUN's files."""

import ast
from pathlib import Path

import tidybert
from tidybert.storage import model_files

PACKAGE = Path(tidybert.__file__).parent
# "trials" and "best" are keys of JSON objects too.
NAMES = {
    value
    for name, value in vars(model_files).items()
    if name.isupper() and ("." in value or name == "CHECKPOINTS_FOLDER")
}


def test_no_other_module_spells_a_file_name() -> None:
    spelled = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "model_files.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in NAMES
    ]

    assert "config.json" in NAMES
    assert not spelled
