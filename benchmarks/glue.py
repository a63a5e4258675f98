"""Fine-tune on GLUE tasks beside transformers: same weights, examples, order and arguments.

    python benchmarks/glue.py --seeds 3 --out glue.jsonl --write docs/results.md

The sides take turns, each measurement in a process of its own and on one line of --out; a run that
was stopped goes on from there.  The data folder is TIDYBERT_DATA or ../shared/data.  The dev metric
is that of the last weights on both sides: neither chooses its best step on the data that it is
measured on.
"""

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

from tidybert.benchmark.finetuning import SIDES, FinetuningWork, measure
from tidybert.data.options import ReadOptions

DATA = Path(os.environ.get("TIDYBERT_DATA", "../shared/data"))

# task, train, dev, columns, examples (None: all), epochs, the metrics that GLUE reports
TASKS: dict[str, tuple[str, str, str, ReadOptions, int | None, int, tuple[str, ...]]] = {
    "SST-2": (
        "classify",
        "glue/SST-2/train.tsv",
        "glue/SST-2/dev.tsv",
        ReadOptions(text="sentence", label="label"),
        3200,
        1,
        ("accuracy",),
    ),
    "MRPC": (
        "classify",
        "glue/MRPC/msr-para-train.tsv",
        "glue/MRPC/msr-para-val.tsv",
        ReadOptions(text="#1 String", text_pair="#2 String", label="Quality"),
        None,
        1,
        ("accuracy", "f1"),
    ),
    "STS-B": (
        "regress",
        "glue/STS-B/sts-train.csv",
        "glue/STS-B/sts-dev.csv",
        ReadOptions(text=5, text_pair=6, label=4, format="tsv"),
        2880,
        1,
        ("pearson", "spearman"),
    ),
    "RTE": (
        "classify",
        "glue/RTE/train.tsv",
        "glue/RTE/dev.tsv",
        ReadOptions(text="sentence1", text_pair="sentence2", label="label"),
        None,
        1,
        ("accuracy",),
    ),
}


def work_of(task: str, model: str, seed: int) -> FinetuningWork:
    """The work of one task with one seed."""
    kind, train, dev, options, num_examples, epochs, _ = TASKS[task]
    return FinetuningWork(
        task=kind,
        model=model,
        train=str(DATA / train),
        dev=str(DATA / dev),
        options=options,
        num_examples=num_examples,
        num_train_epochs=epochs,
        learning_rate=1e-4,
        seed=seed,
    )


def table(results: list[dict[str, Any]]) -> list[str]:
    """Markdown rows: metric (mean and standard deviation over seeds), seconds, ratio, memory."""
    lines = [
        (
            "| task | metric | tidybert | transformers | seeds | s, tidybert | s, transformers | "
            "times as fast | MiB, tidybert | MiB, transformers |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for task, (*_, metrics) in TASKS.items():
        by_side = {
            side: {
                each["seed"]: each
                for each in results
                if (each["task"], each["side"]) == (task, side)
            }
            for side in SIDES
        }
        seeds = sorted(set(by_side["ours"]) & set(by_side["transformers"]))
        if not seeds:
            continue
        medians = {
            side: {
                key: statistics.median(by_side[side][seed][key] for seed in seeds)
                for key in ("seconds", "peak_mib")
            }
            for side in SIDES
        }
        ratio = statistics.median(
            by_side["transformers"][seed]["seconds"] / by_side["ours"][seed]["seconds"]
            for seed in seeds
        )
        for metric in metrics:
            cells = []
            for side in SIDES:
                values = [100 * by_side[side][seed]["metrics"][metric] for seed in seeds]
                spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
                cells.append(f"{statistics.mean(values):.1f}{spread}")
            first = metric == metrics[0]
            times = [f"{medians[side]['seconds']:.0f}" for side in SIDES] + [f"{ratio:.2f}"]
            memory = [f"{medians[side]['peak_mib']:.0f}" for side in SIDES]
            rest = [*times, *memory] if first else [""] * 5
            lines.append(
                f"| {task if first else ''} | {metric} | {cells[0]} | {cells[1]} | "
                f"{len(seeds) if first else ''} | " + " | ".join(rest) + " |"
            )
    return lines


def main() -> None:
    """Measure what --out does not hold yet, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("glue.jsonl"))
    parser.add_argument("--write", type=Path, help="put the table between its marks in this file")
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    if arguments.out.exists():
        results = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    done = {(each["task"], each["side"], each["seed"]) for each in results}
    for seed in range(1, arguments.seeds + 1):
        for task in arguments.tasks:
            # Who goes first changes with the seed, as the machine may grow slower or faster.
            for side in SIDES if seed % 2 else reversed(SIDES):
                if (task, side, seed) in done:
                    continue
                measured = measure(side, work_of(task, arguments.model, seed))
                results.append({"task": task, "side": side, "seed": seed, **measured})
                with arguments.out.open("a") as file:
                    file.write(json.dumps(results[-1]) + "\n")
                print(task, side, seed, f"{measured['seconds']:.0f} s", flush=True)
    lines = table(results)
    print("\n".join(lines))
    if arguments.write:
        begin, end = "<!-- glue -->", "<!-- /glue -->"
        text = arguments.write.read_text(encoding="utf-8")
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        arguments.write.write_text(
            before + begin + "\n" + "\n".join(lines) + "\n" + end + after, encoding="utf-8"
        )


if __name__ == "__main__":
    main()
