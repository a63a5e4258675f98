"""Micro-batches filled up to one shape: the same training but for rounding.

``--compile`` switches it on.  Here the compiler is left out, so nothing needs a GPU.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import UsageError
from tidybert.modeling import BertForPreTraining
from tidybert.pretraining import pretraining_run
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.batches.instances import PretrainingInstances
from tidybert.pretraining.batches.pretraining_batch import Position
from tidybert.pretraining.batches.stream import InstanceStream
from tidybert.pretraining.pretraining_objective import loss_parts
from tidybert.system.reporter import Reporter

Small = Callable[..., Any]


def instances_of(corpus: Path, **options: Any) -> PretrainingInstances:
    return PretrainingInstances(
        TokenCorpus(corpus),
        InstanceOptions(max_seq_length=32),
        MaskingOptions(**options),
    )


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining_run, "compile_rows", lambda layers: None)


@pytest.mark.parametrize("options", [{}, {"whole_word": True}, {"masked_lm_prob": 0.05}])
@pytest.mark.parametrize("num_processes", [1, 2, 3])
def test_every_batch_has_the_shape_and_every_sequence_is_there(
    corpus: Path, num_processes: int, options: dict[str, Any]
) -> None:
    instances = instances_of(corpus, **options)
    streams = [
        InstanceStream(instances, 600, 128, rank, num_processes, constant_shape=True)
        for rank in range(num_processes)
    ]
    shape = streams[0].shape
    assert shape is not None
    assert all(stream.shape == shape for stream in streams)
    position = Position()
    for _ in range(4):
        whole = InstanceStream(instances, 600, 10_000).take(position)
        shares = [stream.take(position) for stream in streams]
        batches = [batch for share in shares for batch in share.batches]
        for batch in batches:
            assert batch.rows.num_tokens == shape.num_rows
            assert batch.rows.num_sequences == len(batch.next_sentence_label) == shape.num_sequences
            assert len(batch.masked_lm_labels) == shape.num_predictions
            assert batch.rows.max_seqlen <= 32
        assert len({len(share.batches) for share in shares}) == 1
        assert all(share.num_rows == len(batches) * shape.num_rows for share in shares)
        labels = torch.cat([batch.masked_lm_labels for batch in batches])
        pairs = torch.cat([batch.next_sentence_label for batch in batches])
        for name, predicted in (("mlm", labels), ("nsp", pairs)):
            assert (predicted != -100).sum() == whole.counts[name]
            assert sum(share.counts[name] for share in shares) == whole.counts[name]
        position = whole.position


def test_loss_and_gradient_are_those_without_padding(
    corpus: Path, tiny_config: Callable[..., Any]
) -> None:
    config = tiny_config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    torch.manual_seed(0)
    model = BertForPreTraining(config)
    instances = instances_of(corpus)
    found = []
    for constant_shape in (False, True):
        taken = InstanceStream(instances, 600, 128, constant_shape=constant_shape).take(Position())
        model.zero_grad()
        sums = {"mlm": 0.0, "nsp": 0.0}
        correct = {"mlm": 0, "nsp": 0}
        for batch in taken.batches:
            parts = loss_parts(model, batch)
            sum(each.total / taken.counts[name] for name, each in parts.items()).backward()
            for name, each in parts.items():
                sums[name] += each.total.item()
                correct[name] += int(each.correct)
        found.append((sums, correct, [each.grad.clone() for each in model.parameters()]))

    (sums, correct, gradients), (padded_sums, padded_correct, padded_gradients) = found
    assert padded_sums == pytest.approx(sums, rel=1e-5)
    assert padded_correct == correct
    for plain, padded in zip(gradients, padded_gradients, strict=True):
        torch.testing.assert_close(padded, plain, atol=1e-6, rtol=1e-4)


def test_a_run_with_padding_has_the_losses_of_one_without(
    small: Small, no_compiler: None, tmp_path: Path
) -> None:
    notes: list[str] = []
    arguments = {"dropout": 0.0, "max_steps": 6, "micro_batch": 128}
    plain = small(tmp_path / "plain", **arguments)
    padded = small(
        tmp_path / "padded",
        **arguments,
        compile=True,
        reporter=Reporter(note=notes.append),
    )

    logged = {
        name: [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").open()]
        for name in ("plain", "padded")
    }
    losses = {
        name: [line["loss"] for line in lines if "loss" in line] for name, lines in logged.items()
    }
    assert losses["padded"] == pytest.approx(losses["plain"], abs=2e-5)
    assert padded.metrics == pytest.approx(plain.metrics, abs=2e-5)
    assert padded.num_tokens == plain.num_tokens
    shares = [line["padding_share"] for line in logged["padded"] if "loss" in line]
    assert all(0 < share < 0.5 for share in shares)
    assert not any("padding_share" in line for line in logged["plain"])
    assert any("micro-batches of 128 rows" in note for note in notes)


def test_a_shape_without_room_for_padding_is_refused(small: Small, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="micro_batch is 60; expected at least 64, twice"):
        small(tmp_path / "run", compile=True, micro_batch=60)
