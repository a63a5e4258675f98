"""Sides take turns; medians and ratios are of the same rounds; one table and one record."""

import importlib.util
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import SCRIPTS, first_line
from benchmarks.harness.script import (
    SIDES,
    Results,
    markdown,
    parse,
    percent,
    print_speed,
    show,
    sides_against,
    take_rounds,
)
from tidybert.errors import UsageError


def test_every_side_is_measured_once_a_round_and_the_first_one_changes(capsys: Any) -> None:
    values = iter(range(6))

    result = take_rounds(SIDES, 3, lambda side: {"place": next(values)})

    assert result["samples"] == {"ours": {"place": [0, 3, 4]}, "transformers": {"place": [1, 2, 5]}}
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[2]) == (
        "round 1 of 3: ours, place 0.00",
        "round 2 of 3: transformers, place 2.00",
    )


def test_medians_and_the_median_of_the_rounds_ratios() -> None:
    samples = {"ours": {"speed": [6.0, 8.0, 9.0]}, "transformers": {"speed": [3.0, 1.0, 9.0]}}
    values = {side: iter(each["speed"]) for side, each in samples.items()}

    assert take_rounds(SIDES, 3, lambda side: {"speed": next(values[side])}) == {
        "rounds": 3,
        "samples": samples,
        "medians": {"ours": {"speed": 8.0}, "transformers": {"speed": 3.0}},
        "ratios": {"speed": 2.0},
    }
    assert take_rounds(SIDES[:1], 1, lambda _side: {"speed": 4.0})["ratios"] == {}


@pytest.mark.parametrize("sides", [SIDES[:1], SIDES])
def test_a_table_and_a_record(sides: tuple[str, ...], capsys: Any) -> None:
    rates = {"ours": 1234.5, "transformers": 300.0}
    found = take_rounds(sides, 3, lambda side: {"rate": rates[side], "ms": 0.5})
    result = {"threads": 1, **found}
    rows = {"texts/s": "rate", "seconds": "ms"}
    capsys.readouterr()

    print_speed(Namespace(json=False), "A title", result, rows, ["a remark"])
    lines = capsys.readouterr().out.splitlines()
    title, _, heads, _, first, second, _, remark, how, versions = lines
    print_speed(Namespace(json=True), "A title", result, rows)
    found = json.loads(capsys.readouterr().out)

    both = len(sides) == 2
    assert (title, remark) == ("A title", "a remark")
    assert heads == f"|  | tidybert |{' transformers | ratio |' if both else ''}"
    assert first == f"| texts/s | 1,234 |{' 300 | 4.12 |' if both else ''}"
    assert second == f"| seconds | 0.500 |{' 0.500 | 1.00 |' if both else ''}"
    assert how.startswith("medians of 3 rounds; 1 thread; ")
    assert "tidybert 0." in versions
    assert found["title"] == "A title"
    assert found["medians"]["ours"] == {"rate": 1234.5, "ms": 0.5}
    assert found["machine"]["cpu"]
    assert set(found["versions"]) == {"python", "tidybert", "torch", "transformers", "tokenizers"}


@pytest.mark.parametrize("absent", ["transformers", "accelerate"])
def test_a_side_that_is_not_installed(absent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == absent else find(name)
    )

    assert sides_against(None) == ("ours",)
    with pytest.raises(UsageError, match=f"{absent}, which is not installed"):
        sides_against("transformers")


def test_without_a_name_every_script_has_its_line(
    run_script: Callable[..., int], capsys: Any
) -> None:
    assert run_script() == 0
    out = capsys.readouterr().out
    for scripts in SCRIPTS.values():
        for name, module in scripts.items():
            assert f"  {name} " in out
            assert len(first_line(name, module)) > 20
    assert run_script("infre") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["infer", "--against", "jax"], "argument --against: invalid choice"),
        (["infer", "--rounds", "0"], "0: expected 1 or more"),
        (["finetune", "--precision", "half"], "--precision is half; expected auto, float32 or"),
        (["finetune", "--max-seq-length", "64"], "positions for 32"),
        (["infer", "--max-seq-length", "64"], "positions for 32"),
        (["infer", "--profile"], "--profile on a CPU needs --threads 1"),
        (["infer", "--model", "mini"], "has no directory"),
        (["pretrain", "--device", "tpu"], "--device tpu"),
        (["pretrain", "--data", "nowhere"], "tidybert build-corpus FILES"),
        (["serve", "--against", "jax"], "argument --against: invalid choice"),
    ],
)
@pytest.mark.usefixtures("toy_data")
def test_wrong_usage_shows_no_traceback(
    arguments: list[str],
    message: str,
    tiny_model: Path,
    run_script: Callable[..., int],
    capsys: Any,
) -> None:
    model = [] if arguments[0] == "pretrain" or "--model" in arguments else ["--model", tiny_model]
    try:
        status = run_script(*arguments, *model)
    except SystemExit as ended:
        status = int(ended.code or 0)

    assert status in (1, 2)
    assert message in capsys.readouterr().err


def test_a_key_is_measured_once(tmp_path: Path) -> None:
    path, measured = tmp_path / "out.jsonl", iter([0.5, 0.75])

    for _ in range(2):
        results = Results(path)
        for seed in (1, 2):
            key = {"data": "TREC", "seed": seed}
            results.take(key, lambda: {"score": next(measured)})

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["seed"], line["score"]) for line in lines] == [(1, 0.5), (2, 0.75)]
    assert lines[0]["machine"]["cores"] >= 1
    assert lines[0]["versions"]["torch"]
    assert results.where(seed=2) == lines[1:]


@pytest.mark.parametrize(
    ("shares", "expected"), [([], ""), ([0.5], "50.0"), ([0.6, 0.8], "70.0 ± 14.1")]
)
def test_percent_has_the_deviation_of_the_sample(shares: list[float], expected: str) -> None:
    assert percent(shares) == expected


def test_only_what_stands_between_the_marks_changes(page: Callable[[str], Path]) -> None:
    written = page("few")

    show(markdown(["a", "b"], [["1", "2"]]), written, "few")

    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    assert written.read_text() == f"before\n<!-- few -->\n{table}\n<!-- /few -->\nafter\n"
    with pytest.raises(SystemExit, match="it has no <!-- other -->"):
        show([], written, "other")


def test_a_page_that_is_not_there_is_told_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["script", "--write", "no-page.md"])

    with pytest.raises(SystemExit, match="2"):
        parse(ArgumentParser(), "write")

    assert "no-page.md: no such page" in capsys.readouterr().err
