"""Writes the files of an earlier version: python tests/gate/old/write.py FOLDER.

It ran once, in a checkout of commit cebecae9 with that commit's code, and stays as the record of
what it did; today's code has other modules.  ``given/`` are inputs, ``whole/`` is what each command
wrote, ``half/`` what it left when it was killed.
"""

import csv
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[3]))
import tidybert.corpus.new_documents
import tidybert.search.index_writer
from tests.faults.fork_server import Faults
from tidybert.cluster.file_work import PredictWork
from tidybert.cluster.file_worker import FileWorker
from tidybert.cluster.job_record import add_done, begin_manifest, job_line
from tidybert.files.read_options import ReadOptions

import tidybert.corpus.building
import tidybert.storage.part_file
from tidybert.checkpoints.tensor_files import write_tensors
from tidybert.cli.main import run as shell
from tidybert.cluster.input_files import input_files
from tidybert.configuration import BertConfig
from tidybert.modeling import BertModel
from tidybert.storage.json_objects import json_checksum
from tidybert.tokenization import BertTokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
COLOURS, ANIMALS = ("red", "green", "blue", "white"), ("cat", "dog", "cow", "hen")
FILLERS = ("the", "a", "is", "was", "near", "under", "old", "new", "and", "we", "saw")
SHORT = (
    "--max-steps 6 --save-steps 2 --eval-steps 2 --logging-steps 1 --save-total-limit 1 "
    "--max-seq-length 16"
)
COMMANDS = {
    "run": "finetune classify given/model --train given/train.csv --dev given/dev.csv "
    f"--train-batch-size 8 --learning-rate 0.01 --head-start random {SHORT}",
    "pretrained": "pretrain given/model --data whole/corpus --recipe fast --tokens-per-step 64 "
    f"--micro-batch 64 --eval-tokens 64 {SHORT}",
    "search": "finetune classify given/model --train given/train.csv --dev given/dev.csv --search "
    "--max-steps 1 --max-seq-length 16 --head-start random",
    "corpus": "build-corpus given/text-1.txt given/text-2.txt --vocab given/model --held-out 0.2",
    "index": "index given/model given/texts.txt --max-seq-length 16",
    "answers.jsonl": "predict whole/run given/texts.txt",
    "vectors.npy": "embed given/model given/many.txt --max-seq-length 16 --truncate-dim 2",
}
ORDER = ("corpus", "run", "pretrained", "search", "index", "answers.jsonl", "vectors.npy")


def inputs() -> None:
    given = Path("given")
    (given / "model").mkdir(parents=True)
    tokens = (*SPECIAL, *COLOURS, *ANIMALS, *FILLERS)
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
        initializer_range=0.1,
    )
    torch.manual_seed(0)
    from tidybert.checkpoints.conversion import to_huggingface

    write_tensors(given / "model", to_huggingface(BertModel(config).state_dict(), config))
    (given / "model" / "config.json").write_text(json.dumps(config.to_dict()))
    BertTokenizer(tokens).save(given / "model")
    random = np.random.default_rng(0)

    def sentence(row: int) -> str:
        words = [*random.choice(FILLERS, 4), *random.choice((ANIMALS, COLOURS)[row % 2], 2)]
        return " ".join(map(str, random.permutation(words)))

    for name, count in (("train.csv", 48), ("dev.csv", 16)):
        with (given / name).open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["text", "label"])
            rows.writerows([sentence(row), ("animal", "colour")[row % 2]] for row in range(count))
    (given / "texts.txt").write_text("".join(f"{sentence(row)}\n" for row in range(40)))
    # Vectors are written for 1,024 texts at once.
    words = random.choice((*FILLERS, *COLOURS), (1100, 2))
    (given / "many.txt").write_text("".join(f"{' '.join(row)}\n" for row in words))
    for number in (1, 2):
        documents = ["\n".join(map(sentence, range(1 + row % 3))) for row in range(20)]
        (given / f"text-{number}.txt").write_text("\n\n".join(documents) + "\n")


def killed(name: str, line: list[str], folder: Path, at: int) -> int:
    """Run a command that is killed after its at-th call that writes; its exit status."""
    pid = os.fork()
    if not pid:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        if name == "corpus":
            tidybert.corpus.new_documents.BLOCK_DOCUMENTS = 6
        if name == "index":
            tidybert.search.index_writer.chunk_size = lambda *_: 8
        Faults(str(folder), "kill-after", at).install()
        os._exit(shell(line))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_half(name: str, out: Path) -> bool:
    """Whether a killed command has left something to go on with, and is not nearly done."""
    if any(path.name.endswith((".partial", ".replaced")) for path in out.parent.rglob(".*")):
        return False
    if name in ("run", "pretrained"):
        states = list(out.glob("checkpoints/step-*/training_state.json"))
        figures = out / "metrics.jsonl"
        # One step after the checkpoint is logged, and will be done again.
        return [one.parent.name for one in states] == ["step-4"] and '"step": 5' in (
            figures.read_text()
        )
    if name == "search":
        path = out / "trials.json"
        return path.exists() and len(json.loads(path.read_text())["trials"]) == 2
    if name == "corpus":
        path = out / "progress.json"
        if not path.exists():
            return False
        progress = json.loads(path.read_text())
        return 20 < progress["num_digests"] < 30
    if name == "index":
        path = out / "progress.json"
        return path.exists() and '"num_texts": 16' in path.read_text().replace("\n", "")
    journals = list(out.parent.glob(f".{name}.*.part.json"))
    return bool(journals) and 10 < json.loads(journals[0].read_text())["progress"]["texts"] < 1100


def kill_in_the_middle(name: str) -> None:
    # A run writes often, and begins anew at each try.
    for at in itertools.count(9, {"run": 5, "pretrained": 5, "search": 9}.get(name, 1)):
        folder = Path("half")
        before = set(folder.iterdir())
        out = folder / name
        status = killed(name, [*COMMANDS[name].split(), "--out", str(out)], folder.resolve(), at)
        if is_half(name, out):
            print(f"{name}: killed after call {at}")
            break
        assert status == -9, (name, at, status)
        for path in set(folder.iterdir()) - before:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    tidy(folder / name)
    for lock in folder.rglob(".*.tidybert-lock"):
        content = json.loads(lock.read_text())
        if content["parts"]:
            # As an error leaves it; a kill leaves the process and the machine.
            nobody = {"pid": 0, "host": "elsewhere", "boot": "", "command": "tidybert"}
            lock.write_text(json.dumps(content | nobody) + "\n")
        else:
            lock.unlink()


def tidy(out: Path) -> None:
    """Remove what names this machine, and of a search what is large."""
    for path in (out / "index.json", out / "progress.json"):
        if out.name == "index" and path.exists():
            content = json.loads(path.read_text())
            del content["checksum"]
            content["settings"]["model"] = "given/model"
            path.write_text(json.dumps(content | {"checksum": json_checksum(content)}, indent=2))


def cluster_job() -> None:
    """Two files of a job that --cluster began: one is done."""
    parts = Path("given") / "parts"
    parts.mkdir()
    lines = Path("given/texts.txt").read_text().splitlines(keepends=True)
    for number in (1, 2):
        path = parts / f"{number}.txt"
        path.write_text("".join(lines[20 * number - 20 : 20 * number]))
        os.utime(path, (10**9, 10**9))
    work = PredictWork(
        model="whole/run", options={"device": "cpu", "precision": "auto"}, read=ReadOptions()
    )
    for name, count in (("half/job", 1), ("whole/job", 2)):
        job = job_line(work.name, work.fingerprint(), work.settings())
        begin_manifest(Path(name), job)
        for file in input_files("given/parts", (".txt",))[:count]:
            outcome = FileWorker(work, job, Path(name))(file)
            assert outcome.done is not None, outcome
            add_done(Path(name), [outcome.done])


def main() -> None:
    root = Path(sys.argv[1])
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    os.chdir(root)
    torch.set_num_threads(1)
    # Tiny outputs are saved as often as large ones are.
    tidybert.storage.part_file.SECONDS_BETWEEN_SAVES = 0.0
    tidybert.search.index_writer.SECONDS_BETWEEN_SAVES = 0.0
    tidybert.corpus.building.SYNC_SECONDS = 0.0
    steps: list[Callable[[], object]] = [inputs, lambda: Path("half").mkdir()]
    for step in (*steps, lambda: Path("whole").mkdir()):
        step()
    for name in ORDER:
        assert shell([*COMMANDS[name].split(), "--out", f"whole/{name}"]) == 0, name
        tidy(Path("whole") / name)
    for name in ORDER:
        kill_in_the_middle(name)
    cluster_job()
    # Of the search only its results are compared.
    shutil.copy("whole/search/trials.json", "whole/trials.json")
    shutil.rmtree("whole/search")
    lines = [f"{name}: {line}\n" for name, line in COMMANDS.items()]
    Path("commands.txt").write_text("".join(lines))


main()
