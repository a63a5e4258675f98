"""Fixtures shared by all tests: where the real weights and the real data are, or a skip that says so."""

import os
from pathlib import Path

import pytest

DATA_DIRECTORY = Path(
    os.environ.get("TIDYBERT_DATA", Path(__file__).parents[2] / "shared" / "data")
)


@pytest.fixture(scope="session")
def minilm_directory() -> Path:
    """Directory of the embedded weights; skips where they are not installed."""
    from tidybert.errors import ModelNotFoundError
    from tidybert.pretrained import model_directory

    try:
        return model_directory("minilm")
    except ModelNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the public data sets; skips where it is absent."""
    if not DATA_DIRECTORY.is_dir():
        pytest.skip(f"no data folder at {DATA_DIRECTORY}; name one with TIDYBERT_DATA")
    return DATA_DIRECTORY
