"""Every block of docs/serving.md and docs/serving-clients.md runs against one real server."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai")
pytest.importorskip("fastapi")

from huggingface_hub import constants
from tests.conftest import server_on_a_thread

from tidybert.checkpoints.example_kinds import KINDS
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.modeling.heads import BertForPreTraining
from tidybert.tasks.classification import Classification
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tokenization import BertTokenizer

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "127.0.0.1:8000"
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
TASKS: dict[str, tuple[Any, str]] = {
    "tickets-model": (Classification(["lost", "late"]), "text"),
    "people-model": (Tagging(["O", "B-PER", "I-PER"]), "words"),
    "answers-model": (QuestionAnswering(), "question"),
    "ranker-model": (Classification(["no", "yes"]), "pair"),
}


@pytest.fixture(scope="module")
def address(
    tmp_path_factory: pytest.TempPathFactory, tiny_config: Callable[..., Any]
) -> Iterator[str]:
    """Where a server of the guides' models listens."""
    tmp_path = tmp_path_factory.mktemp("served")
    letters = "abcdefghijklmnopqrstuvwxyz"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = BertTokenizer([*special, *letters, *(f"##{letter}" for letter in letters)])
    config = tiny_config(vocab_size=tokenizer.vocab_size, max_position_embeddings=128)
    for name, (task, inputs) in TASKS.items():
        metadata = ModelMetadata(
            task.name, task.label_names, 128, inputs=KINDS[inputs], settings=task.settings()
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
        tmp_path / "tidybert-small",
        model_state=BertForPreTraining(config).state_dict(),
        config=config,
        tokenizer=tokenizer,
        metadata=ModelMetadata("pretrain", max_seq_length=128, settings={"objective": "mlm"}),
        architecture="BertForPreTraining",
    )
    models = {name: str(tmp_path / name) for name in (*TASKS, "tidybert-small")}
    with server_on_a_thread(models=models, device="cpu") as (address, _):
        yield address


def blocks(guide: str) -> list[tuple[str, str]]:
    text = (DOCS / guide).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run_block(language: str, block: str, address: str) -> None:
    """Run a block against the server; other commands than curl have their own tests."""
    here = block.replace(ADDRESS, address)
    if language == "python":
        exec(compile(here, "a guide", "exec"), {"__name__": "guide"})
    elif language == "javascript" and shutil.which("node"):
        command = ["node", "--input-type=module", "--eval", here]
        print(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout.decode())
    elif language == "sh" and here.startswith("curl "):
        for line in here.replace("\\\n", " ").splitlines():
            done = subprocess.run([*shlex.split(line), "--fail"], capture_output=True, timeout=30)
            assert done.returncode == 0, (line, done.stderr)
            print(done.stdout.decode())


@needs_curl
def test_the_native_routes(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = [language for language, _ in blocks("serving.md")]
    for language, block in blocks("serving.md"):
        run_block(language, block, address)

    assert {"sh", "python", "javascript"} <= set(ran)
    printed = capsys.readouterr().out
    assert re.search(r'^\[\{"label":', printed, re.MULTILINE)
    assert re.search(r"^(lost|late) 0\.\d+ False$", printed, re.MULTILINE)
    assert re.search(r"^16$", printed, re.MULTILINE)
    assert 'tidybert_requests_total{route="/v1/models/{name}/predict",status="200"}' in printed
    if shutil.which("node"):
        assert re.search(r"^(lost|late) 0\.\d{3,}$", printed, re.MULTILINE)


@needs_curl
def test_the_clients_of_others(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # huggingface_hub takes this machine for the network.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    served, *rest = blocks("serving-clients.md")
    assert served == ("sh", f"tidybert serve {' '.join([*TASKS, 'tidybert-small'])}\n")

    for language, block in rest:
        run_block(language, block, address)

    printed = capsys.readouterr().out
    assert f"2 16 {2 + 11 + 2 + 9}\n" in printed
    for shown in (
        "TextClassificationOutputElement(label=",
        "answer=",
        "(2, 16)",
        "'tidybert-small'",
    ):
        assert shown in printed
