"""``import tidybert`` offers its names lazily, to editors as well."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidybert

STUB = Path(tidybert.__file__).with_suffix(".pyi")


def test_every_public_name_is_found_where_the_table_says() -> None:
    for name in tidybert.__all__:
        assert getattr(tidybert, name) is not None
        assert name in dir(tidybert)


def stub() -> str:
    """What type checkers read: the table's names as imports."""
    lines = [f'"""{(tidybert.__doc__ or "").partition(chr(10))[0]}"""', ""]
    for module, names in tidybert._NAMES.items():
        lines += [f"from {module} import {name} as {name}" for name in names]
    return "\n".join([*lines, "", "__version__: str"]) + "\n"


def test_type_checkers_see_the_same_names() -> None:
    assert STUB.read_text(encoding="utf-8") == stub(), f"run python {Path(__file__).name}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'BertFor'"):
        tidybert.BertFor  # noqa: B018
    assert not hasattr(tidybert, "Bert")


def test_a_name_loads_only_its_own_module() -> None:
    code = "import sys, tidybert; tidybert.BertConfig; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_help_of_a_class_names_its_arguments_alone() -> None:
    for name in ("Embedder", "MaskFiller", "NextSentencePredictor", "Predictor", "TextScorer"):
        found = getattr(tidybert, name)
        _, _, listed = found.__doc__.partition("Args:\n")
        named = set(re.findall(r"^ {8}(\w+):", listed, re.MULTILINE))
        assert named == set(inspect.signature(found).parameters), name


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")


def test_completion_offers_the_public_names_alone() -> None:
    assert dir(tidybert) == tidybert.__all__
