"""Compiled layers: as many graphs as numbers of rows.  Recomputed ones: the same bits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.modeling import BertForPreTraining, BertModel, Rows
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.batches.instances import PretrainingInstances
from tidybert.pretraining.batches.pretraining_batch import Position
from tidybert.pretraining.batches.stream import InstanceStream
from tidybert.pretraining.pretraining_objective import loss_parts
from tidybert.pretraining.pretraining_run import checkpoint_activations, compile_rows


def instances_of(corpus: Path, **options: Any) -> PretrainingInstances:
    return PretrainingInstances(
        TokenCorpus(corpus),
        InstanceOptions(max_seq_length=32),
        MaskingOptions(**options),
    )


def test_the_compiler_sees_a_number_of_rows_for_each_kind_of_layer_and_no_more(
    corpus: Path, tiny_config: Callable[..., Any]
) -> None:
    from torch._dynamo.testing import CompileCounter

    config = tiny_config(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_hidden_layers=4
    )
    torch.manual_seed(0)
    model = BertForPreTraining(config)
    taken = InstanceStream(instances_of(corpus), 600, 128, constant_shape=True).take(Position())
    expected = [loss_parts(model, batch)["mlm"].total.item() for batch in taken.batches]
    counter = CompileCounter()
    torch._dynamo.reset()

    compile_rows(model.bert.layers, counter)
    assert not torch._dynamo.config.optimize_ddp
    found = [loss_parts(model, batch)["mlm"].total.item() for batch in taken.batches]

    assert len(taken.batches) > 3
    assert found == pytest.approx(expected, rel=1e-6)
    # All rows in the lower layers, and in the last one those that the heads read.
    assert counter.frame_count == 2
    torch._dynamo.reset()


def gradients(model: BertModel) -> tuple[int, list[Tensor]]:
    """How many numbers the forward keeps for the backward, and the gradients."""
    kept = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    torch.manual_seed(3)
    model.zero_grad()
    rows = Rows.from_lists([[1, 2, 3, 4], [5, 6, 7]])
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        states = model(rows).last_hidden_state
    states.square().sum().backward()
    return kept, [each.grad.clone() for each in model.parameters() if each.grad is not None]


@pytest.mark.parametrize("training", [False, True])
def test_the_gradients_have_the_same_bits_and_less_is_kept_in_training(
    training: bool, tiny_config: Callable[..., Any]
) -> None:
    torch.manual_seed(0)
    model = BertModel(tiny_config(num_hidden_layers=4), add_pooler=False).train(training)
    names = list(model.state_dict())
    kept, expected = gradients(model)

    checkpoint_activations(model.layers)
    kept_then, found = gradients(model)

    assert all(map(torch.equal, found, expected))
    assert list(model.state_dict()) == names
    assert (kept_then < kept / 2) is training
