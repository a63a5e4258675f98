"""Classes by their names alone, without a label: accuracy, and how honest the scores are.

    python -m benchmarks no_labels --write benchmarks/NOTES.md

Each data set is answered from the names of its classes, and then from these and one sentence each,
which class_descriptions.csv has; they were written without looking at the test texts.  TREC and
SST-2 have numbers for labels, so the names come from there too.  The calibration error is the mean
distance of score and accuracy.  All texts of the test part are answered.
"""

import argparse
import csv
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.harness import datasets, script
from tidybert import zero_shot
from tidybert.metrics.calibration import expected_calibration_error, reliability_bins

SETS: Final = ("SST-2", "TREC", "tickets", "SMS spam", "BANKING77")
MODELS: Final = ("tidybert-small", "minilm")
_FILE: Final = Path(__file__).with_name("class_descriptions.csv")


def classes_of(data: str) -> tuple[dict[str, str], dict[str, str]]:
    """The names of a data set's labels, and the descriptions of these names."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["data"] == data]
    return {row["label"]: row["name"] for row in rows}, {row["name"]: row["text"] for row in rows}


def scored(data: str, model: str, described: bool) -> dict[str, Any]:
    """Accuracy, calibration error and seconds of one way on the test part."""
    names, descriptions = classes_of(data)
    examples = datasets.examples_of(data, "dev")
    texts = [one.text for one in examples]
    given = descriptions if described else None
    answers, seconds, _ = script.timed(
        lambda: zero_shot(texts, list(names.values()), descriptions=given, model=model)
    )
    right = np.array(
        [found["label"] == names[one.label] for found, one in zip(answers, examples, strict=True)]
    )
    bins = reliability_bins([found["score"] for found in answers], right)
    return {
        "texts": len(texts),
        "classes": len(names),
        "accuracy": float(right.mean()),
        "calibration_error": expected_calibration_error(bins),
        "seconds": round(seconds, 1),
    }


def table(lines: list[script.Line]) -> list[str]:
    """Markdown: a row a data set, accuracy and calibration error of each way."""
    ways = [(model, described) for model in MODELS for described in (False, True)]
    rows = []
    for data in SETS:
        of_data = {(e["model"], e["described"]): e for e in lines if e["data"] == data}
        if not of_data:
            continue
        first = next(iter(of_data.values()))
        cells = [
            f"{100 * of_data[way]['accuracy']:.1f}, {of_data[way]['calibration_error']:.2f}"
            if way in of_data
            else ""
            for way in ways
        ]
        rows.append([data, str(first["classes"]), *cells])
    heads = [f"{model}, {'with sentences' if described else 'names'}" for model, described in ways]
    return script.markdown(["data", "classes", *heads], rows)


def no_labels(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    given = script.parse(parser, "out write", out=Path("no_labels.jsonl"))
    results = script.Results(given.out)
    for data in given.data:
        for model in given.models:
            for described in (False, True):
                key = {"data": data, "model": model, "described": described}
                results.take(key, partial(scored, data, model, described))
    script.show(table(results.lines), given.write, "no-labels")
