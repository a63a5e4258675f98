"""Fine-tune with tidybert and transformers: same weights, examples, order and arguments.

All sides are scored with their last weights, in float32.  --defaults adds a side: tidybert with its
own defaults for as many epochs.  --same-start gives both sides the same first head and no dropout,
so that only rounding can make their scores differ.

ner adds a side too: a linear model on frozen features, as in the paper's table 7.  squad has
SQuADShifts (questions on Wikipedia and Reddit to train on, reviews to test) and SQuAD 2.0, split by
article; both sides begin 2.0 with what tidybert learned on shifts with the same seed, head
included. ChnSentiCorp takes a small model of random weights with the Chinese vocabulary.
"""

import argparse
import copy
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness import datasets, script
from benchmarks.speed.training import FinetuneWork, measure, metrics_of, with_dropout, work_of
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.configuration import BertConfig
from tidybert.errors import TidyBertError
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.forward import run_batches, run_features
from tidybert.inference.loading import load
from tidybert.metrics.entity_scores import TagCounts
from tidybert.modeling import BertModel
from tidybert.modeling.kernels.answer_layers import use_bfloat16, use_int8
from tidybert.system.reporter import Reporter
from tidybert.tasks.registry import task_class
from tidybert.tokenization import BertTokenizer
from tidybert.training.runs.run_directory import is_finished
from tidybert.training.training_arguments import TrainingArguments

DEFAULTS: Final = "defaults"
FROZEN: Final = "frozen"
NAMES: Final = {
    DEFAULTS: "tidybert at its defaults", "ours": "tidybert", "transformers": "transformers",
    FROZEN: "frozen features",
}  # fmt: skip
"""The sides in the order of the table, and their headings."""


# --- the table
def score_table(
    names: Sequence[str],
    results: Sequence[script.Line],
    sides: Mapping[str, str],
    *,
    compared: Sequence[str],
    timed: bool,
) -> list[str]:
    """Markdown rows: each metric of the jobs on every side, mean and deviation, in percent.

    ``sides`` has headings by side.  The common seeds of the ``compared`` sides count.  ``timed``:
    also the compared sides' median seconds, ratio and memory.
    """
    heads, median = ["task", "metric", *sides.values(), "seeds"], statistics.median
    if timed:
        heads += ["s, tidybert", "s, transformers", "times as fast"]
        heads += ["MiB, tidybert", "MiB, transformers"]
    rows = []
    for name in names:
        of_job = [line for line in results if line["task"] == name]
        by_side = {
            side: {line["seed"]: line for line in of_job if line["side"] == side} for side in sides
        }
        seeds = sorted(set.intersection(*(set(by_side[side]) for side in compared)))
        if not seeds:
            continue
        once = [str(len(seeds))]
        if timed:
            lines = [[by_side[side][seed] for seed in seeds] for side in compared]
            ratio = median(two["seconds"] / one["seconds"] for one, two in zip(*lines, strict=True))
            seconds, memory = (
                [f"{median(line[key] for line in side):.0f}" for side in lines]
                for key in ("seconds", "peak_mib")
            )
            once += [*seconds, f"{ratio:.2f}", *memory]
        for number, metric in enumerate(datasets.JOBS[name].metrics):
            cells = []
            for found in by_side.values():
                values = [found[seed]["metrics"][metric] for seed in seeds if seed in found]
                is_whole = len(values) in (0, len(seeds))
                fewer = "" if is_whole else f" ({len(values)} of {len(seeds)} seeds)"
                cells.append(script.percent(values) + fewer)
            rows.append(["" if number else name, metric, *cells])
            rows[-1] += [""] * len(once) if number else once
    return script.markdown(heads, rows)


# --- measurements
def take_in_turn(
    results: script.Results,
    names: Sequence[str],
    sides: Sequence[str],
    seeds: int,
    measured: Callable[[str, str, int], Mapping[str, Any]],
) -> None:
    """Measure what the file lacks; ``measured`` takes a side, a job and a seed."""
    for seed in range(1, seeds + 1):
        for name in names:
            # The first side changes with the seed, because the machine may become slower or faster.
            for side in script.in_turn(sides, seed - 1):
                # Frozen features draw no random numbers.
                if side != FROZEN or seed == 1:
                    key = {"task": name, "side": side, "seed": seed}
                    results.take(key, partial(measured, side, name, seed))


def measured_apart(side: str, work: FinetuneWork) -> dict[str, Any]:
    """Train and score a side in a process of its own."""
    function = frozen_features if side == FROZEN else measure
    if side == DEFAULTS:
        side, work = "ours", replace(work, at_defaults=True)
    found = script.run_apart(function, side, asdict(work), work.threads)
    # Speeds are measured elsewhere; thousands of steps would fill the file.
    kept = ("metrics", "seconds", "threads", "peak_mib")
    return {name: each for name, each in found.items() if name in kept}


def write_random_model(
    directory: Path, config: BertConfig, tokenizer: BertTokenizer, seed: int
) -> Path:
    """Write a MODEL whose weights are drawn with this seed."""
    torch.manual_seed(seed)
    save_model_directory(
        directory, model_state=BertModel(config).state_dict(), config=config, tokenizer=tokenizer,
        metadata=ModelMetadata(task="pretrain"), architecture=BertModel.__name__,
    )  # fmt: skip
    return directory


@cache
def learned_on_shifts(work: FinetuneWork) -> tempfile.TemporaryDirectory[str]:
    """The model that tidybert trains on ``shifts``, in a folder that is removed at exit."""
    folder = tempfile.TemporaryDirectory()
    changes = {"seed": work.seed, "max_steps": work.max_steps, "precision": work.precision}
    work_of("shifts", work.model, is_scored=False, **changes).trained(out=Path(folder.name) / "run")
    return folder


def frozen_features(_side: str, given: dict[str, Any]) -> dict[str, Any]:
    """The scores of a linear model on the last four layers' states of a word's first piece."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    work = FinetuneWork(**given)
    task, train, test = work.read()
    encoder, tokenizer = load(work.model)

    def last_four(batch: Any) -> Any:
        return torch.cat(encoder(batch.rows, output_hidden_states=True).hidden_states[-4:], dim=1)

    def vectors(examples: Sequence[Any]) -> Any:
        """(words, 4 H), in the order of the examples."""
        features = task.features(examples, tokenizer, work.max_seq_length)
        lengths = [len(one.input_ids) for one in features]
        rows = run_batches(last_four, features, lengths, torch.device("cpu"))
        starts = np.cumsum([0, *(len(one.words) for one in examples)])
        found = np.empty((starts[-1], rows[0].shape[1]), dtype=np.float32)
        for one, states in zip(features, rows, strict=True):
            found[starts[one.example] + one.place.words] = states[one.place.rows]
        return found

    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=200))
    tags = [tag for one in train for tag in one.tags]
    _, seconds, _ = script.timed(lambda: classifier.fit(vectors(train), tags))
    flat = iter(classifier.predict(vectors(test)).tolist())
    predicted = [[next(flat) for _ in one.words] for one in test]
    counts = TagCounts.compare([one.tags for one in test], predicted, of_entities=True)
    return {"metrics": counts.metrics(), "seconds": seconds}


def compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", choices=datasets.GROUPS)
    jobs = datasets.JOBS
    parser.add_argument("--tasks", nargs="+", choices=jobs, help="default: all of the group")
    script.add_number(parser, "num-examples", None, "train on so many examples only")
    parser.add_argument("--same-start", action="store_true", help="same first head, no dropout")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--sides", nargs="+", default=script.SIDES, choices=script.SIDES)
    parser.add_argument("--defaults", action="store_true", help="also tidybert at its defaults")
    given = script.parse(parser, "model out write seeds max-steps")
    mark = given.group + "-same-start" * given.same_start
    mark += "-bfloat16" * (given.precision == "bfloat16")
    sides = [*given.sides, *[FROZEN] * (mark == "ner"), *[DEFAULTS] * given.defaults]
    changes = {"max_steps": given.max_steps, "precision": given.precision}
    changes |= {"num_examples": given.num_examples} if given.num_examples else {}

    def measured(side: str, name: str, seed: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            work = work_of(name, given.model, seed=seed, **changes)
            if name == "ChnSentiCorp":
                vocabulary = datasets.data_folder() / "vocab/bert-base-chinese/vocab.txt"
                tokenizer = BertTokenizer.from_file(vocabulary, do_lower_case=True)
                config = BertConfig.from_name("mini", vocab_size=tokenizer.vocab_size)
                chinese = write_random_model(Path(folder) / "chinese", config, tokenizer, seed=0)
                work = replace(work, model=str(chinese))
            elif name == "2.0":
                work = replace(work, model=f"{learned_on_shifts(work).name}/run")
            if given.same_start:
                # A step that moves no weight writes the head of this seed, drawn at random.
                start = replace(work, is_scored=False, max_steps=1, learning_rate=1e-30)
                with with_dropout(start, 0.0) as without:
                    without.trained(out=Path(folder) / "start")
                work = replace(work, model=f"{folder}/start")
            return measured_apart(side, work)

    names = [name for name in datasets.GROUPS[given.group] if name in (given.tasks or jobs)]
    results = script.Results(given.out or Path(f"{mark}.jsonl"))
    take_in_turn(results, names, sides, given.seeds, measured)
    known = {line["side"] for line in results.lines}
    shown = {side: heading for side, heading in NAMES.items() if side in known}
    if DEFAULTS in shown:
        shown["ours"] = "tidybert at transformers' settings"
    every = list(datasets.GROUPS[given.group])
    is_whole = tuple(given.sides) == script.SIDES
    table = score_table(every, results.lines, shown, compared=given.sides, timed=is_whole)
    script.show(table, given.write, mark)


# --- the rows that padded batches add
def padding(parser: argparse.ArgumentParser) -> None:
    """Count a token's cells in the padded batches of compare glue and text; tidybert has one."""
    given = script.parse(parser, "model write")
    tokenizer, rows = BertTokenizer.from_pretrained(given.model), []
    for name in sorted({*datasets.GROUPS["glue"], *datasets.GROUPS["text"]} - {"ChnSentiCorp"}):
        work = work_of(name, given.model, is_scored=False)
        task, train, _ = work.read()
        features = task.features(train, tokenizer, work.max_seq_length)
        lengths = np.array([len(one.input_ids) for one in features])
        padded = sum(lengths[batch].max() * len(batch) for batch in work.batches(len(lengths)))
        cells = padded / (lengths.sum() * work.num_train_epochs)
        rows.append([name, f"{len(lengths):,}", f"{lengths.mean():.1f}", f"{cells:.2f}"])
    heads = ["task", "examples", "tokens an example", "padded cells a token"]
    script.show(script.markdown(heads, rows), given.write, "padding")


# --- the weights that a training begins with

FULL: Final = (
    "SST-2", "MRPC", "STS-B", "RTE", "CODAH", "SMS spam", "TREC", "BANKING77", "tickets",
    "CoNLL-2003", "wikigold",
)  # fmt: skip
MODELS: Final = ("tidybert-small", "minilm")
EPOCHS: Final = 3
THEIRS: Final = "transformers"


def full_sets(parser: argparse.ArgumentParser) -> None:
    """Fine-tune tidybert-small and minilm on whole training sets, each program by its defaults.

    All take three epochs and 128 tokens.  tidybert chooses the rest; transformers begins with
    tidybert-small's weights, and takes batches of 8 and a rate of 5e-5 that falls to 0.
    """
    parser.add_argument("--tasks", nargs="+", default=list(FULL), choices=FULL)
    parser.add_argument("--sides", nargs="+", default=[*MODELS], choices=(*MODELS, THEIRS))
    given = script.parse(parser, "out write seeds max-steps threads", out=Path("full.jsonl"))

    def measured(side: str, name: str, seed: int) -> dict[str, Any]:
        model = MODELS[0] if side == THEIRS else side
        changes = {
            "seed": seed, "max_steps": given.max_steps, "threads": given.threads,
            "num_examples": None, "num_train_epochs": EPOCHS, "at_defaults": True,
        }  # fmt: skip
        work = work_of(name, model, **changes)
        return measured_apart(THEIRS if side == THEIRS else "ours", work)

    results = script.Results(given.out)
    take_in_turn(results, given.tasks, given.sides, given.seeds, measured)
    sides = {side: side for side in (*MODELS, THEIRS)}
    table = score_table(list(FULL), results.lines, sides, compared=MODELS[:1], timed=False)
    script.show(table, given.write, "full_sets")


# --- the precision of answers

_ROUNDED: Final = ("float32", "bfloat16", "int8")
_COMPARED: Final = 300
"""Examples whose logits are compared."""
_INT8_DATA: Final = ("SST-2", "MRPC", "STS-B", "CoNLL-2003", "shifts")


def in_each_precision(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """The metrics of a job in each precision of a CPU, by one trained model."""
    most = min(datasets.JOBS[name].num_examples or given.num_examples, given.num_examples)
    work = work_of(name, given.model, seed=given.seed, num_examples=most)
    _, train, test = work.read()
    trained = work.trained()
    found, outputs = {"float32": metrics_of(trained, test)}, [outputs_of(trained, test)]
    rounded = replace(trained, model=copy.deepcopy(trained.model))
    # Where oneDNN does not multiply bfloat16 the figures are float32's.
    use_bfloat16(rounded.model)
    found["bfloat16"] = metrics_of(rounded, test)
    outputs.append(outputs_of(rounded, test))
    obstacle = use_int8(trained.model)
    if obstacle is not None:
        raise TidyBertError(f"int8 cannot be measured here, because {obstacle}")
    found["int8"] = metrics_of(trained, test)
    outputs.append(outputs_of(trained, test))
    exact = outputs.pop(0)
    moved = [float(np.abs(each - exact).max()) for each in outputs]
    numbers = {"num_examples": len(train), "num_test": len(test)}
    return {**numbers, "metrics": found, "moved": moved, "spread": float(exact.std())}


def outputs_of(trained: Any, test: Sequence[Any]) -> npt.NDArray[np.float32]:
    """The logits of the first examples, or their vectors."""
    given = test[:_COMPARED], trained.tokenizer, trained.max_seq_length
    features = trained.task.features(*given)
    return np.concatenate(run_features(trained.task, trained.model, features))


def int8(parser: argparse.ArgumentParser) -> None:
    """What rounding costs in scores: a job is trained once, and answered in each precision.

    A job trains as in ``compare``, on --num-examples of its training part at most.
    """
    jobs = datasets.JOBS
    parser.add_argument("--data", nargs="+", default=list(_INT8_DATA), choices=jobs)
    script.add_number(parser, "num-examples", 3200, "to train on")
    script.add_number(parser, "seed", 1)
    given = script.parse(parser, "model out write", out=Path("int8.jsonl"))
    results = script.Results(given.out)
    for name in given.data:
        key = {"data": name, "model": given.model, "seed": given.seed}
        results.take(key, partial(in_each_precision, name, given))
    rows = []
    for line in results.lines:
        metric = jobs[line["data"]].metrics[0]
        figures = (f"{100 * line['metrics'][each][metric]:.2f}" for each in _ROUNDED)
        moved = (f"{each:.2g}" for each in (*line["moved"], line["spread"]))
        rows.append([f"{line['data']}, {metric}", f"{line['num_test']:,}", *figures, *moved])
    heads = ["", "examples", *_ROUNDED, *(f"logits in {each}" for each in _ROUNDED[1:]), "spread"]
    table = script.markdown(heads, rows)
    script.show(table, given.write, "int8-scores")


# --- students of fewer layers

TEACHER, ALONE, TAUGHT, MORE = "teacher", "labels alone", "teacher too", "more texts"


@dataclass(frozen=True)
class Setting:
    """How many examples there are, and the passes over them."""

    num_labelled: int
    num_train_epochs: float
    num_test: int = 1000
    num_unlabelled: int = 0
    epochs_with_more: float = 1.0
    train_batch_size: int = 32


STUDENTS: Final = {
    "SST-2": Setting(6400, 2, num_unlabelled=20_000),
    "CoNLL-2003": Setting(1500, 3, num_unlabelled=12_000),
    "shifts": Setting(300, 2, num_test=150, num_unlabelled=1000, train_batch_size=8),
}
FEW: Final = Setting(300, 10, num_unlabelled=5000)


def run_of(name: str, side: str, seed: int, setting: Setting, given: argparse.Namespace) -> Path:
    """The RUN of a side."""
    parts = [name, side, str(setting.num_labelled), str(seed)]
    parts += [] if side == TEACHER else [str(given.num_layers)]
    return Path(given.runs) / "--".join(parts).replace(" ", "_")


def measured_student(
    name: str, side: str, seed: int, setting: Setting, given: argparse.Namespace
) -> script.Line:
    """The scores of the RUN, which is trained if it is not there."""
    every, job = datasets.examples_of(name, "train"), datasets.JOBS[name]
    pool = datasets.drawn(every, len(every), seed)
    labelled, rest = pool[: setting.num_labelled], pool[setting.num_labelled :]
    answered = datasets.drawn(datasets.examples_of(name, "dev"), setting.num_test, 0)
    test = rest[-1000:] if given.dev else answered
    rest = rest[:-1000] if given.dev else rest
    more = rest[: setting.num_unlabelled] if side == MORE else []
    run, teacher = (run_of(name, each, seed, setting, given) for each in (side, TEACHER))
    given_too: dict[str, Any] = {}
    if side != TEACHER:
        given_too["num_layers"] = given.num_layers
    if side in (TAUGHT, MORE):
        given_too |= {"teacher": teacher, "unlabelled": more or None}
    arguments = TrainingArguments(
        num_train_epochs=setting.epochs_with_more if more else setting.num_train_epochs,
        train_batch_size=setting.train_batch_size,
        pooling="cls" if job.task == "classify" else None,
        seed=TrainingArguments.seed + seed,
    )
    work = FinetuningJob(
        task_class(job.task).from_examples(labelled), given.model if side == TEACHER else teacher,
        labelled, None, arguments, max_seq_length=job.max_seq_length, out=run, resume=run.exists(),
        **given_too,
    )  # fmt: skip
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
    test = datasets.drawn(datasets.examples_of(name, "dev"), setting.num_test, 0)
    runs = {side: FinetunedModel.of_run(run_of(name, side, 0, setting, given)) for side in sides}

    def measure(side: str) -> dict[str, float]:
        one = runs[side]
        features = one.task.features(test, one.tokenizer, one.max_seq_length)
        _, seconds, _ = script.timed(partial(run_features, one.task, one.model, features))
        return {"texts/s": len(test) / seconds}

    medians = script.take_rounds(sides, 3, measure)["medians"]
    return {side: found["texts/s"] for side, found in medians.items()}


def distill_table(results: script.Results, sides: Sequence[str]) -> list[str]:
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


def distill(parser: argparse.ArgumentParser) -> None:
    """Students of fewer layers: from labels alone, and with a teacher's answers beside them.

    The teacher is --model, fine-tuned at tidybert's defaults.  Both students begin with
    --num-layers of its layers and a new head.  All learn from the same labelled texts, which
    STUDENTS counts, and a third student from texts without labels too.  With --few 300 texts have
    labels and 5,000 none.  RUNs are kept under --runs.  Texts a second are those of finished RUNs
    that answer the test texts in turn.  --dev measures on examples held out of the training part.
    """
    jobs = datasets.JOBS
    parser.add_argument("--data", nargs="+", default=list(STUDENTS), choices=jobs)
    parser.add_argument("--few", action="store_true", help="300 labels, and 5,000 texts without")
    parser.add_argument("--sides", nargs="+", default=None)
    script.add_number(parser, "num-layers", 3)
    parser.add_argument("--dev", action="store_true", help="measure on a held-out part of train")
    parser.add_argument("--runs", default="distill_runs", help="folder of the RUNs")
    given = script.parse(parser, "model out write seeds", out=Path("distill.jsonl"), seeds=1)
    sides = given.sides or [TEACHER, ALONE, TAUGHT, MORE]
    results = script.Results(given.out)
    for name in given.data:
        setting = FEW if given.few else STUDENTS[name]
        for seed in range(given.seeds):
            for side in sides:
                key = {"data": name, "side": side, "seed": seed}
                results.take(key, partial(measured_student, name, side, seed, setting, given))
        if not given.dev:
            key = {"data": name, "side": "speed"}
            results.take(key, partial(speeds, name, sides[:3], setting, given))
    script.show(
        distill_table(results, sides), given.write, "distill_few" if given.few else "distill"
    )
