"""Weights beside random ones of their shape: what is measured, and the table of it."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tidybert import BertTokenizer, load
from tidybert.files.read_options import ReadOptions
from tidybert.timing import finetuning_speed as finetuning
from tidybert.timing.work import FinetuningWork


@pytest.fixture
def own_model(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("own_model")


@pytest.fixture
def toy_job(script: Callable[[str], ModuleType], tmp_path: Path) -> Any:
    """A job of 12 texts."""
    path = tmp_path / "texts.csv"
    rows = [("the red cat", "yes"), ("a dog was near", "no")] * 6
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    options = ReadOptions(text="text", label="label")
    return script("side_by_side").Job("classify", str(path), str(path), options, ("accuracy",))


def test_random_weights_have_the_shape_and_the_vocabulary(
    own_model: ModuleType, pretrained_run: Path, tmp_path: Path
) -> None:
    for name, seed in (("one", 1), ("again", 1), ("two", 2)):
        own_model.random_like(str(pretrained_run), seed, tmp_path / name)
    given, tokenizer = load(pretrained_run)
    one, again, two = (load(tmp_path / name)[0] for name in ("one", "again", "two"))
    assert one.config == given.config
    assert BertTokenizer.from_pretrained(tmp_path / "one").vocabulary.tokens == (
        tokenizer.vocabulary.tokens
    )
    name = "embeddings.word_embeddings.weight"
    states = [each.state_dict()[name] for each in (given, one, again, two)]
    assert torch.equal(states[1], states[2])
    assert not torch.equal(states[1], states[3])
    assert not torch.equal(states[0], states[1])
    # A fresh pooler, too: none would be drawn with the head.
    assert one.pooler is not None


def test_both_sides_are_measured_once_and_stand_in_the_table(
    own_model: ModuleType,
    run_script: Callable[..., None],
    toy_job: Any,
    page: Callable[[str], Path],
    pretrained_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys,
) -> None:
    works: list[FinetuningWork] = []

    def measure_here(side: str, work: FinetuningWork) -> dict[str, Any]:
        works.append(work)
        return {**finetuning._run(side, asdict(work)), "peak_mib": 1}

    monkeypatch.setattr(own_model, "measure", measure_here)
    monkeypatch.setattr(own_model, "TASKS", {"SST-2": toy_job})
    written, out = page("own_model"), tmp_path / "out.jsonl"
    model = str(pretrained_run)
    flags = ["--model", model, "--max-steps", "1", "--out", out, "--write", written]
    run_script("own_model", *flags, "--seeds", "2")
    assert [(work.model == model, work.seed) for work in works] == [
        (True, 1),
        (False, 1),
        # The sides take turns in going first.
        (False, 2),
        (True, 2),
    ]
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["side"] for line in lines} == {model, f"random, as {model}"}
    text = written.read_text()
    assert (
        f"| task | metric | {model} | random, as {model} | seeds | BERT tiny | BERT mini |" in text
    )
    (row,) = (line for line in text.splitlines() if line.startswith("| SST-2"))
    assert row.endswith("| 2 | 83.2 | 85.9 |")
    assert row.count("±") == 2

    run_script("own_model", *flags, "--seeds", "2")
    assert len(works) == 4


def test_the_table_takes_the_seeds_that_every_side_has(
    script: Callable[[str], ModuleType], toy_job: Any
) -> None:
    side_by_side = script("side_by_side")
    results = [
        {"task": "toy", "side": side, "seed": seed, "metrics": {"accuracy": score}}
        for side, seed, score in (("a", 1, 0.5), ("a", 2, 0.7), ("a", 3, 0.0), ("b", 2, 1.0))
    ]
    results.append({"task": "toy", "side": "b", "seed": 1, "metrics": {"accuracy": 0.8}})
    jobs = {"toy": toy_job, "not measured": toy_job}
    assert side_by_side.table_of_scores(jobs, results, ["a", "b"])[2:] == [
        "| toy | accuracy | 60.0 ± 14.1 | 90.0 ± 14.1 | 2 |"
    ]
    assert side_by_side.table_of_scores(
        jobs, results, ["b"], {"theirs": {("toy", "accuracy"): 80}, "others": {}}
    )[2:] == ["| toy | accuracy | 90.0 ± 14.1 | 2 | 80.0 |  |"]


@pytest.mark.real_data
def test_the_jobs_name_files_that_there_are(
    own_model: ModuleType, script: Callable[[str], ModuleType], real_data: Path
) -> None:
    for name in ("own_model", "adaptation"):
        for job in script(name).TASKS.values():
            assert (real_data / job.train).is_file()
            assert (real_data / job.dev).is_file()
    for published in own_model.PUBLISHED.values():
        assert set(published) == {
            (name, metric)
            for name, job in own_model.TASKS.items()
            for metric in job.metrics
            if name != "CoNLL-2003"
        }
