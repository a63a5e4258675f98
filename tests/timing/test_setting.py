"""The setting of the benches: sides, lengths, texts."""

import importlib.util
from pathlib import Path

import pytest

from tidybert.errors import ModelNotFoundError, UsageError
from tidybert.files.read_options import ReadOptions
from tidybert.files.text_files import read_examples
from tidybert.timing.setting import (
    SIDES,
    find_lines,
    max_seq_length_for,
    sides_against,
    sst2_or_tickets,
)


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


def test_sst2_is_read_from_the_data_folder(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "glue" / "SST-2"
    folder.mkdir(parents=True)
    (folder / "dev.tsv").write_text("sentence\tlabel\na fine film\t1\n")
    monkeypatch.setenv("TIDYBERT_DATA", str(tmp_path))

    name, path, options = sst2_or_tickets("dev")

    assert name == "SST-2 dev"
    assert [one.text for one in read_examples(path, options, need_label=True)] == ["a fine film"]


def test_without_a_data_folder_the_bundled_tickets_are_taken(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TIDYBERT_DATA", str(tmp_path))

    name, path, options = sst2_or_tickets("train")

    assert name == "bundled tickets"
    assert options == ReadOptions(text="text", label="label")
    labels = {one.label for one in read_examples(path, options, need_label=True)}
    assert labels == {"billing", "hardware", "software"}


def test_without_the_data_folder_the_bundled_tickets_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDYBERT_DATA", str(tmp_path))
    source, lines = find_lines(limit=10)
    assert source == "bundled tickets"
    assert len(lines) == 10
    assert all(lines)


@pytest.mark.real_data
def test_wikipedia_is_read_from_the_data_folder(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDYBERT_DATA", str(real_data))
    source, lines = find_lines(limit=10)
    assert source.endswith("wiki-core-00.txt.xz")
    assert len(lines) == 10
    assert all(line == line.rstrip("\n") for line in lines)
