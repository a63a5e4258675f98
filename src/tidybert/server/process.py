"""The process of a server: the socket, the signals, and the order in which it starts and ends."""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn

from tidybert.errors import TidyBertError
from tidybert.server.app import make_app
from tidybert.server.engine import Engine
from tidybert.server.settings import ServerSettings

_LOGGER: Final = logging.getLogger(__name__)
# Seconds beyond the deadline for answers that are being sent when the server ends.
_MORE_SECONDS: Final = 5


class _Server(uvicorn.Server):
    """uvicorn's server, whose signals are handled by ``_signals``."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals as they are."""
        yield


def serve(settings: ServerSettings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish what was taken.

    ``say`` shows a line to the user.  Raises what ``ServedModel`` raises.
    """
    engine = Engine(settings)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(engine, say))


async def _serve(engine: Engine, say: Callable[[str], None]) -> None:
    settings = engine.settings
    config = uvicorn.Config(
        make_app(engine),
        host=settings.host,
        port=settings.port,
        uds=None if settings.unix_socket is None else str(settings.unix_socket),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=int(settings.deadline) + _MORE_SECONDS,
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()
    engine.start()

    async def opened() -> None:
        try:
            await loop.run_in_executor(None, engine.open)
        except BaseException:
            server.should_exit = True
            raise
        for each in engine.models.values():
            say(f"{each.name}: {', '.join(each.heads)}")
        where = settings.unix_socket or f"http://{settings.host}:{_port(server, settings)}"
        say(f"ready on {where}")

    opening = asyncio.ensure_future(opened())
    _handle_signals(server, engine)
    try:
        await server.serve()
        await opening
    finally:
        await loop.run_in_executor(None, engine.close)


def _handle_signals(server: uvicorn.Server, engine: Engine) -> None:
    loop = asyncio.get_running_loop()
    reloading: set[asyncio.Task[None]] = set()

    def end() -> None:
        server.should_exit = True

    async def reload() -> None:
        try:
            await engine.reload()
            _LOGGER.info("the models were opened again")
        except TidyBertError:
            _LOGGER.exception("reloading failed; the old models go on")

    def begin_reload() -> None:
        task = asyncio.ensure_future(reload())
        reloading.add(task)
        task.add_done_callback(reloading.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(signal.SIGHUP, begin_reload)


def _port(server: uvicorn.Server, settings: ServerSettings) -> int:
    for each in getattr(server, "servers", ()):
        for socket in each.sockets:
            return int(socket.getsockname()[1])
    return settings.port


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
