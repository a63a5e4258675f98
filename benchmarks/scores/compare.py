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

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from benchmarks.harness.datasets import GROUPS, JOBS, data_folder
from benchmarks.harness.processes import run_apart
from benchmarks.harness.rounds import SIDES, in_turn
from benchmarks.harness.tables import Line, Results, markdown, percent, results_parser, show
from benchmarks.speed.finetune import measure
from benchmarks.speed.finetune_work import FinetuneWork, with_dropout, work_of
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.configuration import BertConfig
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_job import run_finetuning
from tidybert.inference.forward import run_batches
from tidybert.inference.loading import load
from tidybert.metrics.entity_scores import TagCounts
from tidybert.modeling import BertModel
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
    results: Sequence[Line],
    sides: Mapping[str, str],
    *,
    compared: Sequence[str],
    timed: bool,
) -> list[str]:
    """Markdown rows: each metric on every side, mean and deviation over seeds, in percent.

    Args:
        names: jobs.
        sides: headings by side.
        compared: the sides whose common seeds count; another side says if it has fewer.
        timed: also seconds and memory of the compared sides, and the ratio of their seconds.
    """
    heads = ["task", "metric", *sides.values(), "seeds"]
    if timed:
        heads += ["s, tidybert", "s, transformers", "times as fast"]
        heads += ["MiB, tidybert", "MiB, transformers"]
    rows = []
    for name in names:
        by_side = {
            side: {line["seed"]: line for line in results if _is_of(line, name, side)}
            for side in sides
        }
        seeds = sorted(set.intersection(*(set(by_side[side]) for side in compared)))
        once = [str(len(seeds)), *(_times(by_side, seeds, compared) if timed and seeds else [])]
        first = name
        for metric in JOBS[name].metrics if seeds else ():
            cells = []
            for found in by_side.values():
                values = [found[seed]["metrics"][metric] for seed in seeds if seed in found]
                fewer = (
                    f" ({len(values)} of {len(seeds)} seeds)" if len(values) < len(seeds) else ""
                )
                cells.append(f"{percent(values)}{fewer}" if values else "")
            rows.append([first, metric, *cells, *once])
            first, once = "", [""] * len(once)
    return markdown(heads, rows)


def _is_of(line: Line, name: str, side: str) -> bool:
    return (line["task"], line["side"]) == (name, side)


def _times(
    by_side: Mapping[str, Mapping[int, Line]], seeds: Sequence[int], compared: Sequence[str]
) -> list[str]:
    """Median seconds, the median ratio of a seed's seconds, and median memory."""

    def median(side: str, key: str) -> str:
        return f"{statistics.median(by_side[side][seed][key] for seed in seeds):.0f}"

    ours, theirs = (by_side[side] for side in compared)
    ratio = statistics.median(theirs[seed]["seconds"] / ours[seed]["seconds"] for seed in seeds)
    seconds, memory = ([median(side, key) for side in compared] for key in ("seconds", "peak_mib"))
    return [*seconds, f"{ratio:.2f}", *memory]


# --- measurements


def take_in_turn(
    results: Results,
    names: Sequence[str],
    sides: Sequence[str],
    seeds: int,
    measured: Any,
) -> None:
    """Measure what the file lacks; ``measured`` takes a side, a job and a seed."""
    for seed in range(1, seeds + 1):
        for name in names:
            # The first side changes with the seed, because the machine may become slower or faster.
            for side in in_turn(sides, seed - 1):
                # Frozen features draw no random numbers.
                if side != FROZEN or seed == 1:
                    key = {"task": name, "side": side, "seed": seed}
                    results.take(key, partial(measured, side, name, seed))


def measured_apart(side: str, work: FinetuneWork) -> dict[str, Any]:
    """Train and score a side in a process of its own."""
    if side == FROZEN:
        return run_apart(frozen_features, side, asdict(work), work.threads)
    if side == DEFAULTS:
        side, work = "ours", replace(work, at_defaults=True)
    return run_apart(measure, side, asdict(work), work.threads)


def prepared(work: FinetuneWork, folder: Path) -> FinetuneWork:
    """The work with the weights that its job begins with, if they are its own."""
    if work.job == "ChnSentiCorp":
        return replace(work, model=random_chinese_model(folder))
    if work.job == "2.0":
        return replace(work, model=f"{learned_on_shifts(work).name}/run")
    return work


def random_chinese_model(folder: Path) -> str:
    """Write a model of size mini, with the same random weights every time."""
    vocabulary = data_folder() / "vocab/bert-base-chinese/vocab.txt"
    tokenizer = BertTokenizer.from_file(vocabulary, do_lower_case=True)
    config = BertConfig.from_name("mini", vocab_size=tokenizer.vocab_size)
    return str(write_random_model(folder / "chinese", config, tokenizer, seed=0))


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
    shifts = work_of("shifts", work.model, is_scored=False, **changes)
    train_run(shifts, shifts.arguments(), Path(folder.name) / "run")
    return folder


def with_one_start(work: FinetuneWork, folder: Path) -> FinetuneWork:
    """The work from weights without dropout, with the head that our seed gives."""
    # One step that moves no weight writes the head of this seed, drawn at random, for both sides.
    arguments = TrainingArguments(
        max_steps=1, learning_rate=1e-30, head_start="random", seed=work.seed
    )
    with with_dropout(replace(work, is_scored=False), 0.0) as without:
        train_run(without, arguments, folder / "start")
    return replace(work, model=str(folder / "start"))


def train_run(work: FinetuneWork, arguments: TrainingArguments, run: Path) -> None:
    """Fine-tune with tidybert and write the RUN."""
    task, train, _ = work.read()
    length = work.max_seq_length
    run_finetuning(
        FinetuningJob(
            task, work.model, train, None, arguments, max_seq_length=length, out=run, device="cpu"
        )
    )


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

    begin = time.perf_counter()
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=200))
    classifier.fit(vectors(train), [tag for one in train for tag in one.tags])
    seconds = time.perf_counter() - begin
    flat = iter(classifier.predict(vectors(test)).tolist())
    predicted = [[next(flat) for _ in one.words] for one in test]
    counts = TagCounts.compare([one.tags for one in test], predicted, of_entities=True)
    return {"metrics": counts.metrics(), "seconds": seconds}


def main() -> None:
    parser = results_parser(__doc__, "compare")
    parser.set_defaults(out=None)
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--tasks", nargs="+", choices=JOBS, help="default: all of the group")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--num-examples", type=int, help="train on so many examples only")
    parser.add_argument("--max-steps", type=int, help="train at most this many steps")
    parser.add_argument("--same-start", action="store_true", help="same first head, no dropout")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--defaults", action="store_true", help="also tidybert at its defaults")
    given = parser.parse_args()
    mark = given.group + "-same-start" * given.same_start
    mark += "-bfloat16" * (given.precision == "bfloat16")
    extra = [FROZEN] if mark == "ner" else []
    sides = [*SIDES, *extra, *([DEFAULTS] if given.defaults else [])]
    changes = {"max_steps": given.max_steps, "precision": given.precision}
    if given.num_examples:
        changes["num_examples"] = given.num_examples

    def measured(side: str, name: str, seed: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            to = Path(folder)
            work = prepared(work_of(name, given.model, seed=seed, **changes), to)
            return measured_apart(side, with_one_start(work, to) if given.same_start else work)

    names = [name for name in GROUPS[given.group] if name in (given.tasks or JOBS)]
    results = Results(given.out or Path(f"{mark}.jsonl"))
    take_in_turn(results, names, sides, given.seeds, measured)
    known = {line["side"] for line in results.lines}
    shown = {side: heading for side, heading in NAMES.items() if side in known}
    if DEFAULTS in shown:
        shown["ours"] = "tidybert at transformers' settings"
    table = score_table(list(GROUPS[given.group]), results.lines, shown, compared=SIDES, timed=True)
    show(table, given.write, mark)
