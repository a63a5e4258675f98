"""What the house costs, counted: python tests/ledger.py [--write] [--against FILE] [--at FOLDER].

It prints the counts of this checkout, or of the one in FOLDER, beside those of tests/ledger.json,
or FILE.  ``--write`` stores them.  It is a mirror: tests/test_house.py fails only where a thing has
more places that declare it than are stored (``HELD``).

The law: a thing is declared once and handed on whole.  The counts are of src/tidybert by syntax
tree and tokenizer, unless it says otherwise:

files, lines        Python files and their lines.  Each line is one of:
imports             a line of an import, at the top or inside a function
docstrings          a line of a text that stands alone as a statement
blanks, comments    a line with nothing, or with a comment alone
bodies              any other line inside the body of a function
declarations        any other line: heads of functions and classes, fields, decorators, constants
functions           functions and methods; median_function: their median length in lines
single_callers      functions whose name no other function has, and which the code names in exactly
                    one place beside its definition; imports are no place, names with __ not counted
dataclasses, fields classes with @dataclass; annotated fields in them, without ClassVar
handed_on           parameters (of all: parameters) with at least one use, each use of which hands
                    the parameter, under its own name, to a function or class of src: as a keyword
                    of that name, or at a place where the called name has a parameter of that name.
                    Functions are matched by name, fields of a dataclass and of its bases count as
                    its parameters; self, cls, *args and **kwargs are not counted
raises              raise statements
callbacks           parameters and fields whose type is a Callable that returns None, or a name that
                    stands for one
guide_words         words of README.md and docs/*.md
benchmark_lines     lines of the Python files under benchmarks/

Places that declare one thing, as means over examples of it.  What stays when all is declared
once is not 1 but small: a name must be written where it is used, too.

training_flag, inference_flag, server_flag
                    lines on which one of the flags in FLAGS is an annotated field, a parameter, an
                    assigned attribute, a keyword or a key, or a text of its own ("freeze_layers")
metric              the same lines for METRICS
file_format         lines with the name or the suffix of one of FORMATS as a text of its own
input_kind          files with one of the names or texts by which KINDS are known
head                lines with the name of one of HEADS, as a name or a text of its own
protocol            lines of server/ with a name that begins with that of one of PROTOCOLS, or a
                    text of its own that does, outside the files of that protocol
model_openings      functions and classes with a parameter or a field allow_pickle: each opens a
                    model by itself, or hands the question on
journals            raise statements whose text says that an output was begun or made with other
                    settings, or that nothing was begun there
"""

import argparse
import ast
import io
import json
import re
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEDGER = Path(__file__).with_suffix(".json")

FLAGS = {
    "training_flag": ("freeze_embeddings", "early_stopping_patience", "warmup_proportion"),
    "inference_flag": ("truncate_dim", "n_best_size", "null_score_diff_threshold"),
    "server_flag": ("queue_tokens", "queue_inputs", "max_body"),
}
METRICS = ("matthews", "macro_f1", "log_loss")
FORMATS = ("codah", "conll", "swag")
KINDS = (
    ("ChoiceExample", "ChoiceAnswer", "ChoiceMetrics", "MultipleChoice", "choices", "choose"),
    ("TaggedExample", "TagAnswer", "TagMetrics", "Tagging", "BertTagger", "tag"),
    ("QuestionExample", "SpanAnswer", "SpanMetrics", "QuestionAnswering", "question"),
)
HEADS = ("BertForMultipleChoice", "BertForTokenClassification", "BertForQuestionAnswering")
PROTOCOLS = ("openai", "tei", "pipeline")
# The places that declare one thing: a rise is a second declaration.
HELD = (
    *FLAGS, "metric", "file_format", "input_kind", "head", "protocol", "model_openings", "journals",
)  # fmt: skip
BEGUN = re.compile(r"begun (with|there)|no (index|corpus|job) was begun|another job|was made with")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """A file: its path below src/tidybert, its text and its tree."""

    def __init__(self, path: Path, package: Path) -> None:
        self.name = path.relative_to(package).as_posix()
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)

    def kinds_of_lines(self) -> Counter[str]:
        """How many lines are of each kind; see above."""
        lines = self.text.splitlines()
        kind = ["declarations"] * len(lines)

        def mark(first: int, last: int, name: str) -> None:
            kind[first - 1 : last] = [name] * (last - first + 1)

        nodes = list(ast.walk(self.tree))
        for node in nodes:
            if isinstance(node, Function):
                mark(node.body[0].lineno, last_line(node), "bodies")
        # Walked from the outside: a function inside a body is a part of that body.
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                mark(node.lineno, last_line(node), "imports")
            elif isinstance(node, ast.Expr) and is_text(node.value):
                mark(node.lineno, last_line(node), "docstrings")
        in_text = {
            line
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline)
            if token.type == tokenize.STRING
            for line in range(token.start[0], token.end[0] + 1)
        }
        for number, line in enumerate(lines, 1):
            if not line.strip() and kind[number - 1] != "docstrings":
                kind[number - 1] = "bodies" if number in in_text else "blanks"
            elif line.lstrip().startswith("#") and number not in in_text:
                kind[number - 1] = "comments"
        return Counter(kind)


def last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


class House:
    """The files of a checkout, and what is found in them."""

    def __init__(self, root: Path) -> None:
        self.root, package = root, root / "src" / "tidybert"
        self.sources = [Source(path, package) for path in sorted(package.rglob("*.py"))]
        self.nodes = [(one, node) for one in self.sources for node in ast.walk(one.tree)]
        self.functions = [node for _, node in self.nodes if isinstance(node, Function)]
        self.classes = [node for _, node in self.nodes if isinstance(node, ast.ClassDef)]

    def counts(self) -> dict[str, float]:
        lines: Counter[str] = Counter()
        for source in self.sources:
            lines += source.kinds_of_lines()
        lengths = [last_line(node) - node.lineno + 1 for node in self.functions]
        handed_on, parameters = self.handed_on()
        guides = [self.root / "README.md", *(self.root / "docs").glob("*.md")]
        return {
            "files": len(self.sources),
            "lines": sum(lines.values()),
            **{
                name: lines[name]
                for name in (
                    "bodies",
                    "declarations",
                    "docstrings",
                    "imports",
                    "blanks",
                    "comments",
                )
            },
            "functions": len(self.functions),
            "median_function": int(statistics.median(lengths)),
            "single_callers": self.single_callers(),
            "dataclasses": sum(map(is_dataclass, self.classes)),
            "fields": sum(len(fields_of(each)) for each in self.classes if is_dataclass(each)),
            "parameters": parameters,
            "handed_on": handed_on,
            "raises": sum(isinstance(node, ast.Raise) for _, node in self.nodes),
            "callbacks": self.callbacks(),
            "guide_words": sum(len(path.read_text(encoding="utf-8").split()) for path in guides),
            "benchmark_lines": sum(
                len(path.read_text(encoding="utf-8").splitlines())
                for path in (self.root / "benchmarks").rglob("*.py")
            ),
            **self.declarations(),
        }

    def declarations(self) -> dict[str, float]:
        """The counts of HELD."""
        return {
            **{name: self.mean(self.declared, flags) for name, flags in FLAGS.items()},
            "input_kind": self.mean(lambda names: self.files_with(set(names)), KINDS),
            "head": self.mean(self.lines_with, HEADS),
            "metric": self.mean(self.declared, METRICS),
            "file_format": self.mean(self.lines_with_format, FORMATS),
            "protocol": self.mean(self.lines_with_protocol, PROTOCOLS),
            "model_openings": self.model_openings(),
            "journals": sum(
                any(BEGUN.search(each.value) for each in ast.walk(node) if is_text(each))
                for _, node in self.nodes
                if isinstance(node, ast.Raise)
            ),
        }

    def mean(self, count: Callable[[str], int], examples: tuple[str, ...]) -> float:
        """The mean of a count; a name that is gone would make it better than it is."""
        found = {each: count(each) for each in examples}
        gone = [each for each, number in found.items() if not number]
        if gone:
            raise LookupError(f"src names {gone[0]} no more: name another example in {__file__}")
        return round(statistics.mean(found.values()), 1)

    def single_callers(self) -> int:
        defined = Counter(node.name for node in self.functions)
        named: Counter[str] = Counter()
        for _, node in self.nodes:
            if isinstance(node, ast.Name):
                named[node.id] += 1
            elif isinstance(node, ast.Attribute):
                named[node.attr] += 1
        return sum(
            number == 1 and named[name] == 1 and not name.startswith("__")
            for name, number in defined.items()
        )

    def handed_on(self) -> tuple[int, int]:
        """How many parameters are only handed on, and how many there are."""
        places = self.places()
        handed = total = 0
        for function in self.functions:
            names = set(parameters_of(function))
            total += len(names)
            used: Counter[str] = Counter()
            passed: Counter[str] = Counter()
            for statement in function.body:
                for node in ast.walk(statement):
                    if isinstance(node, ast.Name):
                        used[node.id] += 1
                    elif isinstance(node, ast.Call):
                        passed.update(passed_names(node, places.get(called_name(node), [])))
            handed += sum(0 < used[name] == passed[name] for name in names)
        return handed, total

    def places(self) -> dict[str, list[list[str]]]:
        """For each name that may be called, the parameters of those that have it."""
        found = defaultdict(list)
        for function in self.functions:
            found[function.name].append(parameters_of(function))
        classes = {each.name: each for each in self.classes}

        def fields(name: str, inside: tuple[str, ...] = ()) -> list[str]:
            # A class may have a base of its own name, of another module.
            if name not in classes or name in inside:
                return []
            bases = [plain_name(base) for base in classes[name].bases]
            inherited = [one for base in bases for one in fields(base, (*inside, name))]
            return [*inherited, *fields_of(classes[name])]

        for name, node in classes.items():
            found[name].append(fields(name))
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                    found[name].append(parameters_of(each))
        return found

    def callbacks(self) -> int:
        def is_callback(text: str) -> bool:
            return bool(re.search(r"Callable\[.*, None\]", text))

        names = {
            plain_name(target)
            for _, node in self.nodes
            if isinstance(node, ast.Assign) and is_callback(ast.unparse(node.value))
            for target in node.targets
        }
        types = [
            ast.unparse(each.annotation)
            for function in self.functions
            for each in arguments_of(function)
            if each.annotation is not None
        ]
        types += [
            ast.unparse(each.annotation)
            for found in self.classes
            for each in found.body
            if isinstance(each, ast.AnnAssign)
        ]
        return sum(is_callback(text) or text.split(" ")[0] in names for text in types)

    def declared(self, name: str) -> int:
        """Lines that declare a name: fields, parameters, keywords, keys and texts of their own."""
        return len(self.declaring[name])

    @cached_property
    def declaring(self) -> dict[object, set[tuple[str, int]]]:
        """By name, the file and line of each such place."""
        found = defaultdict(set)
        for source, node in self.nodes:
            match node:
                case (
                    ast.AnnAssign(target=ast.Name(id=name))
                    | ast.arg(arg=name)
                    | ast.keyword(arg=name)
                    | ast.Attribute(attr=name, ctx=ast.Store())
                    | ast.Constant(value=name)
                ):
                    found[name].add((source.name, node.lineno))
        return found

    def lines_with(self, name: str) -> int:
        return len({place for place, text in self.names if text == name})

    def lines_with_format(self, name: str) -> int:
        return len({place for place, text in self.names if text.removeprefix(".") == name})

    def lines_with_protocol(self, name: str) -> int:
        of_protocol = re.compile(rf"_?{name}([_A-Z]|$)", re.IGNORECASE)
        return len(
            {
                place
                for place, text in self.names
                if place[0].startswith("server/")
                and not Path(place[0]).name.startswith(name)
                and of_protocol.match(text)
            }
        )

    def files_with(self, names: set[str]) -> int:
        return len({file for (file, _), text in self.names if text in names})

    @cached_property
    def names(self) -> list[tuple[tuple[str, int], str]]:
        """Each name and each text of the code, without docstrings, with its file and line."""
        found = []
        for source, node in self.nodes:
            match node:
                case (
                    ast.Name(id=text)
                    | ast.Attribute(attr=text)
                    | ast.alias(name=text)
                    | ast.ClassDef(name=text)
                    | ast.FunctionDef(name=text)
                    | ast.Constant(value=str(text))
                ):
                    found.append(((source.name, node.lineno), text))
        return found

    def model_openings(self) -> int:
        functions = sum("allow_pickle" in parameters_of(each) for each in self.functions)
        return functions + sum("allow_pickle" in fields_of(each) for each in self.classes)


def is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(each) for each in node.decorator_list)


def fields_of(node: ast.ClassDef) -> list[str]:
    return [
        plain_name(each.target)
        for each in node.body
        if isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.unparse(each.annotation)
    ]


def arguments_of(function: Function) -> Iterator[ast.arg]:
    given = function.args
    for each in (*given.posonlyargs, *given.args, *given.kwonlyargs):
        if each.arg not in ("self", "cls"):
            yield each


def parameters_of(function: Function) -> list[str]:
    return [each.arg for each in arguments_of(function)]


def plain_name(node: ast.AST) -> str:
    """``Base`` of Base, module.Base and Base[Any]."""
    if isinstance(node, ast.Subscript):
        return plain_name(node.value)
    return getattr(node, "id", getattr(node, "attr", ""))


def called_name(call: ast.Call) -> str:
    return plain_name(call.func)


def passed_names(call: ast.Call, places: list[list[str]]) -> Iterator[str]:
    """The names that a call hands to a parameter of the same name."""
    for each in call.keywords:
        if is_name(each.value, each.arg) and any(each.arg in place for place in places):
            yield each.arg
    for number, value in enumerate(call.args):
        if any(is_name(value, *place[number : number + 1]) for place in places):
            yield value.id


def is_name(node: ast.expr, *names: str | None) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def above(now: dict[str, float], before: dict[str, float]) -> list[str]:
    """The counts of declarations that have risen, in words."""
    return [
        f"{name}: {now[name]:,} (the ledger has {before[name]:,})"
        for name in HELD
        if name in now and now[name] > before.get(name, now[name])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="store the counts")
    parser.add_argument("--against", type=Path, default=LEDGER, help="counts to compare with")
    parser.add_argument("--at", type=Path, default=ROOT, help="another checkout")
    given = parser.parse_args()
    counts = House(given.at).counts()
    before = json.loads(given.against.read_text()) if given.against.exists() else {}
    for name, count in counts.items():
        other = f"{before[name]:>10,}" if name in before else ""
        print(f"{name:<16}{count:>10,}{other}")
    if given.write:
        LEDGER.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
