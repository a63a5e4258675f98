"""Time answers from ONNX graphs beside ONNX Runtime itself and beside PyTorch, and compare answers.

Each head gets random weights on MODEL's encoder, and a graph from tidybert convert.  ONNX Runtime
itself runs the very batches that tidybert hands it, ids to logits: it makes no ids and no answers.
All seconds are of the processor, on one thread; those from the shell are of the whole process.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.harness import datasets, script
from benchmarks.speed.infer import lone_texts
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.errors import TidyBertError
from tidybert.export.onnx_export import export_onnx
from tidybert.inference.predictor import Predictor
from tidybert.system.cores import use_threads
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.multiple_choice import MultipleChoice
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.regression import Regression
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors

SIDES: Final = ("graph", "onnxruntime", "torch")
_LONE_CALLS: Final = 20
_LENGTH: Final = 128
_SHELL_TEXT: Final = "a film that nobody will forget"
_EXAMPLE: Final = script.ROOT / "examples" / "onnx_without_tidybert.py"

Texts = list[str]
HEADS: Final[Mapping[str, tuple[Any, Callable[[Texts], Any]]]] = {
    "classify": (Classification(["0", "1"], temperature=1.5), lambda texts: None),
    "multi-label": (MultiLabelClassification(["a", "b", "c"], {"a": 0.4}), lambda texts: None),
    "regress": (Regression(), lambda texts: texts[::-1]),
    "choose": (MultipleChoice(), lambda texts: [texts[at - 2 : at] or texts[:2]
                                                for at in range(len(texts))]),
    "answer": (QuestionAnswering(no_answers=True, max_query_length=32), lambda texts: texts[::-1]),
    "tag": (Tagging(["O", "B-X", "I-X"]), lambda texts: None),
    "embed": (SentenceVectors(), lambda texts: None),
}  # fmt: skip
"""By name the task, and from texts the second ones that it takes."""


def write_head(model: str, name: str, folder: Path) -> tuple[Path, Path]:
    """A RUN with a head of random weights, and the directory of its graph."""
    (task, _), origin = HEADS[name], ModelDirectory.open(model)
    run, graph = folder / name, folder / f"{name}-onnx"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network, _ = origin.build(task.build_model, new_head=True)
    length = min(_LENGTH, origin.config.max_position_embeddings)
    save_model_directory(
        run, model_state=network.state_dict(), config=origin.config, tokenizer=origin.tokenizer,
        metadata=ModelMetadata(task.name, task.label_names, length, settings=task.settings()),
        architecture=type(network).__name__, problem_type=task.problem_type,
        sentence=task.sentence_form(length),
    )  # fmt: skip
    export_onnx(ModelDirectory(run), graph)
    return run, graph


def difference(found: Any, expected: Any) -> float:
    """The largest of two numbers in the same place; infinite where anything else differs."""
    if type(found) is not type(expected):
        return float("inf")
    if isinstance(expected, float):
        return abs(float(found) - expected)
    if isinstance(expected, dict):
        if found.keys() != expected.keys():
            return float("inf")
        found, expected = [*found.values()], [*expected.values()]
    if not isinstance(expected, list):
        return 0.0 if found == expected else float("inf")
    if len(found) != len(expected):
        return float("inf")
    return max(map(difference, found, expected), default=0.0)


def compared(graph: Any, run: Any, texts: Texts, seconds: Any) -> tuple[float, int]:
    """The largest difference of equal answers, and how many answers differ in another way."""
    pairs = zip(graph.predict(texts, seconds), run.predict(texts, seconds), strict=True)
    apart = [difference(*pair) for pair in pairs]
    inside = [each for each in apart if each != float("inf")]
    return max(inside, default=0.0), len(apart) - len(inside)


# --- the same batches


class _Kept:
    """A session that keeps what it is given."""

    def __init__(self, session: Any) -> None:
        self.session, self.batches = session, list[tuple[list[str], dict[str, Any]]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def run(self, names: list[str], given: dict[str, Any]) -> Any:
        self.batches.append((names, given))
        return self.session.run(names, given)


@contextmanager
def _kept(model: Any) -> Any:
    own = model.session
    model._session = kept = _Kept(own)
    try:
        yield kept
    finally:
        model._session = own


def bench_texts(
    graph: Predictor[Any], run: Predictor[Any], texts: Texts, rounds: int
) -> dict[str, Any]:
    """What ``take_rounds`` finds: texts a second of the processor, and ms of each lone text."""
    groups: dict[str, Texts] = {"texts_per_second": texts}
    for size, text in lone_texts(graph.tokenizer, texts, graph.max_seq_length).items():
        groups[f"ms_of_{size}_tokens"] = [text]
    model: Any = graph.model
    session, batches = model.session, dict[str, list[tuple[list[str], dict[str, Any]]]]()
    for name, group in groups.items():
        with _kept(model) as kept:
            graph.predict(group)
        batches[name] = kept.batches

    def bare(name: str) -> None:
        for names, given in batches[name]:
            session.run(names, given)

    def answer(side: str, name: str) -> None:
        {"graph": graph, "torch": run}[side].predict(groups[name])

    def measure(side: str) -> dict[str, float]:
        found = {}
        for name, group in groups.items():
            work = partial(bare, name) if side == "onnxruntime" else partial(answer, side, name)
            if len(group) > 1:
                found[name] = len(group) / script.timed(work)[2]
                continue
            work()
            calls = partial(lambda work: [work() for _ in range(_LONE_CALLS)], work)
            found[name] = 1000 * script.timed(calls)[2] / _LONE_CALLS
        return found

    return script.take_rounds(SIDES, rounds, measure)


# --- from the shell


def bench_shell(python: str, run: Path, graph: Path, rounds: int) -> dict[str, Any]:
    """What ``take_rounds`` finds: processor seconds and peak MiB of a process with one answer."""
    predict = [python, "-m", "tidybert", "predict"]
    asked = ["--input", _SHELL_TEXT, "--json"]
    commands = {
        "graph": [*predict, str(graph), *asked],
        "onnxruntime": [python, str(_EXAMPLE), str(graph), _SHELL_TEXT],
        "torch": [sys.executable, *predict[1:], str(run), *asked],
    }

    def measure(side: str) -> dict[str, float]:
        return processor_of(commands[side])

    for side in SIDES:
        # Python compiles the modules once.
        measure(side)
    return script.take_rounds(SIDES, rounds, measure)


# The peak of a process counts that of the process which began it, so a small one stands between.
_BETWEEN: Final = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"seconds": used.ru_utime + used.ru_stime, "MiB": used.ru_maxrss / 1024}))
sys.stderr.buffer.write(done.stdout[-2000:] + done.stderr[-2000:])
sys.exit(done.returncode)
"""


def processor_of(command: Sequence[str]) -> dict[str, float]:
    """The processor's seconds and the peak MiB of a command; TidyBertError if it fails."""
    written = os.environ.items() - {("PYTHONDONTWRITEBYTECODE", "1")}
    environment = {**dict(written), "OMP_NUM_THREADS": "1"}
    between = [sys.executable, "-S", "-c", _BETWEEN, *command]
    done = subprocess.run(between, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TidyBertError(f"{command[0]} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def light(parser: argparse.ArgumentParser) -> None:
    """Answers without PyTorch: equal to those with it, how fast, and what one costs in the shell.

    --python names the Python of an environment that has only tidybert-light, for the shell's rows;
    the side with PyTorch always runs in this one.
    """
    script.add_number(parser, "num-texts", 2000, "texts a head")
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=[*HEADS], metavar="HEAD")
    parser.add_argument("--python", default=sys.executable, metavar="FILE")
    given = script.parse(parser, "model rounds json")
    use_threads(1)
    torch.set_num_threads(1)
    source, texts = datasets.mixed_texts()
    texts = list(islice(texts, given.num_texts))
    remarks, apart = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name in dict.fromkeys(["classify", *given.heads]):
            run, graph = write_head(given.model, name, Path(folder))
            sides = Predictor[Any](graph), Predictor[Any](run, precision="float32")
            if name == "classify":
                result = bench_texts(*sides, texts, given.rounds)
                shell = bench_shell(given.python, run, graph, given.rounds)
            if name in given.heads:
                apart[name] = compared(*sides, texts, HEADS[name][1](texts))
                largest, others = apart[name]
                remarks.append(f"{name}: {others} answers differ, the others by {largest:.1e}")
                script.note(remarks[-1])
    for part in ("samples", "medians"):
        for side, values in shell[part].items():
            result[part][side] |= {f"shell_{name}": each for name, each in values.items()}
    result["ratios"] |= {f"shell_{name}": each for name, each in shell["ratios"].items()}
    result |= {"apart": apart, "threads": 1}
    rows = {"texts a second": "texts_per_second"}
    sizes = [each for each in result["medians"]["graph"] if each.startswith("ms_of_")]
    rows |= {f"ms of one text of {each.split('_')[2]} tokens": each for each in sizes}
    rows |= {"one answer in the shell, s": "shell_seconds", "… peak MiB": "shell_MiB"}
    title = f"Without PyTorch: {len(texts):,} texts of {source}, {given.model}, processor time"
    script.print_speed(given, title, result, rows, remarks)
