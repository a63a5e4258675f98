"""What the benches share: sides, lengths, the machine."""

import importlib.util
from pathlib import Path

import pytest

from tidybert.errors import ModelNotFoundError, UsageError
from tidybert.timing.setting import SIDES, machine, max_seq_length_for, sides_against, versions


def test_the_sides() -> None:
    assert sides_against(None) == ("ours",)
    assert sides_against("transformers") == SIDES
    with pytest.raises(UsageError, match="against='jax': expected transformers"):
        sides_against("jax")


@pytest.mark.parametrize("absent", ["transformers", "accelerate"])
def test_a_missing_package_names_the_extra(absent: str, monkeypatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == absent else find(name)
    )

    with pytest.raises(UsageError, match=rf"{absent}.*pip install 'tidybert\[bench\]'"):
        sides_against("transformers")
    assert sides_against(None) == ("ours",)


def test_texts_are_cut_to_128_tokens_or_the_models_positions(tiny_model: Path, tmp_path) -> None:
    assert max_seq_length_for(str(tiny_model)) == 32
    (tmp_path / "config.json").write_text((tiny_model / "config.json").read_text())
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(
        config.replace('"max_position_embeddings": 32', '"max_position_embeddings": 512')
    )
    assert max_seq_length_for(str(tmp_path)) == 128
    with pytest.raises(ModelNotFoundError):
        max_seq_length_for("mini")


def test_the_machine_and_what_is_installed_on_it(monkeypatch) -> None:
    assert machine()["cpu"]
    assert machine()["cores"] >= 1
    monkeypatch.setattr("tidybert.timing.setting.PACKAGES", ("tidybert", "no-such-package"))
    found = versions()
    assert list(found) == ["python", "tidybert", "no-such-package"]
    assert found["no-such-package"] is None
