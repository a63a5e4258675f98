"""Two programs compared: the table, what each side trains with, and one start for both."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.harness.datasets import JOBS
from benchmarks.harness.script import Results
from benchmarks.scores import compare
from benchmarks.scores.compare import score_table
from tidybert import load


def line(task: str, side: str, seed: int, score: float, seconds: float = 1.0) -> dict[str, Any]:
    metrics = dict.fromkeys(JOBS[task].metrics, score)
    return {"task": task, "side": side, "seed": seed, "metrics": metrics, "seconds": seconds,
            "peak_mib": 3}  # fmt: skip


def test_scores_are_means_and_times_are_medians_of_common_seeds() -> None:
    results = [
        *(line("MRPC", "ours", seed, score, seconds)
          for seed, score, seconds in ((1, 0.5, 1.0), (2, 0.7, 2.0), (3, 0.0, 9.0))),
        *(line("MRPC", "transformers", seed, 0.8, 6.0) for seed in (1, 2)),
        line("MRPC", "defaults", 2, 0.9),
        line("RTE", "ours", 1, 0.5),
    ]  # fmt: skip
    sides = {"defaults": "d", "ours": "a", "transformers": "b"}

    table = score_table(["MRPC", "RTE"], results, sides, compared=list(sides)[1:], timed=True)

    assert table[0].startswith("| task | metric | d | a | b | seeds | s, tidybert |")
    scores = "90.0 (1 of 2 seeds) | 60.0 ± 14.1 | 80.0 ± 0.0"
    assert table[2:] == [
        # Ratios of 6 and 3.
        f"| MRPC | accuracy | {scores} | 2 | 2 | 6 | 4.50 | 3 | 3 |",
        f"|  | f1 | {scores} |  |  |  |  |  |  |",
    ]


@pytest.mark.parametrize(
    ("flags", "mark", "least", "most"),
    [
        ([], "glue", 1e-3, 2.0),
        (["--same-start"], "glue-same-start", 0.0, 1e-4),
        (["--same-start", "--precision", "bfloat16"], "glue-same-start-bfloat16", 1e-5, 0.02),
    ],
)
@pytest.mark.usefixtures("toy_data", "in_process")
def test_one_start_leaves_rounding(
    flags: list[str],
    mark: str,
    least: float,
    most: float,
    run_script: Callable[..., int],
    page: Callable[[str], Path],
    pretrained_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    work_of = compare.work_of
    small = {"train_batch_size": 4}
    monkeypatch.setattr(compare, "work_of", lambda *given, **more: work_of(*given, **more | small))
    shown, out = page(mark), tmp_path / "measured.jsonl"
    given = ["--model", pretrained_run, "--tasks", "STS-B", "--seeds", "1"]

    run_script("compare", "glue", *flags, *given, "--out", out, "--write", shown)

    ours, theirs = (each["metrics"]["pearson"] for each in Results(out).lines)
    assert least <= abs(ours - theirs) < most
    assert "| STS-B | pearson |" in shown.read_text()


@pytest.mark.usefixtures("toy_data")
def test_other_sides_are_the_defaults_and_frozen_features(
    run_script: Callable[..., int],
    in_process: list[tuple[str, dict[str, Any]]],
    page: Callable[[str], Path],
    pretrained_run: Path,
    tmp_path: Path,
) -> None:
    shown = page("ner")
    given = ["--model", pretrained_run, "--tasks", "CoNLL-2003", "--max-steps", "1"]
    files = ["--out", tmp_path / "measured.jsonl", "--write", shown]

    for seeds in (1, 2):
        run_script("compare", "ner", *given, "--seeds", seeds, "--defaults", *files)

    sides = [(side, work["at_defaults"]) for side, work in in_process]
    first = [("ours", False), ("transformers", False), ("frozen", False), ("ours", True)]
    # In the second seed the last side begins, and frozen features are not computed again.
    assert sides == [*first, ("ours", True), ("transformers", False), ("ours", False)]
    heads = "at its defaults | tidybert at transformers' settings | transformers | frozen features"
    assert heads in shown.read_text()


@pytest.mark.usefixtures("toy_data")
def test_squad_2_begins_with_what_was_learned_on_shifts(
    run_script: Callable[..., int],
    in_process: list[tuple[str, dict[str, Any]]],
    pretrained_run: Path,
    tmp_path: Path,
) -> None:
    given = ["--model", pretrained_run, "--max-steps", "1", "--seeds", "1"]

    run_script("compare", "squad", "--tasks", "2.0", *given, "--out", tmp_path / "out.jsonl")

    ours, theirs = (work["model"] for _, work in in_process)
    assert ours == theirs != str(pretrained_run)


@pytest.mark.usefixtures("toy_data")
def test_whole_sets_by_each_programs_defaults(
    run_script: Callable[..., int],
    in_process: list[tuple[str, dict[str, Any]]],
    page: Callable[[str], Path],
    pretrained_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown, out = page("full_sets"), tmp_path / "out.jsonl"
    origin = shutil.copytree(pretrained_run, tmp_path / "origin")
    ours, theirs = str(pretrained_run), str(origin)
    monkeypatch.setattr(compare, "MODELS", (ours, theirs))
    flags = ["--tasks", "SST-2", "--max-steps", 1, "--out", out, "--write", shown]

    for _ in range(2):
        run_script("full_sets", *flags, "--seeds", 2, "--sides", ours, theirs)
    run_script("full_sets", *flags, "--seeds", 1, "--sides", compare.THEIRS)

    works = [(side, work["model"], work["seed"]) for side, work in in_process]
    assert works == [
        ("ours", ours, 1),
        ("ours", theirs, 1),
        ("ours", theirs, 2),
        ("ours", ours, 2),
        ("transformers", ours, 1),
    ]
    assert all(work["at_defaults"] and work["num_examples"] is None for _, work in in_process)
    (row,) = (each for each in shown.read_text().splitlines() if each.startswith("| SST-2"))
    assert row.count("±") == 2
    assert "(1 of 2 seeds)" in row


def test_random_weights_have_the_shape_and_follow_from_the_seed(
    pretrained_run: Path, tmp_path: Path
) -> None:
    given, tokenizer = load(pretrained_run)
    for name, seed in (("one", 1), ("again", 1), ("two", 2)):
        compare.write_random_model(tmp_path / name, given.config, tokenizer, seed)

    one, again, two = (load(tmp_path / name)[0] for name in ("one", "again", "two"))

    assert one.config == given.config
    weights = [each.word_embeddings.weight for each in (given, one, again, two)]
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[1], weights[3])
    assert not torch.equal(weights[0], weights[1])
    # A fresh pooler, too: none would be drawn with the head.
    assert one.pooler is not None
