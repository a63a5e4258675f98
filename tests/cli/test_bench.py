"""``tidybert bench``: what it prints, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli import main as shell
from tidybert.timing import finetuning_speed as finetuning
from tidybert.timing import inference_speed as inference
from tidybert.timing import serving_speed as serving
from tidybert.timing import setting
from tidybert.timing.measuring import summarize
from tidybert.timing.setting import SIDES

INFERENCE = ("texts_per_second_in_order", "texts_per_second_by_length", "peak_mib")
FINETUNING = ("examples_per_second", "seconds_per_step", "peak_mib")
ON_A_GPU = {
    "mfu": {"ours": 0.345, "transformers": None},
    "profile": {
        "ours": {
            "share_outside_products": 0.25,
            "launches": 805.0,
            "synchronisations": 2.0,
            "busiest": [["aten::mm", 0.0125, 96.0]],
        }
    },
}


def result_of(quantities: tuple[str, ...], sides: Any, **others: Any) -> dict[str, Any]:
    """What a bench returns: 1234.5 for ours and 300 for the other side, 3 rounds."""
    values = {"ours": 1234.5, "transformers": 300.0}
    samples = {side: {name: [values[side]] * 3 for name in quantities} for side in sides}
    return {"rounds": 3, "threads": 1, **others, **summarize(samples)}


@pytest.fixture
def given(monkeypatch, tmp_path: Path) -> list[dict[str, Any]]:
    """Benches of models that do no work; the list gets what each was called with."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setenv("TIDYBERT_DATA", str(tmp_path / "absent"))

    def bench_inference(model: str, examples: Any, **options: Any) -> dict[str, Any]:
        calls.append({"model": model, "examples": examples, **options})
        others = {"num_truncated": 2, "largest_difference_of_logits": 1.5e-6}
        return result_of(INFERENCE, options["sides"], **others, **ON_A_GPU)

    def bench_finetuning(work: Any, **options: Any) -> dict[str, Any]:
        calls.append({"work": work, **options})
        return result_of(FINETUNING, options["sides"], steps=options["steps"], **ON_A_GPU)

    monkeypatch.setattr(inference, "bench_inference", bench_inference)
    monkeypatch.setattr(finetuning, "bench_finetuning", bench_finetuning)
    return calls


@pytest.mark.parametrize("what", ["infer", "finetune"])
@pytest.mark.parametrize("against", [[], ["--against", "transformers"]])
def test_a_table_of_at_most_80_columns(
    what: str, against: list[str], tiny_model: Path, given: list[dict[str, Any]], capsys
) -> None:
    assert shell.run(["bench", what, "--model", str(tiny_model), *against]) == 0

    out, err = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    assert "1,234" in out
    assert ("300" in out) == ("4.12" in out) == ("transformers  ratio" in out) == bool(against)
    assert ("largest difference of logits: 1.5e-06" in out) == (what == "infer" and bool(against))
    assert "medians of 3 rounds; 1 thread; " in out
    assert "tidybert 0." in out
    assert "bundled tickets are timed" in err
    assert given[0]["sides"] == (SIDES if against else SIDES[:1])


def test_servers_in_a_table(tiny_model: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    calls: list[dict[str, Any]] = []

    def bench_serving(model: str, texts: Any, **options: Any) -> dict[str, Any]:
        calls.append({"texts": texts, **options})
        names = [
            f"{name}_{number}"
            for number in serving.CLIENTS
            for name in ("texts_per_second", "p50_ms", "p95_ms", "p99_ms", "cpu_ms_per_text")
        ]
        quantities = (*names, "seconds_to_first_answer", "peak_mib")
        others = {"max_seq_length": 32, "num_cut": 1, "num_texts": 2}
        shares = {"generators_share_of_a_core": 0.025, "largest_difference_of_answers": 2e-7}
        result = result_of(quantities, SIDES, **others, **shares)
        return {key: value for key, value in result.items() if key != "threads"}

    monkeypatch.setattr(serving, "bench_serving", bench_serving)
    (tmp_path / "texts.txt").write_text("a red hen\nthe dog\n")
    flags = ["--texts", str(tmp_path / "texts.txt"), "--against", "transformers-batching"]

    assert shell.run(["bench", "serve", "--model", str(tiny_model), *flags]) == 0

    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    for shown in ("texts/s, 1 client ", "p99 ms, 128 clients", "transformers-batching", "4.12"):
        assert shown in out
    assert "cut to 32 tokens before they were sent: 1 of 2 texts" in out
    assert "a core's time that sending took: 2.5% at most" in out
    assert calls[0]["texts"] == ["a red hen", "the dog"]
    assert (calls[0]["against"], calls[0]["requests"]) == ("transformers-batching", 400)


def test_figures_of_a_gpu(tiny_model: Path, given: list[dict[str, Any]], capsys) -> None:
    command = ["bench", "finetune", "--model", str(tiny_model)]
    assert shell.run(command) == 0
    short = capsys.readouterr().out
    assert "share of the device's peak, tidybert: 34.5%" in short
    assert "share of the device's peak, transformers" not in short
    assert "time outside products, tidybert: 25.0%" in short
    assert "launches" not in short

    assert shell.run([*command, "--profile", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert "a step, tidybert: 805 kernel launches, 2 synchronisations" in out
    assert "12.500 ms       96 times  aten::mm" in out
    assert [call["work"].profiled_steps for call in given] == [0, 3]


def test_the_flags_of_finetune(tiny_model: Path, given: list[dict[str, Any]]) -> None:
    flags = ["--steps", "5", "--rounds", "2", "--threads", "3", "--precision", "bfloat16"]
    flags += ["--dropout", "0.2", "--max-seq-length", "16"]
    assert shell.run(["bench", "finetune", "--model", str(tiny_model), *flags]) == 0

    [call] = given
    assert (call["steps"], call["rounds"], call["work"].threads) == (5, 2, 3)
    assert (call["work"].max_seq_length, call["work"].dropout) == (16, 0.2)
    assert call["work"].device == "cpu"
    assert call["work"].train_batch_size == 32
    assert call["work"].precision == "bfloat16"


def test_texts_of_a_file_of_ones_own(
    tiny_model: Path, tmp_path: Path, given: list[dict[str, Any]], capsys
) -> None:
    path = tmp_path / "texts.csv"
    path.write_text("words,other\na red hen,x\nthe dog,y\n")
    flags = ["--texts", str(path), "--text", "words", "--threads", "3", "--rounds", "2"]

    assert shell.run(["bench", "infer", "--model", str(tiny_model), *flags]) == 0

    [call] = given
    assert [one.text for one in call["examples"]] == ["a red hen", "the dog"]
    assert (call["threads"], call["rounds"], call["max_seq_length"]) == (3, 2, 32)
    err = capsys.readouterr().err
    assert "2 of 2 texts were cut to 32 tokens" in err
    assert "tickets" not in err


def test_inference_for_real_as_json(tiny_model: Path, tmp_path: Path, capsys) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("a red hen\nthe dog\nwe saw the old cow\n")
    flags = ["--texts", str(path), "--rounds", "2", "--json"]

    assert shell.run(["bench", "infer", "--model", str(tiny_model), *flags]) == 0

    result = json.loads(capsys.readouterr().out)
    assert (result["bench"], result["model"], result["data"]) == (
        "infer", str(tiny_model), str(path),
    )  # fmt: skip
    assert (result["num_texts"], result["num_tokens"]) == (3, 16)
    assert set(result["versions"]) == {"python", "tidybert", "torch", "transformers", "tokenizers"}
    assert result["machine"]["cpu"]
    assert len(result["samples"]["ours"]["texts_per_second_in_order"]) == 2
    assert result["ratios"] == {}


@pytest.mark.parametrize("against", [[], ["--against", "transformers"]])
@pytest.mark.parametrize("as_json", [False, True])
def test_tokenisation_for_real(
    against: list[str], as_json: bool, tiny_model: Path, monkeypatch, capsys
) -> None:
    lines = ["a red hen", "the dög, was near!"] * 20
    monkeypatch.setattr(setting, "find_lines", lambda: ("some lines", lines))
    flags = ["--model", str(tiny_model), "--rounds", "2", *against]

    assert shell.run(["bench", "tokenize", *flags, *(["--json"] if as_json else [])]) == 0

    out = capsys.readouterr().out
    if as_json:
        result = json.loads(out)
        assert (result["bench"], result["data"], result["rounds"]) == ("tokenize", "some lines", 2)
        assert (result["lines"], result["lines_seen_before"]) == (10, 30)
        assert result.get("lines_differing", 0) == 0
        assert ("cold_ratio" in result) == bool(against)
        return
    assert max(map(len, out.splitlines())) <= 80
    assert "Tokenising 10 lines" in out
    assert all(f"MB/s, {state}" in out for state in ("cold", "running", "warm"))
    assert ("lines whose ids differ: 0" in out) == ("ratio" in out) == bool(against)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["infer", "--against", "jax"], "--against jax: expected transformers"),
        (["finetune", "--against", "jax"], "--against jax: expected transformers"),
        (["tokenize", "--against", "jax"], "--against jax: expected transformers"),
        (["infer", "--rounds", "0"], "--rounds"),
        (["finetune", "--steps", "0"], "--steps"),
        (["finetune", "--threads", "0"], "--threads"),
        (["finetune", "--precision", "half"], "--precision is half; expected auto, float32 or"),
        (["finetune", "--against", "transformers-flash"], "needs --device cuda and the package"),
        (["infer", "--against", "transformers-flash"], "expected transformers"),
        (["finetune", "--max-seq-length", "64"], "positions for 32"),
        (["infer", "--max-seq-length", "64"], "positions for 32"),
        (["finetune", "--profile"], "--profile on a CPU needs --threads 1"),
        (["infer", "--text", "words"], "--text says how --texts FILE is read"),
        (["serve", "--against", "jax"], "expected transformers, transformers-batching, infinity"),
        (["serve", "--max-seq-length", "64"], "positions for 32"),
        (["serve", "--text", "words"], "--text says how --texts FILE is read"),
        (["infre"], "infer"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, tiny_model: Path, capsys) -> None:
    model = ["--model", str(tiny_model)] if len(arguments) > 1 else []
    assert shell.run(["bench", *arguments, *model]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("what", ["infer", "finetune"])
def test_a_size_has_no_weights_to_time(what: str, capsys) -> None:
    assert shell.run(["bench", what, "--model", "mini"]) == 1
    assert "has no directory" in capsys.readouterr().err


def test_without_a_word_it_shows_its_help(capsys) -> None:
    assert shell.run(["bench"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("tokenize", "infer", "finetune"))


def test_every_option_has_a_help_text() -> None:
    group = shell.program().commands["bench"]  # type: ignore[attr-defined]
    for name, command in group.commands.items():
        assert command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", None), (name, parameter.name)
