"""What every request passes before its route: its host, key, size and time, and its client.

Plain ASGI, without a framework.  A body is counted as it comes, so one that is too large is
refused before it is in memory, whatever its length says.
"""

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from ipaddress import ip_address
from itertools import count
from time import perf_counter
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import Request

from tidybert.server.answers import Refusal, Shape, refused
from tidybert.server.engine import Engine, late
from tidybert.server.settings import LOOPBACK, ServerSettings

# Which names a server answers to, so that no page of another site reaches it through a browser.
#
# A site can let its own name lead to 127.0.0.1 (DNS rebinding), and the browser then takes the
# server for that site.  The header Host still has the site's name.  A form of another site needs no
# such trick to send a request; its header Origin has the site's name.


class HostCheck:
    """What the headers Host and Origin of a request may say.

    A server answers to the names of loopback and to ``allowed_host``.  On another address it also
    answers to addresses, to the machine's own name, and to names without a dot, by which containers
    call each other: none of them can be the name of a site.  With keys it answers to every name,
    unless there is ``allowed_host`` or the address is loopback.  Where no key protects it, a
    browser's POST must come from the server's own pages or from ``allowed_host``.  A Unix socket is
    behind a proxy, which checks both.
    """

    def __init__(self, settings: ServerSettings) -> None:
        # Further names that clients may call it by.
        self._allowed = tuple((settings.allowed_host or "").lower().replace(",", " ").split())
        self._is_local = settings.is_local
        is_open = settings.keys or settings.unix_socket is not None
        is_limited = settings.is_local or self._allowed or not is_open
        own = LOOPBACK if settings.is_local else (*LOOPBACK, socket.gethostname().lower())
        self._hosts = (*own, settings.host.lower(), *self._allowed) if is_limited else None
        self._checks_origin = not is_open

    def check(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise Refusal 403 for a request under another name or from another site's page."""
        found = {name: value.decode("latin-1") for name, value in headers if name in _READ}
        host = found.get(b"host", "").lower()
        if host and self._hosts is not None and not self._is_own(_name(host)):
            raise Refusal(403, f"the server does not answer to the host {host!r:.80}; {_ADVICE}")
        origin = found.get(b"origin", "").lower()
        if method != "POST" or not origin or not self._checks_origin:
            return
        place = origin.partition("://")[2]
        if place != host and _name(place) not in self._allowed:
            raise Refusal(403, f"pages of {origin!r:.80} may not ask this server; {_ADVICE}")

    def _is_own(self, name: str) -> bool:
        assert self._hosts is not None
        return name in self._hosts or (not self._is_local and _is_no_site(name))


_READ: Final = (b"host", b"origin")
_ADVICE: Final = "start it with --allowed-host NAME to allow a name"


def _name(place: str) -> str:
    """The name in ``NAME:PORT``, without the brackets of an IPv6 address; "" for none."""
    try:
        return urlsplit(f"//{place}").hostname or ""
    except ValueError:
        return ""


def _is_no_site(name: str) -> bool:
    """Whether it is an address, or a name without a dot."""
    try:
        ip_address(name)
    except ValueError:
        return _PLAIN_NAME.fullmatch(name) is not None
    return True


_PLAIN_NAME: Final = re.compile("[a-z0-9_-]+")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
_LOGGER: Final = logging.getLogger("tidybert.server.requests")
# Seconds for a whole body to come.
_BODY_SECONDS: Final = 30.0
_CLIENT: Final = "tidybert.client"


def engine_of(request: Request) -> Engine:
    found: Engine = request.app.state.engine
    return found


def client_of(request: Request) -> str:
    """Who asks: the hash of an API key, or an address."""
    found: str = request.scope[_CLIENT]
    return found


class Middleware:
    """The outermost part of the app: ``shape_of`` a path's refusals; ``is_open`` without a key."""

    def __init__(
        self,
        app: App,
        engine: Engine,
        shape_of: Callable[[str], Shape],
        is_open: Callable[[str, str], bool],
    ) -> None:
        self._app, self._engine = app, engine
        self._shape_of, self._is_open = shape_of, is_open
        self._max_body = engine.settings.max_body
        self._hosts = HostCheck(engine.settings)
        # Random bytes for each request would cost more than all else in this file.
        self._prefix = secrets.token_hex(4)
        self._numbers = count(1)
        self._keys = [hashlib.sha256(key.encode()).digest() for key in engine.settings.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            # The server below leaves out the body, as HTTP asks.
            scope = {**scope, "method": "GET"}
        begun = perf_counter()
        request_id = f"{self._prefix}-{next(self._numbers)}"
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                if self._engine.is_leaving:
                    headers.append((b"connection", b"close"))
                message["headers"] = headers
            await send(message)

        try:
            await self._pass(scope, receive, answer)
        except Refusal as refusal:
            await refused(refusal, self._shape_of(scope["path"]))(scope, receive, answer)
        except asyncio.CancelledError:
            status = status or 499
        except Exception:
            _LOGGER.exception("request %s failed", request_id)
            if not status:
                failed = Refusal(500, f"the server failed; its log has the request {request_id}")
                await refused(failed, self._shape_of(scope["path"]))(scope, receive, answer)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._engine.meters.requests.labels(route, status).inc()
            if _LOGGER.isEnabledFor(logging.INFO):
                fields = {
                    "id": request_id,
                    "method": scope["method"],
                    "route": route,
                    "status": status,
                    "ms": round(1000 * (perf_counter() - begun), 2),
                }
                _LOGGER.info("request", extra={"fields": fields})

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._hosts.check(scope["method"], scope["headers"])
        scope[_CLIENT] = self._client(scope)
        if scope["method"] != "POST":
            await self._answer(scope, receive, send)
            return
        body = await self._body(scope, receive)
        if body is None:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            task.cancel()

        left: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def once() -> Message:
            nonlocal left
            message, left = left, None
            return message or {"type": "http.disconnect"}

        watcher = asyncio.ensure_future(watch())
        try:
            await self._answer(scope, once, send)
        finally:
            watcher.cancel()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The app's answer; Refusal 504 if it does not begin before the deadline."""

        async def begin(message: Message) -> None:
            if not limit.expired():
                limit.reschedule(None)
            await send(message)

        self._engine.in_work += 1
        try:
            async with asyncio.timeout(self._engine.settings.deadline) as limit:
                await self._app(scope, receive, begin)
        except TimeoutError:
            raise late(self._engine) from None
        finally:
            self._engine.in_work -= 1

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None if the client left.  Raises Refusal 413 and 408."""
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self._max_body:
                raise self._too_large()
        parts = []
        size = 0
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    part = message.get("body", b"")
                    parts.append(part)
                    size += len(part)
                    if size > self._max_body:
                        raise self._too_large()
                    if not message.get("more_body"):
                        return part if len(parts) == 1 else b"".join(parts)
        except TimeoutError:
            raise Refusal(408, f"the body did not come within {_BODY_SECONDS:g} seconds") from None

    def _too_large(self) -> Refusal:
        return Refusal(
            413, f"the body has more than {self._max_body:,} bytes; send several requests"
        )

    def _client(self, scope: Scope) -> str:
        """Who asks; Refusal 401 for a missing or a wrong key."""
        address = scope.get("client")
        if not self._keys or self._is_open(scope["method"], scope["path"]):
            return str(address[0]) if address else "socket"
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, key = given.partition(b" ")
        digest = hashlib.sha256(key.strip()).digest()
        # Every key is compared, so that the time says nothing.
        known = [hmac.compare_digest(digest, each) for each in self._keys]
        if scheme.lower() != b"bearer" or not any(known):
            raise Refusal(401, "give a known API key: Authorization: Bearer KEY")
        return digest.hex()
