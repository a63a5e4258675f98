"""The models of the page's tests."""

from collections.abc import Callable

import pytest

from tidybert.page.page_model import PageModel


@pytest.fixture(scope="session")
def opened(served: dict[str, str]) -> Callable[[str], PageModel]:
    """A PageModel by name: tidybert-small, or one of the tiny models of ``served``."""
    models: dict[str, PageModel] = {}

    def get(name: str) -> PageModel:
        path = served.get(name, name)
        return models.setdefault(name, PageModel(path, path))

    return get
