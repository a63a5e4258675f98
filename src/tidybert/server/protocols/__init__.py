"""The protocols of the server: a file each, and its row here."""

from tidybert.server.protocols import admin, native, openai_routes, pipeline_routes, tei_routes
from tidybert.server.protocols.protocol import Protocol


def protocols(*, of_graphs: bool = False) -> tuple[Protocol, ...]:
    """All of them; of two with one path, the first says how its errors look.

    ``of_graphs``: without those that search, or look into networks, which need PyTorch.
    """
    answering = (
        native.PROTOCOL,
        admin.PROTOCOL,
        openai_routes.PROTOCOL,
        tei_routes.PROTOCOL,
        pipeline_routes.PROTOCOL,
    )
    if of_graphs:
        return answering
    from tidybert.server.protocols import page_routes, search_routes

    return (answering[0], search_routes.PROTOCOL, *answering[1:], page_routes.PROTOCOL)
