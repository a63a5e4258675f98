"""mkdocs.yml: each guide has its place on the site, each place its file, and make docs works."""

import os
import re
import runpy
import subprocess
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
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
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
        ("docs/a.md", "[a](../src/tidybert/storage/limits.py)", "[a](reference/files.md#limits)"),
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


@pytest.mark.parametrize(
    ("html", "page"),
    [
        ("<code>--learning-rate</code>", "flags.html#--learning-rate"),
        ("<code>--top-k 3</code>", "flags.html#--top-k"),
        ("<code>tidybert finetune classify --help</code>", "commands/finetune.html"),
        ("<code>BertClassifier</code>", "python/estimators.html#tidybert.BertClassifier"),
        ("<code>tidybert.finetune</code>", "python/finetuning.html#tidybert.finetune"),
        ("<code>predict</code>", None),
        ("<code>--no-such-flag</code>", None),
        ("<h2><code>--learning-rate</code></h2>", None),
        ('<a href="trust.html"><code>--report</code></a>', None),
        ("<pre><span></span><code>tidybert predict\n</code></pre>", None),
    ],
)
def test_a_name_in_a_guide_is_a_link_to_the_reference(
    hook: dict[str, object], html: str, page: str | None
) -> None:
    reference_links = hook["reference_links"]
    assert callable(reference_links)
    expected = f'<a href="reference/{page}">{html}</a>' if page else html
    assert reference_links(html, "finetuning.md") == expected


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="needs the extra docs")
    pytest.importorskip("mkdocstrings", reason="needs the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert built.returncode == 0, built.stderr
    python = tmp_path / "reference" / "python"
    assert 'id="tidybert.finetune"' in (python / "finetuning.html").read_text(encoding="utf-8")
    page = re.sub(r"<[^>]+>", "", (python / "estimators.html").read_text(encoding="utf-8"))
    # A default is a value, and the text of an option is that of its flag.
    assert "learning_rate: float | None = None" in page
    assert "Divide logits of teacher and student by this" in page
