"""``tidybert serve``: names, keys and flags; tests/server has the server itself."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tidybert.cli.commands.serving import named
from tidybert.cli.main import run
from tidybert.errors import UsageError
from tidybert.server import process


def test_a_model_has_its_folders_name_or_the_one_given() -> None:
    found = named(["runs/sentiment", "minilm", "other=runs/b/sentiment", "./a=b"])

    assert found == {
        "sentiment": "runs/sentiment",
        "minilm": "minilm",
        "other": "runs/b/sentiment",
        "a=b": "./a=b",
    }


@pytest.mark.parametrize(
    ("runs", "message"),
    [(["a/x", "b/x"], "two models are named 'x'"), (["=x"], "NAME=RUN"), (["x="], "NAME=RUN")],
)
def test_names_that_cannot_be_are_refused(runs: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        named(runs)


@pytest.mark.parametrize("has_key", [False, True])
def test_an_open_address_without_a_key_is_warned_of(
    has_key: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(process, "serve", lambda settings, say, **_: given.append(settings))
    words = ["serve", "a", "--host", "0.0.0.0", "--queue-tokens", "9"]
    if has_key:
        (tmp_path / "keys").write_text("a-long-key\n")
        words += ["--api-key-file", str(tmp_path / "keys")]

    assert run(words) == 0

    assert ("warning" in capsys.readouterr().err) == (not has_key)
    (settings,) = given
    assert settings.keys == (("a-long-key",) if has_key else ())
    assert (settings.host, settings.queue_tokens, settings.models) == ("0.0.0.0", 9, {"a": "a"})
    assert "a-long-key" not in repr(settings)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("absent-model", "no directory and no model is named 'absent-model'"),
        ("folder", "folder is not a MODEL: it has corpus.json, but no config.json"),
    ],
)
def test_what_is_no_model_is_refused_before_anybody_can_connect(
    model: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "corpus.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process, "listening_on", None)

    assert run(["serve", model, "--port", "0"]) == 1

    assert said in capsys.readouterr().err
