"""The build of the distribution tidybert: setuptools', which is told of editable installations.

pip asks for each step in a process of its own; setup.py reads the variable.
"""

import os
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401
    build_sdist,
    build_wheel,
    prepare_metadata_for_build_wheel,
)


def prepare_metadata_for_build_editable(folder: str, settings: Any = None) -> str:
    os.environ["TIDYBERT_IN_PLACE"] = "1"
    return build_meta.prepare_metadata_for_build_editable(folder, settings)


def build_editable(folder: str, settings: Any = None, metadata: str | None = None) -> str:
    os.environ["TIDYBERT_IN_PLACE"] = "1"
    return build_meta.build_editable(folder, settings, metadata)
