"""Mutations: do the tests notice a wrong line?  python tests/mutations.py --each 10

A mutation changes one expression of a module: another comparison, another operator, a constant that
is one more, a condition turned round.  Each runs, in a copy of the checkout, the tests of its
module until the first one fails.  A mutation that no test notices survives, and its line is shown:
either a test is missing, or the change makes no difference.  --out keeps what was tried, so a
stopped run continues.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
HANGS: Final = 3
"""A run of tests that takes so many times as long as without a mutation hangs, which is noticed."""

TESTS: Final[dict[str, str]] = {
    "metrics/text_scores.py": "tests/metrics",
    "metrics/entity_scores.py": "tests/metrics/test_entity_scores.py",
    "metrics/squad_scores.py": "tests/metrics/test_squad_scores.py",
    "metrics/retrieval_scores.py": "tests/metrics/test_retrieval_scores.py",
    "pretraining/batches/masking.py": "tests/pretraining/test_masking.py",
    "data/batching.py": "tests/data/test_batching.py tests/training",
    "training/fine_tuning.py": "tests/training tests/finetuning",
    "training/optimization.py": "tests/training",
    "training/loop.py": "tests/training tests/finetuning tests/pretraining",
    "training/distributed.py": "tests/training tests/pretraining/test_processes.py",
    "training/runs/run_checkpoints.py": "tests/training tests/pretraining tests/finetuning",
    "training/runs/run_record.py": "tests/training tests/pretraining tests/finetuning",
    "tasks/questions/span_answers.py": "tests/tasks/questions",
    "tasks/tags/tagging.py": "tests/tasks/tags",
    "storage/atomic_files.py": "tests/storage tests/faults",
    "storage/journal.py": "tests/storage tests/corpus tests/search",
    "storage/output_lock.py": "tests/storage tests/faults",
    "storage/part_file.py": "tests/storage tests/inference/test_vector_files.py",
}
"""Of each module the tests that should notice."""

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """A changed module: ``line`` of the original, what it ``was`` and what it ``became``."""

    module: str
    line: int
    was: str
    became: str


def mutations(module: str, source: str) -> Iterator[tuple[Mutation, str]]:
    """Each mutation of a module's source, with the whole changed source."""
    count = len(list(_places(ast.parse(source))))
    for number in range(count):
        tree = ast.parse(source)
        node, change = list(_places(tree))[number]
        was = ast.unparse(node)
        change()
        yield Mutation(module, node.lineno, was, ast.unparse(node)), ast.unparse(tree)


def _places(tree: ast.AST) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Each node that can be mutated, and what mutates it in place."""
    for node in _code(tree):
        if isinstance(node, ast.Compare):
            for at, each in enumerate(node.ops):
                if type(each) in _COMPARISONS:
                    yield node, _setter(node.ops, at, _COMPARISONS[type(each)]())
        elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
            yield node, _attribute(node, "op", _OPERATORS[type(node.op)]())
        elif isinstance(node, ast.BoolOp):
            other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node, _attribute(node, "op", other)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, _attribute(node, "value", not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield node, _attribute(node, "value", node.value + 1)
        elif isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(
            node.test, ast.Compare | ast.Constant
        ):
            turned = ast.UnaryOp(ast.Not(), node.test)
            yield node.test, _attribute(node, "test", ast.copy_location(turned, node.test))


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run: no annotations, and no checks for types alone."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.AST):
                yield child
                yield from _code(child)


def _setter(items: list[Any], at: int, value: Any) -> Callable[[], None]:
    return lambda: items.__setitem__(at, value)


def _attribute(node: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def seconds_of(checkout: Path, package: str, module: str, tests: str) -> float:
    """How long the tests take without a mutation; they must pass."""
    begin = time.perf_counter()
    source = (checkout / package / module).read_text(encoding="utf-8")
    if not survives(checkout, package, module, source, tests, None):
        raise SystemExit(f"{tests}: these tests fail without a mutation")
    return time.perf_counter() - begin


def survives(
    checkout: Path, package: str, module: str, changed: str, tests: str, seconds: float | None
) -> bool:
    """Whether the tests pass in so many seconds with a changed module, which then is as before."""
    path = checkout / package / module
    before = path.read_text(encoding="utf-8")
    path.write_text(changed, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str((checkout / package).parent), str(checkout)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    try:
        done = subprocess.run(
            [*command, *tests.split()],
            cwd=checkout,
            env=environment,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    finally:
        path.write_text(before, encoding="utf-8")
    if done.returncode not in (0, 1):
        # Tests that cannot be collected notice the mutation too; another mistake would not.
        return b"error" not in done.stdout.lower()
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--each", type=int, default=10, help="mutations of a module, at random")
    parser.add_argument("--modules", nargs="+", default=list(TESTS), choices=TESTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a file with a line for each that was tried")
    given = parser.parse_args()
    tried: list[dict[str, Any]] = []
    if given.out and given.out.exists():
        tried = [json.loads(line) for line in given.out.read_text().splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("src", "tests", "benchmarks", "docs", "examples", "packaging"):
            shutil.copytree(ROOT / name, Path(folder) / name)
        for name in ("pyproject.toml", "README.md", "Makefile", "CONTRIBUTING.md", "CHANGELOG.md"):
            shutil.copy(ROOT / name, folder)
        for module in given.modules:
            source = (ROOT / "src/tidybert" / module).read_text(encoding="utf-8")
            found = list(mutations(module, source))
            random.Random(given.seed).shuffle(found)
            work = (Path(folder), "src/tidybert", module)
            tests, seconds = TESTS[module], None
            for mutation, changed in found[: given.each]:
                key = asdict(mutation)
                if any(key.items() <= each.items() for each in tried):
                    continue
                if seconds is None:
                    seconds = 30 + HANGS * seconds_of(*work, tests)
                lives = survives(*work, changed, tests, seconds)
                tried.append({**key, "survives": lives})
                if given.out:
                    with given.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(tried[-1]) + "\n")
                if lives:
                    print(f"{module}:{mutation.line}: {mutation.was}  ->  {mutation.became}")
    lived = sum(each["survives"] for each in tried)
    print(f"{len(tried) - lived} of {len(tried)} mutations are noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
