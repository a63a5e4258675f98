"""Pre-train with ``--recipe fast``, and with one of its choices removed or changed.

    python benchmarks/recipes.py corpus --tokens 1000000 --out recipes.jsonl \
        --write benchmarks/NOTES.md

Every variant pre-trains a model from the same random weights, on as many tokens of a corpus from
``tidybert build-corpus``, with one thread.  --at-once variants run side by side.  Each is one line
of --out, and a stopped run continues from there.  All variants are then measured on the same
held-out instances with the same masks: one more step with 15% masked, at a rate that moves no
weight.  A second seed of the recipe itself shows how much of a difference is chance.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, Final

from side_by_side import show

from tidybert.system.machine import machine

MEASURED_SHARE: Final = 0.15  # share of the tokens that are masked to measure a variant
BASE: Final = {"tokens_per_step": 4096}
VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "fast": {},
    "fast, another seed": {"seed": 43},
    "random start": {"initial_weights": "random"},
    "random start, 15% masked": {"initial_weights": "random", "masked_lm_prob": 0.15},
    "AdamW, rate 1e-3": {"optimizer": "adamw", "learning_rate": 1e-3},
    "rate 1e-3": {"learning_rate": 1e-3},
    "rate 4e-3": {"learning_rate": 4e-3},
    "2,048 tokens a step": {"tokens_per_step": 2048},
    "8,192 tokens a step": {"tokens_per_step": 8192},
    "8,192, rate 4e-3": {"tokens_per_step": 8192, "learning_rate": 4e-3},
    "linear decay": {"schedule": "linear"},
    "beta2 0.999": {"adam_beta2": 0.999},
    "dropout 0.1": {"dropout": 0.1},
    "15% masked": {"masked_lm_prob": 0.15},
    "50% masked": {"masked_lm_prob": 0.5},
    "whole words masked": {"whole_word": True},
    "masked words alone": {"objective": "mlm"},
}
COLUMNS: Final = ("mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy")


def pretrained(
    model: str | Path, corpus: Path, run: Path, flags: Mapping[str, Any]
) -> dict[str, Any]:
    """The result of ``tidybert pretrain --json`` in its own process, on one thread."""
    command = [sys.executable, "-m", "tidybert", "pretrain", str(model), "--json"]
    command += ["--data", str(corpus), "--out", str(run), "--recipe", "fast", "--device", "cpu"]
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        command += [flag] if value is True else [flag, str(value)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measured(
    model: str, corpus: Path, tokens: int, changes: Mapping[str, Any], eval_tokens: int
) -> dict[str, Any]:
    """Train a variant, then measure it in the same way as all others."""
    flags = {**BASE, **changes}
    steps = max(1, tokens // flags["tokens_per_step"])
    seldom = {"eval_steps": steps + 1, "save_steps": steps + 1, "eval_tokens": eval_tokens}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        trained = pretrained(model, corpus, run, {**flags, **seldom, "max_steps": steps})
        still = {"max_steps": 1, "learning_rate": 1e-30, "masked_lm_prob": MEASURED_SHARE}
        found = pretrained(run, corpus, Path(folder) / "still", {**still, **seldom})
    return {
        "flags": flags,
        "num_steps": trained["num_steps"],
        "num_tokens": trained["num_tokens"],
        "tokens_per_second": trained["num_tokens"] / trained["seconds"],
        **{name: found[name] for name in COLUMNS},
    }


def table(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Markdown rows: the change, and the scores on held-out words and pairs."""
    lines = [
        "| variant | tokens | steps | masked words | right | pairs | right | tokens/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    known = {each["variant"]: each for each in results}
    for name in VARIANTS:
        if name not in known:
            continue
        each = known[name]
        has_pairs = each["flags"].get("objective") != "mlm"
        cells = [
            name,
            f"{each['num_tokens']:,}",
            f"{each['num_steps']:,}",
            f"{each['mlm_loss']:.3f}",
            f"{each['mlm_accuracy']:.1%}",
            f"{each['nsp_loss']:.3f}" if has_pairs else "not trained",
            f"{each['nsp_accuracy']:.1%}" if has_pairs else "",
            f"{each['tokens_per_second']:,.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Measure what --out lacks, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("corpus", type=Path, help="corpus from tidybert build-corpus")
    parser.add_argument("--model", default="mini", help="a size, or weights to train further")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="tokens for each variant")
    parser.add_argument("--eval-tokens", type=int, default=200_000)
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--out", type=Path, default=Path("recipes.jsonl"))
    parser.add_argument("--write", type=Path, help="write the table between its marks in this file")
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    if arguments.out.exists():
        results = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    done = {each["variant"] for each in results}
    lock = Lock()

    def one(name: str) -> None:
        found = measured(
            arguments.model,
            arguments.corpus,
            arguments.tokens,
            VARIANTS[name],
            arguments.eval_tokens,
        )
        result = {"variant": name, **found, "machine": machine()}
        with lock, arguments.out.open("a") as file:
            results.append(result)
            file.write(json.dumps(result) + "\n")
            print(f"{name}: {result['mlm_loss']:.3f}, {result['nsp_loss']:.3f}", flush=True)

    with ThreadPoolExecutor(arguments.at_once) as pool:
        list(pool.map(one, [name for name in arguments.variants if name not in done]))
    show(table(results), arguments.write, "recipes")


if __name__ == "__main__":
    main()
