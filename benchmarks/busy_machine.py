"""How fast tidybert is alone and beside a busy process, with threads that sleep and that spin.

    python benchmarks/busy_machine.py --rounds 5 --out busy.jsonl --write benchmarks/NOTES.md

OpenMP's threads wait for each other many times a step.  tidybert has them sleep
(OMP_WAIT_POLICY=passive); by default they spin for a while, which takes a core from any other
process.  Each measurement is ``tidybert bench`` in a process of its own, beside --busy processes
that compute without end.  The four settings take turns, and the table has their medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from side_by_side import show

from tidybert.system.machine import machine

# By kind of work its command, and the quantity that it reports.
WORKS: Final = {
    "fine-tuning": (["finetune", "--steps", "20"], "examples_per_second"),
    "inference": (["infer"], "texts_per_second_in_order"),
    "pre-training": (["pretrain", "--steps", "20"], "tokens_per_second"),
}
WAITING: Final[dict[str, dict[str, str]]] = {
    "sleep": {"OMP_WAIT_POLICY": "passive"},
    # What libgomp and libomp do where nothing is set; tidybert itself would set the policy.
    "spin": {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"},
}
PLACES: Final = ("alone", "beside")


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Within the block, this many processes compute without end."""
    program = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(program) for _ in range(number)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def measured(work: str, waiting: str, flags: Sequence[str]) -> float:
    """What ``tidybert bench`` reports of a kind of work, a second."""
    words, quantity = WORKS[work]
    command = [sys.executable, "-m", "tidybert", "bench", *words, "--rounds", "1", "--json"]
    environment = {**os.environ, **WAITING[waiting]}
    done = subprocess.run(
        [*command, *flags], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return float(json.loads(done.stdout)["medians"]["ours"][quantity])


def table(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Markdown rows: the medians of each setting, and how many times as fast sleeping is."""
    lines = [
        (
            "| work, a second | alone, sleep | alone, spin | ratio "
            "| beside, sleep | beside, spin | ratio |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for work in WORKS:
        cells = []
        for place in PLACES:
            medians = [
                statistics.median(found)
                for waiting in WAITING
                if (
                    found := [
                        each["rate"]
                        for each in results
                        if (each["work"], each["place"], each["waiting"]) == (work, place, waiting)
                    ]
                )
            ]
            if len(medians) == len(WAITING):
                sleep, spin = medians
                cells += [f"{sleep:,.0f}", f"{spin:,.0f}", f"{sleep / spin:.2f}"]
        if cells:
            lines.append(f"| {' | '.join([work, *cells])} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each setting")
    parser.add_argument("--busy", type=int, default=1, help="processes that keep cores busy")
    parser.add_argument("--work", choices=WORKS, action="append", help="this kind of work alone")
    parser.add_argument("--out", type=Path, default=Path("busy.jsonl"), help="a line a measurement")
    parser.add_argument("--write", type=Path, help="page whose table is replaced")
    given, flags = parser.parse_known_args()
    results = (
        [json.loads(line) for line in given.out.read_text().splitlines()]
        if given.out.exists()
        else []
    )
    done = {(each["work"], each["place"], each["waiting"], each["round"]) for each in results}
    for number in range(given.rounds):
        for work in given.work or WORKS:
            for place in PLACES:
                for waiting in WAITING:
                    if (work, place, waiting, number) in done:
                        continue
                    with busy_processes(given.busy if place == "beside" else 0):
                        rate = measured(work, waiting, flags)
                    result = {"work": work, "place": place, "waiting": waiting, "round": number}
                    results.append({**result, "rate": rate, "machine": machine()})
                    with given.out.open("a") as file:
                        file.write(f"{json.dumps(results[-1])}\n")
    show(table(results), given.write, "busy machine")


if __name__ == "__main__":
    main()
