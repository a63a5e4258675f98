"""examples/bert_in_one_page.py: a page long, with BertModel's states, and a script that answers."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import tidybert
from tidybert.modeling import Rows

SCRIPT = Path(__file__).parents[2] / "examples" / "bert_in_one_page.py"
PACKAGE = Path(tidybert.__file__).parent
SMALL = PACKAGE / "resources" / "tidybert-small"
TEXTS = [
    ("My brother and my [MASK].", None),
    ("How many legs has a spider?", "A spider has eight legs, and an insect has six."),
    ("Yes", None),
]


@pytest.fixture(scope="module")
def page() -> ModuleType:
    found = importlib.util.spec_from_file_location("bert_in_one_page", SCRIPT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(params=["tidybert-small", pytest.param("minilm", marks=pytest.mark.weights)])
def directory(request: pytest.FixtureRequest) -> Path:
    if request.param == "minilm":
        found: Path = request.getfixturevalue("minilm_directory")
        return found
    return SMALL


def test_it_is_a_page() -> None:
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize(("text", "text_pair"), TEXTS)
def test_the_states_are_those_of_the_package(
    page: ModuleType, directory: Path, text: str, text_pair: str | None
) -> None:
    theirs = page.Bert(directory)
    ours, tokenizer = tidybert.load(directory)
    ours.eval()
    encoding = tokenizer.encode(text, text_pair, special_tokens_in_text=True)
    ids, types = torch.tensor(encoding.input_ids), torch.tensor(encoding.token_type_ids)

    with torch.no_grad():
        expected = ours(Rows.from_lists([encoding.input_ids], [encoding.token_type_ids]))
        hidden = theirs.encode(ids, types)

    torch.testing.assert_close(hidden, expected.last_hidden_state, atol=1e-5, rtol=1e-5)
    if expected.pooler_output is not None:
        pooled = theirs.pool(hidden)
        torch.testing.assert_close(pooled, expected.pooler_output[0], atol=1e-5, rtol=1e-5)


def test_the_script_fills_the_mask_as_the_command_does() -> None:
    text = TEXTS[0][0]
    arguments = {
        "script": [str(SCRIPT), text],
        "command": ["-m", "tidybert", "fill-mask", str(SMALL), text],
    }
    printed = {
        name: subprocess.run(
            [sys.executable, *each], capture_output=True, text=True, check=True
        ).stdout
        for name, each in arguments.items()
    }

    first, *answers = printed["script"].splitlines()
    assert first.split()[:2] == ["[CLS]", "my"]
    words = [line.split()[1] for line in answers]
    assert len(words) == 5
    places = [printed["command"].index(word) for word in words]
    assert places == sorted(places)
