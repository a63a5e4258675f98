"""The reference of the site has every command, flag, public name, metric and route there is."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tidybert
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.cli.main import program
from tidybert.storage import limits
from tidybert.storage.limits import Limit

ROOT = Path(__file__).parents[2]
FLAGS = "reference/flags.md"


@pytest.fixture(scope="module")
def reference() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "docs"))
        yield __import__("reference_pages")


@pytest.fixture(scope="module")
def pages(reference: ModuleType) -> dict[str, str]:
    pytest.importorskip("fastapi")
    made: dict[str, str] = reference.pages()
    return made


@pytest.mark.parametrize("name", program().commands)
def test_a_command_has_a_page_with_each_flag(pages: dict[str, str], name: str) -> None:
    page = pages[f"reference/commands/{name}.md"]

    for each in program().commands[name].params:
        shown = each.opts if each.param_type_name == "option" else [each.metavar]
        for flag in shown:
            assert f"`{flag}" in page, flag
            assert not flag.startswith("--") or f'<a id="{flag}"></a>' in page
            assert not flag.startswith("--") or f"## `{flag}` {{ #{flag} }}" in pages[FLAGS]


def test_a_row_says_default_range_and_what_a_resume_may_change(pages: dict[str, str]) -> None:
    rows = pages["reference/commands/finetune.md"].splitlines()

    def row(flag: str) -> str:
        (found,) = (each for each in rows if f'<a id="{flag}"></a>' in each)
        return found

    assert "| `0.1` |" in row("--warmup-proportion")
    assert "with `--change` |" in row("--warmup-proportion")
    assert "| whole number from 1 to 1,000 |" in row("--seeds")
    assert "| number from 0 to below 1 |" in row("--dropout")
    assert "| `cls`, `mean` |" in row("--pooling")
    assert "| any value |" in row("--logging-steps")
    assert "| fixed |" in row("--train-batch-size")
    assert "Only for `answer`." in row("--n-best-size")


def test_each_public_name_is_on_one_page_of_python(
    reference: ModuleType, pages: dict[str, str]
) -> None:
    text = "\n".join(page for name, page in pages.items() if "/python/" in name)
    for name in set(tidybert.__all__) - {"__version__"}:
        assert text.count(f'<a id="tidybert.{name}"></a>') == 1, name
    assert "tidybert.metrics.classification_metrics" in text
    assert "tidybert.cluster.BatchModel" in text


def test_limits_keys_and_metrics_are_those_of_the_code(pages: dict[str, str]) -> None:
    for each in vars(limits).values():
        if isinstance(each, Limit):
            assert f"| {each.name} | {each.value:,} {each.unit} |" in pages["reference/files.md"]
    for key in ModelMetadata.__struct_fields__:
        assert f"| `{key}` |" in pages["reference/files.md"]
    for key in ("held_out", "num_sentences", "index_version", "fingerprint", "varied"):
        assert f"| `{key}` |" in pages["reference/files.md"]
    for name in ("macro_f1", "hamming_loss", "mse", "best_exact", "ndcg_at_10", "recall"):
        assert f"| `{name}` |" in pages["reference/metrics.md"]


def test_each_route_of_the_server_is_there(pages: dict[str, str]) -> None:
    text = pages["reference/routes.md"]
    for route in (
        "POST /v1/models/{name}/predict",
        "POST /search",
        "GET /health/live",
        "POST /v1/embeddings",
        "POST /models/{name}/rerank",
        "POST /admin/reload",
    ):
        assert f"`{route}`" in text
    assert "| `inputs` |" in text
    anchors = {each.lower() for each in re.findall(r"^### (\w+)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", text)) <= anchors


def test_links_lead_to_pages_of_the_site(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        for target, anchor in re.findall(r"\]\(([^)#\s]+\.md)(#[^)]*)?\)", text):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            there = pages.get(path)
            assert there is not None or (ROOT / "docs" / path).is_file(), (name, target)
            assert not anchor or f'id="{anchor[1:]}"' in (there or ""), (name, target, anchor)


def test_the_navigation_has_each_page(reference: ModuleType, pages: dict[str, str]) -> None:
    def leaves(nav: Any) -> Iterator[str]:
        if isinstance(nav, str):
            yield nav
        for each in nav if isinstance(nav, list) else ():
            yield from leaves(next(iter(each.values())) if isinstance(each, dict) else each)

    assert sorted(leaves(reference.nav())) == sorted(pages)
