"""New encoders of any shape: flags, a config.json, and the line that says what a run takes."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tidybert.cli.main import run as shell
from tidybert.configuration import BertConfig
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import ConfigError, UsageError
from tidybert.pretraining.batches.instance_options import InstanceOptions
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.pretraining.pretraining_job import ModelShape, is_new, new_config
from tidybert.pretraining.throughput import estimate
from tidybert.system.reporter import Reporter

Small = Callable[..., Any]


def test_sizes_replace_those_of_a_size() -> None:
    config = new_config("mini", ModelShape(layers=3, hidden=128, max_positions=64), 100)

    assert config == BertConfig(
        vocab_size=100,
        num_hidden_layers=3,
        hidden_size=128,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=64,
    )
    narrow = new_config("mini", ModelShape(hidden=96, heads=3, intermediate=200), 100)
    assert (narrow.num_attention_heads, narrow.intermediate_size) == (3, 200)
    assert new_config("mini", ModelShape(), 100) == BertConfig.from_name("mini", vocab_size=100)


def test_sizes_that_do_not_fit(tiny_model: Path, small: Small, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="hidden=100 is not a multiple of 64: give heads"):
        ModelShape(hidden=100).values()
    with pytest.raises(UsageError, match="layers is 0; expected"):
        ModelShape(layers=0)
    with pytest.raises(ConfigError, match="num_attention_heads"):
        new_config("mini", ModelShape(heads=3), 100)
    with pytest.raises(UsageError, match=r"layers=3 is for new weights, and .* has weights"):
        small(tmp_path / "run", shape=ModelShape(layers=3))


def test_a_run_from_a_config_without_weights(
    small: Small, corpus: Path, tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    vocab_size = TokenCorpus(corpus).manifest.vocabulary["vocab_size"]
    values = {**BertConfig.from_name("tiny").to_dict(), "hidden_size": 32, "num_hidden_layers": 1}
    values |= {"num_attention_heads": 2, "intermediate_size": 48, "vocab_size": vocab_size}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(values))
    notes: list[str] = []

    assert is_new(str(file))
    small(
        tmp_path / "run",
        model=str(file),
        max_steps=2,
        shape=ModelShape(layers=2, max_positions=40),
        reporter=Reporter(note=notes.append),
    )

    written = json.loads((tmp_path / "run" / "config.json").read_text())
    assert written["num_hidden_layers"] == 2
    assert written["intermediate_size"] == 48
    assert written["max_position_embeddings"] == 40
    recorded = json.loads((tmp_path / "run" / "arguments.json").read_text())
    assert (recorded["layers"], recorded["hidden"]) == (2, None)
    line = next(each for each in notes if "of memory and" in each)
    tokens = 2 * 256
    assert re.match(r"0\.\d M parameters, about 0\.\d GB of memory and \d+\.\d minutes for", line)
    assert "for 0.0 M tokens" in line
    assert f"suit {tokens / 20 / 1e6:.1f} M parameters" in line

    file.write_text(json.dumps({**values, "vocab_size": vocab_size + 1}))
    with pytest.raises(UsageError, match=rf"and the corpus has {vocab_size} tokens"):
        small(tmp_path / "other", model=str(file))
    with pytest.raises(UsageError, match="has weights beside it: name"):
        small(tmp_path / "other", model=str(tiny_model / "config.json"))
    command = ["pretrain", "tiny", "--data", str(corpus), "--out", str(tmp_path / "x")]
    assert shell([*command, "--config", str(file)]) == 2
    assert "name it as SIZE_OR_MODEL" in capsys.readouterr().err


def test_the_estimate_follows_the_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidybert.pretraining.throughput.peak_flops", lambda *_, **__: 1e12)
    config = BertConfig.from_name("base")
    plan: Any = SimpleNamespace(
        arguments=PretrainingArguments(
            max_steps=2, tokens_per_step=config.num_parameters, precision="bfloat16"
        ),
        instances=InstanceOptions(max_seq_length=128),
        predicted_share=0.15,
        processes=SimpleNamespace(size=4),
    )
    found = estimate(plan, config, 1000, torch.device("cpu"))

    assert found.num_bytes == 16 * config.num_parameters + 1000 * 12 * 768 * 34
    # Some 6 operations a token for each weight of a layer, at half of 4e12 a second.
    per_token = found.seconds * 2e12 / found.num_tokens
    assert 6 * 80e6 < per_token < 6 * 110e6
    assert "2.0 a parameter" in found.line()
    assert "109.5 M parameters" in found.line()
