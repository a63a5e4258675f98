"""The process of a server: the socket, the signals, and the order in which it starts and ends."""

import asyncio
import errno
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidybert.catalog import find_model
from tidybert.errors import TidyBertError, UsageError, param
from tidybert.server.app import make_app
from tidybert.server.engine import Engine
from tidybert.server.json_answers import log_as_json
from tidybert.server.served_model import ServedModel
from tidybert.server.settings import ServerSettings
from tidybert.storage.own_files import remove_tree

_LOGGER: Final = logging.getLogger(__name__)
# Seconds beyond the deadline for answers that are being sent when the server ends.
MORE_SECONDS: Final = 5
# Seconds for the head of a request, and between two requests of a connection.
HEAD_SECONDS: Final = 30


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol, which gives a client only so long for the head of a request."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Wait for the end of the head."""
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        """The head is there; the body has a time of its own."""
        self._stop_waiting()
        super().on_headers_complete()

    def _wait(self) -> None:
        self._stop_waiting()
        self._patience = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()


class _Server(uvicorn.Server):
    """uvicorn's server, whose signals this file handles."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals as they are."""
        yield


def serve(
    settings: ServerSettings,
    say: Callable[[str], None],
    *,
    log_requests: bool = True,
    listening: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish what was taken.

    ``say`` shows a line to the user.  ``listening`` gets the server's address as soon as clients
    can connect, which is before the models are open.  Raises what ``ServedModel`` raises.
    """
    for path in settings.models.values():
        # A misspelt name is refused before anybody can connect.
        find_model(path)
    log_as_json(requests=log_requests)
    engine = Engine(settings)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(engine, say, listening))


async def _serve(
    engine: Engine, say: Callable[[str], None], listening: Callable[[str], None]
) -> None:
    settings = engine.settings
    bound = listening_on(settings)
    listening(address_of(bound, settings))
    server = http_server(make_app(engine), settings)
    loop = asyncio.get_running_loop()
    engine.start()

    async def opened() -> None:
        try:
            await loop.run_in_executor(None, engine.open)
        except BaseException:
            server.should_exit = True
            raise
        say_ready(engine.models, bound, settings, say)

    opening = asyncio.ensure_future(opened())
    end_on_signals(server)
    _reload_on_signal(engine)
    try:
        await server.serve([bound])
        await opening
    finally:
        await loop.run_in_executor(None, engine.close)


def http_server(app: FastAPI, settings: ServerSettings) -> uvicorn.Server:
    """uvicorn's server for an app; it leaves signals and logs as they are."""
    return _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            http=_Protocol,
            timeout_keep_alive=HEAD_SECONDS,
            timeout_graceful_shutdown=int(settings.deadline) + MORE_SECONDS,
        )
    )


def end_on_signals(server: uvicorn.Server) -> None:
    """Have SIGTERM and Ctrl-C end the server."""

    def end() -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)


def _reload_on_signal(engine: Engine) -> None:
    if not hasattr(signal, "SIGHUP"):
        # Windows; POST /admin/reload does the same.
        return
    reloading: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        try:
            await engine.reload()
            _LOGGER.info("the models were opened again")
        except TidyBertError:
            _LOGGER.exception("reloading failed; the old models stay")

    def begin_reload() -> None:
        task = asyncio.ensure_future(reload())
        reloading.add(task)
        task.add_done_callback(reloading.discard)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, begin_reload)


def listening_on(settings: ServerSettings) -> socket.socket:
    """A socket that listens on the path, or the host and port; UsageError if that cannot be."""
    if settings.unix_socket is not None:
        return _listening_at(settings.unix_socket)
    host, port = settings.host, settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        # Another server may be bound to the port and listen already.
        bound.listen()
    except OSError as error:
        bound.close()
        raise UsageError(
            f"{param('host', host)} {param('port', port)}: cannot listen there: {error.strerror}; "
            f"end the program that uses the port, or give another {param('port')}"
        ) from None
    return bound


def _listening_at(path: Path) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX)
    try:
        if path.is_socket():
            with socket.socket(socket.AF_UNIX) as other, suppress(ConnectionRefusedError):
                other.connect(str(path))
                raise OSError(errno.EADDRINUSE, "another program listens there")
            # A server that was killed left it.
            remove_tree(path)
        bound.bind(str(path))
        # A proxy may run as another user; its way there goes through the folder's permissions.
        path.chmod(0o666)
        bound.listen()
    except OSError as error:
        bound.close()
        raise UsageError(
            f"{param('unix_socket', path)}: cannot listen there: {error.strerror or error}"
        ) from None
    return bound


def say_ready(
    models: Mapping[str, ServedModel],
    bound: socket.socket,
    settings: ServerSettings,
    say: Callable[[str], None],
) -> None:
    """Show what each model can do, and where the server listens."""
    for each in models.values():
        say(f"{each.name}: {', '.join(each.heads)}")
    workers = f", {settings.workers} workers" if settings.workers > 1 else ""
    say(f"ready on {address_of(bound, settings)}{workers}")


def address_of(bound: socket.socket, settings: ServerSettings) -> str:
    """Where a server listens: http://HOST:PORT, or the path of its socket."""
    if settings.unix_socket is not None:
        return str(settings.unix_socket)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{bound.getsockname()[1]}"


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
