"""Several processes behind one port: a parent opens the models, and its forks answer.

The forks share the parent's memory with the weights, which nobody writes.  All of them accept
connections of one listening socket, so that the end of one process loses no connection that waits.
"""

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from typing import Final

import torch
from prometheus_client.multiprocess import mark_process_dead

from tidybert.errors import UsageError, param
from tidybert.inference.loading import choose_device
from tidybert.server.app import make_app
from tidybert.server.engine import Engine
from tidybert.server.json_answers import log_as_json
from tidybert.server.process import (
    MORE_SECONDS,
    end_on_signals,
    http_server,
    listening_on,
    new_event_loop,
    say_ready,
)
from tidybert.server.served_model import ServedModel, open_models
from tidybert.server.settings import ServerSettings, Worker
from tidybert.server.work_queue import share

_LOGGER: Final = logging.getLogger(__name__)
_OF_END: Final = {signal.SIGTERM, signal.SIGINT}
# A worker ends at this one as soon as its clients have gone to others; Windows has no workers.
_LEAVE: Final = getattr(signal, "SIGUSR1", signal.SIGTERM)
# A worker that lived for less than these seconds is not replaced before they are over.
_SHORT_LIFE: Final = 1.0


def serve(
    settings: ServerSettings, say: Callable[[str], None], *, log_requests: bool = True
) -> None:
    """``process.serve`` by several processes; SIGTERM and SIGHUP to this one are for all."""
    if sys.platform != "linux":
        raise UsageError(f"{param('workers', settings.workers)}: only Linux shares the weights")
    if choose_device(settings.device).type != "cpu":
        raise UsageError(
            f"{param('workers', settings.workers)}: several processes need {param('device', 'cpu')}"
            "; one process keeps a GPU busy"
        )
    log_as_json(requests=log_requests)
    num_threads = max(1, torch.get_num_threads() // settings.workers)
    # OpenMP's threads would be missing in the forks, which would wait for them for ever.
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as figures:
        with listening_on(settings) as bound:
            crew = _Crew(settings, bound, num_threads, open_models(settings), figures)
            received = _receive_signals()
            crew.begin()
            say_ready(crew.models, bound, settings, say)
            while not _OF_END & set(numbers := os.read(received, 64)):
                crew.replace_dead()
                if signal.SIGHUP in numbers:
                    crew.reload()
        crew.end()


def _receive_signals() -> int:
    """A pipe from which the parent reads the numbers of the signals that it gets.

    Libraries have threads, so to block signals in this thread and wait for them would lose some.
    """
    found, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    for number in (*_OF_END, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_given: None)
    return found


class _Crew:
    """The workers, as their parent sees them."""

    def __init__(
        self,
        settings: ServerSettings,
        bound: socket.socket,
        num_threads: int,
        models: Mapping[str, ServedModel],
        figures: str,
    ) -> None:
        self.models = models
        self._figures = figures
        self._settings = settings
        self._bound = bound
        self._num_threads = num_threads
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

    def reload(self) -> None:
        """Open the models again and begin workers for them; then the old workers leave."""
        # A reload that failed may have left models.
        gc.collect()
        try:
            self.models = open_models(self._settings)
        except Exception:
            _LOGGER.exception("reloading failed; the old models stay")
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
        until = time.monotonic() + self._settings.deadline + 2 * MORE_SECONDS
        for each in processes:
            each.join(max(0.0, until - time.monotonic()))
            each.kill()

    def _begin(self, number: int) -> None:
        worker = Worker(number, os.getpid())
        process = multiprocessing.get_context("fork").Process(
            target=self._work, args=(worker,), name=f"tidybert-{number}", daemon=True
        )
        # A signal to a worker that cannot handle it yet waits.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_OF_END, _LEAVE})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._workers[number], self._begun[number] = process, time.monotonic()

    def _work(self, worker: Worker) -> None:
        """The life of a worker."""
        os.close(self._life[1])
        signal.set_wakeup_fd(-1)
        gc.freeze()
        gc.enable()
        torch.set_num_threads(self._num_threads)
        share(self._figures)
        engine = Engine(self._settings, worker)
        engine.open(self.models)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_answer(engine, self._bound, self._life[0]))


async def _answer(engine: Engine, bound: socket.socket, life: int) -> None:
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
        while server.server_state.connections:
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
