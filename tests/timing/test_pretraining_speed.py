"""Pre-training timed: both sides take the same instances, and what is counted is useful tokens."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.main import run as shell
from tidybert.configuration import BertConfig
from tidybert.corpus.building import build_corpus
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.places import Position
from tidybert.pretraining.throughput import flops_per_token
from tidybert.timing import transformers_side
from tidybert.timing.measuring import UNTIMED_STEPS
from tidybert.timing.pretraining_speed import bench_pretraining, peak_tokens_per_second
from tidybert.timing.work import PretrainingWork
from tidybert.tokenization import BertTokenizer

# The answer of a process that measures one side.
MEASURED = {
    "step_seconds": [1.0, 1.0, 1.0, 2.0, 2.0],
    "step_tokens": [100] * 6,
    "losses": [0.0] * 6,
    "peak_mib": 1.0,
    "threads": 1,
    "share_of_padding": 0.5,
    "peak_tokens_per_second": None,
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> str:
    folder = tmp_path_factory.mktemp("corpus")
    text = folder / "text.txt"
    documents = [f"the red cat was near the {n} dog\nand we saw a hen" for n in range(120)]
    text.write_text("\n\n".join(documents) + "\n")
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    build_corpus([text], tokenizer, folder / "shards", held_out=0.2)
    return str(folder / "shards")


def test_both_sides_learn_the_same_instances(shards: str) -> None:
    notes: list[str] = []
    work = PretrainingWork(
        "tiny",
        shards,
        steps=6,
        tokens_per_step=512,
        max_seq_length=48,
        dropout=0.0,
        micro_batch="128",
        precision="bfloat16",
    )

    result = bench_pretraining(work, rounds=1, report=notes.append)

    assert [note.split(":")[1].split()[0] for note in notes] == ["ours", "transformers"]
    assert 0 < result["share_of_padding"] < 1
    for side in ("ours", "transformers"):
        assert len(result["losses"][side]) == 6
        assert result["medians"][side]["tokens_per_second"] > 0
    # Both begin at ln(V) for the words and ln 2 for the pairs.
    first = [result["losses"][side][0] for side in ("ours", "transformers")]
    assert first[0] == pytest.approx(first[1], abs=0.4)
    medians = result["medians"]
    assert result["ratios"]["tokens_per_second"] == pytest.approx(
        medians["ours"]["tokens_per_second"] / medians["transformers"]["tokens_per_second"]
    )


def test_parts_of_transformers_steps_add_up(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a GPU, on a CPU."""
    work = PretrainingWork("tiny", shards, 3, 512, dropout=0.0, profiled_steps=1)
    on_gpu = replace(work, device="cuda", max_seq_length=64, micro_batch="128")
    assert transformers_side._num_parts(work, 8) == 1
    assert transformers_side._num_parts(on_gpu, 8) == 4
    assert transformers_side._num_parts(replace(on_gpu, micro_batch=None), 8) == 1

    monkeypatch.setattr(transformers_side, "_num_parts", lambda _work, _number: 2)
    instances = work.instances()
    places = instances.take(Position(), 8)[0]
    found = transformers_side.run_pretraining(work, instances, [places] * 4)

    assert len(found["losses"]) == 4
    vocab_size = instances.corpus.manifest.vocabulary["vocab_size"]
    assert found["losses"][0] == pytest.approx(math.log(2 * vocab_size), abs=0.4)
    assert len(found["step_seconds"]) == 2
    assert found["profile"]["product_seconds"] > 0


def test_the_command_tells_its_figures(shards: str, capsys: Any) -> None:
    arguments = ["bench", "pretrain", "--size", "tiny", "--data", shards, "--rounds", "1"]
    arguments += ["--steps", str(UNTIMED_STEPS + 1), "--tokens-per-step", "256"]

    assert shell([*arguments, "--json"]) == 0

    result = json.loads(capsys.readouterr().out)
    assert result["bench"] == "pretrain"
    assert result["ratios"] == {}
    assert result["work"]["tokens_per_step"] == 256
    assert result["mfu"] == {"ours": None}


def test_flags_reach_both_sides(
    shards: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench", "pretrain", "--size", "tiny", "--data", shards, "--rounds", "1"]
    arguments += ["--steps", str(UNTIMED_STEPS + 1), "--tokens-per-step", "512", "--dropout", "0"]

    assert shell([*arguments, "--micro-batch", "nought"]) == 2
    assert "a number above 0, or auto" in capsys.readouterr().err
    assert shell([*arguments, "--micro-batch", "64"]) == 2
    assert "--micro-batch" in capsys.readouterr().err
    arguments += ["--micro-batch", "128", "--precision", "bfloat16"]
    arguments += ["--against", "transformers", "--json"]
    asked: list[dict[str, Any]] = []

    def measured(_module: str, _side: str, work: dict[str, Any], _threads: int | None) -> Any:
        asked.append(work)
        return MEASURED

    monkeypatch.setattr("tidybert.timing.pretraining_speed.run_apart", measured)
    assert shell(arguments) == 0

    result = json.loads(capsys.readouterr().out)
    assert asked == [result["work"]] * 2
    assert (result["work"]["dropout"], result["work"]["micro_batch"]) == (0.0, "128")
    assert result["work"]["precision"] == "bfloat16"
    assert result["mfu"] == {"ours": None, "transformers": None}


def test_the_share_of_the_peak_is_that_of_useful_tokens(
    shards: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {**MEASURED, "peak_tokens_per_second": 200.0}
    monkeypatch.setattr("tidybert.timing.pretraining_speed.run_apart", lambda *_given: found)

    result = bench_pretraining(PretrainingWork("tiny", shards, steps=6), sides=["ours"], rounds=1)

    # 300 tokens in 5 seconds.
    assert result["mfu"] == {"ours": pytest.approx(60 / 200)}


def test_the_peak_in_tokens_is_the_devices(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work, corpus = PretrainingWork("tiny", shards, steps=6), TokenCorpus(shards)
    assert peak_tokens_per_second(work, corpus) is None

    monkeypatch.setattr(
        "tidybert.timing.pretraining_speed.peak_flops", lambda _device, **_mixed: 1e12
    )

    vocab_size = corpus.manifest.vocabulary["vocab_size"]
    flops = flops_per_token(BertConfig.from_name("tiny", vocab_size=vocab_size), 128, 0.15)
    assert peak_tokens_per_second(work, corpus) == pytest.approx(1e12 / flops)
