"""The protocols of the server: a file each, and its row here."""

from typing import Final

from tidybert.server.protocols import (
    admin,
    native,
    openai_routes,
    page_routes,
    pipeline_routes,
    search_routes,
    tei_routes,
)
from tidybert.server.protocols.protocol import Protocol

PROTOCOLS: Final[tuple[Protocol, ...]] = (
    native.PROTOCOL,
    search_routes.PROTOCOL,
    admin.PROTOCOL,
    openai_routes.PROTOCOL,
    tei_routes.PROTOCOL,
    pipeline_routes.PROTOCOL,
    page_routes.PROTOCOL,
)
"""All of them; of two with one path, the first says how its errors look."""
