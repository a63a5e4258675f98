"""torch.compile for what works row by row: as many graphs as there are numbers of rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.modeling import BertForPreTraining
from tidybert.pretraining.compiled_layers import compile_rows
from tidybert.pretraining.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.instances import Position, PretrainingInstances
from tidybert.pretraining.objectives import loss_parts
from tidybert.pretraining.stream import InstanceStream


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
    found = [loss_parts(model, batch)["mlm"].total.item() for batch in taken.batches]

    assert len(taken.batches) > 3
    assert found == pytest.approx(expected, rel=1e-6)
    # All rows in the lower layers, and in the last one those that the heads read.
    assert counter.frame_count == 2
    torch._dynamo.reset()
