"""Steps of training timed: both sides do the same work, and what is counted is that work."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.bert.modeling_bert import BertEmbeddings

from benchmarks.harness import script, steps
from benchmarks.harness.script import SIDES
from benchmarks.harness.steps import UNTIMED_STEPS
from benchmarks.speed import training
from benchmarks.speed.training import FinetuneWork, with_dropout, work_of
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.configuration import BertConfig
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.batches.pretraining_batch import Position
from tidybert.pretraining.throughput import flops_per_token
from tidybert.tokenization import BertTokenizer

# What the processes of the two sides answer, in turn: the first steps are slow and do not count.
SLOWNESS = {"ours": (1.0, 2.0), "transformers": (3.0, 6.0)}


@pytest.fixture
def work(toy_data: Path, tiny_run: Path) -> FinetuneWork:
    """Seven steps of 8 of 24 texts."""
    return work_of(
        "SST-2",
        str(tiny_run),
        num_examples=20,
        num_train_epochs=3,
        max_seq_length=16,
        train_batch_size=8,
        max_steps=7,
        threads=1,
    )


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Takes the place of the processes; the list gets each side and its work."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def fake(_function: Any, side: str, work: dict[str, Any], _threads: int | None) -> Any:
        number = sum(each == side for each, _ in calls)
        calls.append((side, work))
        steps = work["max_steps"] - work["profiled_steps"]
        slow = [99.0] * (UNTIMED_STEPS - 1)
        return {
            "step_seconds": slow + [SLOWNESS[side][number]] * (steps - UNTIMED_STEPS),
            "step_counts": [32] * work["max_steps"],
            "threads": 2,
            "peak_mib": 100 if side == "ours" else 400,
            "peak_rate": 64.0,
            "profile": {"product_seconds": 0.75, "busy_seconds": 0.8, "launches": 9.0},
        }

    monkeypatch.setattr(script, "run_apart", fake)
    return calls


def test_both_sides_take_the_same_steps_in_processes_of_their_own(work: FinetuneWork) -> None:
    found = {}
    for side in SIDES:
        result = steps.time_steps(training.measure, work, "examples", sides=[side], rounds=1)
        found[side] = one = result["found"][side]
        assert one["step_counts"] == [8, 8, 4, 8, 8, 4, 8]
        assert len(one["step_seconds"]) == 6
        assert 0 < sum(one["step_seconds"]) <= one["seconds"]
        assert result["threads"] == 1
        assert result["medians"][side]["peak_mib"] > 1
        rate = sum(one["step_counts"][3:]) / sum(one["step_seconds"][2:])
        assert result["medians"][side]["examples_per_second"] == pytest.approx(rate)
    assert all(0 <= one["metrics"]["accuracy"] <= 1 for one in found.values())


@pytest.mark.parametrize(
    ("job", "metric"),
    [("STS-B", "pearson"), ("CODAH", "log_loss"), ("CoNLL-2003", "f1"), ("shifts", "exact_match")],
)
@pytest.mark.usefixtures("toy_data")
def test_every_task_is_trained_and_scored_by_both_sides(
    job: str, metric: str, pretrained_run: Path
) -> None:
    work = work_of(job, str(pretrained_run), num_train_epochs=1, train_batch_size=8, max_steps=3)
    given = json.loads(json.dumps(vars(work)))

    found = [training.measure(side, given) for side in SIDES]

    assert [one["step_counts"] for one in found] == [[8, 8, 8]] * 2
    assert all(math.isfinite(one["metrics"][metric]) for one in found)


def test_a_bench_sums_up_its_rounds(
    work: FinetuneWork, faked: list[tuple[str, dict[str, Any]]]
) -> None:
    result = training.bench_finetuning(work, num_steps=4, rounds=2)

    assert [side for side, _ in faked] == ["ours", "transformers", "transformers", "ours"]
    given = faked[0][1]
    assert all(other == given for _, other in faked)
    assert (given["is_scored"], given["max_steps"]) == (False, 4 + UNTIMED_STEPS)
    assert result["samples"]["ours"] == {
        "examples_per_second": [32.0, 16.0],
        "seconds_per_step": [1.0, 2.0],
        "peak_mib": [100, 100],
    }
    ratios = {"examples_per_second": 3.0, "seconds_per_step": 1 / 3, "peak_mib": 0.25}
    assert result["ratios"] == pytest.approx(ratios)
    assert (result["steps"], result["rounds"], result["threads"]) == (4, 2, 2)
    # 24 and 7.1 examples a second, of 64.
    assert result["mfu"] == pytest.approx({"ours": 24 / 64, "transformers": 8 / 64})


def test_a_gpu_warms_up_and_is_profiled_beside_its_timed_steps(
    work: FinetuneWork, faked: list[tuple[str, dict[str, Any]]]
) -> None:
    given = replace(work, device="cuda", profiled_steps=3)

    result = training.bench_finetuning(given, sides=["ours"], num_steps=4, rounds=1)

    # 4 steps to time, up to 20 to warm up, 3 under the profiler.
    assert faked[0][1]["max_steps"] == 27
    assert result["warm_up_steps"]["ours"] > UNTIMED_STEPS
    assert result["medians"]["ours"]["examples_per_second"] == 32.0
    assert result["profile"]["ours"]["share_outside_products"] == 0.25


def test_with_frozen_layers_the_second_epoch_is_timed(
    work: FinetuneWork, faked: list[tuple[str, dict[str, Any]]]
) -> None:
    given = replace(work, freeze_layers=1)
    result = training.bench_finetuning(given, sides=["ours"], num_steps=5, rounds=1)

    assert (faked[0][1]["num_examples"], faked[0][1]["max_steps"]) == (40, 10)
    assert result["warm_up_steps"] == {"ours": 5}


def test_a_copy_of_the_model_has_the_dropout_that_is_asked(work: FinetuneWork) -> None:
    with with_dropout(replace(work, is_scored=False, max_steps=2), 0.5) as given:
        assert ModelDirectory.open(given.model).config.hidden_dropout_prob == 0.5
        result = training.measure("ours", vars(replace(given, profiled_steps=1)))

    assert (len(result["step_counts"]), result["step_seconds"]) == (2, [])
    assert result["profile"]["product_seconds"] > 0


def test_the_peak_in_examples_is_the_devices(
    work: FinetuneWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert work.peak_rate() is None
    monkeypatch.setattr(steps, "peak_flops", lambda _device, **_mixed: 1e12)
    on_gpu = replace(work, device="cuda")

    config = ModelDirectory.open(work.model).config
    # Texts are cut to 16 tokens; most are shorter.
    longest = 1e12 / (16 * flops_per_token(config, 16, 0.0))
    found = replace(on_gpu, max_steps=3).peak_rate()
    assert found is not None
    assert longest <= found < 4 * longest
    assert replace(on_gpu, freeze_layers=1).peak_rate() is None


def test_both_sides_train_in_bfloat16_and_score_in_float32(
    work: FinetuneWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = replace(work, precision="bfloat16", max_steps=2)
    seen: set[tuple[bool, bool]] = set()

    def recorded(self: BertEmbeddings, *given: Any, **named: Any) -> Any:
        seen.add((self.training, torch.is_autocast_enabled("cpu")))
        return forward(self, *given, **named)

    forward = BertEmbeddings.forward
    monkeypatch.setattr(BertEmbeddings, "forward", recorded)
    training.measure("transformers", vars(mixed))

    assert mixed.arguments().precision == "bfloat16"
    assert seen == {(True, True), (False, False)}


# --- pre-training


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> str:
    folder = tmp_path_factory.mktemp("corpus")
    lines = [f"the red cat was near the {n} dog and we saw a hen" for n in range(1200)]
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    return str(training.corpus_of(lines, tokenizer, folder, held_out=0.2))


def test_the_command_trains_both_sides_on_the_same_instances(
    shards: str,
    run_script: Callable[..., int],
    in_process: list[tuple[str, dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--size", "tiny", "--data", shards, "--rounds", 1, "--steps", 6, "--dropout", 0]
    flags += ["--tokens-per-step", 512, "--max-seq-length", 48, "--micro-batch", 128]
    flags += ["--precision", "bfloat16", "--against", "transformers", "--json"]

    assert run_script("pretrain", *flags) == 0

    # transformers prints its losses here too.
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [side for side, _ in in_process] == list(SIDES)
    assert in_process[0][1] == in_process[1][1] == result["work"]
    assert (result["work"]["micro_batch"], result["work"]["precision"]) == ("128", "bfloat16")
    one, other = (result["found"][side] for side in SIDES)
    assert one["step_counts"] == other["step_counts"]
    assert 0 < one["share_of_padding"] < 1
    assert one["instances_per_second"] > 0
    # Both begin at ln(V) for the words and ln 2 for the pairs.
    assert len(one["losses"]) == len(other["losses"]) == 6
    assert one["losses"][0] == pytest.approx(other["losses"][0], abs=0.4)
    medians = [result["medians"][side]["tokens_per_second"] for side in SIDES]
    assert result["ratios"]["tokens_per_second"] == pytest.approx(medians[0] / medians[1])
    assert run_script("pretrain", *flags[:-3], "--micro-batch", "nought") == 2
    assert "a number above 0, or auto" in capsys.readouterr().err


def test_parts_of_transformers_steps_add_up(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a GPU, on a CPU."""
    parts_of = training.parts_of_a_step
    work = training.PretrainWork("tiny", shards, 3, 512, dropout=0.0, profiled_steps=1)
    on_gpu = replace(work, device="cuda", max_seq_length=64, micro_batch="128")
    assert parts_of(work, 8) == 1
    assert parts_of(on_gpu, 8) == 4
    assert parts_of(replace(on_gpu, micro_batch=None), 8) == 1

    monkeypatch.setattr(training, "parts_of_a_step", lambda _work, _number: 2)
    instances = work.instances()
    places = instances.take(Position(), 8)[0]
    found = training.train_theirs(work, instances, [places] * 4)

    assert len(found["losses"]) == 4
    vocab_size = instances.corpus.manifest.vocabulary["vocab_size"]
    assert found["losses"][0] == pytest.approx(math.log(2 * vocab_size), abs=0.4)
    assert len(found["step_seconds"]) == 2
    assert found["profile"]["product_seconds"] > 0


def test_the_peak_in_tokens_is_the_devices(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work, corpus = training.PretrainWork("tiny", shards, steps=2), TokenCorpus(shards)
    monkeypatch.setattr(training, "train_ours", lambda _work: {})
    assert training.measure_pretraining("ours", vars(work))["peak_rate"] is None

    monkeypatch.setattr(training, "peak_flops", lambda _device, **_mixed: 1e12)

    vocab_size = corpus.manifest.vocabulary["vocab_size"]
    flops = flops_per_token(BertConfig.from_name("tiny", vocab_size=vocab_size), 128, 0.15)
    assert training.measure_pretraining("ours", vars(work))["peak_rate"] == pytest.approx(
        1e12 / flops
    )
