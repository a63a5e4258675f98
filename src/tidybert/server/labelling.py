"""The server of ``tidybert label``: each key of a person is a request, answered by what comes next.

Whoever asks must have the page's token, which is drawn at each start and is in the page alone.
"""

import asyncio
import hmac
import re
import secrets
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import Field, Strict
from starlette.responses import Response

from tidybert.errors import TidyBertError, in_shell
from tidybert.files.label_rows import LABELLED
from tidybert.page.labelling import Labelling, Mark
from tidybert.page.page_model import HEADERS, page_files
from tidybert.server.answers import JsonAnswer, Refusal
from tidybert.server.app import make_app
from tidybert.server.bodies import CountedRoute
from tidybert.server.engine import Engine
from tidybert.server.protocols.page_routes import page_file
from tidybert.server.protocols.protocol import Body, Protocol
from tidybert.storage.limits import REPORT_BYTES
from tidybert.storage.opening import read_bytes

_TOKEN: Final = "x-tidybert-token"
_PLACE: Final = b"{{token}}"
_SHOWN_LINES: Final = 6
# A page shows progress each second, a log each half minute.
_PROGRAM: Final = (
    "from tidybert.cli import progress; progress.LINE_SECONDS = 1.0; "
    "from tidybert.__main__ import main; main()"
)
_PERCENT: Final = re.compile(r"[a-z ]+: (\d+)%, ")


class LabelDesk:
    """What the routes use: the labelling, the page's token, and one training at a time.

    ``training_words`` makes the command of a training from the folders of its RUN and its report.
    """

    def __init__(
        self, labelling: Labelling, training_words: Callable[[Path, Path], Sequence[str]] | None
    ) -> None:
        self.labelling, self._words = labelling, training_words
        self.token = secrets.token_urlsafe(24)
        self.program = [sys.executable, "-c", _PROGRAM]
        self._lines: deque[str] = deque(maxlen=_SHOWN_LINES)
        self._process: subprocess.Popen[str] | None = None
        self._run: Path | None = None
        self._begun = 0.0
        #: Of the steps, as the last line of progress says.
        self._share: float | None = None

    def train(self) -> None:
        """Begin a training in a process of its own; Refusal 409 while one runs."""
        if self._words is None:
            raise Refusal(409, "corrections are no file to train on: see tidybert finetune")
        if self._process is not None and self._process.poll() is None:
            raise Refusal(409, "a training runs already")
        out = Path(self.labelling.settings.out)
        names = (out.with_name(f"{out.stem}-run-{at}") for at in range(1, 10_000))
        self._run = next(each for each in names if not each.exists())
        words = [*self.program, *self._words(self._run, self.report)]
        self._lines.clear()
        self._share = None
        self._begun = time.monotonic()
        pipe: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self._process = subprocess.Popen(words, encoding="utf-8", errors="replace", **pipe)
        threading.Thread(target=self._follow, args=[self._process], daemon=True).start()

    @property
    def report(self) -> Path:
        assert self._run is not None
        return self._run.with_name(f"{self._run.name}-report")

    def training(self) -> dict[str, Any] | None:
        """How the last training goes, or went; None where there was none."""
        if self._process is None:
            return None
        status = self._process.poll()
        return {
            "state": "running" if status is None else "failed" if status else "done",
            "seconds": round(time.monotonic() - self._begun),
            "share": self._share if status is None else None,
            "lines": list(self._lines),
            "run": str(self._run),
            "report": (self.report / "report.html").exists(),
        }

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        self.labelling.close()

    def _follow(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in filter(str.strip, process.stdout):
            if found := _PERCENT.match(line):
                self._share = int(found[1]) / 100
                if self._lines and _PERCENT.match(self._lines[-1]):
                    self._lines.pop()
            self._lines.append(line.rstrip())


def label_app(desk: LabelDesk, engine: Engine) -> FastAPI:
    """The app of a server that labels, and does nothing else."""
    app = make_app(engine, [PROTOCOL])
    app.state.desk = desk
    return app


async def _desk(request: Request) -> LabelDesk:
    """The desk of the app; Refusal 403 for a request that does not come from its page."""
    desk: LabelDesk = request.app.state.desk
    if not hmac.compare_digest(request.headers.get(_TOKEN, "").encode(), desk.token.encode()):
        raise Refusal(403, "this page is of an earlier start: open the address again")
    return desk


class ActBody(Body):
    """What an act is on: a text, and for an answer its labels and those that share them."""

    number: int = -1
    labels: list[str] = Field(default=[], max_length=1000)
    status: str = LABELLED
    also: list[int] = Field(default=[], max_length=1000)
    # A list of JSON is no tuple to a strict model.
    marks: list[Annotated[Mark, Strict(False)]] = Field(default=[], max_length=10_000)


router = APIRouter(route_class=CountedRoute, include_in_schema=False)
PROTOCOL: Final = Protocol(router=router)


@router.get("/")
async def index(request: Request) -> Response:
    """The page, with its token."""
    content, kind = page_files()["label.html"]
    token = request.app.state.desk.token.encode()
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return Response(content.replace(_PLACE, token), media_type=kind, headers=headers)


@router.get("/page/{name:path}")
async def file(name: str) -> Response:
    """A file of the page."""
    return page_file(name)


@router.get("/label/report")
async def report(request: Request) -> Response:
    """The report of the last training, which has a policy of its own."""
    desk: LabelDesk = request.app.state.desk
    found = desk.training()
    if not found or not found["report"]:
        raise Refusal(404, "there is no report yet: train first")
    content = read_bytes(desk.report / "report.html", REPORT_BYTES)
    headers = {name: value for name, value in HEADERS.items() if "Policy" not in name}
    return Response(content, media_type="text/html; charset=utf-8", headers=headers)


@router.post("/label/{act}")
async def act(
    act: Literal["view", "answer", "back", "show", "errors", "train"],
    body: ActBody,
    desk: LabelDesk = Depends(_desk),
) -> JsonAnswer:
    """Do what a person asks for, and give all that the page then shows."""
    labelling = desk.labelling
    acts: dict[str, Callable[[], Any]] = {
        "view": lambda: None,
        "answer": lambda: labelling.answer(
            body.number, body.labels, body.status, body.also, body.marks
        ),
        "back": labelling.back,
        "show": lambda: labelling.show(body.number),
        "errors": labelling.errors,
        "train": desk.train,
    }

    def work() -> dict[str, Any]:
        try:
            found = acts[act]()
        except TidyBertError as error:
            raise Refusal(422, in_shell(error.message)) from None
        return {**labelling.view(), "training": desk.training(), "errors": found}

    # The disk may take a while.
    return JsonAnswer(await asyncio.to_thread(work))
