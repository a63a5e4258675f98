"""Hashes of what fixed seeds train and answer, to show that a change of the code changed no bit.

Each job is a few commands on data made from the bundled tickets: a classifier, one with frozen
layers, a tagger, a question answerer, and a tiny pre-trained encoder.  A hash is of the weights'
tensors by name, or of the lines a command prints.  Hashes are equal only on one processor with one
number of threads.  --against compares with an earlier file and exits with 1 where one differs.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from safetensors import safe_open

from benchmarks.harness import datasets

JOBS = ("classifier", "frozen_layers", "tagger", "question_answerer", "pretrained")


def main(parser: argparse.ArgumentParser) -> int:
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write.")
    parser.add_argument("--against", type=Path, help="An earlier file to compare with.")
    given = parser.parse_args()
    found = {}
    for job in JOBS:
        with tempfile.TemporaryDirectory() as folder:
            found[job] = getattr(Commands(Path(folder)), job)()
    given.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if given.against is None:
        return 0
    before = json.loads(given.against.read_text(encoding="utf-8"))
    different = [
        f"differs: {job} {name}"
        for job, hashes in found.items()
        for name, digest in hashes.items()
        if before.get(job, {}).get(name) != digest
    ]
    print("\n".join(different) or "every hash is the same")
    return 1 if different else 0


class Commands:
    """The jobs, which run in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def classifier(self) -> dict[str, str]:
        """Three epochs on the tickets."""
        train, dev = (datasets.TICKETS / f"{part}.csv" for part in ("train", "dev"))
        return self.fine_tuned("classify", train, dev, "--seed", 7)

    def frozen_layers(self) -> dict[str, str]:
        """The same with the lowest two layers frozen."""
        train, dev = (datasets.TICKETS / f"{part}.csv" for part in ("train", "dev"))
        return self.fine_tuned("classify", train, dev, "--freeze-layers", 2)

    def tagger(self) -> dict[str, str]:
        """The tickets' words: is one the first of its sentence, long, or neither?"""
        for part in ("train", "dev"):
            lines = []
            for text in texts(part):
                first, *words = text.split()
                rest = (f"{word} {'B-LONG' if len(word) > 6 else 'O'}" for word in words)
                lines += [f"{first} B-FIRST", *rest, ""]
            self.write(f"{part}.conll", "\n".join(lines))
        return self.fine_tuned("tag", "train.conll", "dev.conll", "--num-train-epochs", 1)

    def question_answerer(self) -> dict[str, str]:
        """The tickets: which word is the longest?  Every fifth question has no answer."""
        question = "which word is the longest"
        for part in ("train", "dev"):
            lines = []
            for number, text in enumerate(texts(part)):
                word = max(text.split(), key=len)
                answers = [{"text": word, "answer_start": text.index(word)}] if number % 5 else []
                asked = {"id": str(number), "question": question, "context": text}
                lines.append(json.dumps({**asked, "answers": answers}) + "\n")
            self.write(f"{part}.jsonl", "".join(lines))
        flags = ("--max-seq-length", 48, "--doc-stride", 16, "--max-query-length", 12)
        files = ("train.jsonl", "dev.jsonl")
        return self.fine_tuned("answer", *files, "--num-train-epochs", 1, *flags)

    def pretrained(self) -> dict[str, str]:
        """A tiny encoder, 40 steps on the tickets, and its words for a gap."""
        self.write("corpus.txt", "\n\n".join(texts("train") + texts("dev")))
        self.run("train-vocab", "corpus.txt", "--size", 1000, "--out", "vocab")
        self.run("build-corpus", "corpus.txt", "--vocab", "vocab", "--out", "shards")
        flags = ("--max-steps", 40, "--tokens-per-step", 2048, "--max-seq-length", 64)
        self.run("pretrain", "tiny", "--data", "shards", "--out", "run", *flags)
        filled = self.run("fill-mask", "run", "the [MASK] does not work", "--json")
        return {"weights": self.weights(), "fill-mask": sha256(filled)}

    def fine_tuned(
        self, task: str, train: str | Path, dev: str | Path, *flags: object
    ) -> dict[str, str]:
        """Hashes of a fine-tuned model, its metrics, and its answers."""
        model = ("finetune", task, "tidybert-small", "--out", "run")
        self.run(*model, "--train", train, "--dev", dev, *flags)
        metrics = json.loads(self.run("evaluate", "run", dev, "--json"))
        # A count of texts, which is not a score.
        for name in ("num_trained_on", "computed_in"):
            metrics.pop(name, None)
        return {
            "weights": self.weights(),
            "metrics": sha256(json.dumps(metrics, sort_keys=True)),
            "predictions": sha256(self.run("predict", "run", dev)),
        }

    def run(self, *words: object) -> str:
        """What a command prints; its notes go to this program's stderr."""
        line = [sys.executable, "-m", "tidybert", *map(str, words)]
        found = subprocess.run(line, cwd=self.folder, stdout=subprocess.PIPE, text=True, check=True)
        return found.stdout

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def weights(self) -> str:
        """A hash of the names, dtypes, shapes and bytes of the RUN's tensors, by their names."""
        digest = hashlib.sha256()
        with safe_open(self.folder / "run/model.safetensors", framework="numpy") as weights:
            for name in sorted(weights.keys()):
                tensor = weights.get_tensor(name)
                digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
                digest.update(tensor.tobytes())
        return digest.hexdigest()


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def texts(part: str) -> list[str]:
    """The tickets' texts."""
    return [one.text for one in datasets.examples_of("tickets", part)]
