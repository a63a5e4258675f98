"""The files that the browser loads, and the policy under which it runs them."""

from functools import cache
from importlib import resources
from typing import Final

POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere, and no script or style in markup; data: is for pictures to be saved."""
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
INDEX: Final = "index.html"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


@cache
def page_files() -> dict[str, tuple[bytes, str]]:
    """The content and the type of each file, by its path below /page/."""
    root = resources.files("tidybert") / "resources" / "page"
    found = {}
    for folder, prefix in ((root, ""), (root / "tabs", "tabs/")):
        for each in folder.iterdir():
            kind = _TYPES.get(each.name.rpartition(".")[2])
            if kind is not None:
                found[prefix + each.name] = each.read_bytes(), kind
    return found
