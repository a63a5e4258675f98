"""Pages of the site that are no files of docs/: a hook of mkdocs.yml.

GitHub and the site show the same guides.  So this adds each file of ROOT_PAGES under its name on
the site, and turns links between files of the repository into links between pages of the site.  It
adds the reference too, which only the site has: there a command or a flag in a guide is a link.
"""

import posixpath
import re
from html import unescape
from pathlib import Path
from typing import Any

import reference_pages
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benchmarks/NOTES.md": "notes.md",
}
# What a page of the reference is made from: a link to the source leads to that page on the site.
SOURCES = {
    "src/tidybert/checkpoints/metadata.py": "reference/files.md#tidybertjson",
    "src/tidybert/storage/limits.py": "reference/files.md#limits",
}
_LINK = re.compile(r"(\]\()(?!https?://|#)([^)\s#]+)")
# Code in running text: not in a heading, a link or a block.
_CODE = re.compile(r"<(a|h\d|pre)\b.*?</\1>|<code>([^<]+)</code>", re.DOTALL)
_NAV_TITLE = "Reference"


def on_config(config: Any) -> Any:
    """Give the reference its place in the navigation."""
    for section in config.nav:
        if _NAV_TITLE in section:
            section[_NAV_TITLE] = reference_pages.nav()
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages of the root, and the reference."""
    for path, name in ROOT_PAGES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=site_links(text, path)))
    for name, text in reference_pages.pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page with the site's links; those of the root have them already."""
    name = page.file.src_uri
    is_file = name not in ROOT_PAGES.values() and not is_reference(page)
    return site_links(markdown, f"docs/{name}") if is_file else markdown


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Commands, flags and classes as links to the reference, but on the pages of commands."""
    name = page.file.src_uri
    is_linked = not is_reference(page) or name.startswith(f"{reference_pages.FOLDER}/python/")
    return reference_links(html, name) if is_linked else html


def is_reference(page: Any) -> bool:
    return bool(page.file.src_uri.startswith(f"{reference_pages.FOLDER}/"))


def reference_links(html: str, name: str) -> str:
    """The HTML of the page ``name``, where code that is a command or a flag is a link."""
    up = "../" * name.count("/") + reference_pages.FOLDER

    def linked(found: re.Match[str]) -> str:
        page = reference_pages.page_of(unescape(found[2] or ""))
        return f'<a href="{up}/{page}">{found[0]}</a>' if page else found[0]

    return _CODE.sub(linked, html)


def site_links(text: str, path: str) -> str:
    """The text of the file ``path`` of the repository, with links to pages of the site."""

    def page_of(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[2]))
        if not (ROOT / target).exists():
            return link[0]
        return link[1] + {**ROOT_PAGES, **SOURCES}.get(target, target.removeprefix("docs/"))

    return _LINK.sub(page_of, text)
