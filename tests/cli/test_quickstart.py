"""``tidybert quickstart``: with a tiny model in a second, and as a user runs it."""

import json
import os
import re
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from tidybert import catalog as pretrained
from tidybert.cli import progress
from tidybert.cli.commands import quickstart
from tidybert.cli.main import run
from tidybert.configuration import BertConfig
from tidybert.system.terminal import Pace


@pytest.fixture(scope="module")
def tickets_model(
    tmp_path_factory: pytest.TempPathFactory, tiny_config: Callable[..., BertConfig]
) -> Path:
    """A MODEL with a tiny random encoder whose vocabulary is the tickets' commonest words."""
    import torch

    from tidybert.checkpoints.tensor_files import write_tensors
    from tidybert.checkpoints.weights import to_huggingface
    from tidybert.modeling import BertModel
    from tidybert.tokenization import BertTokenizer

    words = Counter(
        word
        for one in quickstart._read("train.csv")
        for word in re.findall(r"\w+|[^\w\s]", one.text.lower())
    )
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, *(word for word, _ in words.most_common(1000))]
    directory = tmp_path_factory.mktemp("models") / "tickets"
    directory.mkdir()
    torch.manual_seed(0)
    config = tiny_config(vocab_size=len(vocabulary), max_position_embeddings=128)
    write_tensors(directory, to_huggingface(BertModel(config).state_dict(), config))
    (directory / "config.json").write_text(json.dumps(config.to_dict()))
    BertTokenizer(vocabulary).save(directory)
    return directory


@pytest.fixture
def tiny_quickstart(tickets_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command with the tiny model, at a rate at which it learns, in an empty folder."""
    monkeypatch.setattr(quickstart, "DEFAULT_MODEL", str(tickets_model))
    monkeypatch.setattr(quickstart, "LEARNING_RATE", 5e-3)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("tiny_quickstart")
def test_it_shows_every_stage_and_its_next_commands_work(
    monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(sys, "argv", [str(Path(sys.executable).with_name("tidybert"))])
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert run(["quickstart"]) == 0
    out, err = capsys.readouterr()
    for stage in range(1, 6):
        assert f"\n{stage}. " in err
    assert "489 tickets" in err
    assert "step 93 of 93: loss " in err
    assert "accuracy" in out
    assert "true \\ predicted" in out
    for line in Path("tidybert-quickstart/tickets/new.txt").read_text().splitlines():
        assert line.split()[0] in out
    assert max(map(len, out.splitlines())) <= 80

    commands = [line.strip() for line in err.splitlines() if line.startswith("     ")]
    assert len(commands) == 4
    for command in commands:
        words = shlex.split(command)
        assert words.pop(0) == "tidybert"
        if words[0] == "finetune":
            words = [*words[:2], quickstart.DEFAULT_MODEL, *words[2:], "--max-steps", "1"]
        assert run(words) == 0, command
    answers, said = capsys.readouterr()
    assert answers.count('{"label": ') == 9
    # The RUN knows which of its copies chose the weights.
    assert f"tickets{os.sep}dev.csv chose the best weights in training" in said


@pytest.mark.parametrize(
    ("started_as", "on_path", "typed"),
    [
        ("bin/tidybert", True, "tidybert"),
        ("bin/tidybert", False, "bin/tidybert"),
        ("lib/tidybert/__main__.py", True, f"{sys.executable} -m tidybert"),
    ],
)
def test_next_commands_name_the_program_as_the_shell_finds_it(
    started_as: str,
    on_path: bool,
    typed: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bin").mkdir()
    Path("bin/tidybert").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin") if on_path else "")
    monkeypatch.setattr(sys, "argv", [started_as])
    assert quickstart._program() == typed


@pytest.mark.usefixtures("tiny_quickstart")
@pytest.mark.parametrize("content", ["file", "folder", "finished"])
def test_nothing_is_overwritten(content: str, capsys) -> None:
    place = Path("tidybert-quickstart")
    if content == "file":
        place.write_text("mine")
    else:
        place.mkdir()
        (place / ("mine" if content == "folder" else "tidybert.json")).write_text("mine")
    before = {path: path.read_text() for path in Path().rglob("*") if path.is_file()}
    assert run(["quickstart"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: --out tidybert-quickstart is there already")
    assert err.count("\n") == 1
    assert {path: path.read_text() for path in Path().rglob("*") if path.is_file()} == before


@pytest.mark.usefixtures("tiny_quickstart")
def test_json_is_one_object_and_one_that_was_stopped_ends_with_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(quickstart, "NUM_TRAIN_EPOCHS", 2)
    monkeypatch.setattr(quickstart, "LEARNING_RATE", 2e-2)
    assert run(["quickstart", "--json", "--seed", "7", "--out", "my model"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    whole = json.loads(out)
    assert whole["run"] == "my model"
    assert whole["accuracy"] > 0.4
    assert len(whole["predictions"]) == 8
    assert {"text", "label", "score", "scores", "truncated"} <= whole["predictions"][0].keys()
    assert sum(map(sum, whole["confusion_matrix"])) == 154
    right = sum(whole["confusion_matrix"][at][at] for at in range(3))
    assert right / 154 == pytest.approx(whole["accuracy"])
    assert json.loads(Path("my model/arguments.json").read_text())["seed"] == 7

    class Stopping(Pace):
        """A bar that presses Ctrl-C at step 20."""

        def __call__(self, done: int, *_: object) -> None:
            if done == 20 * quickstart.TRAIN_BATCH_SIZE:
                signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(progress, "shown_progress", lambda _title: nullcontext(Stopping(print, 0)))
        assert run(["quickstart", "--seed", "7", "--out", "stopped"]) == 130
    assert "--resume" in capsys.readouterr().err
    assert run(["quickstart", "--out", "stopped"]) == 2
    assert "--resume continues it" in capsys.readouterr().err
    assert run(["quickstart", "--seed", "7", "--out", "stopped", "--resume", "--json"]) == 0
    stopped = json.loads(capsys.readouterr().out)
    assert stopped["predictions"] == whole["predictions"]


def test_missing_weights_are_told_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
) -> None:
    monkeypatch.setattr(pretrained.PretrainedPackage, "find", lambda self: None)
    monkeypatch.chdir(tmp_path)
    assert run(["quickstart"]) == 1
    assert "this installation has none" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_the_shipped_weights_learn_from_the_first_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
) -> None:
    read = quickstart._read
    monkeypatch.setattr(quickstart, "NUM_TRAIN_EPOCHS", 0.5)
    monkeypatch.setattr(quickstart, "_read", lambda name: read(name)[:100])
    assert run(["quickstart", "--json", "--out", str(tmp_path / "model")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accuracy"] > 0.6  # chance is a third
