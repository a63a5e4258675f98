"""Pages of the site that are files outside of docs/: a hook of mkdocs.yml.

GitHub and the site show the same files.  So this adds each file of ROOT_PAGES under its name on the
site, and turns links between files of the repository into links between pages of the site.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benchmarks/NOTES.md": "notes.md",
}
_LINK = re.compile(r"(\]\()(?!https?://|#)([^)\s#]+)")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages of the root."""
    for path, name in ROOT_PAGES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=site_links(text, path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page with the site's links; those of the root have them already."""
    name = page.file.src_uri
    return markdown if name in ROOT_PAGES.values() else site_links(markdown, f"docs/{name}")


def site_links(text: str, path: str) -> str:
    """The text of the file ``path`` of the repository, with links to pages of the site."""

    def page_of(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[2]))
        known = (ROOT / target).exists()
        return link[1] + ROOT_PAGES.get(target, target.removeprefix("docs/")) if known else link[0]

    return _LINK.sub(page_of, text)
