"""Answers as text: one JSON line an example, or one JSON object of all; and into a file."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidybert.inference.forward import LARGEST_CHUNK
from tidybert.inference.predictor import Predictor
from tidybert.storage.growing_file import GrowingFile
from tidybert.storage.json_objects import plain_json
from tidybert.storage.part_file import Form, Piece, Written, grow_file
from tidybert.system.terminal_text import printable_json


@dataclass(frozen=True)
class AnswerForm(Form):
    """How answers are written: ``entry`` of each one, with texts around and between them."""

    name: str
    entry: Callable[[dict[str, Any]], str]
    head: str = ""
    between: str = ""
    tail: str = ""

    def begin(self) -> bytes:
        return self.head.encode()

    def make(self, file: GrowingFile, target: Path) -> None:
        file.write(self.tail.encode())
        file.become(target)


def _json(answer: Mapping[str, Any]) -> str:
    text = json.dumps(plain_json(answer), ensure_ascii=False, allow_nan=False)
    return printable_json(text)


LINES: Final = AnswerForm("lines", lambda each: f"{_json(each)}\n")
"""One JSON object a line."""
OFFICIAL: Final = AnswerForm(
    "official",
    lambda each: f"{json.dumps(each['id'])}: {json.dumps(each['answer'])}",
    head="{",
    between=", ",
    tail="}\n",
)
"""One JSON object of ids and answers, for SQuAD's script."""


def top_lines(top_k: int) -> AnswerForm:
    """LINES whose scores are those of the ``top_k`` likeliest classes, the likeliest first."""

    def entry(answer: dict[str, Any]) -> str:
        return LINES.entry({**answer, "scores": likeliest(answer["scores"], top_k)})

    return AnswerForm(f"lines, top {top_k}", entry)


def likeliest(scores: Mapping[str, float], top_k: int) -> dict[str, float]:
    """The ``top_k`` highest scores, the highest first."""
    ranked = sorted(scores.items(), key=lambda each: each[1], reverse=True)
    return dict(ranked[:top_k])


def write_answers(
    predictor: Predictor,
    examples: Iterable[Any],
    target: Path,
    form: AnswerForm = LINES,
    *,
    resume: bool = False,
    advance: Callable[[int], None] = lambda num_texts: None,
) -> Written:
    """Write the answers to all examples to ``target``, whole or not at all.

    Calls ``advance`` with the number of examples done.  With ``resume``, goes on where a stopped
    run with the same examples and settings left off, and ends with the same bytes.  Raises as
    ``grow_file``.
    """
    settings = {
        "model": predictor.fingerprint,
        "max_seq_length": predictor.max_seq_length,
        "device": predictor.device.type,
        "precision": predictor.precision,
        "form": form.name,
    }

    def pieces(left: Iterator[Any], num_done: int) -> Iterator[Piece[Any]]:
        before = form.between if num_done else ""
        # The chunks of an uninterrupted run: 1, 2, 4, …, LARGEST_CHUNK, LARGEST_CHUNK, …
        first = min(num_done + 1, LARGEST_CHUNK)
        for chunk, answers in predictor.predict_chunks(left, first=first):
            text = form.between.join(map(form.entry, answers))
            yield f"{before}{text}".encode(), chunk, sum(each["truncated"] for each in answers)
            before = form.between

    return grow_file(target, settings, examples, pieces, form, resume=resume, advance=advance)
