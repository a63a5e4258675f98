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

_NAMES: Final = {
    "Speed, beside transformers": {
        "speed.infer": "tokenize infer engines", "speed.training": "finetune pretrain",
        "speed.serve": "serve answer_times serving_soak serving_trouble",
        "speed.vectors": "vectors encode search cluster", "speed.cuda": "cuda",
        "speed.download": "download", "speed.kernels": "kernels", "speed.relatives": "relatives",
        "speed.light": "light",
    },
    "Scores": {
        "scores.compare": "compare full_sets int8 padding distill",
        "scores.labels": "small_data label_errors soft_labels",
        "scores.label_curves": "label_curves",
        "scores.active_learning": "suggested_labels asked_texts",
        "scores.words": "cloze masked_tokens word_pairs vocabulary",
        "scores.no_labels": "no_labels",
        "scores.topics": "topics",
        "scores.entities": "entities",
    },
    "tidybert-small": {"small.train": "small_prepare small_train"},
    "Checks": {"fingerprints": "fingerprints", "pack_model": "pack_model"},
}  # fmt: skip
SCRIPTS: Final = {
    kind: {name: module for module, names in modules.items() for name in names.split()}
    for kind, modules in _NAMES.items()
}
"""By kind and by name the module whose function of that name takes a parser."""
EVERYWHERE: Final = """\
Sides take turns, and a side that trains or answers is a process of its own.  Each line of --out is
a measurement: a stopped script goes on from there.  Public data is read from TIDYBERT_DATA, or
../shared/data; without it texts to time are the bundled tickets.
"""


def first_line(name: str, module: str) -> str:
    """What a script says of itself; it is not imported, because PyTorch takes a while."""
    path = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = next(
        each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == name
    )
    return (ast.get_docstring(found) or ast.get_docstring(tree) or "").partition("\n")[0]


def main() -> int:
    known = {name: script for scripts in SCRIPTS.values() for name, script in scripts.items()}
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in known:
        for kind, scripts in SCRIPTS.items():
            print(f"{kind}:")
            for each, module in scripts.items():
                print(f"  {each:18}{first_line(each, module)}")
        print("python -m benchmarks NAME --help shows the flags of one.")
        return 0 if name in ("--help", "-h") else 2
    sys.argv = [f"python -m benchmarks {name}", *sys.argv[2:]]
    try:
        found = import_module(f"benchmarks.{known[name]}")
        run = getattr(found, name)
        parser = argparse.ArgumentParser(
            description=inspect.getdoc(run) or found.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=EVERYWHERE,
        )
        return int(run(parser) or 0)
    except TidyBertError as error:
        print(f"error: {in_shell(str(error.message))}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
