"""Measurements behind the tables of the guides: ``python -m benchmarks`` lists them."""

import os
from typing import Final

ENVIRONMENT: Final = dict(os.environ)
"""As the user set it: tidybert, once imported, says in it how threads wait."""
