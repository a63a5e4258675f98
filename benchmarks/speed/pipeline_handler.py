"""The other side of ``serve``: FastAPI around transformers' pipeline.

It follows transformers' guide "Web server inference": handlers put texts into a queue, and one
task runs the pipeline on them.  ``transformers`` runs it on a text at a time.
``transformers-batching`` is the guide's dynamic batching: it takes texts until none has come for a
millisecond, and runs them as one batch::

    python -m benchmarks.speed.pipeline_handler transformers '{"directory": …, "port": …}'
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from benchmarks.harness import script
from benchmarks.speed.http_load import HOST

BATCHING: Final = "transformers-batching"
_WAIT_S: Final = 0.001

Asked = asyncio.Queue[tuple[str, asyncio.Future[Any]]]


async def run_singly(pipe: Any, asked: Asked) -> None:
    """Answer a text at a time."""
    while True:
        text, answer = await asked.get()
        answer.set_result(pipe(text))


async def run_in_batches(pipe: Any, asked: Asked) -> None:
    """Answer together the texts that come within a millisecond of one another."""
    while True:
        taken = [await asked.get()]
        while True:
            try:
                taken.append(await asyncio.wait_for(asked.get(), _WAIT_S))
            except TimeoutError:
                break
        found = pipe([text for text, _ in taken], batch_size=len(taken))
        for (_, answer), one in zip(taken, found, strict=True):
            answer.set_result([one])


def serve(side: str, directory: str, port: int) -> None:
    """Serve until a signal comes: ``POST /`` takes {"text": …} and answers as the pipeline does."""
    import uvicorn
    from fastapi import FastAPI, Request

    transformers = script.quiet_transformers()
    asked: Asked = asyncio.Queue()

    @asynccontextmanager
    async def run(_app: FastAPI) -> AsyncIterator[None]:
        pipe = transformers.pipeline("text-classification", model=directory)
        loop = run_in_batches if side == BATCHING else run_singly
        task = asyncio.create_task(loop(pipe, asked))
        yield
        task.cancel()

    app = FastAPI(lifespan=run)

    @app.post("/")
    async def classify(request: Request) -> Any:
        given = await request.json()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await asked.put((given["text"], answer))
        return await answer

    uvicorn.run(app, host=HOST, port=port, log_level="warning")


if __name__ == "__main__":
    serve(sys.argv[1], **json.loads(sys.argv[2]))
