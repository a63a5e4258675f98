"""Fixtures shared by all tests: the real weights and data where they are, and tiny models."""

import contextlib
import gc
import gzip
import json
import multiprocessing
import operator
import os
import runpy
import subprocess
import threading

# Small models gain nothing from threads, and tests that run side by side lose by them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# tidybert keeps few of oneDNN's kernels. Tiny models need many small ones, and making one takes
# longer than its product: this is a third of the time of tests that train.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "1024")
os.environ.setdefault("LRU_CACHE_CAPACITY", "1024")

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import hypothesis
import pytest

from tidybert.cli.main import COMMANDS
from tidybert.configuration import BertConfig

if TYPE_CHECKING:
    from torch import nn

    from tidybert.files.text_examples import TextExample
    from tidybert.training.training_arguments import TrainingArguments

# What is imported and collected stays, so the collector need not look at it: a tenth of all time.
gc.disable()

# A slow machine is no failure.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

DATA_DIRECTORY = Path(
    os.environ.get("TIDYBERT_DATA", Path(__file__).parents[2] / "shared" / "data")
)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many tests were skipped, and why, in one line."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(each.longrepr[2].removeprefix("Skipped: ") for each in skipped)
    if reasons:
        why = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"{len(skipped)} skipped: {why}")


@pytest.fixture(scope="session")
def minilm_directory() -> Path:
    """Directory of the embedded weights; skips where they are not installed."""
    from tidybert.catalog import find_model
    from tidybert.errors import ModelNotFoundError

    try:
        return find_model("minilm")
    except ModelNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the public data sets; skips where it is absent."""
    if not DATA_DIRECTORY.is_dir():
        pytest.skip(f"no data folder at {DATA_DIRECTORY}; name one with TIDYBERT_DATA")
    return DATA_DIRECTORY


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], Path]:
    """Writes a file of text, bytes, a list (JSON lines) or an object; packs it for .gz."""

    def write_file(name: str, content: Any) -> Path:
        path = tmp_path / name
        if isinstance(content, list):
            content = "".join(json.dumps(one) + "\n" for one in content)
        elif isinstance(content, dict):
            content = json.dumps(content)
        raw = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return path

    return write_file


# Colours and animals are the classes of the toy problem, the rest is filler.
COLOURS = ("red", "green", "blue", "white")
ANIMALS = ("cat", "dog", "cow", "hen")
FILLERS = ("the", "a", "is", "was", "near", "under", "old", "new", "and", "we", "saw")
TINY_VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *COLOURS, *ANIMALS, *FILLERS)


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., BertConfig]:
    """Makes configurations of a model that runs in a millisecond."""

    def build(**overrides: Any) -> BertConfig:
        sizes = {
            "vocab_size": len(TINY_VOCABULARY),
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 24,
            "max_position_embeddings": 32,
            "initializer_range": 0.1,
        }
        return BertConfig(**{**sizes, **overrides})

    return build


@pytest.fixture(scope="session")
def reference() -> Callable[..., "nn.Module"]:
    """Makes models of transformers, by class name, with every parameter random."""
    import torch
    import transformers

    def build(config: BertConfig, name: str = "BertModel", **overrides: Any) -> "nn.Module":
        torch.manual_seed(0)
        theirs = transformers.BertConfig(
            **config.to_dict(), attn_implementation="eager", **overrides
        )
        model: nn.Module = getattr(transformers, name)(theirs).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                # Fresh biases and LayerNorms are 0 and 1, which would hide a mistake in them.
                parameter.add_(0.1 * torch.randn_like(parameter))
        return model

    return build


@pytest.fixture(scope="session")
def copy_weights() -> Callable[["nn.Module", "nn.Module"], "nn.Module"]:
    """Copies the weights of transformers' model into ours, and puts ours in evaluation mode."""
    from tidybert.checkpoints.weights import from_huggingface

    def copy(theirs: "nn.Module", ours: "nn.Module") -> "nn.Module":
        converted = from_huggingface(theirs.state_dict(), ours.config)
        assert not converted.ignored
        ours.load_state_dict(converted.tensors)
        return ours.eval()

    return copy


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, tiny_config: Any) -> Path:
    """A MODEL directory with a tiny random encoder and the toy problem's vocabulary."""
    import torch

    from tidybert.checkpoints.tensor_files import write_tensors
    from tidybert.checkpoints.weights import to_huggingface
    from tidybert.modeling import BertModel
    from tidybert.tokenization import BertTokenizer

    directory = tmp_path_factory.mktemp("models") / "tiny"
    directory.mkdir()
    torch.manual_seed(0)
    config = tiny_config()
    state = BertModel(config).state_dict()
    write_tensors(directory, to_huggingface(state, config))
    (directory / "config.json").write_text(json.dumps(config.to_dict()))
    BertTokenizer(TINY_VOCABULARY).save(directory)
    return directory


@pytest.fixture(scope="session")
def pretrained(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_config: Callable[..., BertConfig],
    tiny_model: Path,
    reference: Callable[..., Any],
) -> Callable[[str], tuple[Path, Any]]:
    """Makes a directory that transformers saved, by class name, and its model, all random."""
    from tidybert.tokenization import BertTokenizer

    kept: dict[str, tuple[Path, Any]] = {}

    def make(name: str) -> tuple[Path, Any]:
        if name not in kept:
            directory = tmp_path_factory.mktemp(name)
            model = reference(tiny_config(), name)
            model.save_pretrained(directory)
            BertTokenizer.from_pretrained(tiny_model).save(directory)
            kept[name] = directory, model
        return kept[name]

    return make


@pytest.fixture(scope="session")
def toy_examples() -> Callable[..., list["TextExample"]]:
    """Makes examples that a tiny model can learn: does a colour or an animal stand in the text?

    As scores they are how many colours there are.
    """
    import numpy as np

    from tidybert.files.text_examples import TextExample

    def build(count: int, seed: int = 0, scores: bool = False) -> list["TextExample"]:
        random = np.random.default_rng(seed)
        examples = []
        for row in range(1, count + 1):
            words = list(random.choice(FILLERS, random.integers(2, 9)))
            num_colours = int(random.integers(0, 4)) if scores else row % 2
            words += list(random.choice(COLOURS, num_colours))
            if not scores and not num_colours:
                words.append(str(random.choice(ANIMALS)))
            random.shuffle(words)
            label = str(num_colours) if scores else ("animal", "colour")[num_colours]
            examples.append(TextExample(" ".join(words), None, label, row))
        return examples

    return build


@pytest.fixture(scope="session")
def toy_arguments() -> Callable[..., "TrainingArguments"]:
    """Makes the arguments with which a tiny model learns the toy problem in a second."""
    from tidybert.training.training_arguments import TrainingArguments

    def build(**overrides: Any) -> "TrainingArguments":
        given = {
            "learning_rate": 1e-2,
            "num_train_epochs": 4,
            "train_batch_size": 16,
            "head_start": "random",
        }
        return TrainingArguments(**{**given, **overrides})

    return build


@pytest.fixture(scope="session")
def tiny_run(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Path,
    toy_examples: Callable[..., list["TextExample"]],
    toy_arguments: Callable[..., "TrainingArguments"],
) -> Path:
    """A finished RUN: the tiny model fine-tuned on the toy problem.  Not to be written to."""
    from tidybert.finetuning.finetuning_job import FinetuningJob
    from tidybert.finetuning.run_finetuning import run_finetuning
    from tidybert.tasks.classification import Classification

    run = tmp_path_factory.mktemp("runs") / "toy"
    run_finetuning(
        FinetuningJob(
            Classification(["animal", "colour"]),
            tiny_model,
            toy_examples(192),
            toy_examples(64, seed=1),
            toy_arguments(),
            max_seq_length=16,
            out=run,
        )
    )
    return run


@pytest.fixture(scope="session")
def tiny_score_run(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Path,
    toy_examples: Callable[..., list["TextExample"]],
    toy_arguments: Callable[..., "TrainingArguments"],
) -> Path:
    """The same for scores."""
    from tidybert.finetuning.finetuning_job import FinetuningJob
    from tidybert.finetuning.run_finetuning import run_finetuning
    from tidybert.tasks.regression import Regression

    run = tmp_path_factory.mktemp("runs") / "scores"
    run_finetuning(
        FinetuningJob(
            Regression(),
            tiny_model,
            toy_examples(192, scores=True),
            toy_examples(64, seed=1, scores=True),
            toy_arguments(num_train_epochs=8),
            max_seq_length=16,
            out=run,
        )
    )
    return run


SERVED_LENGTH = 16


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, tiny_config: Any) -> dict[str, str]:
    """The directory of a random model of each kind, by name."""
    import torch

    from tidybert.checkpoints.example_kinds import KINDS
    from tidybert.checkpoints.metadata import ModelMetadata
    from tidybert.checkpoints.model_directory import save_model_directory
    from tidybert.modeling.heads import BertForPreTraining, CausalLM
    from tidybert.tasks.classification import Classification
    from tidybert.tasks.multi_label import MultiLabelClassification
    from tidybert.tasks.multiple_choice import MultipleChoice
    from tidybert.tasks.questions.question_answering import QuestionAnswering
    from tidybert.tasks.regression import Regression
    from tidybert.tasks.tags.tagging import Tagging
    from tidybert.tokenization import BertTokenizer
    from tidybert.tokenization.vocabulary import TEXT_TOKENS

    root = tmp_path_factory.mktemp("served")
    tokenizer = BertTokenizer(TINY_VOCABULARY)
    config = tiny_config()
    tasks: dict[str, tuple[Any, str]] = {
        "colours": (Classification(["animal", "colour"]), "text"),
        "pairs": (Classification(["no", "yes"]), "pair"),
        "labels": (MultiLabelClassification(["x", "y", "z"]), "text"),
        "scores": (Regression(), "text"),
        "choices": (MultipleChoice(), "choices"),
        "questions": (QuestionAnswering(max_query_length=6), "question"),
        "tags": (Tagging(["O", "B-X", "I-X"]), "words"),
    }
    torch.manual_seed(1)
    for name, (task, inputs) in tasks.items():
        metadata = ModelMetadata(
            task.name,
            task.label_names,
            SERVED_LENGTH,
            inputs=KINDS[inputs],
            settings=task.settings(),
        )
        save_model_directory(
            root / name,
            model_state=task.build_model(config).state_dict(),
            config=config,
            tokenizer=tokenizer,
            metadata=metadata,
            architecture=task.architecture,
            problem_type=task.problem_type,
        )
    save_model_directory(
        root / "base",
        model_state=BertForPreTraining(config).state_dict(),
        config=config,
        tokenizer=tokenizer,
        metadata=ModelMetadata(
            "pretrain", max_seq_length=SERVED_LENGTH, settings={"objective": "mlm"}
        ),
        architecture="BertForPreTraining",
    )
    causal = tokenizer.with_tokens(TEXT_TOKENS)
    sizes = {"vocab_size": causal.vocab_size, "type_vocab_size": 1, "model_type": "causal-lm"}
    language = BertConfig.from_dict({**config.to_dict(), **sizes})
    save_model_directory(
        root / "poem",
        model_state=CausalLM(language).state_dict(),
        config=language,
        tokenizer=causal,
        metadata=ModelMetadata("train-lm"),
        architecture="CausalLM",
    )
    return {name: str(root / name) for name in (*tasks, "base", "poem")}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> str:
    """Each device that tidybert computes on; skips CUDA where there is none."""
    import torch

    name: str = request.param
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return name


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    """Sets how many threads PyTorch has, until the test is over."""
    import torch

    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


class Descriptor:
    """A file's number, which is that of the same file in the process that it is sent to."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return operator.methodcaller("detach"), (DupFd(self.number),)


class Command:
    """A command in a process of its own, with the face of subprocess.Popen.

    multiprocessing's fork server, which has loaded torch, begins it in a tenth of a second.
    """

    def __init__(
        self,
        *words: str,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        cwd: Path | None = None,
        **environment: str,
    ) -> None:
        self.args = words
        self._reading: dict[int, IO[str]] = {}
        self.stdin: IO[str] | None = None
        theirs, opened = [], []
        for number, given in enumerate((stdin, stdout, stderr)):
            if given == subprocess.PIPE:
                ends = os.pipe()
                theirs.append(ends[number > 0])
                opened.append(ends[number > 0])
                if number:
                    self._reading[number] = os.fdopen(ends[0])
                else:
                    self.stdin = os.fdopen(ends[1], "w")
            else:
                theirs.append(number if given is None else given)
        given_to_it = {
            "words": list(words),
            "files": [Descriptor(number) for number in theirs],
            "environment": {**os.environ, **environment},
            "folder": str(cwd or Path.cwd()),
        }
        program = str(Path(__file__).with_name("forked_command.py"))
        context = multiprocessing.get_context("forkserver")
        self._process = context.Process(
            target=runpy.run_path, args=(program, {"given": given_to_it})
        )
        self._process.start()
        for number in opened:
            os.close(number)

    @property
    def stdout(self) -> IO[str]:
        return self._reading[1]

    @property
    def stderr(self) -> IO[str]:
        return self._reading[2]

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    poll = returncode.fget

    def wait(self, timeout: float = 120) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            self.kill()
            raise TimeoutError(f"{' '.join(self.args)} did not end in {timeout} s")
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, text: str = "", timeout: float = 120) -> tuple[str, str]:
        """Give it the rest of its input, and read its output and messages to their end."""
        found = {1: "", 2: ""}

        def read(number: int) -> None:
            found[number] = self._reading[number].read()

        threads = [threading.Thread(target=read, args=[number]) for number in self._reading]
        for thread in threads:
            thread.start()
        if self.stdin is not None:
            self.stdin.write(text)
            self.stdin.close()
        self.wait(timeout)
        for thread in threads:
            thread.join()
        return found[1], found[2]

    def close(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        for file in (self.stdin, *self._reading.values()):
            if file is not None:
                # What nobody read is lost.
                with contextlib.suppress(BrokenPipeError):
                    file.close()


# All that the commands load, so that no forked process has to.
LOADED_BY_COMMANDS = (
    "torch._dynamo",
    "torch.distributed.tensor",
    *(f"tidybert.cli.commands.{each}" for each in sorted(set(COMMANDS.values()))),
    "tidybert.corpus.building",
    "tidybert.finetuning.api",
    "tidybert.inference.predictor",
    "tidybert.inference.answer_files",
    "tidybert.pretraining.pretraining_run",
    "tidybert.reporting.evaluation",
    "tidybert.reporting.writing",
    "tidybert.server.process",
)


@pytest.fixture
def begin() -> Iterator[Callable[..., Command]]:
    """Begins commands, each in a process of its own, and ends what is left of them."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(LOADED_BY_COMMANDS))
    begun: list[Command] = []

    def start(*words: object, **given: Any) -> Command:
        begun.append(Command(*map(str, words), **given))
        return begun[-1]

    yield start
    for command in begun:
        command.close()


@contextmanager
def server_on_a_thread(app: Any = None, **settings: Any) -> Iterator[tuple[str, Any]]:
    """Runs a server of these ServerSettings; gives its host with its port, and its engine.

    ``app`` makes the app of an engine, if it is not that of ``tidybert serve``.
    """
    import asyncio

    from tidybert.server.app import make_app
    from tidybert.server.engine import Engine
    from tidybert.server.process import http_server, listening_on
    from tidybert.server.settings import ServerSettings

    engine = Engine(ServerSettings(**{"port": 0, **settings}))
    engine.open()
    engine.start()
    bound = listening_on(engine.settings)
    server = http_server((app or make_app)(engine), engine.settings)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])))
    thread.start()
    try:
        yield "{}:{}".format(*bound.getsockname()), engine
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()
        engine.close()


@pytest.fixture(scope="session")
def write_corpus() -> Callable[..., Path]:
    """Writes documents, each sentences of ids from 5 on, to a corpus directory of token shards."""
    import msgspec
    import numpy as np

    from tidybert.corpus.token_shards import (
        MANIFEST_FILE,
        Block,
        BuildSettings,
        Manifest,
        PartWriter,
        described,
    )
    from tidybert.tokenization import BertTokenizer

    def block_of(documents: Sequence[Sequence[Sequence[int]]]) -> Block:
        sentences = [sentence for document in documents for sentence in document]
        return Block(
            np.array([each for sentence in sentences for each in sentence]),
            np.array([len(sentence) for sentence in sentences]),
            np.array([len(document) for document in documents]),
        )

    def write(
        directory: Path,
        train: Sequence[Sequence[Sequence[int]]],
        held_out: Sequence[Sequence[Sequence[int]]] = (),
        *,
        vocab_size: int = 1000,
        max_shard_tokens: int = 2**27,
    ) -> Path:
        directory.mkdir(parents=True)
        special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
        tokenizer = BertTokenizer([*special, *(f"w{number}" for number in range(5, vocab_size))])
        tokenizer.save(directory)
        parts = {}
        for part, documents in (("train", train), ("held-out", held_out)):
            with PartWriter(directory, part, tokenizer.dtype, max_shard_tokens) as writer:
                if documents:
                    writer.add(block_of(documents))
                parts[part] = writer.finish()
        numbers = {"bytes": 0, "documents": 0, "train": len(train), "held-out": len(held_out)}
        manifest = Manifest(
            settings=BuildSettings(vocabulary=described(tokenizer)),
            sources=[{"file": "a.txt", **numbers}],
            counts={},
            parts=parts,
        )
        (directory / MANIFEST_FILE).write_text(json.dumps(msgspec.to_builtins(manifest)))
        return directory

    return write
