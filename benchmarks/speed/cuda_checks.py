"""The steps of ``python -m benchmarks cuda`` that are no speed; the last line says what one found.

``prepare`` writes a corpus, a model with random weights and texts to FOLDER; ``resume`` stops a
pre-training with SIGTERM and resumes it.
"""

import argparse
import json
import math
import os
import signal
import string
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from benchmarks.harness.datasets import wikipedia_lines
from benchmarks.scores.compare import write_random_model
from benchmarks.speed.pretrain import corpus_of
from tidybert.configuration import BertConfig
from tidybert.tokenization import BertTokenizer

_VOCABULARY: Final = 30_522


def prepare(given: argparse.Namespace) -> str:
    """FOLDER/corpus, FOLDER/model and FOLDER/texts.txt."""
    tokens = list(BertTokenizer.from_pretrained("tidybert-small").vocabulary.tokens)
    known = set(tokens)
    made = ("".join(letters) for letters in product(string.ascii_lowercase, repeat=4))
    tokens += islice((word for word in made if word not in known), _VOCABULARY - len(tokens))
    tokens = tokens[: 2_000 if given.tiny else _VOCABULARY]
    tokenizer = BertTokenizer(tokens)
    source, lines = wikipedia_lines()
    if source == "bundled tickets" or given.tiny:
        source, lines = "words at random", random_lines(tokens, 600 if given.tiny else 60_000)
    corpus_of(lines, tokenizer, given.folder, held_out=0.3 if given.tiny else 0.02)
    texts = lines[: 100 if given.tiny else 2_000]
    (given.folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    config = BertConfig.from_name(given.size, vocab_size=tokenizer.vocab_size)
    write_random_model(given.folder / "model", config, tokenizer, seed=0)
    device = torch.device(given.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return f"{name}; {len(lines):,} lines of {source}, a vocabulary of {tokenizer.vocab_size:,}"


def random_lines(tokens: Sequence[str], number: int) -> list[str]:
    """Paragraphs whose words are as unequal in number as in prose (Zipf's law)."""
    generator = np.random.default_rng(0)
    words = np.array([token for token in tokens if token.isalpha() and token.isascii()])
    generator.shuffle(words)
    shares = 1 / np.arange(2, len(words) + 2)
    lines = []
    for _ in range(number):
        lengths = generator.integers(8, 30, generator.integers(2, 6))
        drawn = iter(generator.choice(words, lengths.sum(), p=shares / shares.sum()).tolist())
        lines.append(" ".join(" ".join(islice(drawn, length)) + "." for length in lengths.tolist()))
    return lines


def resume(given: argparse.Namespace) -> str:
    """The fast recipe; SIGTERM at half the steps; --resume to the end."""
    run: Path = given.folder / "run"
    command = [sys.executable, "-m", "tidybert", "pretrain", given.size, "--recipe", "fast"]
    command += ["--data", str(given.data), "--out", str(run), "--device", given.device]
    command += ["--max-steps", str(given.steps), "--logging-steps", "1"]
    command += ["--tokens-per-step", str(given.tokens), "--save-steps", str(given.steps)]
    command += ["--micro-batch", str(given.tokens // 2)]
    command += ["--compile"] * (given.device != "cpu")
    log, notes = run / "metrics.jsonl", given.folder / "resume.txt"
    environment = {**os.environ, "TORCH_LOGS": "recompiles"}
    with notes.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)
        while process.poll() is None and len(steps_of(log)) < given.steps // 2:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.wait()
        stopped = len(steps_of(log))
        done = subprocess.run([*command, "--resume"], stdout=stream, stderr=stream, env=environment)
    told = notes.read_text()
    print(told[-3000:])
    steps = steps_of(log)
    numbers = [each["step"] for each in steps]
    if done.returncode or numbers != list(range(1, given.steps + 1)):
        sys.exit(f"resume ended with {done.returncode}, steps {numbers}")
    if not all(math.isfinite(each["loss"]) for each in steps):
        sys.exit("a loss is not finite")
    found = f"stopped at step {stopped}, resumed, {len(steps)} steps in all"
    found += f"; {told.count('Recompiling function')} recompilations in both processes"
    return found + (f"; {steps[-1]['mfu']:.1%} of the peak" if "mfu" in steps[-1] else "")


def steps_of(log: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl that are steps'; a line that is being written does not count."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [each for each in found if "loss" in each]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=("prepare", "resume"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data", type=Path, help="corpus that build-corpus wrote")
    parser.add_argument("--size", default="base")
    parser.add_argument("--tokens", type=int, default=131_072, help="tokens a step")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tiny", action="store_true", help="a corpus of a few hundred KB")
    given = parser.parse_args()
    print((prepare if given.check == "prepare" else resume)(given))


if __name__ == "__main__":
    main()
