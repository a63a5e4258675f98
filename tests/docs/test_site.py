"""mkdocs.yml: each guide has its place on the site, and each place its file."""

import re
import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """docs/site_pages.py, with what it needs of mkdocs for its types."""
    files = ModuleType("mkdocs.structure.files")
    files.File = files.Files = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mkdocs.structure.files", files)
    return runpy.run_path(str(ROOT / "docs" / "site_pages.py"))


def test_each_guide_is_on_the_site(hook: dict[str, object]) -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    pages = re.findall(r": (\S+\.md)$", nav, re.MULTILINE)
    guides = [path.name for path in (ROOT / "docs").glob("*.md")]
    root_pages = hook["ROOT_PAGES"]
    assert isinstance(root_pages, dict)

    assert sorted(pages) == sorted([*guides, *root_pages.values()])
    assert all((ROOT / path).is_file() for path in root_pages)


@pytest.mark.parametrize(
    ("path", "link", "expected"),
    [
        ("README.md", "[a](docs/models.md#in-python)", "[a](models.md#in-python)"),
        ("README.md", "![a](docs/page.png)", "![a](page.png)"),
        ("docs/models.md", "[a](../README.md#first-use)", "[a](index.md#first-use)"),
        ("docs/models.md", "[a](page.md)", "[a](page.md)"),
        ("benchmarks/NOTES.md", "[a](../docs/results.md)", "[a](results.md)"),
        ("docs/python.md", 'Predictor[A]("run")', 'Predictor[A]("run")'),
        ("docs/check.md", "[a](https://arxiv.org/abs/1)", "[a](https://arxiv.org/abs/1)"),
    ],
)
def test_links_between_files_become_links_between_pages(
    hook: dict[str, object], path: str, link: str, expected: str
) -> None:
    site_links = hook["site_links"]
    assert callable(site_links)
    assert site_links(link, path) == expected
