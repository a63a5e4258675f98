"""The processes of a server: the socket, the signals, and the order in which it starts and ends.

One process answers by itself.  Several have a parent, which opens the models and forks: its forks
share the weights in its memory, which nobody writes, and accept connections of one listening
socket, so that the end of one loses no connection that waits.
"""

import asyncio
import errno
import gc
import logging
import mmap
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from typing import Any, Final

import orjson
import uvicorn
from fastapi import FastAPI
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidybert.errors import TidyBertError, UsageError, param
from tidybert.inference.loading import check_model
from tidybert.server.answers import Refusal
from tidybert.server.app import make_app
from tidybert.server.engine import Engine
from tidybert.server.served_model import ServedModel, open_models
from tidybert.server.settings import ServerSettings
from tidybert.server.work_queue import share
from tidybert.storage.own_files import remove_tree
from tidybert.system.cores import num_threads, return_freed_memory, use_threads

_LOGGER: Final = logging.getLogger(__name__)
# Seconds beyond the deadline for answers that are being sent when the server ends.
_MORE_SECONDS: Final = 5
# Seconds for the head of a request, and between two requests of a connection.
HEAD_SECONDS: Final = 30
HEAD_BYTES: Final = 65_536
"""Most bytes of the head of a request, and of its trailers."""
_TOO_LARGE: Final = "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\n"
# Bytes after which they are compared.
_PIECE_BYTES: Final = 4096
# Seconds in which a client whose connection will be closed may read the answer.
_LINGERING_SECONDS: Final = 1.0
# Seconds in which a server that ends reads what was sent before.
_READING_SECONDS: Final = 0.2
_OF_END: Final = {signal.SIGTERM, signal.SIGINT}
# A worker ends at this one as soon as its clients have gone to others; Windows has no workers.
_LEAVE: Final = getattr(signal, "SIGUSR1", signal.SIGTERM)
# A worker that lived for less than these seconds is not replaced before they are over.
_SHORT_LIFE: Final = 1.0


def serve(
    settings: ServerSettings,
    say: Callable[[str], None],
    *,
    log_requests: bool = True,
    listening: Callable[[str], None] = lambda address: None,
    app: Callable[[Engine], FastAPI] = make_app,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish what was taken; SIGHUP opens the models again.

    ``say`` shows a line to the user.  ``listening`` gets the server's address as soon as clients
    can connect, which is before the models are open.  ``app`` is what one process answers with.
    Raises what ``ServedModel`` raises.
    """
    if settings.workers > 1:
        where = param("workers", settings.workers)
        if sys.platform != "linux":
            raise UsageError(f"{where}: only Linux shares the weights")
        if settings.device_type != "cpu":
            raise UsageError(
                f"{where}: several processes need {param('device', 'cpu')}; one process keeps a "
                "GPU busy"
            )
    for path in settings.models.values():
        # A misspelt name is refused before anybody can connect, and a directory of other things.
        check_model(path)
    log_as_json(requests=log_requests)
    with listening_on(settings) as bound:
        if settings.unix_socket is not None:
            address = str(settings.unix_socket)
        else:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            address = f"http://{host}:{bound.getsockname()[1]}"
        listening(address)

        def ready(models: Mapping[str, ServedModel]) -> None:
            for each in models.values():
                say(f"{each.name}: {', '.join(each.heads)}")
            workers = f", {settings.workers} workers" if settings.workers > 1 else ""
            say(f"ready on {address}{workers}")

        if settings.workers > 1:
            _lead(settings, bound, ready)
        else:
            with asyncio.Runner(loop_factory=_new_event_loop) as runner:
                engine = Engine(settings)
                runner.run(_answer_alone(app(engine), engine, bound, ready))


def listening_on(settings: ServerSettings) -> socket.socket:
    """A socket that listens on the path, or the host and port; UsageError if that cannot be."""
    path, host, port = settings.unix_socket, settings.host, settings.port
    if path is not None:
        bound = socket.socket(socket.AF_UNIX)
        where, advice = param("unix_socket", path), ""
    else:
        bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        where = f"{param('host', host)} {param('port', port)}"
        advice = f"; end the program that uses the port, or give another {param('port')}"
    try:
        if path is None:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, port))
        else:
            if path.is_socket():
                with socket.socket(socket.AF_UNIX) as other, suppress(ConnectionRefusedError):
                    other.connect(str(path))
                    raise OSError(errno.EADDRINUSE, "another program listens there")
                # A server that was killed left it.
                remove_tree(path)
            bound.bind(str(path))
            # A proxy may run as another user; its way there goes through the folder's permissions.
            path.chmod(0o666)
        # Another server may be bound to the port and listen already.
        bound.listen()
    except OSError as error:
        bound.close()
        reason = error.strerror or error
        raise UsageError(f"{where}: cannot listen there: {reason}{advice}") from None
    return bound


async def _answer_alone(
    app: FastAPI,
    engine: Engine,
    bound: socket.socket,
    ready: Callable[[Mapping[str, ServedModel]], None],
) -> None:
    server = http_server(app, engine.settings)
    loop = asyncio.get_running_loop()
    engine.start()

    async def opened() -> None:
        try:
            await loop.run_in_executor(None, engine.open)
        except BaseException:
            server.should_exit = True
            raise
        ready(engine.models)

    opening = asyncio.ensure_future(opened())
    end_on_signals(server)
    _reload_on_signal(engine)
    try:
        await server.serve([bound])
        await opening
    finally:
        await loop.run_in_executor(None, engine.close)


class _PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which limits the head of a request: its time and its bytes.

    What comes without a byte of a body counts as head: trailers, and the extensions of chunks.
    """

    _patience: asyncio.TimerHandle | None = None
    _num_bytes = 0
    _is_head = _is_refused = False

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), _PIECE_BYTES):
            if self._is_refused or self.transport.is_closing():
                return
            piece = data[start : start + _PIECE_BYTES]
            self._num_bytes += len(piece)
            super().data_received(piece)
            if self._num_bytes > HEAD_BYTES:
                self._refuse()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_head, self._num_bytes = True, 0
        self._wait()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are of no use here.
        if self._is_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        # The body has a time of its own.
        self._stop_waiting()
        self._is_head, self._num_bytes = False, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._num_bytes = 0
        super().on_body(body)

    def _refuse(self) -> None:
        """Answer 431, unless an answer has begun, and close once the client has had time to read.

        To close at once would reset the connection, with the answer that is under way.
        """
        self._is_refused = True
        self._stop_waiting()
        message = f"the head or the trailers of a request have more than {HEAD_BYTES:,} bytes"
        self.logger.warning(message)
        cycle = self.cycle
        is_free = cycle is None or cycle.response_complete
        if is_free or not (self._is_head or cycle.response_started):
            if not is_free:
                cycle.disconnected = True
                cycle.message_event.set()
            head = f"{_TOO_LARGE}content-length: {len(message)}\r\nconnection: close\r\n\r\n"
            self.transport.write(f"{head}{message}".encode())
            self.transport.write_eof()
        self.loop.call_later(_LINGERING_SECONDS, self.transport.close)

    def _wait(self) -> None:
        self._stop_waiting()
        self._patience = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()


class _Server(uvicorn.Server):
    """uvicorn's server, whose signals this file handles.

    When it ends it first accepts the connections that wait, and reads what they have sent.  uvicorn
    resets them, though their clients take them for open.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.state.engine.is_leaving = True  # type: ignore[union-attr]
        loop = asyncio.get_running_loop()
        # They listen until these copies are closed, after the event loop has closed its own.
        waiting = [each.dup() for each in sockets or () if each.fileno() >= 0]
        for closing in (*self.servers, *(sockets or ())):
            closing.close()
        await asyncio.sleep(0.1)
        for each in waiting:
            accepted = []
            with each, suppress(OSError):
                each.setblocking(False)
                while True:
                    accepted.append(each.accept()[0])
            for one in accepted:
                one.setblocking(False)
                await loop.connect_accepted_socket(self._protocol, one)
        await asyncio.sleep(_READING_SECONDS)
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        config, state = self.config, self.server_state
        return _PatientProtocol(config, state, self.lifespan.state, asyncio.get_running_loop())

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_server(app: FastAPI, settings: ServerSettings) -> uvicorn.Server:
    """uvicorn's server for an app; it leaves signals and logs as they are."""
    return _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            http=_PatientProtocol,
            timeout_keep_alive=HEAD_SECONDS,
            timeout_graceful_shutdown=int(settings.deadline) + _MORE_SECONDS,
        )
    )


def end_on_signals(server: uvicorn.Server) -> None:

    def end() -> None:
        server.should_exit = True

    for number in _OF_END:
        asyncio.get_running_loop().add_signal_handler(number, end)


def _reload_on_signal(engine: Engine) -> None:
    if not hasattr(signal, "SIGHUP"):
        # Windows; POST /admin/reload does the same.
        return

    def begin_reload() -> None:
        try:
            engine.reload()
        except Refusal as refusal:
            _LOGGER.warning("%s", refusal.message)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, begin_reload)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


# Workers, as their parent sees them.


def _lead(
    settings: ServerSettings,
    bound: socket.socket,
    ready: Callable[[Mapping[str, ServedModel]], None],
) -> None:
    """The life of the parent; SIGTERM and SIGHUP to it are for all."""
    with tempfile.TemporaryDirectory() as figures:
        crew = _Crew(settings, bound, figures)
        # Libraries have threads, so to block signals in this one and wait for them would lose some.
        received, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup)
        for number in (*_OF_END, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_given: None)
        crew.begin()
        ready(crew.models)
        while not _OF_END & set(numbers := os.read(received, 64)):
            crew.replace_dead()
            if signal.SIGHUP in numbers:
                crew.reload()
        # Nobody connects any more.
        bound.close()
        crew.end()


class _Crew:
    """The workers, their models and the files of their figures."""

    def __init__(self, settings: ServerSettings, bound: socket.socket, figures: str) -> None:
        self._settings, self._bound, self._figures = settings, bound, figures
        self._num_threads = max(1, num_threads() // settings.workers)
        # OpenMP's threads would be missing in the forks, which would wait for them for ever.
        use_threads(1)
        self.models = open_models(settings)
        # 1 while models are opened and while workers for the old ones end; all processes share it.
        self._reloading = mmap.mmap(-1, 1)
        # Workers read its end when this process is gone, however it ended.
        self._life = os.pipe()
        self._workers: dict[int, BaseProcess] = {}
        self._begun: dict[int, float] = {}
        self._leaving: list[BaseProcess] = []

    def begin(self) -> None:
        """Begin a worker of each number, for the models as they are now."""
        # Old models go; after the fork the collector would write to shared pages, and so copy them.
        gc.disable()
        gc.collect()
        return_freed_memory()
        for number in range(1, self._settings.workers + 1):
            self._begin(number)

    def replace_dead(self) -> None:
        """Begin another worker for each that has died."""
        gone = [each for each in self._leaving if not each.is_alive()]
        self._leaving = [each for each in self._leaving if each not in gone]
        for number, process in self._workers.items():
            if process.is_alive():
                continue
            gone.append(process)
            _LOGGER.error(
                "worker %d, process %d, ended with status %d; another one begins",
                *(number, process.pid, process.exitcode),
            )
            time.sleep(max(0.0, self._begun[number] + _SHORT_LIFE - time.monotonic()))
            self._begin(number)
        for process in gone:
            # What it counted stays; what waited in it does not.
            mark_process_dead(process.pid, self._figures)  # type: ignore[no-untyped-call]
        if gone and not self._leaving:
            self._reloading[0] = 0

    def reload(self) -> None:
        """Open the models again and begin workers for them; then the old workers leave."""
        if self._leaving:
            _LOGGER.warning("the models were opened a moment ago, and workers for the old ones end")
            return
        self._reloading[0] = 1
        # A reload that failed may have left models.
        gc.collect()
        try:
            self.models = open_models(self._settings)
        except Exception:
            _LOGGER.exception("reloading failed; the old models stay")
            self._reloading[0] = 0
            return
        old = list(self._workers.values())
        self.begin()
        for each in old:
            if each.is_alive():
                os.kill(each.pid or 0, _LEAVE)
        self._leaving += old
        _LOGGER.info("the models were opened again")

    def end(self) -> None:
        """Have all workers finish what they took, and wait for them."""
        processes = [*self._workers.values(), *self._leaving]
        for each in processes:
            each.terminate()
        until = time.monotonic() + self._settings.deadline + 2 * _MORE_SECONDS
        for each in processes:
            each.join(max(0.0, until - time.monotonic()))
            each.kill()

    def _begin(self, number: int) -> None:
        process = multiprocessing.get_context("fork").Process(
            target=self._work, args=(os.getpid(),), name=f"tidybert-{number}", daemon=True
        )
        # A signal to a worker that cannot handle it yet waits.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_OF_END, _LEAVE})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._workers[number], self._begun[number] = process, time.monotonic()

    def _work(self, parent: int) -> None:
        os.close(self._life[1])
        signal.set_wakeup_fd(-1)
        gc.freeze()
        gc.enable()
        use_threads(self._num_threads)
        share(self._figures)
        engine = Engine(self._settings, parent, self._reloading)
        engine.open(self.models)
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            runner.run(_answer_in_crew(engine, self._bound, self._life[0]))


async def _answer_in_crew(engine: Engine, bound: socket.socket, life: int) -> None:
    server = http_server(make_app(engine), engine.settings)
    loop = asyncio.get_running_loop()
    engine.start()

    def end() -> None:
        loop.remove_reader(life)
        server.should_exit = True

    async def leave() -> None:
        engine.is_leaving = True
        while not server.started:
            await asyncio.sleep(0.01)
        for each in server.servers:
            each.close()
        # Clients open their next connection to another worker; idle ones are closed in a while.
        await asyncio.sleep(0.2)
        until = loop.time() + engine.settings.deadline + HEAD_SECONDS
        while server.server_state.connections and loop.time() < until:
            await asyncio.sleep(0.1)
        server.should_exit = True

    end_on_signals(server)
    leaving: list[asyncio.Task[None]] = []
    loop.add_signal_handler(_LEAVE, lambda: leaving.append(asyncio.ensure_future(leave())))
    loop.add_reader(life, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_OF_END, _LEAVE})
    try:
        await server.serve([bound])
    finally:
        await loop.run_in_executor(None, engine.close)


# The server's log: one JSON object a line, with request ids and without texts or keys.


class JsonLines(logging.Formatter):
    """Each record as a JSON object: time, level, message, and the fields of a request.

    An exception shows its type and its places in the code.  Only a TidyBertError shows its message:
    those of others may quote a client's text.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        entry: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            entry["error"] = type(error).__name__
            if isinstance(error, TidyBertError):
                entry["error_message"] = str(error)
            entry["trace"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(error.__traceback__)
            ]
        return orjson.dumps(entry, default=str).decode()


def log_as_json(*, requests: bool) -> None:
    """Have this process log to stderr in JSON lines; ``requests``: each request too."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("tidybert.server").setLevel(logging.INFO if requests else logging.WARNING)
