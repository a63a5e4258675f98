"""Fine-tune with tidybert and transformers: same weights, examples, order and arguments.

    python -m benchmarks compare glue --seeds 3 --defaults --write docs/results.md

A group is glue, text, choice, ner or squad.  The sides take turns.  Each measurement is a process
of its own and a line of --out; a stopped run continues from there.  All sides are scored with their
last weights: none chooses its best step on the data that measures it.

--defaults adds a side: tidybert with its own defaults for as many epochs, its head begun as a
probe.  --same-start gives both sides the same first head and no dropout, so that only rounding can
make their scores differ.  --precision bfloat16 trains both sides in mixed precision; scores are
still computed in float32.

ner adds a side too: a linear model on frozen features, as in the paper's table 7.  squad has
SQuADShifts (questions on Wikipedia and Reddit to train on, reviews to test) and SQuAD 2.0, split by
article.  Half the questions of 2.0 have no answer, and a model learns only that from this few.  So
both sides begin it with what tidybert learned on shifts with the same seed, head included.
ChnSentiCorp takes a small model of random weights with the Chinese vocabulary: it shows that it
runs, and how fast.
"""

import argparse
import copy
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from benchmarks.harness import datasets, processes, script
from benchmarks.speed.finetune import measure
from benchmarks.speed.finetune_work import FinetuneWork, metrics_of, with_dropout, work_of
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.configuration import BertConfig
from tidybert.errors import TidyBertError
from tidybert.inference.forward import run_batches
from tidybert.inference.loading import load
from tidybert.metrics.entity_scores import TagCounts
from tidybert.modeling import BertModel
from tidybert.modeling.kernels.answer_layers import use_bfloat16, use_int8
from tidybert.tokenization import BertTokenizer
from tidybert.training.training_arguments import TrainingArguments

DEFAULTS: Final = "defaults"
FROZEN: Final = "frozen"
NAMES: Final = {
    DEFAULTS: "tidybert at its defaults",
    "ours": "tidybert",
    "transformers": "transformers",
    FROZEN: "frozen features",
}
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

    ``sides`` has headings by side.  The common seeds of the ``compared`` sides count; another side
    says if it has fewer.  ``timed``: also seconds and memory of the compared sides.
    """
    heads = ["task", "metric", *sides.values(), "seeds"]
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
            once += _times([[by_side[side][seed] for seed in seeds] for side in compared])
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


def _times(lines: Sequence[Sequence[script.Line]]) -> list[str]:
    """Of two sides median seconds, the median ratio of a seed's seconds, and median memory."""
    median = statistics.median
    ratio = median(two["seconds"] / one["seconds"] for one, two in zip(*lines, strict=True))
    seconds, memory = (
        [f"{median(line[key] for line in side):.0f}" for side in lines]
        for key in ("seconds", "peak_mib")
    )
    return [*seconds, f"{ratio:.2f}", *memory]


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
    return processes.run_apart(function, side, asdict(work), work.threads)


def prepared(work: FinetuneWork, folder: Path) -> FinetuneWork:
    """The work with the weights that its job begins with, if they are its own."""
    if work.job == "ChnSentiCorp":
        vocabulary = datasets.data_folder() / "vocab/bert-base-chinese/vocab.txt"
        tokenizer = BertTokenizer.from_file(vocabulary, do_lower_case=True)
        config = BertConfig.from_name("mini", vocab_size=tokenizer.vocab_size)
        chinese = write_random_model(folder / "chinese", config, tokenizer, seed=0)
        return replace(work, model=str(chinese))
    if work.job == "2.0":
        return replace(work, model=f"{learned_on_shifts(work).name}/run")
    return work


def write_random_model(
    directory: Path, config: BertConfig, tokenizer: BertTokenizer, seed: int
) -> Path:
    """Write a MODEL whose weights are drawn with this seed."""
    torch.manual_seed(seed)
    save_model_directory(
        directory,
        model_state=BertModel(config).state_dict(),
        config=config,
        tokenizer=tokenizer,
        metadata=ModelMetadata(task="pretrain"),
        architecture=BertModel.__name__,
    )
    return directory


@cache
def learned_on_shifts(work: FinetuneWork) -> tempfile.TemporaryDirectory[str]:
    """The model that tidybert trains on ``shifts``, in a folder that is removed at exit."""
    folder = tempfile.TemporaryDirectory()
    changes = {"seed": work.seed, "max_steps": work.max_steps, "precision": work.precision}
    work_of("shifts", work.model, is_scored=False, **changes).trained(out=Path(folder.name) / "run")
    return folder


def with_one_start(work: FinetuneWork, folder: Path) -> FinetuneWork:
    """The work from weights without dropout, with the head that our seed gives."""
    # One step that moves no weight writes the head of this seed, drawn at random, for both sides.
    arguments = TrainingArguments(
        max_steps=1, learning_rate=1e-30, head_start="random", seed=work.seed
    )
    with with_dropout(replace(work, is_scored=False), 0.0) as without:
        without.trained(arguments=arguments, out=folder / "start")
    return replace(work, model=str(folder / "start"))


def frozen_features(_side: str, given: dict[str, Any]) -> dict[str, Any]:
    """The scores of a linear model on the last four layers' states of a word's first piece."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    work = FinetuneWork(**given)
    task, train, test = work.read()
    encoder, tokenizer = load(work.model)

    def vectors(examples: Sequence[Any]) -> Any:
        """(words, 4 H), in the order of the examples."""
        features = task.features(examples, tokenizer, work.max_seq_length)
        rows = run_batches(
            lambda batch: torch.cat(
                encoder(batch.rows, output_hidden_states=True).hidden_states[-4:], dim=1
            ),
            features,
            [len(one.input_ids) for one in features],
            torch.device("cpu"),
        )
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


def main(parser: argparse.ArgumentParser) -> None:
    script.add_flags(parser, "model out write seeds max-steps")
    parser.add_argument("group", choices=datasets.GROUPS)
    jobs = datasets.JOBS
    parser.add_argument("--tasks", nargs="+", choices=jobs, help="default: all of the group")
    parser.add_argument("--num-examples", type=int, help="train on so many examples only")
    parser.add_argument("--same-start", action="store_true", help="same first head, no dropout")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--defaults", action="store_true", help="also tidybert at its defaults")
    given = parser.parse_args()
    mark = given.group + "-same-start" * given.same_start
    mark += "-bfloat16" * (given.precision == "bfloat16")
    extra = [FROZEN] if mark == "ner" else []
    sides = [*script.SIDES, *extra, *([DEFAULTS] if given.defaults else [])]
    changes = {"max_steps": given.max_steps, "precision": given.precision}
    if given.num_examples:
        changes["num_examples"] = given.num_examples

    def measured(side: str, name: str, seed: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            to = Path(folder)
            work = prepared(work_of(name, given.model, seed=seed, **changes), to)
            return measured_apart(side, with_one_start(work, to) if given.same_start else work)

    names = [name for name in datasets.GROUPS[given.group] if name in (given.tasks or jobs)]
    results = script.Results(given.out or Path(f"{mark}.jsonl"))
    take_in_turn(results, names, sides, given.seeds, measured)
    known = {line["side"] for line in results.lines}
    shown = {side: heading for side, heading in NAMES.items() if side in known}
    if DEFAULTS in shown:
        shown["ours"] = "tidybert at transformers' settings"
    every, compared = list(datasets.GROUPS[given.group]), script.SIDES
    table = score_table(every, results.lines, shown, compared=compared, timed=True)
    script.show(table, given.write, mark)


# --- the weights that a training begins with

ORIGIN: Final = "minilm"
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "SST-2": {"num_examples": 20_000, "num_train_epochs": 1},
    "STS-B": {"num_examples": 2880, "num_train_epochs": 3},
    "CoNLL-2003": {"num_examples": 6400, "num_train_epochs": 3},
}


def own_model(parser: argparse.ArgumentParser) -> None:
    """Fine-tune tidybert-small and minilm, from which it began, on the same examples.

        python -m benchmarks own_model --seeds 3 --write docs/own-model.md

    Both take tidybert's defaults.  Turns, --out and the dev metric are as in compare; CoNLL-2003 is
    measured on its test part.  Each task is trained on a part, so that a run takes a few minutes on
    two cores.
    """
    script.add_flags(parser, "model out write seeds max-steps", model="tidybert-small",
                     out=Path("own_model.jsonl"))  # fmt: skip
    parser.add_argument("--tasks", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    given = parser.parse_args()

    def measured(model: str, name: str, seed: int) -> dict[str, Any]:
        changes = {"seed": seed, "max_steps": given.max_steps, **SETTINGS[name]}
        return measured_apart(DEFAULTS, work_of(name, model, **changes))

    results, models = script.Results(given.out), (given.model, ORIGIN)
    take_in_turn(results, given.tasks, models, given.seeds, measured)
    sides = {model: model for model in models}
    table = score_table(list(SETTINGS), results.lines, sides, compared=models, timed=False)
    script.show(table, given.write, "own_model")


# --- the precision of answers

_ROUNDED: Final = ("float32", "bfloat16", "int8")
_INT8_DATA: Final = ("SST-2", "MRPC", "STS-B", "CoNLL-2003", "shifts")


def in_each_precision(name: str, model: str, num_examples: int, seed: int) -> dict[str, Any]:
    """The metrics of a job in each precision of a CPU, by one trained model."""
    most = datasets.JOBS[name].num_examples or num_examples
    work = work_of(name, model, seed=seed, num_examples=min(num_examples, most))
    _, train, test = work.read()
    trained = work.trained()
    found = {"float32": metrics_of(trained, test)}
    rounded = replace(trained, model=copy.deepcopy(trained.model))
    # Where oneDNN does not multiply bfloat16 the figures are float32's.
    use_bfloat16(rounded.model)
    found["bfloat16"] = metrics_of(rounded, test)
    obstacle = use_int8(trained.model)
    if obstacle is not None:
        raise TidyBertError(f"int8 cannot be measured here, because {obstacle}")
    found["int8"] = metrics_of(trained, test)
    return {"num_examples": len(train), "num_test": len(test), "metrics": found}


def int8(parser: argparse.ArgumentParser) -> None:
    """What rounding costs in scores: a job is trained once, and answered in each precision.

        python -m benchmarks int8 --write docs/performance.md

    A job trains on MODEL as ``compare`` does, on --num-examples of its training part at most.  Each
    measurement is a line of --out, and a stopped run continues from there.
    """
    script.add_flags(parser, "model out write", out=Path("int8.jsonl"))
    jobs, most = datasets.JOBS, script.at_least(1)
    parser.add_argument("--data", nargs="+", default=list(_INT8_DATA), choices=jobs)
    parser.add_argument("--num-examples", type=most, default=3200, help="to train on")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    results = script.Results(given.out)
    for name in given.data:
        work = (name, given.model, given.num_examples, given.seed)
        key = {"data": name, "model": given.model, "seed": given.seed}
        results.take(key, partial(in_each_precision, *work))
    rows = []
    for line in results.lines:
        metric = jobs[line["data"]].metrics[0]
        figures = (f"{100 * line['metrics'][each][metric]:.2f}" for each in _ROUNDED)
        rows.append([f"{line['data']}, {metric}", f"{line['num_test']:,}", *figures])
    table = script.markdown(["", "examples", *_ROUNDED], rows)
    script.show(table, given.write, "int8-scores")
