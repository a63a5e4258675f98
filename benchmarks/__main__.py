"""``python -m benchmarks NAME …`` runs a measurement; without a name it lists them all."""

import argparse
import ast
import inspect
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

# The package sets how threads wait, which only counts before PyTorch is loaded.
from tidybert.errors import TidyBertError, in_shell

SCRIPTS: Final = {
    "Speed, beside transformers": {
        "tokenize": "speed.tokenize",
        "infer": "speed.infer:infer",
        "engines": "speed.infer:engines",
        "serve": "speed.serve",
        "finetune": "speed.finetune",
        "pretrain": "speed.pretrain",
        "serving_soak": "speed.soak:serving_soak",
        "serving_trouble": "speed.soak:serving_trouble",
        "answer_times": "speed.answer_times",
        "cuda": "speed.cuda",
        "padding": "speed.finetune_work:padding",
        "vectors": "speed.vectors:vectors",
        "encode": "speed.vectors:encode",
        "search": "speed.search",
        "cluster": "speed.cluster",
    },
    "Scores": {
        "compare": "scores.compare",
        "distill": "scores.distill",
        "small_data": "scores.small_data",
        "no_labels": "scores.no_labels",
        "label_errors": "scores.labels:label_errors",
        "suggested_labels": "scores.labels:suggested_labels",
        "own_model": "scores.compare:own_model",
        "cloze": "scores.masked_words:cloze",
        "masked_tokens": "scores.masked_words:masked_tokens",
        "word_pairs": "scores.word_pairs",
        "int8": "scores.compare:int8",
        "vocabulary": "scores.vocabulary",
    },
    "tidybert-small": {"small_prepare": "small.prepare", "small_train": "small.train"},
    "Checks": {"fingerprints": "fingerprints", "pack_model": "pack_model"},
}
"""By kind and by name the script: a module's ``main``, or another function of a module.

It takes a parser, whose help is the docstring of the module, or that of the other function.
"""


def first_line(script: str) -> str:
    """What a script says of itself; it is not imported, because PyTorch takes a while."""
    module, _, name = script.partition(":")
    path = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (each for each in tree.body if isinstance(each, ast.FunctionDef))
    said = next((each for each in functions if each.name == name), tree)
    return (ast.get_docstring(said) or "").partition("\n")[0]


def main() -> int:
    known = {name: script for scripts in SCRIPTS.values() for name, script in scripts.items()}
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in known:
        for kind, scripts in SCRIPTS.items():
            print(f"{kind}:")
            for each, script in scripts.items():
                print(f"  {each:18}{first_line(script)}")
        print("python -m benchmarks NAME --help shows the flags of one.")
        return 0 if name in ("--help", "-h") else 2
    sys.argv = [f"python -m benchmarks {name}", *sys.argv[2:]]
    try:
        module, _, function = known[name].partition(":")
        found = import_module(f"benchmarks.{module}")
        run = getattr(found, function or "main")
        parser = argparse.ArgumentParser(
            description=inspect.getdoc(run) if function else found.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        return int(run(parser) or 0)
    except TidyBertError as error:
        print(f"error: {in_shell(str(error.message))}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
