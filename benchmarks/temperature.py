"""Does a temperature fitted on few examples help?  Log-loss by the size of dev and by the prior.

    python benchmarks/temperature.py --data ../shared/data --out temperature.jsonl

For each data set and number of training texts, trains minilm once and computes the logits of texts
that training did not see.  Then draws dev parts of several sizes, fits the temperature on each with
each prior, and measures the log-loss on the rest.  A prior is worth that many examples at T = 1.
"""

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_job import run_finetuning
from tidybert.inference.forward import run_features
from tidybert.metrics.calibration import fit_temperature
from tidybert.tasks.classification import Classification
from tidybert.training.training_arguments import TrainingArguments

SIZES = (20, 50, 100, 300, 1000)
PRIORS = (0, 5, 10, 20, 40, 80)
DRAWS = 200
MEASURED = 2500
Pairs = list[tuple[str, str]]


def read(data: Path, name: str) -> Pairs:
    """Texts and their labels."""
    if name == "sms_spam":
        lines = (
            (data / "text" / name / "SMSSpamCollection").read_text(encoding="utf-8").splitlines()
        )
        return [(text, label) for label, _, text in (line.partition("\t") for line in lines)]
    path = data / "glue" / "SST-2" / "train.tsv"
    if name == "trec":
        path = data / "text" / "trec" / "TREC.train.all"
        lines = path.read_text(encoding="latin-1").splitlines()
        pairs = [line.partition(" ") for line in lines]
        return [(text, label) for label, _, text in pairs]
    with path.open(encoding="utf-8") as stream:
        rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["sentence"], row["label"]) for row in rows]


def logits_of(
    pairs: Pairs, num_train: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """(N, C) logits and (N,) labels of texts that a model of ``num_train`` others has not seen."""
    chosen = [pairs[at] for at in np.random.default_rng(0).permutation(len(pairs))]
    examples = [TextExample(text, None, label, row) for row, (text, label) in enumerate(chosen)]
    train, rest = examples[:num_train], examples[num_train : num_train + MEASURED]
    task = Classification(sorted({one.label or "" for one in train}))
    rest = [one for one in rest if one.label in task.names]
    finished: FinetunedModel = run_finetuning(
        FinetuningJob(task, "minilm", train, None, TrainingArguments())
    )
    features = task.features(rest, finished.tokenizer, finished.max_seq_length)
    task.add_labels(features, rest)
    outputs = run_features(task, finished.model, features)
    return np.concatenate(outputs), np.array([one.label for one in features])


def log_loss(logits: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], t: float) -> float:
    """The mean of -ln(probability of the label) at a temperature."""
    scaled = logits.astype(np.float64) / t
    scaled -= scaled.max(1, keepdims=True)
    totals = np.log(np.exp(scaled).sum(1))
    return float((totals - scaled[np.arange(len(labels)), labels]).mean())


def measure(
    logits: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], sizes: Sequence[int]
) -> list[dict[str, float]]:
    """A row for each size of dev and prior."""
    rng = np.random.default_rng(1)
    rows = []
    for size in sizes:
        changes: dict[int, list[float]] = {prior: [] for prior in PRIORS}
        for _ in range(DRAWS):
            order = rng.permutation(len(labels))
            dev, rest = order[:size], order[size:]
            before = log_loss(logits[rest], labels[rest], 1.0)
            for prior, found in changes.items():
                t = fit_temperature(logits[dev], labels[dev], prior=prior)
                found.append(log_loss(logits[rest], labels[rest], t) - before)
        rows += [
            {
                "dev": size,
                "prior": prior,
                "change": float(np.mean(found)),
                "worst_tenth": float(np.quantile(found, 0.9)),
                "worse": float(np.mean(np.array(found) > 1e-9)),
            }
            for prior, found in changes.items()
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", nargs="*", default=["sst-2", "trec", "sms_spam"])
    parser.add_argument("--num-train", type=int, nargs="*", default=[100, 1000])
    given = parser.parse_args()
    with given.out.open("a", encoding="utf-8") as stream:
        for name in given.names:
            pairs = read(given.data, name)
            for num_train in given.num_train:
                logits, labels = logits_of(pairs, num_train)
                for row in measure(logits, labels, SIZES):
                    entry = {"data": name, "train": num_train, **row}
                    stream.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    main()
