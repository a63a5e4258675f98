"""``python -m benchmarks NAME …`` runs a measurement; without a name it lists them all."""

import ast
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

# The package sets how threads wait, which only counts before PyTorch is loaded.
from tidybert.errors import TidyBertError, in_shell

SCRIPTS: Final = {
    "Speed, beside transformers": {
        "tokenize": "speed.tokenize",
        "infer": "speed.infer",
        "engines": "speed.engines",
        "serve": "speed.serve",
        "finetune": "speed.finetune",
        "pretrain": "speed.pretrain",
        "serving_soak": "speed.serving_soak",
        "serving_trouble": "speed.serving_trouble",
        "answer_times": "speed.answer_times",
        "cuda": "speed.cuda",
        "padding": "speed.padding",
        "vectors": "speed.vectors",
        "encode": "speed.encode",
        "search": "speed.search",
        "cluster": "speed.cluster",
    },
    "Scores": {
        "compare": "scores.compare",
        "distill": "scores.distill",
        "small_data": "scores.small_data",
        "label_errors": "scores.label_errors",
        "suggested_labels": "scores.suggested_labels",
        "own_model": "scores.own_model",
        "cloze": "scores.cloze",
        "masked_tokens": "scores.masked_tokens",
        "word_pairs": "scores.word_pairs",
        "int8": "scores.int8",
        "vocabulary": "scores.vocabulary",
    },
    "tidybert-small": {"small_prepare": "small.prepare", "small_train": "small.train"},
    "Checks": {"fingerprints": "fingerprints", "pack_model": "pack_model"},
}
"""By kind and by name the modules, each with a function ``main`` that reads sys.argv."""


def first_line(module: str) -> str:
    """What a module says of itself; it is not imported, because PyTorch takes a while."""
    path = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def main() -> int:
    known = {name: module for scripts in SCRIPTS.values() for name, module in scripts.items()}
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in known:
        for kind, scripts in SCRIPTS.items():
            print(f"{kind}:")
            for each, module in scripts.items():
                print(f"  {each:18}{first_line(module)}")
        print("python -m benchmarks NAME --help shows the flags of one.")
        return 0 if name in ("--help", "-h") else 2
    sys.argv = [f"python -m benchmarks {name}", *sys.argv[2:]]
    try:
        return int(import_module(f"benchmarks.{known[name]}").main() or 0)
    except TidyBertError as error:
        print(f"error: {in_shell(str(error.message))}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
