"""The toy problem as files, for the commands."""

import csv
import json
import os
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


def suggested(notes: str, **places: Path) -> list[str]:
    """The words of the command that another suggests next, with paths in place of names."""
    words = shlex.split(notes.partition("next: tidybert ")[2].splitlines()[0])
    return [str(places.get(word, word)) for word in words]


@pytest.fixture
def toy_file(tmp_path: Path, toy_examples: Callable[..., list[Any]]) -> Callable[..., Path]:
    """Writes labelled examples to a CSV file with the columns text and label."""

    def write(name: str, count: int, **options: Any) -> Path:
        path = tmp_path / name
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["text", "label"])
            rows.writerows([one.text, one.label] for one in toy_examples(count, **options))
        return path

    return write


@pytest.fixture(scope="session")
def masked_model(
    tmp_path_factory: pytest.TempPathFactory, tiny_config: Any, tiny_model: Path, reference: Any
) -> str:
    """A directory that transformers saved, with the heads of pre-training."""
    from tidybert.tokenization import BertTokenizer

    directory = tmp_path_factory.mktemp("models") / "pretrained"
    reference(tiny_config(), "BertForPreTraining").save_pretrained(directory)
    BertTokenizer.from_pretrained(tiny_model).save(directory)
    return str(directory)


@pytest.fixture
def conversation(begin: Callable[..., Any]) -> Iterator[Callable[..., tuple[Any, Any]]]:
    """Begins a command that reads standard input; gives its process, and what asks it one line."""
    timers: list[threading.Timer] = []

    def begin_to_talk(*words: str) -> tuple[Any, Callable[[str], Any]]:
        pipe = subprocess.PIPE
        process = begin(*words, stdin=pipe, stdout=pipe, stderr=pipe)
        # A line that is never answered ends the process, and with it the test.
        timers.append(threading.Timer(120, process.kill))
        timers[-1].start()

        def ask(line: str) -> Any:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        return process, ask

    yield begin_to_talk
    for timer in timers:
        timer.cancel()


@pytest.fixture(autouse=True)
def own_process() -> Iterator[None]:
    """What a command sets for its whole process ends with the test."""
    import torch

    from tidybert.cli.output import choose_notes

    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before, threads = {name: os.environ.get(name) for name in names}, torch.get_num_threads()
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    torch.set_num_threads(threads)
    choose_notes(quiet=False, verbose=False)
