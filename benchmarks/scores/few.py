"""Few labels: the ways that tidybert compares, fine-tuning from a random head, and SetFit beside.

    python -m benchmarks few --shots 8 16 64 --draws 5 --write docs/results.md

A draw takes so many labelled texts of each class from the training part; every way gets the same
texts.  A model is scored on at most --num-test texts of the test part.  SetFit runs
in an environment of its own that --setfit names (pip install setfit==1.1.3 'transformers<4.56'
'sentence-transformers<5'), with its defaults on the same weights; its texts of a pair are one text,
joined by [SEP].  Each measurement is a line of --out, and a stopped run continues from there.
"""

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np

from benchmarks.harness.datasets import drawn, examples_of
from benchmarks.harness.processes import in_environment
from benchmarks.harness.tables import Line, Results, markdown, percent, results_parser, show
from benchmarks.speed.finetune import metrics_of
from tidybert.catalog import find_model
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_job import run_finetuning
from tidybert.tasks.classification import Classification
from tidybert.training.training_arguments import TrainingArguments

DATA: Final = ("SST-2", "TREC", "BANKING77", "SMS spam", "tickets", "QNLI subset")
WAYS: Final = ("probe", "fine-tuning, random head", "fine-tuning", "contrastive", "SetFit")
_STEPS: Final = 100
_FEWEST_EPOCHS: Final = 5.0
_MOST_EPOCHS: Final = 20.0
"""Fine-tuning takes the epochs of _STEPS steps, within these limits."""
_SETFIT: Final = """
import json, sys, time, setfit
from datasets import Dataset
work = json.load(sys.stdin)
train, test = work["train"], work["test"]
begin = time.perf_counter()
model = setfit.SetFitModel.from_pretrained(work["model"], local_files_only=True)
quiet = {"save_strategy": "no", "report_to": "none", "show_progress_bar": False}
columns = {"text": [text for text, _ in train], "label": [label for _, label in train]}
arguments = setfit.TrainingArguments(seed=work["seed"], **quiet)
data = Dataset.from_dict(columns)
setfit.Trainer(model=model, args=arguments, train_dataset=data).train()
seconds = time.perf_counter() - begin
found = model.predict([text for text, _ in test])
right = sum(str(a) == label for a, (_, label) in zip(found, test, strict=True))
print(json.dumps({"accuracy": right / len(test), "seconds": seconds}))
"""


def of_each_class(examples: Sequence[Any], shots: int, seed: int) -> list[Any]:
    """So many examples of each class, or all where a class has fewer."""
    counts: Counter[str] = Counter()
    chosen = []
    for at in np.random.default_rng(seed).permutation(len(examples)).tolist():
        one = examples[at]
        if counts[one.label] < shots:
            counts[one.label] += 1
            chosen.append(one)
    return chosen


def measured(name: str, shots: int, seed: int, way: str, given: argparse.Namespace) -> Line:
    """One model's accuracy on the test part, and the seconds of its training."""
    train = of_each_class(examples_of(name, "train"), shots, seed)
    known = {one.label for one in train}
    test = [one for one in drawn(examples_of(name, "dev"), given.num_test, 0) if one.label in known]
    if way != "SetFit":
        return ours(train, test, seed, way, given.model)
    work = {
        "model": str(find_model(given.model)),
        "seed": seed,
        "train": [[joined(one), one.label] for one in train],
        "test": [[joined(one), one.label] for one in test],
    }
    return dict(in_environment(given.setfit, _SETFIT, work))


def ours(train: Sequence[Any], test: Sequence[Any], seed: int, way: str, model: str) -> Line:
    """One of tidybert's ways; all read the mean of all tokens."""
    task = Classification.from_examples(train)
    begin = time.perf_counter()
    one = run_finetuning(FinetuningJob(task, model, train, None, arguments_of(way, train, seed)))
    seconds = time.perf_counter() - begin
    return {"accuracy": metrics_of(one, task, test)["accuracy"], "seconds": seconds}


def arguments_of(way: str, train: Sequence[Any], seed: int) -> TrainingArguments:
    """The arguments of one of tidybert's ways."""
    epochs = 0.0
    if way.startswith("fine-tuning"):
        epochs = _STEPS * TrainingArguments.train_batch_size / len(train)
        epochs = min(max(epochs, _FEWEST_EPOCHS), _MOST_EPOCHS)
    start = "random" if way.endswith("random head") else "probe"
    start = way if way == "contrastive" else start
    return TrainingArguments(seed=seed, pooling="mean", head_start=start, num_train_epochs=epochs)


def joined(one: Any) -> str:
    """A text, or the texts of a pair as one."""
    return str(one.text) if one.text_pair is None else f"{one.text} [SEP] {one.text_pair}"


def table(results: Results) -> list[str]:
    """Markdown rows: percent and seconds of each way, the mean over draws and its deviation."""
    shown = [way for way in WAYS if results.where(way=way)]
    measured = sorted({(line["shots"], line["data"]) for line in results.lines})
    rows = [
        [name, f"{shots}", *(cell(results.where(data=name, shots=shots, way=way)) for way in shown)]
        for shots, name in measured
    ]
    for shots in sorted({shots for shots, _ in measured}):
        rows += mean_row(results.where(shots=shots), shown)
    return markdown(["data", "a class", *shown], rows)


def mean_row(lines: Sequence[Line], shown: Sequence[str]) -> list[list[str]]:
    """The means over the data sets that have every way, empty for a way that lacks a draw there."""
    draws = {way: {(e["data"], e["seed"]) for e in lines if e["way"] == way} for way in shown}
    names = {line["data"] for line in lines}
    for found in filter(None, draws.values()):
        names &= {name for name, _ in found}
    if not names:
        return []
    whole = {one for found in draws.values() for one in found if one[0] in names}
    cells = []
    for way in shown:
        of_way = [
            [e for e in lines if (e["data"], e["way"]) == (name, way)] for name in sorted(names)
        ]
        if not whole <= draws[way]:
            cells.append("")
            continue
        score = statistics.mean(statistics.mean(e["accuracy"] for e in each) for each in of_way)
        seconds = statistics.mean(first(each)["seconds"] for each in of_way)
        cells.append(f"{percent([score])}, {seconds:.0f} s")
    return [[f"mean of {len(names)}", f"{lines[0]['shots']}", *cells]]


def first(draws: Sequence[Line]) -> Line:
    """The first draw, whose seconds the table shows."""
    return min(draws, key=lambda line: int(line["seed"]))


def cell(found: Sequence[Line]) -> str:
    """Mean and deviation of the draws, and the seconds of the first."""
    if not found:
        return ""
    return f"{percent([line['accuracy'] for line in found])}, {first(found)['seconds']:.0f} s"


def main() -> None:
    parser = results_parser(__doc__, "few")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--shots", nargs="+", type=int, default=[8, 16, 64])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--ways", nargs="+", default=list(WAYS[:-1]), choices=WAYS)
    parser.add_argument("--setfit", help="the python of an environment that has SetFit")
    parser.add_argument("--num-test", type=int, default=500)
    given = parser.parse_args()
    chosen = [*given.ways, *(["SetFit"] if given.setfit and "SetFit" not in given.ways else [])]
    results = Results(given.out)
    seeds = range(1, given.draws + 1)
    for shots, seed, name, way in product(given.shots, seeds, given.data, chosen):
        key = {"data": name, "shots": shots, "seed": seed, "way": way}
        results.take(key, partial(measured, name, shots, seed, way, given))
    show(table(results), given.write, "few")
