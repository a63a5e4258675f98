"""Tiny models of every task with random weights, and engines and clients for them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import httpx
import torch

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.modeling.heads import BertForPreTraining
from tidybert.server.app import make_app
from tidybert.server.engine import Engine
from tidybert.server.settings import ServerSettings
from tidybert.tasks.choices.multiple_choice import MultipleChoice
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.regression import Regression
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tokenization import BertTokenizer

WORDS = (
    *("red", "green", "blue", "white", "cat", "dog", "cow", "hen", "the", "a", "is", "was"),
    *("near", "under", "old", "new", "and", "we", "saw"),
)
LENGTH = 16


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, tiny_config: Any) -> dict[str, str]:
    """The directory of a random model of each kind, by name."""
    root = tmp_path_factory.mktemp("served")
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
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
            task.name, task.label_names, LENGTH, inputs=inputs, settings=task.settings()
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
        metadata=ModelMetadata("pretrain", max_seq_length=LENGTH, settings={"objective": "mlm"}),
        architecture="BertForPreTraining",
    )
    return {name: str(root / name) for name in (*tasks, "base")}


@pytest.fixture
def make_engine(served: dict[str, str]) -> Iterator[Callable[..., Engine]]:
    """Opens and starts engines for some of the models, and ends them after the test."""
    engines: list[Engine] = []

    def build(*names: str, paths: dict[str, str] | None = None, **given: Any) -> Engine:
        models = paths or {name: served[name] for name in names}
        engine = Engine(ServerSettings(models=models, device="cpu", **given))
        engine.open()
        engine.start()
        engines.append(engine)
        return engine

    yield build
    for each in engines:
        each.close()


@pytest.fixture
def make_client() -> Callable[..., httpx.AsyncClient]:
    """Makes clients of an engine's app in this process; ``address`` tells clients apart."""

    def build(engine: Engine, address: str = "127.0.0.1", **given: Any) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(make_app(engine), client=(address, 1))
        return httpx.AsyncClient(transport=transport, base_url="http://server", **given)

    return build


@pytest.fixture
def own_copy(tmp_path: Path, served: dict[str, str]) -> Callable[[str], Path]:
    """Copies a model, for a test that changes it."""
    import shutil

    def copy(name: str) -> Path:
        return Path(shutil.copytree(served[name], tmp_path / name))

    return copy
