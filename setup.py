"""What the distribution tidybert requires: the modules, in tidybert-light, and the rest.

In a checkout tidybert-light is the folder packaging/light, so no index needs to have it.  An sdist
has no such folder: its wheels require the same version from an index.
"""

import os
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LIGHT = ROOT / "packaging" / "light"

IN_PLACE = "TIDYBERT_IN_PLACE" in os.environ
if LIGHT.is_dir():
    light = f"tidybert-light @ {(LIGHT / 'editable' if IN_PLACE else LIGHT).as_uri()}"
else:
    light = f"tidybert-light=={PROJECT['project']['version']}"
setup(
    install_requires=[light, *PROJECT["tool"]["tidybert"]["requires"]],
    # In place the weights lie beside the modules.
    packages=[] if IN_PLACE else ["tidybert.resources.tidybert-small"],
)
