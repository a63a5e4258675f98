"""Fine-tune jobs on several sides, measure them in turn, and make the table.

glue.py, text.py, choice.py and squad.py compare tidybert and transformers; own_model.py and
adaptation.py compare initial weights.  The sides take turns.  Each measurement is a process of its
own and a line of --out; a stopped run continues from there.  All sides are scored with their last
weights: none chooses its best step on the data that measures it.

--same-start gives tidybert and transformers the same first head and no dropout, so that only
rounding can make their scores differ.  --precision bfloat16 trains both sides in mixed precision;
scores are still computed in float32.  --defaults adds a third side: tidybert with its own defaults
for as many epochs, its head begun as a probe.  Its scores alone are in the table.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidybert.files.read_options import ReadOptions
from tidybert.system.machine import machine
from tidybert.timing.finetuning_speed import measure
from tidybert.timing.setting import SIDES
from tidybert.timing.work import FinetuningWork

DEFAULTS = "defaults"
DATA = Path(os.environ.get("TIDYBERT_DATA", "../shared/data"))


@dataclass(frozen=True)
class Job:
    """One data set: TASK, files under the data folder, and its metrics."""

    task: str
    train: str
    dev: str
    options: ReadOptions
    metrics: tuple[str, ...]
    num_examples: int | None = None
    """Number of training examples, from the first on; None for all."""
    num_train_epochs: int = 1
    learning_rate: float = 1e-4

    def work(self, model: str, seed: int, max_steps: int | None) -> FinetuningWork:
        """The work of both sides with one seed, in at most ``max_steps`` steps."""
        return FinetuningWork(
            task=self.task,
            model=model,
            train=str(DATA / self.train),
            dev=str(DATA / self.dev),
            options=self.options,
            num_examples=self.num_examples,
            num_train_epochs=self.num_train_epochs,
            max_steps=max_steps,
            learning_rate=self.learning_rate,
            seed=seed,
        )


def table(jobs: Mapping[str, Job], results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Markdown rows: metric (mean and standard deviation over seeds), seconds, ratio, memory.

    A column before them has tidybert at its defaults, where a result is of that side.
    """
    scored = ["tidybert", "transformers"]
    if any(each["side"] == DEFAULTS for each in results):
        scored = ["tidybert at its defaults", "tidybert at transformers' settings", "transformers"]
    columns = ["task", "metric", *scored, "seeds", "s, tidybert", "s, transformers"]
    columns += ["times as fast", "MiB, tidybert", "MiB, transformers"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for name, job in jobs.items():
        by_side = {
            side: {
                each["seed"]: each
                for each in results
                if (each["task"], each["side"]) == (name, side)
            }
            for side in (DEFAULTS, *SIDES)
        }
        seeds = sorted(set(by_side["ours"]) & set(by_side["transformers"]))
        if seeds:
            shown = (DEFAULTS, *SIDES)[-len(scored) :]
            lines += _rows(name, job.metrics, by_side, seeds, shown)
    return lines


def _rows(
    name: str,
    metrics: Iterable[str],
    by_side: Mapping[str, Mapping[int, Mapping[str, Any]]],
    seeds: Sequence[int],
    shown: Sequence[str],
) -> Iterable[str]:
    def median(side: str, key: str) -> str:
        return f"{statistics.median(by_side[side][seed][key] for seed in seeds):.0f}"

    ratio = statistics.median(
        by_side["transformers"][seed]["seconds"] / by_side["ours"][seed]["seconds"]
        for seed in seeds
    )
    seconds, memory = ([median(side, key) for side in SIDES] for key in ("seconds", "peak_mib"))
    first = [name, str(len(seeds)), *seconds, f"{ratio:.2f}", *memory]
    for metric in metrics:
        cells = []
        for side in shown:
            found = [
                by_side[side][seed]["metrics"][metric] for seed in seeds if seed in by_side[side]
            ]
            fewer = f" ({len(found)} of {len(seeds)} seeds)" if len(found) < len(seeds) else ""
            cells.append(f"{percent(found)}{fewer}" if found else "")
        yield "| " + " | ".join([first[0], metric, *cells, *first[1:]]) + " |"
        first = [""] * len(first)


def table_of_scores(
    jobs: Mapping[str, Job],
    results: Sequence[Mapping[str, Any]],
    sides: Sequence[str],
    published: Mapping[str, Mapping[tuple[str, str], float]] | None = None,
) -> list[str]:
    """Markdown rows: each metric on every side, over the seeds that all sides have.

    ``published`` are further columns: by name, the percent of (task, metric).
    """
    others = published or {}
    columns = ["task", "metric", *sides, "seeds", *others]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for name, job in jobs.items():
        by_side = {
            side: {
                each["seed"]: each["metrics"]
                for each in results
                if (each["task"], each["side"]) == (name, side)
            }
            for side in sides
        }
        seeds = sorted(set.intersection(*(set(found) for found in by_side.values())))
        first = [name, str(len(seeds))]
        for metric in job.metrics if seeds else ():
            cells = [percent([by_side[side][seed][metric] for seed in seeds]) for side in sides]
            known = [found.get((name, metric)) for found in others.values()]
            cells += [first[1], *("" if value is None else f"{value:.1f}" for value in known)]
            lines.append("| " + " | ".join([first[0], metric, *cells]) + " |")
            first = ["", ""]
    return lines


def percent(values: Sequence[float]) -> str:
    """Mean and standard deviation of shares, in percent."""
    values = [100 * value for value in values]
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def run(
    description: str | None,
    jobs: Mapping[str, Job],
    mark: str,
    prepare: Callable[[str, FinetuningWork, Path], FinetuningWork] = lambda _name, work, _to: work,
    measure: Callable[[str, FinetuningWork], Mapping[str, Any]] = measure,
) -> None:
    """Measure what --out lacks, then print the table.

    ``mark``, completed by ``variant``, names --out and the marks around the table that --write
    replaces.  ``prepare`` takes a job's name, its work, and an empty folder for the files that the
    work needs; ``measure`` takes a side and the work.
    """
    parser = flags(description, jobs, mark)
    add_variants(parser)
    parser.add_argument("--defaults", action="store_true", help="also tidybert at its defaults")
    parser.set_defaults(out=None)
    arguments = parser.parse_args()

    def prepared(name: str, work: FinetuningWork, folder: Path) -> FinetuningWork:
        work = replace(prepare(name, work, folder), precision=arguments.precision)
        return with_one_start(work, folder) if arguments.same_start else work

    mark = variant(mark, arguments)
    arguments.out = arguments.out or Path(f"{mark}.jsonl")

    def measured(side: str, work: FinetuningWork) -> Mapping[str, Any]:
        if side == DEFAULTS:
            return measure("ours", replace(work, at_defaults=True))
        return measure(side, work)

    sides = (*SIDES, DEFAULTS) if arguments.defaults else SIDES
    results = measured_in_turn(arguments, jobs, sides, prepared, measured)
    show(table(jobs, results), arguments.write, mark)


def add_variants(parser: argparse.ArgumentParser) -> None:
    """Flags that change what both sides do."""
    parser.add_argument("--same-start", action="store_true", help="same first head, no dropout")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))


def variant(mark: str, arguments: argparse.Namespace) -> str:
    """The mark of the table, with -same-start, -bfloat16 or both at its end."""
    same_start = "-same-start" if arguments.same_start else ""
    precision = "" if arguments.precision == "float32" else f"-{arguments.precision}"
    return f"{mark}{same_start}{precision}"


def with_one_start(work: FinetuningWork, folder: Path) -> FinetuningWork:
    """The work from weights in ``folder`` without dropout, with the head that our seed gives."""
    import shutil

    from tidybert.catalog import find_model
    from tidybert.finetuning.finetuning_job import FinetuningJob
    from tidybert.finetuning.run_job import run_finetuning
    from tidybert.storage.model_files import CONFIG_FILE, METADATA_FILE
    from tidybert.training.training_arguments import TrainingArguments

    without_dropout, start = folder / "without-dropout", folder / "start"
    # config.json changes below, and the hash in tidybert.json would no longer fit.
    ignored = shutil.ignore_patterns(METADATA_FILE)
    shutil.copytree(find_model(work.model), without_dropout, ignore=ignored)
    path = without_dropout / CONFIG_FILE
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    path.write_text(json.dumps(config), encoding="utf-8")
    task, train, _ = replace(work, dev=None).read()
    # One step that moves no weight writes the head of this seed, drawn at random, for both sides.
    arguments = TrainingArguments(
        max_steps=1, learning_rate=1e-30, head_start="random", seed=work.seed
    )
    run_finetuning(
        FinetuningJob(task, str(without_dropout), train, None, arguments, out=start, device="cpu")
    )
    return replace(work, model=str(start))


def flags(description: str | None, jobs: Mapping[str, Job], mark: str) -> argparse.ArgumentParser:
    """The flags of every measurement."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--tasks", nargs="+", default=list(jobs), choices=list(jobs))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-steps", type=int, help="train at most this many steps")
    parser.add_argument("--out", type=Path, default=Path(f"{mark}.jsonl"))
    parser.add_argument("--write", type=Path, help="write the table between its marks in this file")
    return parser


def measured_in_turn(
    arguments: argparse.Namespace,
    jobs: Mapping[str, Job],
    sides: Sequence[str],
    prepare: Callable[[str, FinetuningWork, Path], FinetuningWork],
    measure: Callable[[str, FinetuningWork], Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    """Measure what --out lacks, and return all its lines."""
    results: list[Mapping[str, Any]] = []
    if arguments.out.exists():
        results = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    done = {(each["task"], each["side"], each["seed"]) for each in results}
    for seed in range(1, arguments.seeds + 1):
        for name in arguments.tasks:
            # The first side changes with the seed, because the machine may become slower or faster.
            for side in sides if seed % 2 else reversed(sides):
                if (name, side, seed) in done:
                    continue
                work = jobs[name].work(arguments.model, seed, arguments.max_steps)
                with tempfile.TemporaryDirectory() as folder:
                    measured = measure(side, prepare(name, work, Path(folder)))
                results.append(
                    {"task": name, "side": side, "seed": seed, **measured, "machine": machine()}
                )
                with arguments.out.open("a") as file:
                    file.write(json.dumps(results[-1]) + "\n")
                print(name, side, seed, f"{measured['seconds']:.0f} s", flush=True)
    return results


def show(lines: Sequence[str], page: Path | None, mark: str) -> None:
    """Print a table, and write it between its marks if ``page`` is given."""
    print("\n".join(lines))
    if page:
        put_between(page, mark, lines)


def put_between(path: Path, mark: str, lines: Sequence[str]) -> None:
    """Replace the text between two marks of a page, and nothing else."""
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    text = path.read_text(encoding="utf-8")
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"--write {path}: it has no {begin} with {end} after it")
    path.write_text(before + "\n".join([begin, *lines, end]) + after, encoding="utf-8")
