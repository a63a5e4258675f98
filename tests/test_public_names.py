"""``import tidybert`` offers its names lazily, to editors as well."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tidybert


def test_every_public_name_is_found_where_the_table_says() -> None:
    for name in tidybert.__all__:
        assert getattr(tidybert, name) is not None
        assert name in dir(tidybert)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(tidybert.__file__).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    (block,) = (node for node in blocks if ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == tidybert._MODULE_OF
    assert {*seen, "__version__"} == set(tidybert.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'BertFor'"):
        tidybert.BertFor  # noqa: B018
    assert not hasattr(tidybert, "Bert")


def test_a_name_loads_only_its_own_module() -> None:
    code = "import sys, tidybert; tidybert.BertConfig; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
