"""Count the kernels that oneDNN makes in fine-tuning and in answering, which takes time each time.

Each number of rows that a product had not had before needs a kernel.  The counts are those of
ONEDNN_VERBOSE, lines create:cache_miss.  They are the same on a busy machine.
"""

import argparse
import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch

from benchmarks.harness import datasets, script
from benchmarks.speed.infer import save_classifier
from benchmarks.speed.training import FinetuneWork, max_seq_length_for, work_of
from tidybert.inference.predictor import Predictor
from tidybert.system.reporter import Reporter

_MADE: Final = b"create:cache_miss"
_FIRST_STEPS: Final = 20
"""The steps in which a training may make its kernels."""


@contextmanager
def counting_kernels() -> Iterator[Callable[[], int]]:
    """Gives a function that says how many kernels oneDNN has made in the block; stdout is lost."""
    libc, kept = ctypes.CDLL(None), os.dup(1)
    with tempfile.TemporaryFile() as file:

        def found() -> int:
            libc.fflush(None)
            return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).count(_MADE)

        sys.stdout.flush()
        os.dup2(file.fileno(), 1)
        try:
            verbose: Any = torch.backends.mkldnn.verbose
            with verbose(torch.backends.mkldnn.VERBOSE_ON_CREATION):
                yield found
        finally:
            libc.fflush(None)
            os.dup2(kept, 1)
            os.close(kept)


def of_training(_side: str, given: dict[str, Any]) -> dict[str, Any]:
    """How many kernels had been made after each step."""
    counts: list[int] = []
    with counting_kernels() as found:
        FinetuneWork(**given).trained(Reporter(step=lambda _done: counts.append(found())))
    return {"kernels": counts}


def of_answering(precision: str, given: dict[str, Any]) -> dict[str, Any]:
    """How many kernels had been made after each eighth of a file of texts of all lengths."""
    examples = islice(datasets.examples_of(given["job"], "train"), given["texts"])
    texts = [one.text for one in examples]
    # Neighbours together make texts of up to eight sentences.
    texts = [" ".join(texts[at : at + 1 + at % 8]) for at in range(len(texts))]
    counts = []
    with tempfile.TemporaryDirectory() as directory:
        save_classifier(given["model"], Path(directory), max_seq_length_for(given["model"]))
        with counting_kernels() as found:
            predictor = Predictor(directory, device="cpu", precision=cast(Any, precision))
            for part in np.array_split(np.array(texts, dtype=object), 8):
                predictor.predict(part.tolist())
                counts.append(found())
    return {"kernels": counts}


def kernels(parser: argparse.ArgumentParser) -> None:
    script.add_number(parser, "steps", 100, "steps of training", least=_FIRST_STEPS + 1)
    script.add_number(parser, "texts", 4000, "texts to answer", least=8)
    given = script.parse(parser, "model json threads")
    job = datasets.sst2_or_tickets()
    work = work_of(job, given.model, max_steps=given.steps, num_train_epochs=given.steps)
    asked = {"job": job, "model": given.model, "texts": given.texts}
    found = []
    for precision in ("float32", "bfloat16", "int8"):
        if precision != "int8":
            settings = {**vars(work), "precision": precision, "num_examples": None}
            found.append(_made(of_training, f"training, {precision}", settings, given.threads))
        found.append(_made(of_answering, precision, asked, given.threads))
    heads = ("", f"in {_FIRST_STEPS} steps, or the first eighth", "after them")
    title = f"Kernels that oneDNN made: {job}, {given.model}"
    rows = [[each["side"], *map(str, each["made"])] for each in found]
    script.print_table(given, title, {"data": job, "counts": found}, heads, rows)


def _made(function: Any, side: str, work: dict[str, Any], threads: int | None) -> dict[str, Any]:
    """The kernels of the beginning, and of all that follows."""
    counts = script.run_apart(function, side, work, threads)["kernels"]
    begun = counts[_FIRST_STEPS - 1] if function is of_training else counts[0]
    return {"side": side, "made": [begun, counts[-1] - begun]}
