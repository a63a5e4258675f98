"""The texts of the benches: from the data folder, else the bundled tickets."""

from pathlib import Path

import pytest

from tidybert.files.read_options import ReadOptions
from tidybert.files.text_files import read_examples
from tidybert.timing.bench_texts import find_lines, sst2_or_tickets


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
