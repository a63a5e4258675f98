"""Answers as text: one JSON line an example, or one JSON object of all; and into a file."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidybert.inference.forward import LARGEST_CHUNK
from tidybert.inference.part_file import Written, part_file
from tidybert.inference.predictor import Predictor
from tidybert.storage.atomic_files import open_grown, rename_synced
from tidybert.storage.disk_errors import writing
from tidybert.storage.json_objects import plain_json
from tidybert.system.terminal_text import printable_json


@dataclass(frozen=True)
class AnswerForm:
    """How answers are written: ``entry`` of each one, with texts around and between them."""

    name: str
    entry: Callable[[dict[str, Any]], str]
    head: str = ""
    between: str = ""
    tail: str = ""

    def make(self, part: Path, target: Path) -> None:
        """Make ``target`` from ``part``, which has all but the tail."""
        with open_grown(part, part.stat().st_size) as file, writing(target):
            file.write(self.tail.encode())
        rename_synced(part, target)


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
    run with the same examples and settings left off, and ends with the same bytes.

    Raises as ``part_file``, and DataError for other examples than those of the stopped run.
    """
    settings = {
        "model": predictor.fingerprint,
        "max_seq_length": predictor.max_seq_length,
        "device": predictor.device.type,
        "precision": predictor.precision,
        "form": form.name,
    }
    left = iter(examples)
    with part_file(target, settings, form.head.encode(), resume=resume) as part:
        part.skip_done(left)
        num_resumed = part.progress["texts"]
        num_truncated = part.progress.get("truncated", 0)
        advance(num_resumed)
        # The chunks of an uninterrupted run: 1, 2, 4, …, LARGEST_CHUNK, LARGEST_CHUNK, …
        first = min(num_resumed + 1, LARGEST_CHUNK)
        for chunk, answers in predictor.predict_chunks(left, first=first):
            num_truncated += sum(each["truncated"] for each in answers)
            text = form.between.join(map(form.entry, answers))
            before = form.between if part.progress["texts"] else ""
            part.append(f"{before}{text}".encode(), chunk, truncated=num_truncated)
            advance(part.progress["texts"])
        part.finish(form.make)
    return Written(part.progress["texts"], num_truncated, num_resumed)
