"""Commands that write, run with faults by the program fork_server.py."""

import csv
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

# Figures of time, which differ from run to run.
_TIMES = re.compile(
    rb'"(?:tokens_per_second|seconds|started|date|time|processor|load|checksum)": [^\n]*|'
    rb'"stages": \{[^}]*\}|'
    rb"\d\d\d\d-\d\d-\d\d[ T]\d\d:\d\d[^<\"\n]*|[\d.,]+ (?:s|seconds|min|minutes)\b"
)
Snapshot = dict[str, bytes]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if Trial.points:
        shown = ", ".join(f"{name} {count}" for name, count in sorted(Trial.points.items()))
        terminalreporter.write_line(f"faults tried: {sum(Trial.points.values())} ({shown})")


@dataclass
class Process:
    """A command that ended: its status (a signal is negative), its messages, its counted calls."""

    status: int
    messages: str
    calls: int


class Server:
    """Starts commands in forked processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._logs: dict[int, Path] = {}
        program = Path(__file__).with_name("fork_server.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"},
        )

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, argv: list[str], root: Path, kind: str = "count", at: int = 0) -> int:
        self._number += 1
        log = self._folder / f"{self._number}.log"
        pid: int = self._ask(start=argv, root=str(root), log=str(log), kind=kind, at=at)["pid"]
        self._logs[pid] = log
        return pid

    def wait(self, pid: int) -> Process | None:
        """The process that ended; None where it stopped itself."""
        answer = self._ask(wait=pid)
        if "stopped" in answer:
            return None
        return Process(answer["status"], self._logs[pid].read_text(), answer["calls"])

    def go(self, pid: int) -> None:
        self._ask(go=pid)

    def run(self, argv: list[str], root: Path, kind: str = "count", at: int = 0) -> Process:
        ended = self.wait(self.start(argv, root, kind, at))
        assert ended is not None
        return ended


@dataclass
class Trial:
    """One command, and what it writes when nothing goes wrong.

    line: the words of a command that writes ``out``.  calls: those that change files.  begun: what
    is there as ``out`` before.
    """

    points: ClassVar[dict[str, int]] = {}
    name: str
    server: Server
    line: Callable[[Path], list[str]]
    folder: Path
    out: str
    begun: Path | None = None
    calls: int = 0
    whole: Snapshot = field(default_factory=dict)
    number: int = 0

    def learn(self) -> "Trial":
        work = self.work()
        done = self.run(work)
        assert done.status == 0, done.messages
        self.calls, self.whole = done.calls, snapshot(work)
        return self

    def work(self) -> Path:
        """A new folder with files of the user's, whose names look like those of tidybert."""
        self.number += 1
        work = self.folder / str(self.number)
        work.mkdir()
        for name in (f"{self.out}.part", f"{self.out}.part.json", f".{self.out}.partial"):
            (work / name).write_text("mine")
        if self.begun is not None:
            shutil.copytree(self.begun, self.target(work))
        return work

    def target(self, work: Path) -> Path:
        return work / self.out

    def run(self, work: Path, kind: str = "count", at: int = 0) -> Process:
        Trial.points[self.name] = Trial.points.get(self.name, 0) + (kind != "count")
        return self.server.run(self.line(self.target(work)), work, kind, at)

    def go_on(self, work: Path) -> None:
        """What a user does after a fault: the same command again, with --resume where it says so.

        Then all must be as if nothing had happened.
        """
        done = self.run(work)
        assert "Traceback" not in done.messages
        if done.status and re.search("--resume|holds a RUN", done.messages):
            done = self.server.run([*self.line(self.target(work)), "--resume"], work)
        # A fault after the last rename leaves a finished output, which is not written again.
        is_there = done.status == 2 and re.search("already|not empty|holds a RUN", done.messages)
        assert done.status == 0 or is_there, done.messages
        self.check(work, done.messages)

    def check(self, work: Path, note: str = "") -> None:
        """The folder must hold what an undisturbed command leaves, and nothing else."""
        found = snapshot(work)
        assert sorted(found) == sorted(self.whole), note
        changed = {name: found[name] for name in found if found[name] != self.whole[name]}
        assert not changed, f"{note}\nexpected { ({name: self.whole[name] for name in changed}) }"
        shutil.rmtree(work)


def snapshot(folder: Path) -> Snapshot:
    """All files of a folder by their paths in it; directories end in a slash."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            found[f"{name}/"] = b""
        else:
            content = path.read_bytes().replace(os.fsencode(folder), b"FOLDER")
            found[name] = content if path.suffix == ".safetensors" else _TIMES.sub(b"", content)
    return found


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("logs"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def inputs(
    tmp_path_factory: pytest.TempPathFactory,
    toy_examples: Callable[..., list[Any]],
    tiny_config: Any,
    server: Server,
    tiny_model: Path,
) -> Path:
    """Labelled texts, pairs, a plain text, a corpus of it, and a model whose words are letters."""
    import torch

    from tidybert.checkpoints.tensor_files import write_tensors
    from tidybert.checkpoints.weights import to_huggingface
    from tidybert.modeling import BertModel
    from tidybert.tokenization import BertTokenizer

    folder = tmp_path_factory.mktemp("inputs")
    for name, count, seed in (("train.csv", 40, 0), ("dev.csv", 16, 1)):
        with (folder / name).open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["text", "label"])
            rows.writerows([one.text, one.label] for one in toy_examples(count, seed=seed))
    with (folder / "pairs.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["anchor", "positive"])
        texts = [one.text for one in toy_examples(300, seed=2)]
        rows.writerows(itertools.pairwise(texts))
    for name, word in (("ids.csv", "old"), ("new.csv", "new")):
        lines = [f"n{n},the {word if n % 2 else 'red'} cat {n}\n" for n in range(16)]
        (folder / name).write_text("".join(["id,text\n", *lines]))
    documents = [
        f"the red cat {'saw a cow ' * (1 + n % 3)}\nthe old dog {n} is near" for n in range(40)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n")
    letters = sorted(set("".join(documents)) - set(" \n"))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*special, *letters, *(f"##{letter}" for letter in letters)]
    config = tiny_config(vocab_size=len(tokens))
    (folder / "letters").mkdir()
    torch.manual_seed(0)
    write_tensors(folder / "letters", to_huggingface(BertModel(config).state_dict(), config))
    (folder / "letters" / "config.json").write_text(json.dumps(config.to_dict()))
    BertTokenizer(tokens).save(folder / "letters")
    line = ["build-corpus", str(folder / "text.txt"), "--vocab", str(tiny_model)]
    done = server.run([*line, "--held-out", "0.2", "--out", str(folder / "corpus")], folder)
    assert done.status == 0, done.messages
    for name, more, *deleted in (("ids", []), ("dead", [], "n3,n8"), ("wordless", ["--no-words"])):
        out = ["--out", str(folder / name)]
        line = ["index", str(tiny_model), str(folder / "ids.csv"), "--id", "id"]
        assert server.run([*line, *more, "--max-seq-length", "16", *out], folder).status == 0
        for ids in deleted:
            assert server.run(["index", "--delete", ids, *out], folder).status == 0
    return folder


@pytest.fixture(scope="session")
def trial(
    server: Server,
    inputs: Path,
    tiny_model: Path,
    tiny_run: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Trial]:
    """Gives the trial of a command by its name."""
    text, train, dev = (str(inputs / name) for name in ("text.txt", "train.csv", "dev.csv"))
    model, run = str(tiny_model), str(tiny_run)
    steps = "--max-steps 4 --save-steps 2 --eval-steps 2 --logging-steps 1 --save-total-limit 1"
    short = steps.split()
    lines: dict[str, tuple[str, list[str]]] = {
        "finetune": ("run", ["finetune", "classify", model, "--train", train, "--dev", dev, *short,
                             "--train-batch-size", "8", "--max-seq-length", "16"]),
        "pretrain": ("run", ["pretrain", model, "--data", str(inputs / "corpus"), *short,
                             "--recipe", "fast", "--tokens-per-step", "64", "--micro-batch", "64",
                             "--max-seq-length", "32", "--eval-tokens", "64"]),
        "predict": ("answers.jsonl", ["predict", run, dev]),
        "predict-sheet": ("answers.xlsx", ["predict", run, dev]),
        "embed": ("vectors.npy", ["embed", model, dev, "--max-seq-length", "16"]),
        "index": ("index", ["index", model, dev, "--max-seq-length", "16", "--dtype", "int8"]),
        "replace": ("ids", ["index", model, str(inputs / "new.csv"), "--id", "id", "--replace",
                            "--max-seq-length", "16"]),
        "words": ("wordless", ["index", model, str(inputs / "ids.csv"), "--id", "id", "--words",
                               "--max-seq-length", "16"]),
        "delete": ("ids", ["index", "--delete", "n1,n5,n15"]),
        "compact": ("dead", ["index", "--compact"]),
        "mine": ("hard.jsonl", ["mine", model, "--queries", str(inputs / "pairs.csv"),
                                "--max-seq-length", "16", "--margin", "0"]),
        "build-corpus": ("corpus", ["build-corpus", text, "--vocab", model, "--held-out", "0.2"]),
        "train-vocab": ("vocab", ["train-vocab", text, "--size", "1000"]),
        "extend-vocab": ("longer", ["extend-vocab", str(inputs / "letters"), text, "--add", "5"]),
        "convert": ("converted", ["convert", run, "--to", "sentence-transformers"]),
        "evaluate": ("report", ["evaluate", run, dev]),
        "save": ("saved", ["save", run]),
    }  # fmt: skip
    made: dict[str, Trial] = {}

    def of(name: str) -> Trial:
        if name not in made:
            out, words = lines[name]
            flag = {"evaluate": ["--report"], "save": [], "convert": []}.get(name, ["--out"])
            folder = tmp_path_factory.mktemp(name)
            begun = inputs / out if out in ("ids", "dead", "wordless") else None
            made[name] = Trial(
                name, server, lambda target: [*words, *flag, str(target)], folder, out, begun
            ).learn()
        return made[name]

    return of
