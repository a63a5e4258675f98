"""Few labels: the ways that tidybert compares, fine-tuning from a random head, and SetFit beside.

    python benchmarks/few.py --shots 8 16 64 --draws 5 --setfit setfit/bin/python \
        --out few.jsonl --write docs/results.md

A draw takes so many labelled texts of each class from the training part; every way gets the same
texts.  A model is scored on at most --num-test texts of the test part.  "few" is what --few does:
it chooses a way by cross-validation inside the draw, and trains it on all of the draw.  SetFit is
the package in an environment of its own (pip install setfit==1.1.3 'transformers<4.56'
'sentence-transformers<5'), with its defaults on the same weights; its texts of a pair are one text,
joined by [SEP].  Each measurement is a line of --out, and a stopped run continues from there.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from head_start import JOBS, examples_of
from side_by_side import show
from text import TASKS

DATA: Final = ("SST-2", "TREC", "BANKING77", "SMS spam", "tickets", "QNLI subset")
JOBS["QNLI subset"] = TASKS["QNLI subset"]
WAYS: Final = ("probe", "fine-tuning, random head", "fine-tuning", "contrastive", "few", "SetFit")


def drawn(examples: Sequence[Any], shots: int, seed: int) -> list[Any]:
    """So many examples of each class, or all where a class has fewer."""
    import numpy as np

    counts: Counter[str] = Counter()
    chosen = []
    for at in np.random.default_rng(seed).permutation(len(examples)).tolist():
        one = examples[at]
        if counts[one.label] < shots:
            counts[one.label] += 1
            chosen.append(one)
    return chosen


def measured(
    name: str, shots: int, seed: int, way: str, given: argparse.Namespace
) -> dict[str, Any]:
    """One model's accuracy on the test part, and the seconds of its training."""
    import numpy as np

    train = drawn(examples_of(name, "train"), shots, seed)
    known = {one.label for one in train}
    test = examples_of(name, "dev")
    order = np.random.default_rng(0).permutation(len(test))[: given.num_test]
    test = [test[at] for at in order if test[at].label in known]
    if way == "SetFit":
        return beside(train, test, seed, given)
    return ours(train, test, seed, way, given.model)


def ours(
    train: Sequence[Any], test: Sequence[Any], seed: int, way: str, model: str
) -> dict[str, Any]:
    """One of tidybert's ways; all read the mean of all tokens."""
    from dataclasses import replace

    from tidybert.finetuning.few_labels import choose_way, ways
    from tidybert.finetuning.finetuning_job import FinetuningJob
    from tidybert.finetuning.run_job import run_finetuning
    from tidybert.inference.forward import run_features
    from tidybert.tasks.classification import Classification
    from tidybert.training.training_arguments import TrainingArguments

    task = Classification.from_examples(train)

    def trained(some: Sequence[Any], arguments: TrainingArguments) -> Any:
        return run_finetuning(FinetuningJob(task, model, some, None, arguments))

    arguments = TrainingArguments(seed=seed, pooling="mean")
    begin, chosen = time.perf_counter(), way
    if way == "few":
        found = choose_way(task, train, arguments, trained, lambda _line: None)
        chosen, arguments = found.name, found.arguments
    else:
        arguments = ways(len(train), arguments)[way.removesuffix(", random head")]
        if way.endswith("random head"):
            arguments = replace(arguments, head_start="random")
    one = trained(train, arguments)
    seconds = time.perf_counter() - begin
    features = task.features(test, one.tokenizer, one.max_seq_length)
    task.add_labels(features, test)
    metrics = task.answers(run_features(task, one.model, features), features, test).metrics()
    return {"accuracy": metrics["accuracy"], "seconds": seconds, "chosen": chosen}


def beside(
    train: Sequence[Any], test: Sequence[Any], seed: int, given: argparse.Namespace
) -> dict[str, Any]:
    """SetFit in its own environment, which runs this file as a script with the work as JSON."""
    from tidybert.catalog import find_model

    work = {
        "model": str(find_model(given.model)),
        "seed": seed,
        "train": [[joined(one), one.label] for one in train],
        "test": [[joined(one), one.label] for one in test],
    }
    done = subprocess.run(
        [given.setfit, Path(__file__).with_name("few_setfit.py")],
        input=json.dumps(work),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"SetFit failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "chosen": "SetFit"}


def joined(one: Any) -> str:
    """A text, or the texts of a pair as one."""
    return str(one.text) if one.text_pair is None else f"{one.text} [SEP] {one.text_pair}"


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown rows: percent and seconds of each way, the mean over draws and its deviation."""
    ways = [way for way in WAYS if any(each["way"] == way for each in results)]
    lines = [f"| data | a class | {' | '.join(ways)} |", "|---" * (len(ways) + 2) + "|"]
    measured = sorted({(each["shots"], each["data"]) for each in results})
    for shots, name in measured:
        cells = []
        for way in ways:
            found = [
                each
                for each in results
                if (each["shots"], each["data"], each["way"]) == (shots, name, way)
            ]
            cells.append(cell(found))
        lines.append(f"| {name} | {shots} | {' | '.join(cells)} |")
    for shots in sorted({shots for shots, _ in measured}):
        lines += mean_row([each for each in results if each["shots"] == shots], ways)
    return lines


def mean_row(results: Sequence[dict[str, Any]], ways: Sequence[str]) -> list[str]:
    """The means over the data sets that have every way, empty for a way that lacks a draw there."""
    draws = {way: {(e["data"], e["seed"]) for e in results if e["way"] == way} for way in ways}
    names = {each["data"] for each in results}
    for found in filter(None, draws.values()):
        names &= {name for name, _ in found}
    if not names:
        return []
    whole = {one for found in draws.values() for one in found if one[0] in names}
    cells = []
    for way in ways:
        of_way = [
            [e for e in results if (e["data"], e["way"]) == (name, way)] for name in sorted(names)
        ]
        if not whole <= draws[way]:
            cells.append("")
            continue
        score = statistics.mean(statistics.mean(e["accuracy"] for e in each) for each in of_way)
        seconds = statistics.mean(first(each)["seconds"] for each in of_way)
        cells.append(f"{100 * score:.1f}, {seconds:.0f} s")
    return [f"| mean of {len(names)} | {results[0]['shots']} | {' | '.join(cells)} |"]


def first(draws: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first draw, whose seconds the table shows."""
    return min(draws, key=lambda each: int(each["seed"]))


def cell(found: Sequence[dict[str, Any]]) -> str:
    """Mean and deviation of the draws, and the seconds of the first."""
    if not found:
        return ""
    scores = [100 * each["accuracy"] for each in found]
    spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.1f}{spread}, {first(found)['seconds']:.0f} s"


def main() -> None:
    """Measure what --out lacks, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--shots", nargs="+", type=int, default=[8, 16, 64])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--ways", nargs="+", default=list(WAYS[:-1]), choices=WAYS)
    parser.add_argument("--setfit", help="the python of an environment that has SetFit")
    parser.add_argument("--num-test", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("few.jsonl"))
    parser.add_argument("--write", type=Path, help="write the table between its marks in this file")
    given = parser.parse_args()
    ways = [*given.ways, *(["SetFit"] if given.setfit and "SetFit" not in given.ways else [])]
    results: list[dict[str, Any]] = []
    if given.out.exists():
        results = [json.loads(line) for line in given.out.read_text().splitlines()]
    keys = ("data", "shots", "seed", "way")
    done = {tuple(each[key] for key in keys) for each in results}
    for shots in given.shots:
        for seed in range(1, given.draws + 1):
            for name in given.data:
                for way in ways:
                    key = (name, shots, seed, way)
                    if key in done:
                        continue
                    found = measured(name, shots, seed, way, given)
                    results.append({**dict(zip(keys, key, strict=True)), **found})
                    with given.out.open("a") as file:
                        file.write(json.dumps(results[-1]) + "\n")
                    print(json.dumps(results[-1]), flush=True)
    show(table(results), given.write, "few")


if __name__ == "__main__":
    main()
