"""Compare first heads and learning rates: accuracy of fine-tuned models by task and size.

    python benchmarks/head_start.py --sizes 64 1000 4000 --seeds 3 --out head-start.jsonl

Each measurement trains on a random draw of the training data and is a line of --out; a stopped run
continues from there.  A model is scored with its last weights on at most --num-test examples that
chose nothing.  The same seed draws the same examples for every start and rate.  The data folder is
TIDYBERT_DATA or ../shared/data; the tickets come with tidybert.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, Final

import glue
import text
from side_by_side import DATA, Job

from tidybert.files.read_options import ReadOptions

TICKETS: Final = Path(str(files("tidybert"))) / "resources" / "tickets"
CODAH: Final = ReadOptions(format="codah")
JOBS: Final = {
    **{name: glue.TASKS[name] for name in ("SST-2", "RTE", "STS-B")},
    **{name: text.TASKS[name] for name in ("TREC", "BANKING77", "SMS spam")},
    "tickets": Job(
        "classify",
        str(TICKETS / "train.csv"),
        str(TICKETS / "dev.csv"),
        ReadOptions(),
        ("accuracy",),
    ),
    "CODAH": Job("choose", "choice/codah/train.tsv", "choice/codah/dev.tsv", CODAH, ("accuracy",)),
    "CoNLL-2003": Job(
        "tag", "ner/conll2003/train.txt", "ner/conll2003/test.txt", ReadOptions(), ("f1",)
    ),
}


@cache
def examples_of(name: str, part: str) -> list[Any]:
    """All examples of a part of a data set."""
    from tidybert.tasks.registry import task_class

    job = JOBS[name]
    path = DATA / (job.train if part == "train" else job.dev)
    found = list(task_class(job.task).read(str(path), job.options, need_label=True))
    if name == "SMS spam":
        # It has no parts of its own.
        return [one for at, one in enumerate(found) if (at % 10 == 0) == (part == "dev")]
    return found


def drawn(examples: Sequence[Any], count: int, seed: int) -> list[Any]:
    """A random draw, all in another order where there are fewer."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(examples))
    return [examples[at] for at in order[:count]]


def measured(name: str, size: int, seed: int, given: dict[str, Any]) -> dict[str, Any]:
    """One model's score on the test part, and its seconds."""
    from tidybert.finetuning.finetuning_job import FinetuningJob
    from tidybert.finetuning.finetuning_run import Callbacks
    from tidybert.finetuning.run_job import run_finetuning
    from tidybert.inference.forward import run_features
    from tidybert.tasks.registry import task_class
    from tidybert.training.training_arguments import TrainingArguments

    job = JOBS[name]
    train = drawn(examples_of(name, "train"), size, seed)
    test = drawn(examples_of(name, "dev"), given["num_test"], 0)
    task = task_class(job.task).from_examples(train)
    if task.label_names is not None and job.task != "tag":
        # A small draw may lack a class.
        test = [one for one in test if one.label in task.label_names]
    if job.task == "tag":
        test = [one for one in test if set(one.tags) <= set(task.names)]
    told: list[str] = []
    arguments = TrainingArguments(
        num_train_epochs=given["epochs"],
        learning_rate=given["rate"],
        head_start=given["start"],
        seed=seed,
    )
    begin = time.perf_counter()
    trained = run_finetuning(
        FinetuningJob(task, given["model"], train, None, arguments), Callbacks(note=told.append)
    )
    seconds = time.perf_counter() - begin
    features = task.features(test, trained.tokenizer, trained.max_seq_length)
    task.add_labels(features, test)
    metrics = task.answers(run_features(task, trained.model, features), features, test).metrics()
    return {
        "score": metrics[job.metrics[0]],
        "seconds": seconds,
        "told": [line for line in told if "probe" in line],
    }


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown rows: score in percent, mean and deviation over seeds, of each start and rate."""
    columns = sorted({(each["start"], each["rate"], each["epochs"]) for each in results}, key=str)
    heads = [f"{start}, {rate or 'default'}, {epochs:g}" for start, rate, epochs in columns]
    lines = [f"| data | examples | {' | '.join(heads)} |", "|---" * (len(columns) + 2) + "|"]
    for name, size in sorted({(each["data"], each["size"]) for each in results}):
        cells = []
        for column in columns:
            scores = [
                100 * each["score"]
                for each in results
                if (each["data"], each["size"]) == (name, size)
                and (each["start"], each["rate"], each["epochs"]) == column
            ]
            spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
            cells.append(f"{statistics.mean(scores):.1f}{spread}" if scores else "")
        lines.append(f"| {name} | {size:,} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure what --out lacks, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--tasks", nargs="+", default=list(JOBS), choices=JOBS)
    parser.add_argument("--sizes", nargs="+", type=int, default=[64, 1000, 4000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--starts", nargs="+", default=["random", "probe"])
    parser.add_argument("--rates", nargs="+", type=float, default=[5e-5, 3e-4])
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--num-test", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("head-start.jsonl"))
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    if given.out.exists():
        results = [json.loads(line) for line in given.out.read_text().splitlines()]
    keys = ("data", "size", "seed", "start", "rate", "epochs", "model", "num_test")
    done = {tuple(each[key] for key in keys) for each in results}
    seeds = range(1, given.seeds + 1)
    for size, seed, name, start, rate in product(
        given.sizes, seeds, given.tasks, given.starts, given.rates
    ):
        settings = {
            "start": start,
            "rate": rate,
            "epochs": given.epochs,
            "model": given.model,
            "num_test": given.num_test,
        }
        line = {"data": name, "size": size, "seed": seed, **settings}
        if tuple(line[key] for key in keys) in done:
            continue
        line |= measured(name, size, seed, settings)
        results.append(line)
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(name, size, seed, start, rate, f"{line['score']:.3f}", f"{line['seconds']:.0f} s")
        print("   ", *line["told"], flush=True)
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
