"""Train sentence vectors beside sentence-transformers: time, memory, and the score of both.

    python -m benchmarks vectors stsb --rounds 3 --max-steps 60 --write benchmarks/NOTES.md
    python -m benchmarks vectors squad --train-batch-size 128 --max-steps 4 --cached
    python -m benchmarks vectors full --ours --train-batch-size 1024 --max-steps 1

Both sides get the same data in batches of the same size, the same steps and the same learning
rate; sentence-transformers' side is its trainer as its documentation shows it.  Each round has a
seed of its own.  Seconds are those of the training alone, by the clock and of the processor.
``full`` is 1,024 pairs of 128 tokens, to measure memory.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, Final

from benchmarks.harness.processes import run_apart
from benchmarks.harness.rounds import in_turn, note, script_parser
from benchmarks.harness.tables import markdown, show
from benchmarks.speed.vector_data import DATA, METRICS, Rows, score

SIDES: Final = ("ours", "sentence-transformers")


def train(side: str, work: dict[str, Any]) -> dict[str, float]:
    """Train on one side, save into work["out"], and return the seconds of the training."""
    import torch

    torch.set_num_threads(work["threads"])
    rows = DATA[work["data"]]("train")[: work["train_batch_size"] * (work["max_steps"] or 10**9)]
    return (_ours if side == "ours" else _theirs)(rows, work)


def _ours(rows: Rows, work: dict[str, Any]) -> dict[str, float]:
    import tidybert
    from tidybert.training import loop

    clock: dict[str, float] = {}
    train_all = loop.TrainingLoop.train

    def timed(self: Any) -> Any:
        begin = time.perf_counter(), time.process_time()
        found = train_all(self)
        clock.update(_since(begin))
        return found

    loop.TrainingLoop.train = timed  # type: ignore[method-assign]
    given = ("train_batch_size", "tokens_per_batch", "max_seq_length", "learning_rate", "max_steps")
    tidybert.finetune(
        list(rows),
        "embed",
        work["model"],
        dev=0,
        out=work["out"],
        num_train_epochs=1,
        seed=work["seed"],
        precision=work["precision"],
        **{name: work[name] for name in given if work.get(name) is not None},
    )
    return clock


def _theirs(rows: Rows, work: dict[str, Any]) -> dict[str, float]:
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer import losses

    from tidybert.catalog import find_model

    model = SentenceTransformer(str(find_model(work["model"])), device="cpu")
    model.max_seq_length = work["max_seq_length"]
    names: tuple[str, ...] = ("anchor", "positive", "score")
    sampler = "batch_sampler"
    loss: Any = losses.CoSENTLoss(model)
    if work["data"] == "banking77":
        names, sampler = ("sentence", "label"), "group_by_label"
        loss = losses.BatchAllTripletLoss(model)
    elif len(rows[0]) == 2:
        cached = losses.CachedMultipleNegativesRankingLoss
        loss = cached(model) if work["cached"] else losses.MultipleNegativesRankingLoss(model)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=work["out"] + "-steps",
        num_train_epochs=1,
        max_steps=work["max_steps"] or -1,
        per_device_train_batch_size=work["train_batch_size"],
        learning_rate=work["learning_rate"],
        warmup_steps=0.1,
        batch_sampler=sampler,
        seed=work["seed"],
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    columns = zip(names, zip(*rows, strict=True), strict=False)
    data = Dataset.from_dict({name: list(column) for name, column in columns})
    trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss)
    begin = time.perf_counter(), time.process_time()
    trainer.train()
    found = _since(begin)
    model.save_pretrained(work["out"])
    return found


def _since(begin: tuple[float, float]) -> dict[str, float]:
    seconds, cpu_seconds = time.perf_counter() - begin[0], time.process_time() - begin[1]
    return {"seconds": seconds, "cpu_seconds": cpu_seconds}


def rows_of(given: argparse.Namespace) -> Iterator[list[str]]:
    """A row for the model as it is, and one for each side."""
    is_scored = given.data in METRICS
    metric = METRICS.get(given.data, "")
    if is_scored:
        before = score(given.model, given.data, given.max_seq_length)
        yield ["before", metric, f"{before:.4f}", "", "", "", ""]
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES[: 2 - given.ours]}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.rounds):
            for side in in_turn(tuple(found), number):
                out = str(Path(folder) / f"{side}-{number}")
                work = {**vars(given), "out": out, "seed": given.seed + number}
                each = run_apart(train, side, work, given.threads)
                if is_scored:
                    each["score"] = score(out, given.data, given.max_seq_length)
                note(f"{side}: {each}")
                found[side].append(each)
    ours, theirs = [*found.values(), []][:2]
    ratios = [
        other["seconds"] / one["seconds"] for one, other in zip(ours, theirs, strict=bool(theirs))
    ]
    for side, runs in found.items():
        middle = {name: median(each[name] for each in runs) for name in runs[0]}
        scores = [each["score"] for each in runs] if is_scored else []
        spread = f" ± {stdev(scores):.4f}" if len(scores) > 1 else ""
        yield [
            side,
            metric,
            f"{mean(scores):.4f}{spread}" if scores else "",
            f"{middle['seconds']:.1f}",
            f"{middle['cpu_seconds']:.1f}",
            f"{median(ratios):.2f}" if side == "ours" and ratios else "",
            f"{middle['peak_mib']:,.0f}",
        ]


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--train-batch-size", type=int, default=32)
    parser.add_argument("--tokens-per-batch", type=int, help="of our side; else its default")
    parser.add_argument("--max-steps", type=int, help="else one epoch")
    parser.add_argument("--max-seq-length", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--precision", default="float32", help="of our side; float32 or bfloat16")
    parser.add_argument("--cached", action="store_true", help="their cached loss")
    parser.add_argument("--ours", action="store_true", help="train our side alone")
    parser.add_argument("--rounds", type=int, default=1, help="seeds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--write", type=Path, help="a page with markers of this table")
    given = parser.parse_args()
    page, given.write = given.write, None
    heads = ["side", "metric", "score", "s", "CPU s", "times as fast", "peak MiB"]
    table = f"vectors-{given.data}{'-cached' if given.cached else ''}"
    table += "" if given.precision == "float32" else f"-{given.precision}"
    show(markdown(heads, list(rows_of(given))), page, table)


if __name__ == "__main__":
    main()
