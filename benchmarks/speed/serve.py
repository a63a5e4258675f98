"""Time tidybert serve with 1, 8, 32 and 128 clients that send a text a request.

Each round starts each server, times its first answer, and asks it with growing numbers of clients
from a process of its own.  The servers classify with random weights on MODEL.  The other side is a
FastAPI handler around transformers' pipeline as its guide for web servers shows it: a text at a
time, or with the guide's dynamic batching.  Beside infinity both servers answer with the embeddings
of MODEL.  Without the data folder (TIDYBERT_DATA, or ../shared/data) the texts are the bundled
tickets.  It needs Linux, which tells the time and memory of other processes.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.harness import datasets, processes, script
from benchmarks.speed.http_load import OK, Load
from benchmarks.speed.infer import max_seq_length_for, save_classifier
from benchmarks.speed.servers import (
    INFINITY,
    OTHERS,
    Side,
    asked,
    cut_text,
    other_side,
    our_side,
    running,
    write_bodies,
)
from tidybert.catalog import find_model
from tidybert.errors import TidyBertError, UsageError
from tidybert.files.rows import count_of
from tidybert.files.text_files import read_examples
from tidybert.tokenization import BertTokenizer

CLIENTS: Final = (1, 8, 32, 128)
ANSWERS_TOLERANCE: Final = 1e-3
_REQUESTS_A_CLIENT: Final = 8
"""At least, so that most requests have the company of all clients."""
_WARM_UP: Final = 32
"""Requests before the clock; their answers are compared."""
_SHOWN: Final = {
    "texts/s": "texts_per_second",
    "p50 ms": "p50_ms",
    "p95 ms": "p95_ms",
    "p99 ms": "p99_ms",
    "CPU ms/text": "cpu_ms_per_text",
}


def bench_serving(
    model: str,
    texts: Sequence[str],
    *,
    against: str | None = None,
    infinity: str = "infinity_emb",
    rounds: int = 3,
    requests: int = 400,
    clients: Sequence[int] = CLIENTS,
    max_seq_length: int = 128,
    threads: int | None = None,
) -> dict[str, Any]:
    """Texts a second and the times of requests, with each number of clients.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of
    texts_per_second_N, p50_ms_N, p95_ms_N, p99_ms_N and cpu_ms_per_text_N with N clients,
    seconds_to_first_answer (from the start of the process) and peak_mib.  The processor time is
    the server's only.  Texts are cut at a word to ``max_seq_length`` tokens before they are sent.
    ``against`` is a side of OTHERS, ``infinity`` the command of the package infinity-emb.  Each
    number of clients sends ``requests``, or 8 a client where that is more.

    Raises TidyBertError where a server fails or refuses a request, or where the sides' answers
    differ by more than ANSWERS_TOLERANCE, because they have not done the same work.
    """
    tokenizer = BertTokenizer.from_pretrained(model)
    cut = [cut_text(text, tokenizer, max_seq_length) for text in texts]
    answers: dict[str, list[list[float]]] = {}
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        directory = str(find_model(model))
        if against != INFINITY:
            directory = str(Path(folder) / "model")
            save_classifier(model, Path(directory), max_seq_length)
        sides = {"ours": our_side(directory, embeds=against == INFINITY)}
        if against is not None:
            sides[against] = other_side(against, directory, infinity)

        def measure(name: str) -> tuple[dict[str, float], str]:
            bodies = write_bodies(sides[name], cut, Path(folder) / name)
            values, answers[name], share = _measure(
                sides[name], bodies, cut[0], requests, clients, threads
            )
            shares.append(share)
            rates = (values[f"texts_per_second_{number}"] for number in clients)
            return values, f"{', '.join(f'{rate:,.0f}' for rate in rates)} texts/s"

        samples = script.take_rounds(list(sides), rounds, measure)
    return {
        "rounds": rounds,
        "num_texts": len(texts),
        "num_cut": sum(one != text for one, text in zip(cut, texts, strict=True)),
        "max_seq_length": max_seq_length,
        "requests": requests,
        "clients": list(clients),
        "threads": threads,
        "largest_difference_of_answers": _difference(list(answers.values())),
        "generators_share_of_a_core": max(shares),
        **script.summarize(samples),
    }


def _measure(
    side: Side, bodies: str, text: str, requests: int, clients: Sequence[int], threads: int | None
) -> tuple[dict[str, float], list[list[float]], float]:
    """One side's values by quantity, its first answers as numbers, and the generator's share."""
    values: dict[str, float] = {}
    shares = []
    with running(side, text, threads) as server:
        values["seconds_to_first_answer"] = server.seconds_to_first_answer
        warm_up = asked(side, Load(server.port, side.path, bodies, _WARM_UP, 4, kept=_WARM_UP))
        answers = [side.read(found) for found in warm_up["answers"]]
        for number in clients:
            count = max(requests, _REQUESTS_A_CLIENT * number)
            begin = server.cpu_seconds()
            found = asked(side, Load(server.port, side.path, bodies, count, number))
            values[f"cpu_ms_per_text_{number}"] = 1e3 * (server.cpu_seconds() - begin) / count
            values[f"texts_per_second_{number}"] = found["requests_per_second"]
            for name in ("p50_ms", "p95_ms", "p99_ms"):
                values[f"{name}_{number}"] = found["times"][str(OK)][name]
            shares.append(found["share_of_a_core"])
        values["peak_mib"] = processes.memory_mib(server.process)
    return values, answers, max(shares)


def _difference(answers: Sequence[Sequence[Sequence[float]]]) -> float | None:
    """The largest difference between two sides' answers to the same texts; None for one side."""
    if len(answers) < 2:
        return None
    ours, theirs = (np.array(each) for each in answers)
    difference = float(np.abs(ours - theirs).max())
    if not difference <= ANSWERS_TOLERANCE:
        raise TidyBertError(
            f"the sides' answers differ by up to {difference:.2g}, more than "
            f"{ANSWERS_TOLERANCE:g}: they have not done the same work, so their times say nothing"
        )
    return difference


def main(parser: argparse.ArgumentParser) -> None:
    script.add_against(parser, OTHERS)
    script.add_flags(parser, "model rounds json threads texts max-seq-length")
    parser.add_argument(
        "--requests",
        type=script.at_least(1),
        default=400,
        help="by number of clients; 8 a client at least",
    )
    parser.add_argument("--infinity", default="infinity_emb", help="command of infinity-emb")
    given = parser.parse_args()
    if not Path("/proc/self/stat").exists():
        raise UsageError("serve reads /proc, which this system does not have")
    if given.texts is None:
        source, texts = datasets.mixed_texts()
    else:
        source = given.texts
        texts = [one.text for one in read_examples(source, need_label=False)]
    result = bench_serving(
        given.model,
        texts,
        against=given.against,
        infinity=given.infinity,
        rounds=given.rounds,
        requests=given.requests,
        max_seq_length=max_seq_length_for(given.model, given.max_seq_length),
        threads=given.threads,
    )
    rows = {
        f"{name}, {count_of(number, 'client')}": f"{quantity}_{number}"
        for number in CLIENTS
        for name, quantity in _SHOWN.items()
    }
    cut = f"{result['num_cut']:,} of {result['num_texts']:,} texts"
    remarks = [
        f"cut to {result['max_seq_length']} tokens before they were sent: {cut}",
        f"a core's time that sending took: {result['generators_share_of_a_core']:.1%} at most",
    ]
    if given.against:
        difference = result["largest_difference_of_answers"]
        remarks.append(f"largest difference of answers: {difference:.1e}")
    script.print_speed(
        f"Serving: {source}, {given.model}, float32, a text a request",
        {"bench": "serve", "model": given.model, "data": source, **result},
        {**rows, "seconds to the first answer": "seconds_to_first_answer", "peak MiB": "peak_mib"},
        remarks,
        as_json=given.json,
        other=given.against or "",
    )
