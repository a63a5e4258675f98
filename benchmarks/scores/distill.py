"""Students of fewer layers: from labels alone, and with a teacher's answers beside them.

    python -m benchmarks distill --data SST-2 CoNLL-2003 shifts --write docs/distillation.md
    python -m benchmarks distill --few --data SST-2 TREC "SMS spam" --write docs/distillation.md

The teacher is --model, fine-tuned at tidybert's defaults.  Both students begin with --num-layers of
its layers and a new head.  All learn from the same labelled texts, which SETTINGS counts.  With
--few the labelled texts are 300, and a third student has 5,000 texts without labels too.

RUNs are kept under --runs, so a stopped script goes on.  Texts a second are those of finished RUNs
that answer the test texts in turn, the median of three rounds.  --weight and --temperature are of
the teacher, to choose the defaults; --dev measures on examples held out of the training part.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import datasets, script
from benchmarks.speed.finetune import metrics_of
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob, FinetuningOptions
from tidybert.finetuning.run_job import run_finetuning
from tidybert.inference.forward import run_features
from tidybert.system.reporter import Reporter
from tidybert.tasks.registry import task_class
from tidybert.training.runs.run_directory import is_finished
from tidybert.training.training_arguments import TrainingArguments

TEACHER, ALONE, TAUGHT, MORE = "teacher", "labels alone", "teacher too", "5,000 texts more"


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


def run_of(name: str, side: str, seed: int, setting: Setting, given: argparse.Namespace) -> Path:
    """The RUN of a side; those of a taught student are named by weight and temperature too."""
    parts = [name, side, str(setting.num_labelled), str(seed)]
    parts += [] if side == TEACHER else [str(given.num_layers)]
    if side in (TAUGHT, MORE):
        parts += [f"{given.weight:g}", f"{given.temperature:g}"]
    return Path(given.runs) / "--".join(parts).replace(" ", "_")


def test_examples(name: str, setting: Setting) -> list[Any]:
    """The examples to measure on."""
    return datasets.drawn(datasets.examples_of(name, "dev"), setting.num_test, 0)


def measured(
    name: str, side: str, seed: int, setting: Setting, given: argparse.Namespace
) -> script.Line:
    """The scores of the RUN, which is trained if it is not there."""
    every, job = datasets.examples_of(name, "train"), datasets.JOBS[name]
    pool = datasets.drawn(every, len(every), seed)
    labelled, rest = pool[: setting.num_labelled], pool[setting.num_labelled :]
    test = rest[-1000:] if given.dev else test_examples(name, setting)
    rest = rest[:-1000] if given.dev else rest
    more = rest[: setting.num_unlabelled] if side == MORE else []
    run, teacher = (run_of(name, each, seed, setting, given) for each in (side, TEACHER))
    given_too: dict[str, Any] = {}
    if side != TEACHER:
        given_too["num_layers"] = given.num_layers
    if side in (TAUGHT, MORE):
        given_too |= {"teacher": teacher, "teacher_weight": given.weight}
        given_too |= {"teacher_temperature": given.temperature, "unlabelled": more or None}
    arguments = TrainingArguments(
        num_train_epochs=setting.epochs_with_more if more else setting.num_train_epochs,
        train_batch_size=setting.train_batch_size,
        pooling="cls" if job.task == "classify" else None,
        seed=TrainingArguments.seed + seed,
    )
    work = FinetuningJob(
        task_class(job.task).from_examples(labelled),
        given.model if side == TEACHER else teacher,
        labelled,
        None,
        arguments,
        max_seq_length=job.max_seq_length,
        out=run,
        resume=run.exists(),
        **given_too,
    )
    seconds = 0.0
    if not is_finished(run):
        train = partial(run_finetuning, work, Reporter(script.note, str))
        _, seconds, _ = script.timed(train)
    found = metrics_of(FinetunedModel.of_run(run), test)
    return {**{each: found[each] for each in job.metrics}, "seconds": seconds}


def speeds(
    name: str, sides: Sequence[str], setting: Setting, given: argparse.Namespace
) -> script.Line:
    """Test texts a second of each side's RUN, medians of three rounds."""
    test = test_examples(name, setting)
    runs = {side: FinetunedModel.of_run(run_of(name, side, 0, setting, given)) for side in sides}

    def measure(side: str) -> dict[str, float]:
        one = runs[side]
        features = one.task.features(test, one.tokenizer, one.max_seq_length)
        _, seconds, _ = script.timed(partial(run_features, one.task, one.model, features))
        return {"texts/s": len(test) / seconds}

    medians = script.take_rounds(sides, 3, measure)["medians"]
    return {side: found["texts/s"] for side, found in medians.items()}


def table(results: script.Results, sides: Sequence[str]) -> list[str]:
    """Markdown rows: the scores of each side, and how many times as fast the students answer."""
    rows = []
    for name in dict.fromkeys(line["data"] for line in results.lines):
        for metric in datasets.JOBS[name].metrics:
            found = [
                [line[metric] for line in results.where(data=name, side=side) if metric in line]
                for side in sides
            ]
            fast = results.where(data=name, side="speed")
            times = f"{fast[0][sides[1]] / fast[0][TEACHER]:.2f}" if fast else ""
            rows.append([name, metric, *map(script.percent, found), times, str(len(found[0]))])
    return script.markdown(["data", "score", *sides, "times as fast", "seeds"], rows)


def main(parser: argparse.ArgumentParser) -> None:
    script.add_flags(parser, "model out write seeds", out=Path("distill.jsonl"), seeds=1)
    default, jobs = FinetuningOptions, datasets.JOBS
    parser.add_argument("--data", nargs="+", default=list(SETTINGS), choices=jobs)
    parser.add_argument("--few", action="store_true", help="300 labels, and 5,000 texts without")
    parser.add_argument("--sides", nargs="+", default=None)
    script.add_number(parser, "num-layers", 3)
    parser.add_argument("--weight", type=float, default=default.teacher_weight)
    parser.add_argument("--temperature", type=float, default=default.teacher_temperature)
    parser.add_argument("--dev", action="store_true", help="measure on a held-out part of train")
    parser.add_argument("--runs", default="distill_runs", help="folder of the RUNs")
    given = parser.parse_args()
    sides = given.sides or [TEACHER, ALONE, TAUGHT, *[MORE] * given.few]
    results = script.Results(given.out)
    for name in given.data:
        setting = FEW if given.few else SETTINGS[name]
        for seed in range(given.seeds):
            for side in sides:
                key = {"data": name, "side": side, "seed": seed}
                if side in (TAUGHT, MORE):
                    key |= {"weight": given.weight, "temperature": given.temperature}
                results.take(key, partial(measured, name, side, seed, setting, given))
        if not given.dev:
            key = {"data": name, "side": "speed"}
            results.take(key, partial(speeds, name, sides[:3], setting, given))
    script.show(table(results, sides), given.write, "distill_few" if given.few else "distill")
