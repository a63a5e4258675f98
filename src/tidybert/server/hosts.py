"""Which names a server answers to, so that no page of another site reaches it through a browser.

A site can let its own name lead to 127.0.0.1 (DNS rebinding), and the browser then takes the server
for that site.  The header Host still has the site's name.  A form of another site needs no such
trick to send a request; its header Origin has the site's name.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from tidybert.server.faults import Refusal
from tidybert.server.settings import LOOPBACK, ServerSettings


class HostCheck:
    """What the headers Host and Origin of a request may say.

    A server on a loopback address answers to the names of loopback and ``allowed_hosts``, any other
    server to every name, unless there are ``allowed_hosts``.  Where no key protects it, a browser's
    POST must come from the server's own pages or from ``allowed_hosts``.  A Unix socket is behind a
    proxy, which checks both.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._allowed = settings.allowed_hosts
        is_limited = settings.is_local or self._allowed
        self._hosts = (*LOOPBACK, settings.host.lower(), *self._allowed) if is_limited else None
        self._checks_origin = not settings.keys and settings.unix_socket is None

    def check(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise Refusal 403 for a request under another name or from another site's page."""
        found = {name: value.decode("latin-1") for name, value in headers if name in _READ}
        host = found.get(b"host", "").lower()
        if host and self._hosts is not None and _name(host) not in self._hosts:
            raise Refusal(403, f"the server does not answer to the host {host!r:.80}; {_ADVICE}")
        origin = found.get(b"origin", "").lower()
        if method != "POST" or not origin or not self._checks_origin:
            return
        place = origin.partition("://")[2]
        if place != host and _name(place) not in self._allowed:
            raise Refusal(403, f"pages of {origin!r:.80} may not ask this server; {_ADVICE}")


_READ: Final = (b"host", b"origin")
_ADVICE: Final = "start it with --allowed-host NAME to allow a name"


def _name(place: str) -> str:
    """The name in ``NAME:PORT``, without the brackets of an IPv6 address; "" for none."""
    try:
        return urlsplit(f"//{place}").hostname or ""
    except ValueError:
        return ""
