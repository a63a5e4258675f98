"""Mutations: do the tests notice a wrong line?  python tests/mutations.py --count 500

A mutation changes one expression of the package: another comparison, another operator, a constant
that is one more, a condition turned round.  Each runs, in a copy of the checkout, the tests that
run its line, until the first one fails.  A mutation that no test notices survives, and its line is
shown: either a test is missing, or the change makes no difference.

The whole suite runs once, with coverage, to learn which tests run which line; --map keeps that.
--out keeps what was tried, so a stopped run continues.
"""

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).parents[1]
COPIED: Final = (
    "src", "tests", "benchmarks", "docs", "examples", "packaging", "pyproject.toml", "README.md",
    "Makefile", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "NOTICE", "setup.py",
    "MANIFEST.in", "mkdocs.yml", "CITATION.cff",
)  # fmt: skip
HEAVY: Final = (
    "torch", "torch._dynamo", "pyarrow.parquet", "sklearn.linear_model", "scipy.optimize",
    "transformers", "tokenizers", "hypothesis", "typer", "fastapi.testclient", "httpx", "pytest",
)  # fmt: skip
"""Imported once, so that a fork has them."""
MOST_SECONDS: Final = 40.0
"""Tests of a mutation are left out beyond this; the fastest come first."""
HANGS: Final = 5
"""A run of tests that takes so many times as long as without a mutation hangs, which is noticed."""

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
    for number in range(len(list(_places(ast.parse(source))))):
        yield mutated(module, source, number)


def mutated(module: str, source: str, number: int) -> tuple[Mutation, str]:
    """One of them."""
    tree = ast.parse(source)
    node, change = list(_places(tree))[number]
    was = ast.unparse(node)
    change()
    return Mutation(module, node.lineno, was, ast.unparse(node)), ast.unparse(tree)


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


@dataclass(frozen=True)
class Coverage:
    """Which tests run a line, and how long each takes.

    tests: of "module:line" the tests' ids.  seconds: of a test's id.
    """

    tests: dict[str, list[str]]
    seconds: dict[str, float]

    @classmethod
    def measured(cls, checkout: Path) -> "Coverage":
        """Run the whole suite of a copy once."""
        from coverage import CoverageData

        data, times = checkout / "coverage.db", checkout / "times.xml"
        source = checkout / "src/tidybert"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]
        command += [f"--cov={source}", "--cov-context=test", "--cov-report=", f"--junitxml={times}"]
        subprocess.run(
            command, cwd=checkout, env=_environment(checkout, COVERAGE_FILE=str(data)), check=False
        )
        seconds: dict[str, float] = {}
        for case in ElementTree.parse(times).iter("testcase"):
            file = case.attrib["classname"].replace(".", "/") + ".py"
            if not list(case):  # neither failed nor skipped
                seconds[f"{file}::{case.attrib['name']}"] = float(case.attrib["time"])
        found, read = defaultdict(list), CoverageData(str(data))
        read.read()
        for path in read.measured_files():
            module = str(Path(path).relative_to(source))
            for line, contexts in read.contexts_by_lineno(path).items():
                ids = {each.rpartition("|")[0] for each in contexts}
                found[f"{module}:{line}"] = sorted(ids & seconds.keys())
        return cls(dict(found), seconds)

    def chosen(self, mutation: Mutation) -> tuple[list[str], float]:
        """The tests that should notice, the module's own first, and their seconds."""
        own = f"/test_{Path(mutation.module).stem}.py::"
        room = f"tests/{Path(mutation.module).parts[0]}/"
        ids = set(self.tests.get(f"{mutation.module}:{mutation.line}", ()))
        # What a fixture of the session runs is known of its first test alone.
        ids |= {each for each in self.seconds if own in each and each.startswith(room)}
        if not ids:
            ids = {each for each in self.seconds if each.startswith(room)}
        chosen, total = [], 0.0
        for each in sorted(ids, key=lambda one: (own not in one, self.seconds[one], one)):
            total += self.seconds[each]
            if chosen and total > MOST_SECONDS:
                break
            chosen.append(each)
        return chosen, total


def _environment(checkout: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(checkout / "src"), str(checkout)])
    settings = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **settings, **more}


def passes(checkout: Path, tests: Sequence[str], seconds: float) -> bool:
    """Whether the tests pass in so many seconds, in a fork of this process."""
    if not (child := os.fork()):
        os.setsid()
        os.chdir(checkout)
        sys.dont_write_bytecode = True
        os.environ.update(_environment(checkout))
        sys.path[:0] = [str(checkout / "src"), str(checkout)]
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        import pytest

        status = 1
        try:
            status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def survives(
    checkout: Path, module: Path, changed: str, tests: Sequence[str], seconds: float
) -> bool:
    """Whether the tests pass with a changed module, which then is as before."""
    before = module.read_text(encoding="utf-8")
    module.write_text(changed, encoding="utf-8")
    try:
        return passes(checkout, tests, seconds)
    finally:
        module.write_text(before, encoding="utf-8")


def drawn(count: int, seed: int) -> list[tuple[Mutation, str]]:
    """So many mutations of the package, each place as likely as any other."""
    source, random_order = ROOT / "src/tidybert", random.Random(seed)
    modules = [str(each.relative_to(source)) for each in sorted(source.rglob("*.py"))]
    texts = {each: (source / each).read_text(encoding="utf-8") for each in modules}
    places = [
        (each, number)
        for each, text in texts.items()
        for number in range(len(list(_places(ast.parse(text)))))
    ]
    return [
        mutated(each, texts[each], number) for each, number in random_order.sample(places, count)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=500, help="mutations, at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--map", type=Path, help="a file with the tests of each line, kept")
    parser.add_argument("--out", type=Path, help="a file with a line for each that was tried")
    given = parser.parse_args()
    tried: list[dict[str, Any]] = []
    if given.out and given.out.exists():
        tried = [json.loads(line) for line in given.out.read_text().splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder)
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, checkout / name)
            elif (ROOT / name).exists():
                shutil.copy(ROOT / name, checkout)
        if given.map and given.map.exists():
            coverage = Coverage(**json.loads(given.map.read_text()))
        else:
            coverage = Coverage.measured(checkout)
            if given.map:
                given.map.write_text(json.dumps(asdict(coverage)))
        for name in HEAVY:
            import_module(name)
        for mutation, changed in drawn(given.count, given.seed):
            key = asdict(mutation)
            if any(key.items() <= each.items() for each in tried):
                continue
            tests, seconds = coverage.chosen(mutation)
            module = checkout / "src/tidybert" / mutation.module
            lives = survives(checkout, module, changed, tests, 30 + HANGS * seconds)
            tried.append({**key, "tests": len(tests), "survives": lives})
            if given.out:
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(tried[-1]) + "\n")
            if lives:
                shown = f"{mutation.was}  ->  {mutation.became}"
                print(f"{mutation.module}:{mutation.line}: {shown}", flush=True)
    lived = sum(each["survives"] for each in tried)
    print(f"{len(tried) - lived} of {len(tried)} mutations are noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
