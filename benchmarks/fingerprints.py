"""Hashes of what fixed seeds train and answer, to show that a change of the code changed no bit.

    python -m benchmarks fingerprints --out before.json
    python -m benchmarks fingerprints --out after.json --against before.json

Each job is a few commands on data made from the bundled tickets: a classifier, one with frozen
layers, a tagger, a question answerer, and a tiny pre-trained encoder.  A hash is of the weights'
tensors by name, or of the lines a command prints.  Hashes are equal only on one processor with one
number of threads.  --against compares with an earlier file and exits with 1 where one differs.
"""

import argparse
import csv
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from safetensors import safe_open

TICKETS = Path(str(files("tidybert"))) / "resources" / "tickets"
MODEL = "tidybert-small"


def tidybert(folder: Path, *arguments: object) -> str:
    """What the command prints; its notes go to this program's stderr."""
    command = [sys.executable, "-m", "tidybert", *map(str, arguments)]
    found = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout


def weights_sha256(run: Path) -> str:
    """A hash of the names, dtypes, shapes and bytes of a RUN's tensors, in the names' order."""
    digest = hashlib.sha256()
    with safe_open(run / "model.safetensors", framework="numpy") as weights:
        for name in sorted(weights.keys()):
            tensor = weights.get_tensor(name)
            digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
            digest.update(tensor.tobytes())
    return digest.hexdigest()


def text_sha256(text: str) -> str:
    """A hash of what a command printed."""
    return hashlib.sha256(text.encode()).hexdigest()


def fine_tuned(folder: Path, task: str, train: str, dev: str, *flags: object) -> dict[str, str]:
    """Hashes of a fine-tuned model, its metrics, and its answers."""
    tidybert(
        folder, "finetune", task, MODEL, "--train", train, "--dev", dev, "--out", "run", *flags
    )
    metrics = json.loads(tidybert(folder, "evaluate", "run", dev, "--json"))
    # A count of texts, which is not a score.
    metrics.pop("num_trained_on", None)
    metrics.pop("computed_in", None)
    return {
        "weights": weights_sha256(folder / "run"),
        "metrics": text_sha256(json.dumps(metrics, sort_keys=True)),
        "predictions": text_sha256(tidybert(folder, "predict", "run", dev)),
    }


def classifier(folder: Path) -> dict[str, str]:
    """Three epochs on the tickets."""
    return fine_tuned(
        folder, "classify", str(TICKETS / "train.csv"), str(TICKETS / "dev.csv"), "--seed", 7
    )


def frozen_layers(folder: Path) -> dict[str, str]:
    """The same with the lowest two layers frozen."""
    return fine_tuned(
        folder,
        "classify",
        str(TICKETS / "train.csv"),
        str(TICKETS / "dev.csv"),
        "--freeze-layers",
        2,
    )


def tagger(folder: Path) -> dict[str, str]:
    """The tickets' words: is one the first of its sentence, long, or neither?"""
    for part in ("train", "dev"):
        lines = []
        for text in texts(part):
            for number, word in enumerate(text.split()):
                tag = "B-FIRST" if number == 0 else "B-LONG" if len(word) > 6 else "O"
                lines.append(f"{word} {tag}")
            lines.append("")
        (folder / f"{part}.conll").write_text("\n".join(lines), encoding="utf-8")
    return fine_tuned(folder, "tag", "train.conll", "dev.conll", "--num-train-epochs", 1)


def question_answerer(folder: Path) -> dict[str, str]:
    """The tickets: which word is the longest?  Every fifth question has no answer."""
    for part in ("train", "dev"):
        lines = []
        for number, text in enumerate(texts(part)):
            word = max(text.split(), key=len)
            answers = [] if number % 5 == 0 else [{"text": word, "answer_start": text.index(word)}]
            question = "which word is the longest"
            asked = {"id": str(number), "question": question, "context": text, "answers": answers}
            lines.append(json.dumps(asked) + "\n")
        (folder / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")
    lengths = ("--max-seq-length", 48, "--doc-stride", 16, "--max-query-length", 12)
    files = ("train.jsonl", "dev.jsonl")
    return fine_tuned(folder, "answer", *files, "--num-train-epochs", 1, *lengths)


def pretrained(folder: Path) -> dict[str, str]:
    """A tiny encoder, 40 steps on the tickets, and its words for a gap."""
    (folder / "corpus.txt").write_text("\n\n".join(texts("train") + texts("dev")), encoding="utf-8")
    tidybert(folder, "train-vocab", "corpus.txt", "--size", 1000, "--out", "vocab")
    tidybert(folder, "build-corpus", "corpus.txt", "--vocab", "vocab", "--out", "shards")
    flags = ("--max-steps", 40, "--tokens-per-step", 2048, "--max-seq-length", 64)
    tidybert(folder, "pretrain", "tiny", "--data", "shards", "--out", "run", *flags)
    filled = tidybert(folder, "fill-mask", "run", "the [MASK] does not work", "--json")
    return {"weights": weights_sha256(folder / "run"), "fill-mask": text_sha256(filled)}


def texts(part: str) -> list[str]:
    """The tickets' texts."""
    with (TICKETS / f"{part}.csv").open(encoding="utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


JOBS: tuple[Callable[[Path], dict[str, str]], ...] = (
    classifier,
    frozen_layers,
    tagger,
    question_answerer,
    pretrained,
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write.")
    parser.add_argument("--against", type=Path, help="An earlier file to compare with.")
    given = parser.parse_args()
    found = {}
    for job in JOBS:
        with tempfile.TemporaryDirectory() as folder:
            found[job.__name__] = job(Path(folder))
    given.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if given.against is None:
        return 0
    before = json.loads(given.against.read_text(encoding="utf-8"))
    different = [
        f"{job} {name}"
        for job, hashes in found.items()
        for name, digest in hashes.items()
        if before.get(job, {}).get(name) != digest
    ]
    print("\n".join(f"differs: {each}" for each in different) or "every hash is the same")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
