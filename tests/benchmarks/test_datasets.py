"""The jobs: which examples are in which part, and texts without a data folder."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.harness.datasets import (
    JOBS,
    drawn,
    examples_of,
    mixed_texts,
    share_of,
    sst2_or_tickets,
    wikipedia_lines,
)


@pytest.mark.usefixtures("toy_data")
def test_no_example_is_in_both_parts() -> None:
    spam, ham = examples_of("SMS spam", "train"), examples_of("SMS spam", "dev")
    assert (len(spam), len(ham)) == (21, 3)
    assert not {one.text for one in spam} & {one.text for one in ham}

    sentences = [len(examples_of("wikigold", part)) for part in ("train", "dev")]
    assert sentences == [116, 29]

    train, test = (examples_of("2.0", part) for part in ("train", "dev"))
    assert len(train) + len(test) == 24
    assert {share_of(one.title) < 0.3 for one in test} == {True}
    assert {share_of(one.title) < 0.3 for one in train} == {False}
    shifts = examples_of("shifts", "train")
    assert Counter(one.id.split()[0] for one in shifts) == {"new_wiki_v1.0": 24, "reddit_v1.0": 24}
    assert [share_of(one.id) for one in shifts] == sorted(share_of(one.id) for one in shifts)


def test_a_draw_follows_from_its_seed() -> None:
    assert drawn(range(9), 4, 1) == drawn(range(9), 4, 1) != drawn(range(9), 4, 2)
    assert sorted(drawn(range(9), 20, 1)) == list(range(9))


def test_without_a_data_folder_the_tickets_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDYBERT_DATA", str(tmp_path))

    assert sst2_or_tickets() == "tickets"
    labels = {one.label for one in examples_of("tickets", "train")}
    assert labels == {"billing", "hardware", "software"}
    source, lines = wikipedia_lines(limit=10)
    assert (source, len(lines)) == ("bundled tickets", 10)
    assert mixed_texts()[0] == "tickets"


def test_sst2_and_wikipedia_take_turns(toy_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "benchmarks.harness.datasets.wikipedia_lines", lambda limit: ("w", ["line"] * limit)
    )
    source, texts = mixed_texts()

    assert source == "SST-2 and Wikipedia"
    assert texts[:3] == ["the red cat was", "line", "the red cat near"]


@pytest.mark.real_data
def test_the_jobs_name_files_that_there_are(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDYBERT_DATA", str(real_data))
    for job in JOBS.values():
        assert all(path.is_file() for part in ("train", "dev") for path in job.files(part))
    source, lines = wikipedia_lines(limit=10)
    assert source.endswith("wiki-core-00.txt.xz")
    assert len(lines) == 10
    assert all(line == line.rstrip("\n") for line in lines)
