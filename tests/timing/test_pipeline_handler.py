"""The handler around a pipeline: a text at a time, or those that come together."""

import asyncio
from typing import Any

from tidybert.timing.pipeline_handler import Asked, run_in_batches, run_singly


class Pipe:
    """Answers like a pipeline, and records its calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, given: Any, batch_size: int = 1) -> list[dict[str, str]]:
        self.calls.append((given, batch_size))
        return [{"label": text} for text in ([given] if isinstance(given, str) else given)]


async def ask(run: Any, pipe: Pipe) -> list[Any]:
    asked: Asked = asyncio.Queue()
    task = asyncio.create_task(run(pipe, asked))
    loop = asyncio.get_running_loop()
    answers: list[asyncio.Future[Any]] = [loop.create_future() for _ in range(3)]
    for text, answer in zip("abc", answers, strict=True):
        asked.put_nowait((text, answer))
    found = await asyncio.gather(*answers)
    task.cancel()
    return found


def test_a_text_at_a_time_and_together() -> None:
    single, batching = Pipe(), Pipe()

    expected = [[{"label": text}] for text in "abc"]
    assert asyncio.run(ask(run_singly, single)) == expected
    assert asyncio.run(ask(run_in_batches, batching)) == expected
    assert single.calls == [("a", 1), ("b", 1), ("c", 1)]
    assert batching.calls == [(["a", "b", "c"], 3)]
