"""Every block of docs/serving-clients.md runs against a real server of tiny models."""

import re
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai")
pytest.importorskip("fastapi")

import uvicorn
from huggingface_hub import constants

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.modeling.heads import BertForPreTraining
from tidybert.server.app import make_app
from tidybert.server.engine import Engine
from tidybert.server.settings import ServerSettings
from tidybert.tasks.classification import Classification
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tokenization import BertTokenizer

GUIDE = Path(__file__).parents[2] / "docs" / "serving-clients.md"
ADDRESS = "127.0.0.1:8000"
TASKS: dict[str, tuple[Any, str]] = {
    "tickets-model": (Classification(["lost", "late"]), "text"),
    "people-model": (Tagging(["O", "B-PER", "I-PER"]), "words"),
    "answers-model": (QuestionAnswering(), "question"),
    "ranker-model": (Classification(["no", "yes"]), "pair"),
}


@pytest.fixture
def address(tmp_path: Path, tiny_config: Callable[..., Any]) -> Iterator[str]:
    """Where a server of the guide's models listens."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = BertTokenizer([*special, *letters, *(f"##{letter}" for letter in letters)])
    config = tiny_config(vocab_size=tokenizer.vocab_size, max_position_embeddings=128)
    for name, (task, inputs) in TASKS.items():
        metadata = ModelMetadata(
            task.name, task.label_names, 128, inputs=inputs, settings=task.settings()
        )
        state = task.build_model(config).state_dict()
        save_model_directory(
            tmp_path / name,
            model_state=state,
            config=config,
            tokenizer=tokenizer,
            metadata=metadata,
            architecture=task.architecture,
        )
    save_model_directory(
        tmp_path / "minilm",
        model_state=BertForPreTraining(config).state_dict(),
        config=config,
        tokenizer=tokenizer,
        metadata=ModelMetadata("pretrain", max_seq_length=128, settings={"objective": "mlm"}),
        architecture="BertForPreTraining",
    )
    models = {name: str(tmp_path / name) for name in (*TASKS, "minilm")}
    engine = Engine(ServerSettings(models=models, device="cpu"))
    engine.open()
    engine.start()
    config = uvicorn.Config(make_app(engine), port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()
    engine.close()


def test_every_block_runs(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # huggingface_hub takes this machine for the network.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    served, *rest = blocks
    assert served == ("sh", f"tidybert serve {' '.join([*TASKS, 'minilm'])}\n")

    for language, block in rest:
        here = block.replace(ADDRESS, address)
        if language == "python":
            exec(compile(here, str(GUIDE), "exec"), {"__name__": "guide"})
        else:
            run_curl(here)

    printed = capsys.readouterr().out
    assert f"2 16 {2 + 11 + 2 + 9}\n" in printed
    for shown in ("TextClassificationOutputElement(label=", "answer=", "(2, 16)", "'minilm'"):
        assert shown in printed


def run_curl(block: str) -> None:
    for line in block.replace("\\\n", " ").splitlines():
        done = subprocess.run([*shlex.split(line), "--fail"], capture_output=True, timeout=30)
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout.startswith(b"["), done.stdout
