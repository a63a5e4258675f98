"""One table of engines: speed, time to the first answer, memory and score of one classifier.

The classifier is MODEL, trained on the first texts of SST-2 (--train 0: not trained, and not
scored).  Each side opens it in a process of its own, once a round, and answers SST-2's dev part and
300 texts of 128 tokens of Wikipedia, in the file's order and sorted by length; then texts of 16, 62
and 128 tokens one at a time.  A side that is not installed is left out, and a line says so.
text-embeddings-inference is no Python package, so it has no row.  Without the data folder
(TIDYBERT_DATA, or ../shared/data) the texts are the bundled tickets.
"""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from benchmarks.harness.datasets import examples_of, sst2_or_tickets, wikipedia_lines
from benchmarks.harness.machine_rates import machine_rates, rates_line
from benchmarks.harness.processes import run_apart
from benchmarks.harness.rounds import (
    at_least,
    figure,
    note,
    record,
    script_parser,
    summarize,
    take_rounds,
)
from benchmarks.harness.tables import markdown
from benchmarks.speed.finetune_work import work_of
from benchmarks.speed.infer import (
    LONE_TEXTS,
    limited_threads,
    lone_ms,
    max_seq_length_for,
    save_classifier,
    texts_of,
    timed,
)
from benchmarks.speed.inference_sides import (
    ENGINES,
    SENTENCES,
    exported,
    missing_package,
    open_side,
)
from tidybert.errors import UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_job import run_finetuning
from tidybert.tokenization import BertTokenizer

INT8: Final = " int8"
SIDES: Final = (
    "ours",
    f"ours{INT8}",
    "transformers",
    *ENGINES,
    *(f"{engine}{INT8}" for engine in ENGINES if "fused" not in engine),
    SENTENCES,
)
_LONG_TEXTS: Final = 300
_LONG_CHARACTERS: Final = 700
_COLUMNS: Final = {
    "SST-2": "sst2_in_order",
    "sorted": "sst2_by_length",
    "Wikipedia": "wikipedia_in_order",
    "sorted ": "wikipedia_by_length",
}


def bench_engines(
    model: str,
    sides: Sequence[str],
    *,
    rounds: int,
    train: int,
    num_texts: int | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """``samples`` and ``medians`` as ``summarize`` gives them, by side.

    The quantities are texts a second of _COLUMNS, ms_of_N_tokens_p50 and _p99,
    seconds_to_first_answer (from the start of the process), peak_mib, and score: the share of dev's
    labels that are right.
    """
    data = sst2_or_tickets()
    length = max_seq_length_for(model)
    with tempfile.TemporaryDirectory() as folder, limited_threads(threads) as used_threads:
        directory = Path(folder) / "model"
        dev = examples_of(data, "dev")[:num_texts]
        names = _save(model, data, directory, length, train)
        tokenizer = BertTokenizer.from_pretrained(directory)
        _, lines = wikipedia_lines()
        long = [line for line in lines if len(line) > _LONG_CHARACTERS][:_LONG_TEXTS][:num_texts]
        lone = texts_of(tokenizer, dev, length)
        given = Path(folder) / "texts.json"
        texts = {
            "sst2": [one.text for one in dev],
            "wikipedia": long,
            "lone": {str(size): one.text for size, one in lone.items()},
        }
        given.write_text(json.dumps(texts))
        labels = [names.index(str(one.label)) for one in dev] if train else []
        work = {
            "directory": str(directory),
            "texts": str(given),
            "labels": labels,
            "max_seq_length": length,
            "lengths": {
                name: [len(ids) for ids in tokenizer.encode_batch(texts[name])]  # type: ignore[arg-type]
                for name in ("sst2", "wikipedia")
            },
        }
        for precision in ("float32", "int8"):
            if any((INT8 in side) == (precision == "int8") for side in sides if side[:2] == "on"):
                exported(directory, precision)

        def measure(side: str) -> tuple[Mapping[str, float], str]:
            found = run_apart(measured, side, {**work, "begun": time.time()}, used_threads)
            return found, f"{found['sst2_in_order']:,.0f} texts/s"

        samples = take_rounds(sides, rounds, measure)
        rates = machine_rates()
    return {
        "data": data,
        "rounds": rounds,
        "threads": used_threads,
        "trained_on": train,
        "rates": rates,
        **summarize(samples),
    }


def _save(model: str, data: str, directory: Path, length: int, train: int) -> list[str]:
    """Save the classifier, trained on so many examples; returns its labels."""
    if not train:
        save_classifier(model, directory, length)
        return ["0", "1"]
    work = work_of(data, model, num_examples=train)
    task, examples, _ = work.read()
    job = FinetuningJob(task, model, examples, None, work.arguments(), max_seq_length=length)
    run_finetuning(job).save(directory)
    return list(task.names)


def measured(side: str, work: dict[str, Any]) -> dict[str, float]:
    """Open a side in this process, and time all that the table shows."""
    texts = json.loads(Path(work["texts"]).read_text())
    name, is_int8, _ = side.partition(INT8)
    precision = "int8" if is_int8 else "float32"
    run = open_side(name, Path(work["directory"]), work["max_seq_length"], "cpu", precision)
    groups = {
        data: [TextExample(text, None, None, row) for row, text in enumerate(texts[data], 1)]
        for data in ("sst2", "wikipedia")
    }
    run(groups["sst2"][:1])
    found = {"seconds_to_first_answer": time.time() - work["begun"]}
    logits = run(groups["sst2"])
    if work["labels"]:
        found["score"] = float((logits.argmax(1) == np.array(work["labels"])).mean())
    for data, examples in groups.items():
        order = np.argsort(-np.array(work["lengths"][data]), kind="stable")
        for kind, chosen in (
            ("in_order", examples),
            ("by_length", [examples[at] for at in order]),
        ):
            found[f"{data}_{kind}"] = len(chosen) / timed(run, chosen)[1]
    for size, text in texts["lone"].items():
        found |= lone_ms(run, TextExample(text, None, None, 1), int(size))
    return found


def table(medians: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Markdown: a row a side."""
    sizes = [
        size for size in LONE_TEXTS if f"ms_of_{size}_tokens_p50" in next(iter(medians.values()))
    ]
    heads = ["", *(name.strip() for name in _COLUMNS), *(f"{size} tokens" for size in sizes)]
    rows = []
    for side, values in medians.items():
        row = [side.replace("ours", "tidybert")]
        row += [figure(values[quantity]) for quantity in _COLUMNS.values()]
        row += [
            " / ".join(figure(values[f"ms_of_{size}_tokens_{part}"]) for part in ("p50", "p99"))
            for size in sizes
        ]
        row += [figure(values[each]) for each in ("seconds_to_first_answer", "peak_mib")]
        rows.append([*row, f"{100 * values['score']:.1f}" if "score" in values else ""])
    return markdown([*heads, "first answer, s", "peak MiB", "score"], rows)


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), metavar="SIDE")
    parser.add_argument("--rounds", type=at_least(1), default=3, help="times per side (default 3)")
    parser.add_argument("--train", type=at_least(0), default=3200, help="texts (default 3200)")
    parser.add_argument("--num-texts", type=at_least(1), help="of each data set; all by default")
    parser.add_argument("--threads", type=at_least(1), help="threads of each side")
    parser.add_argument("--json", action="store_true", help="print one JSON object, every sample")
    given = parser.parse_args()
    sides = []
    for side in given.sides:
        package = missing_package(side.partition(INT8)[0])
        if package is None:
            sides.append(side)
        else:
            note(f"{side} is left out: it needs {package} (pip install {package})")
    if not sides:
        raise UsageError(f"{param('sides')} names nothing that is installed")
    result = bench_engines(
        given.model,
        sides,
        rounds=given.rounds,
        train=given.train,
        num_texts=given.num_texts,
        threads=given.threads,
    )
    where = record()
    if given.json:
        print(json.dumps({"bench": "engines", "model": given.model, **result, **where}))
        return
    print(f"texts a second of {given.model}; ms of one text, p50 / p99\n")
    print("\n".join(table(result["medians"])))
    print(f"\n{rates_line(result['rates'])}")
    print(
        f"medians of {given.rounds} rounds; {result['threads']} threads; torch {torch.__version__}"
    )
