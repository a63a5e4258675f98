"""Time answers from ONNX graphs beside ONNX Runtime itself and beside PyTorch, and compare answers.

Each head gets random weights on MODEL's encoder, and a graph from tidybert convert.  ONNX Runtime
itself runs the very batches that tidybert hands it, ids to logits: it makes no ids and no answers.
The server's seconds are those of its process, while clients in another one send a text a request.
All seconds are of the processor, on one thread; those from the shell are of the whole process.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any, Final

import torch

from benchmarks.harness import datasets, script
from benchmarks.speed import servers
from benchmarks.speed.infer import lone_texts
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.errors import TidyBertError
from tidybert.export.onnx_export import export_onnx
from tidybert.inference.predictor import Predictor
from tidybert.inference.pretraining_heads import MaskFiller, NextSentencePredictor
from tidybert.modeling.heads import BertForPreTraining
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

_CLIENTS: Final = 32
_SERVED: Final = 640
"""Texts of a load."""
_PRETRAINING: Final = ("fill-mask", "next-sentence")

Texts = list[str]
TASKS: Final[Mapping[str, tuple[Any, Callable[[Texts], Any]]]] = {
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
HEADS: Final = (*TASKS, *_PRETRAINING)


def write_head(model: str, name: str, folder: Path) -> tuple[Path, Path]:
    """A RUN with a head of random weights, and its graph's directory; those there already stay."""
    kind = "pretrain" if name in _PRETRAINING else name
    run, graph = folder / kind, folder / f"{kind}-onnx"
    if graph.exists():
        return run, graph
    origin = ModelDirectory.open(model)
    length = min(_LENGTH, origin.config.max_position_embeddings)
    if name in _PRETRAINING:
        build, metadata = BertForPreTraining, ModelMetadata("pretrain", max_seq_length=length)
        more: dict[str, Any] = {}
    else:
        task, _ = TASKS[name]
        build = task.build_model
        metadata = ModelMetadata(task.name, task.label_names, length, settings=task.settings())
        more = {"problem_type": task.problem_type, "sentence": task.sentence_form(length)}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network, _ = origin.build(build, new_head=True)
    save_model_directory(
        run, model_state=network.state_dict(), config=origin.config, tokenizer=origin.tokenizer,
        metadata=metadata, architecture=type(network).__name__, **more,
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


def answers(name: str, model: Path, texts: Texts) -> list[Any]:
    """Those of a head to texts; fill-mask hides the word in the middle of each."""
    if name == "fill-mask":
        filler = MaskFiller(model, precision="float32")
        split = [each.split()[:40] for each in texts]
        hidden = filler.tokenizer.mask_token
        masked = [
            " ".join([*words[: len(words) // 2], hidden, *words[len(words) // 2 + 1 :]])
            for words in split
        ]
        return filler.fill(masked)
    if name == "next-sentence":
        return NextSentencePredictor(model, precision="float32").predict(texts, texts[::-1])
    predictor = Predictor[Any](model, precision="float32")
    return predictor.predict(texts, TASKS[name][1](texts))


def compared(name: str, graph: Path, run: Path, texts: Texts) -> tuple[float, int]:
    """The largest difference of equal answers, and how many answers differ in another way."""
    pairs = zip(answers(name, graph, texts), answers(name, run, texts), strict=True)
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

    def again(self) -> None:
        for names, given in self.batches:
            self.session.run(names, given)


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
    batches = dict[str, _Kept]()
    for name, group in groups.items():
        with _kept(model) as batches[name]:
            graph.predict(group)

    def answer(side: str, name: str) -> None:
        {"graph": graph, "torch": run}[side].predict(groups[name])

    def measure(side: str) -> dict[str, float]:
        found = {}
        for name, group in groups.items():
            work = batches[name].again if side == "onnxruntime" else partial(answer, side, name)
            if len(group) > 1:
                found[name] = len(group) / script.timed(work)[2]
                continue
            work()
            calls = partial(lambda work: [work() for _ in range(_LONE_CALLS)], work)
            found[name] = 1000 * script.timed(calls)[2] / _LONE_CALLS
        return found

    return script.take_rounds(SIDES, rounds, measure)


# --- the server


def run_served(_side: str, given: dict[str, Any]) -> dict[str, float]:
    """ms of this process for each text that it serves, and of ONNX Runtime for the same batches."""
    from tidybert.server.app import make_app
    from tidybert.server.engine import Engine
    from tidybert.server.process import serve as serve_models
    from tidybert.server.settings import ServerSettings

    side, engines = servers.our_side(given["model"]), list[Engine]()
    found, sessions, errors = dict[str, float](), list[_Kept](), list[Exception]()

    def ask(port: int) -> None:
        load = servers.Load(port, side.path, given["bodies"], given["count"], _CLIENTS)
        asking = partial(servers.asked, side, load)
        try:
            asking()
            if given["is_graph"]:
                with _kept(engines[0].model(None).encoder) as kept:
                    found["served"] = script.timed(asking)[2]
                sessions.append(kept)
            else:
                found["served"] = script.timed(asking)[2]
        except TidyBertError as error:
            errors.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def say(line: str) -> None:
        if line.startswith("ready on "):
            Thread(target=ask, args=[int(line.rpartition(":")[2])]).start()

    def app(engine: Engine) -> Any:
        engines.append(engine)
        return make_app(engine)

    settings = ServerSettings(models={"bench": given["model"]}, port=0, precision="float32")
    serve_models(settings, say, log_requests=False, app=app)
    if errors:
        raise errors[0]
    for each in sessions:
        found["onnxruntime"] = script.timed(each.again)[2]
    return {name: 1e3 * seconds / given["count"] for name, seconds in found.items()}


def bench_server(run: Path, graph: Path, texts: Texts, rounds: int) -> dict[str, Any]:
    """What ``take_rounds`` finds: ms of the processor for a text of one of many clients."""
    tokenizer = ModelDirectory.open(str(run)).tokenizer
    cut = [servers.cut_text(each, tokenizer, _LENGTH) for each in texts]
    bodies = servers.write_bodies(servers.our_side(""), cut, graph.parent / "bodies")
    waiting: dict[str, list[float]] = {"graph": [], "onnxruntime": []}

    def served(directory: Path) -> dict[str, Any]:
        work = {"bodies": bodies, "count": len(texts), "is_graph": directory == graph}
        return script.run_apart(run_served, directory.name, {**work, "model": str(directory)}, 1)

    def measure(side: str) -> dict[str, float]:
        if side == "torch":
            return {"served_ms": served(run)["served"]}
        if not waiting[side]:
            both = served(graph)
            waiting["graph"].append(both["served"])
            waiting["onnxruntime"].append(both["onnxruntime"])
        return {"served_ms": waiting[side].pop()}

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
        found = processor_of(commands[side])
        return {f"shell_{name}": each for name, each in found.items()}

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
            if name == "classify":
                sides = Predictor[Any](graph), Predictor[Any](run, precision="float32")
                result = bench_texts(*sides, texts, given.rounds)
                beside = [
                    bench_server(run, graph, texts[:_SERVED], given.rounds),
                    bench_shell(given.python, run, graph, given.rounds),
                ]
            if name in given.heads:
                apart[name] = compared(name, graph, run, texts)
                largest, others = apart[name]
                remarks.append(f"{name}: {others} answers differ, the others by {largest:.1e}")
                script.note(remarks[-1])
    for each in beside:
        for part in ("samples", "medians"):
            for side, values in each[part].items():
                result[part][side] |= values
        result["ratios"] |= each["ratios"]
    result |= {"apart": apart, "threads": 1}
    rows = {"texts a second": "texts_per_second"}
    sizes = [each for each in result["medians"]["graph"] if each.startswith("ms_of_")]
    rows |= {f"ms of one text of {each.split('_')[2]} tokens": each for each in sizes}
    rows |= {f"ms of a text served, {_CLIENTS} clients": "served_ms"}
    rows |= {"one answer in the shell, s": "shell_seconds", "… peak MiB": "shell_MiB"}
    title = f"Without PyTorch: {len(texts):,} texts of {source}, {given.model}, processor time"
    script.print_speed(given, title, result, rows, remarks)
