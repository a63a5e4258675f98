"""Students of fewer layers: from labels alone, and with a teacher's answers beside them.

    python -m benchmarks distill --data SST-2 CoNLL-2003 shifts --write docs/distillation.md
    python -m benchmarks distill --few --data SST-2 TREC "SMS spam" --write docs/distillation.md

The teacher is --model, fine-tuned at tidybert's defaults.  Both students begin with --num-layers of
its layers and a new head.  All learn from the same labelled texts, which SETTINGS counts.  With
--few the labelled texts are 300, and a third student has 5,000 texts without labels too.

RUNs are kept under --runs, so a stopped script goes on.  Texts a second are those of finished RUNs
that answer the test texts in turn, the best of three rounds.  --weight and --temperature are of the
teacher, to choose the defaults; --dev measures on examples held out of the training part.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.datasets import JOBS, drawn, examples_of
from benchmarks.harness.rounds import note
from benchmarks.harness.tables import Line, Results, markdown, percent, results_parser, show
from benchmarks.speed.finetune import metrics_of
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob, FinetuningOptions
from tidybert.finetuning.finetuning_run import Callbacks
from tidybert.finetuning.run_job import run_finetuning
from tidybert.inference.forward import run_features
from tidybert.tasks.registry import task_class
from tidybert.training.runs.run_directory import is_finished
from tidybert.training.training_arguments import TrainingArguments

TEACHER, ALONE, TAUGHT, MORE = "teacher", "labels alone", "teacher too", "5,000 texts more"
_ROUNDS: Final = 3


@dataclass(frozen=True)
class Setting:
    """How many examples there are, and the passes over them."""

    num_labelled: int
    num_train_epochs: float
    num_test: int = 1000
    num_unlabelled: int = 0
    epochs_with_more: float = 1.0
    train_batch_size: int = 32


SETTINGS: Final = {
    "SST-2": Setting(6400, 2),
    "CoNLL-2003": Setting(1500, 3),
    "shifts": Setting(300, 2, num_test=150, train_batch_size=8),
}
FEW: Final = Setting(300, 10, num_unlabelled=5000)


def measured(name: str, side: str, seed: int, setting: Setting, given: argparse.Namespace) -> Line:
    """The scores of one RUN, which is trained if it is not there."""
    pool = drawn(examples_of(name, "train"), len(examples_of(name, "train")), seed)
    labelled, rest = pool[: setting.num_labelled], pool[setting.num_labelled :]
    test = drawn(examples_of(name, "dev"), setting.num_test, 0)
    if given.dev:
        rest, test = rest[:-1000], rest[-1000:]
    task = task_class(JOBS[name].task).from_examples(labelled)
    run = run_of(name, side, seed, setting, given)
    seconds = 0.0
    if not is_finished(run):
        begin = time.perf_counter()
        more = rest[: setting.num_unlabelled] if side == MORE else []
        train(run, task, labelled, more, side, seed, setting, given, JOBS[name].max_seq_length)
        seconds = time.perf_counter() - begin
    finished = FinetunedModel.of_run(run)
    found = metrics_of(finished, finished.task, test)
    return {**{each: found[each] for each in JOBS[name].metrics}, "seconds": seconds}


def train(
    run: Path,
    task: Any,
    labelled: Sequence[Any],
    more: Sequence[Any],
    side: str,
    seed: int,
    setting: Setting,
    given: argparse.Namespace,
    length: int,
) -> None:
    """Train a side, with its last weights."""
    teacher = run_of(run.name.split("--")[0], TEACHER, seed, setting, given)
    taught = {
        "teacher": teacher,
        "teacher_weight": given.weight,
        "teacher_temperature": given.temperature,
        "unlabelled": more or None,
    }
    job = FinetuningJob(
        task,
        given.model if side == TEACHER else teacher,
        labelled,
        None,
        TrainingArguments(
            num_train_epochs=setting.epochs_with_more if more else setting.num_train_epochs,
            train_batch_size=setting.train_batch_size,
            pooling="cls" if task.name == "classify" else None,
            seed=TrainingArguments.seed + seed,
        ),
        max_seq_length=length,
        num_layers=None if side == TEACHER else given.num_layers,
        out=run,
        resume=run.exists(),
        **(taught if side in (TAUGHT, MORE) else {}),
    )
    run_finetuning(job, Callbacks(note, str))


def run_of(name: str, side: str, seed: int, setting: Setting, given: argparse.Namespace) -> Path:
    """The RUN of a side; those of a teacher are named by its weight and temperature too."""
    parts = [name, side, str(setting.num_labelled), str(seed)]
    if side != TEACHER:
        parts.append(str(given.num_layers))
    if side in (TAUGHT, MORE):
        parts += [f"{given.weight:g}", f"{given.temperature:g}"]
    return Path(given.runs) / "--".join(parts).replace(" ", "_")


def speeds(name: str, sides: Sequence[str], setting: Setting, given: argparse.Namespace) -> Line:
    """Test texts a second of each side's RUN of the first seed, in turn, the best of the rounds."""
    test = drawn(examples_of(name, "dev"), setting.num_test, 0)
    best = dict.fromkeys(sides, 0.0)
    runs = {each: FinetunedModel.of_run(run_of(name, each, 0, setting, given)) for each in sides}
    for _ in range(_ROUNDS):
        for side, one in runs.items():
            features = one.task.features(test, one.tokenizer, one.max_seq_length)
            begin = time.perf_counter()
            run_features(one.task, one.model, features)
            best[side] = max(best[side], len(test) / (time.perf_counter() - begin))
    return best


def table(results: Results, sides: Sequence[str]) -> list[str]:
    """Markdown rows: the scores of each side, and how many times as fast the students answer."""
    rows = []
    for name in dict.fromkeys(line["data"] for line in results.lines):
        for metric in JOBS[name].metrics:
            found = [
                [line[metric] for line in results.where(data=name, side=side) if metric in line]
                for side in sides
            ]
            fast = results.where(data=name, side="speed")
            times = f"{fast[0][sides[1]] / fast[0][TEACHER]:.2f}" if fast else ""
            rows.append([name, metric, *map(percent, found), times, str(len(found[0]))])
    return markdown(["data", "score", *sides, "times as fast", "seeds"], rows)


def main() -> None:
    parser = results_parser(__doc__, "distill")
    parser.add_argument("--data", nargs="+", default=list(SETTINGS), choices=JOBS)
    parser.add_argument("--few", action="store_true", help="300 labels, and 5,000 texts without")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--sides", nargs="+", default=None)
    parser.add_argument("--num-layers", type=int, default=3)
    parser.add_argument("--weight", type=float, default=FinetuningOptions.teacher_weight)
    parser.add_argument("--temperature", type=float, default=FinetuningOptions.teacher_temperature)
    parser.add_argument("--dev", action="store_true", help="measure on a held-out part of train")
    parser.add_argument("--runs", default="distill_runs", help="folder of the RUNs")
    given = parser.parse_args()
    sides = given.sides or [TEACHER, ALONE, TAUGHT, *([MORE] if given.few else [])]
    results = Results(given.out)
    settings = {name: FEW if given.few else SETTINGS[name] for name in given.data}
    for name, setting in settings.items():
        for seed in range(given.seeds):
            for side in sides:
                key = {"data": name, "side": side, "seed": seed}
                if side in (TAUGHT, MORE):
                    key |= {"weight": given.weight, "temperature": given.temperature}
                results.take(key, partial(measured, name, side, seed, setting, given))
    if not given.dev:
        for name, setting in settings.items():
            key = {"data": name, "side": "speed"}
            results.take(key, partial(speeds, name, sides[:3], setting, given))
    show(table(results, sides), given.write, "distill_few" if given.few else "distill")


if __name__ == "__main__":
    main()
