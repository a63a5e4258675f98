"""The build of tidybert-light in place: what setuptools makes for an editable installation."""

import os
from pathlib import Path
from typing import Any

from setuptools import build_meta

LIGHT = Path(__file__).resolve().parents[1]


def build_wheel(folder: str, settings: Any = None, metadata: str | None = None) -> str:
    target = str(Path(folder).resolve())
    os.chdir(LIGHT)
    return build_meta.build_editable(target, settings)
