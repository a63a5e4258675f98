"""Find named entities: fine-tuned on two sides, and with frozen features (paper 5.3, table 7).

    python benchmarks/ner.py --seeds 3 --out ner.jsonl --write docs/results.md

``transformers`` follows its example run_ner.py: a fast tokenizer over split words, the label on the
first piece, DataCollatorForTokenClassification, Trainer.  It takes our batches in our order.
``frozen`` is the paper's feature-based approach with a linear model on top.  Its features are the
last four layers' states of a word's first piece, end to end, for scikit-learn's LogisticRegression.
``defaults`` is tidybert with its own defaults, its head begun as a probe, for as many epochs.  All
are scored with their last weights, by entity F1 on a part that chose nothing.  --same-start and
--precision are as in side_by_side.py, for the two sides that fine-tune.

Each measurement is a process of its own and a line of --out; a stopped run continues from there.
Run it from the project's root.  The data folder is TIDYBERT_DATA or ../shared/data.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tidybert.files.read_options import ReadOptions
from tidybert.system.machine import machine
from tidybert.timing.finetuning_speed import measure
from tidybert.timing.measuring import answer, run_apart
from tidybert.timing.transformers_side import train_with_transformers
from tidybert.timing.work import FinetuningWork

DATA: Final = Path(os.environ.get("TIDYBERT_DATA", "../shared/data"))
CONLL: Final = "ner/conll2003/{}.txt"
WIKIGOLD: Final = "ner/wikigold/wikigold.conll.txt"
WIKIGOLD_TRAIN_ARTICLES: Final = 116  # of 145
SIDES: Final = ("ours", "transformers", "frozen", "defaults")
DATA_SETS: Final = ("CoNLL-2003", "wikigold")
SCORES: Final = ("f1", "precision", "recall")


def work_of(name: str, model: str, seed: int, num_examples: int | None, folder: Path) -> Any:
    """The work on one data set; the two parts of wikigold are written to ``folder``."""
    train, test = DATA / CONLL.format("train"), DATA / CONLL.format("test")
    if name == "wikigold":
        articles = (DATA / WIKIGOLD).read_text(encoding="utf-8").split("-DOCSTART- O\n")
        train, test = folder / "train.conll", folder / "test.conll"
        train.write_text("\n".join(articles[:WIKIGOLD_TRAIN_ARTICLES]), encoding="utf-8")
        test.write_text("\n".join(articles[WIKIGOLD_TRAIN_ARTICLES:]), encoding="utf-8")
    return FinetuningWork(
        task="tag",
        model=model,
        train=str(train),
        dev=str(test),
        options=ReadOptions(),
        num_examples=num_examples or (3200 if name == "CoNLL-2003" else None),
        num_train_epochs=3,
        learning_rate=2e-4,
        seed=seed,
    )


def measured(side: str, work: FinetuningWork) -> Any:
    """One side's scores, seconds and memory."""
    if side in ("ours", "defaults"):
        return measure("ours", replace(work, at_defaults=side == "defaults"))
    return run_apart("benchmarks.ner", side, asdict(work), work.threads)


def run(side: str, given: dict[str, Any]) -> dict[str, Any]:
    """One side's measurement, in the process that was started for it."""
    from tidybert.metrics.entity_scores import TagCounts
    from tidybert.tasks.tags.tag_files import read_tagged
    from tidybert.tasks.tags.tagging import Tagging

    work = FinetuningWork.from_dict(given)
    assert work.dev is not None
    train = list(islice(read_tagged(work.train, need_label=True), work.num_examples))
    test = list(read_tagged(work.dev, need_label=True))
    task = Tagging.from_examples(train)
    tagged = tagged_by_transformers if side == "transformers" else tagged_by_frozen_features
    predicted, result = tagged(task, train, test, work)
    expected = [one.tags or () for one in test]
    counts = TagCounts.compare(expected, predicted, of_entities=True)
    return {"metrics": counts.metrics(), **result}


def tagged_by_transformers(
    task: Any, train: Sequence[Any], test: Sequence[Any], work: FinetuningWork
) -> tuple[list[list[str]], dict[str, Any]]:
    """The test sentences' tags after fine-tuning with transformers, and the measurement."""
    import torch
    import transformers

    from tidybert.catalog import find_model

    transformers.utils.logging.set_verbosity_error()
    directory = find_model(work.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    names = list(task.label_names)

    def encode(examples: Sequence[Any]) -> list[dict[str, Any]]:
        encoded = tokenizer(
            [list(one.words) for one in examples],
            is_split_into_words=True,
            truncation=True,
            max_length=work.max_seq_length,
        )
        return [
            {
                **{key: encoded[key][number] for key in encoded},
                "labels": [
                    -100 if word is None else names.index(one.tags[word])
                    for word in first_pieces(encoded.word_ids(number))
                ],
            }
            for number, one in enumerate(examples)
        ]

    transformers.set_seed(work.seed)
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        directory, num_labels=len(names), id2label=dict(enumerate(names))
    )
    collate = transformers.DataCollatorForTokenClassification(tokenizer)
    result = train_with_transformers(model, train, encode, collate, work)
    model.eval()
    encoded = encode(test)
    predicted = []
    with torch.inference_mode():
        for start in range(0, len(test), 32):
            batch = collate(encoded[start : start + 32])
            labels = batch.pop("labels")
            best = model(**batch).logits.argmax(2)
            for number, one in enumerate(test[start : start + 32]):
                tags = [names[label] for label in best[number][labels[number] != -100].tolist()]
                # A word that was cut off, or gave no token, has no answer.
                predicted.append(tags + ["O"] * (len(one.words) - len(tags)))
    return predicted, result


def first_pieces(words: Sequence[int | None]) -> list[int | None]:
    """The word of each token that is a word's first, None for the others."""
    return [None if row and word == words[row - 1] else word for row, word in enumerate(words)]


def tagged_by_frozen_features(
    task: Any, train: Sequence[Any], test: Sequence[Any], work: FinetuningWork
) -> tuple[list[list[str]], dict[str, Any]]:
    """The test sentences' tags by a linear model on frozen states, and the measurement."""
    import numpy as np
    import torch
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from tidybert.inference.forward import run_batches
    from tidybert.inference.loading import load

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
    return [[next(flat) for _ in one.words] for one in test], {"seconds": seconds}


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown rows: scores in percent (mean and deviation over seeds), seconds, memory."""
    lines = [
        "| data | side | " + " | ".join(SCORES) + " | seeds | s to train | MiB |",
        "|---" * (len(SCORES) + 5) + "|",
    ]
    for name in DATA_SETS:
        for side in SIDES:
            found = [each for each in results if (each["data"], each["side"]) == (name, side)]
            if not found:
                continue
            cells = []
            for score in SCORES:
                values = [100 * each["metrics"][score] for each in found]
                spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
                cells.append(f"{statistics.mean(values):.1f}{spread}")
            for key in ("seconds", "peak_mib"):
                cells.append(f"{statistics.median(each[key] for each in found):.0f}")
            cells.insert(len(SCORES), str(len(found)))
            lines.append(f"| {name} | {side} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Measure what --out lacks, then print the table."""
    # A measurement's process runs this file as a module, which cannot import its neighbour.
    from side_by_side import add_variants, put_between, variant, with_one_start

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--data", nargs="+", default=list(DATA_SETS), choices=DATA_SETS)
    parser.add_argument(
        "--sides",
        nargs="+",
        choices=SIDES,
        help="default: all; with --same-start or --precision bfloat16 the two that fine-tune",
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--num-examples", type=int, help="train on this many sentences only")
    add_variants(parser)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--write", type=Path, help="write the table between its marks in this file")
    arguments = parser.parse_args()
    mark = variant("ner", arguments)
    sides = arguments.sides or (SIDES if mark == "ner" else SIDES[:2])
    out = arguments.out or Path(f"{mark}.jsonl")
    results: list[dict[str, Any]] = []
    if out.exists():
        results = [json.loads(line) for line in out.read_text().splitlines()]
    done = {(each["data"], each["side"], each["seed"]) for each in results}
    for seed in range(1, arguments.seeds + 1):
        for name in arguments.data:
            # The first side changes with the seed, because the machine may become slower or faster.
            for side in sides if seed % 2 else reversed(sides):
                # Frozen features draw no random numbers.
                if (name, side, seed) in done or (side == "frozen" and seed > 1):
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    to = Path(folder)
                    work = work_of(name, arguments.model, seed, arguments.num_examples, to)
                    work = replace(work, precision=arguments.precision)
                    if arguments.same_start:
                        work = with_one_start(work, to)
                    found = measured(side, work)
                results.append(
                    {"data": name, "side": side, "seed": seed, **found, "machine": machine()}
                )
                with out.open("a") as file:
                    file.write(json.dumps(results[-1]) + "\n")
                print(name, side, seed, f"{found['seconds']:.0f} s", flush=True)
    lines = table(results)
    print("\n".join(lines))
    if arguments.write:
        put_between(arguments.write, mark, lines)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in SIDES:
        answer(run)
    else:
        main()
