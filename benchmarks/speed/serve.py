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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import datasets, processes, script
from benchmarks.speed import servers
from benchmarks.speed.http_load import OK, Load
from benchmarks.speed.infer import difference, max_seq_length_for, save_classifier
from tidybert.catalog import find_model
from tidybert.errors import UsageError
from tidybert.files.rows import count_of
from tidybert.files.text_files import read_examples
from tidybert.tokenization import BertTokenizer

CLIENTS: Final = (1, 8, 32, 128)
ANSWERS_TOLERANCE: Final = 1e-3
_REQUESTS_A_CLIENT: Final = 8
"""At least, so that most requests have the company of all clients."""
_WARM_UP: Final = 32
"""Requests before the clock; their answers are compared."""
_TIMES: Final = ("p50_ms", "p95_ms", "p99_ms")
_SHOWN: Final = {
    "texts/s": "texts_per_second", "p50 ms": "p50_ms", "p95 ms": "p95_ms", "p99 ms": "p99_ms",
    "CPU ms/text": "cpu_ms_per_text",
}  # fmt: skip


def bench_serving(texts: Sequence[str], given: argparse.Namespace) -> dict[str, Any]:
    """Texts a second and the times of requests, with each number of clients.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities of
    _SHOWN with _N for N clients, seconds_to_first_answer (from the start of the process) and
    peak_mib.  The processor time is the server's only.

    Raises TidyBertError where a server fails or refuses a request, or where the sides' answers
    differ by more than ANSWERS_TOLERANCE.
    """
    length, tokenizer = given.max_seq_length, BertTokenizer.from_pretrained(given.model)
    cut = [servers.cut_text(text, tokenizer, length) for text in texts]
    answers: dict[str, list[list[float]]] = {}
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        directory = str(find_model(given.model))
        if given.against != servers.INFINITY:
            directory = str(Path(folder) / "model")
            save_classifier(given.model, Path(directory), length)
        sides = {"ours": servers.our_side(directory, embeds=given.against == servers.INFINITY)}
        if given.against is not None:
            sides[given.against] = servers.other_side(given.against, directory, given.infinity)

        def measure(name: str) -> tuple[Mapping[str, float], str]:
            side, values = sides[name], {}
            bodies = servers.write_bodies(side, cut, Path(folder) / name)
            with servers.running(side, cut[0], given.threads) as server:
                values["seconds_to_first_answer"] = server.seconds_to_first_answer
                load = Load(server.port, side.path, bodies, _WARM_UP, 4, kept=_WARM_UP)
                answers[name] = [side.read(found) for found in servers.asked(side, load)["answers"]]
                for number in CLIENTS:
                    count = max(given.requests, _REQUESTS_A_CLIENT * number)
                    begin = server.cpu_seconds()
                    found = servers.asked(side, Load(server.port, side.path, bodies, count, number))
                    used = 1e3 * (server.cpu_seconds() - begin) / count
                    values[f"texts_per_second_{number}"] = found["requests_per_second"]
                    values |= {f"{of}_{number}": found["times"][str(OK)][of] for of in _TIMES}
                    values[f"cpu_ms_per_text_{number}"] = used
                    shares.append(found["share_of_a_core"])
                values["peak_mib"] = processes.memory_mib(server.process)
            rates = (values[f"texts_per_second_{number}"] for number in CLIENTS)
            return values, f"{', '.join(f'{rate:,.0f}' for rate in rates)} texts/s"

        samples = script.take_rounds(list(sides), given.rounds, measure)
    settings = ("rounds", "requests", "threads", "max_seq_length")
    return {
        **{name: getattr(given, name) for name in settings},
        "clients": list(CLIENTS),
        "num_texts": len(texts),
        "num_cut": sum(one != text for one, text in zip(cut, texts, strict=True)),
        "largest_difference_of_answers": difference(
            "answers", list(answers.values()), ANSWERS_TOLERANCE
        ),
        "generators_share_of_a_core": max(shares),
        **script.summarize(samples),
    }


def main(parser: argparse.ArgumentParser) -> None:
    script.add_against(parser, servers.OTHERS)
    script.add_flags(parser, "model rounds json threads texts max-seq-length")
    script.add_number(parser, "requests", 400, "by number of clients; 8 a client at least")
    parser.add_argument("--infinity", default="infinity_emb", help="command of infinity-emb")
    given = parser.parse_args()
    if not Path("/proc/self/stat").exists():
        raise UsageError("serve reads /proc, which this system does not have")
    if given.texts is None:
        source, texts = datasets.mixed_texts()
    else:
        source = given.texts
        texts = [one.text for one in read_examples(source, need_label=False)]
    given.max_seq_length = max_seq_length_for(given.model, given.max_seq_length)
    result = bench_serving(texts, given)
    rows = {
        f"{name}, {count_of(number, 'client')}": f"{quantity}_{number}"
        for number in CLIENTS
        for name, quantity in _SHOWN.items()
    }
    cut = f"{result['num_cut']:,} of {result['num_texts']:,}"
    remarks = [
        f"cut to {given.max_seq_length} tokens before they were sent: {cut} texts",
        f"a core's time that sending took: {result['generators_share_of_a_core']:.1%} at most",
    ]
    if given.against:
        largest = result["largest_difference_of_answers"]
        remarks.append(f"largest difference of answers: {largest:.1e}")
    script.print_speed(
        f"Serving: {source}, {given.model}, float32, a text a request",
        {"bench": "serve", "model": given.model, "data": source, **result},
        {**rows, "seconds to the first answer": "seconds_to_first_answer", "peak MiB": "peak_mib"},
        remarks,
        as_json=given.json,
        other=given.against or "",
    )
