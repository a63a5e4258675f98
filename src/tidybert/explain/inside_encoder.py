"""What an encoder computes for a few inputs, caught by hooks while its own forward pass runs.

The encoder may be any whose layers have ``attention.query_key_value``; see
``modeling/architectures.py``.  T tokens, n pieces, L layers, N heads, H width, D head width.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tidybert.explain.shown import Floats
from tidybert.modeling.attention import scaled_dot_product
from tidybert.modeling.bert import BertModel
from tidybert.modeling.rows import Rows
from tidybert.tokenization.encoding import Encoding


def rows_of(encodings: Sequence[Encoding]) -> Rows:
    """The encodings laid end to end."""
    return Rows.from_lists(
        [one.input_ids for one in encodings], [one.token_type_ids for one in encodings]
    )


def as_array(tensor: Tensor) -> Floats:
    """The tensor as float32."""
    found: Floats = np.asarray(tensor.numpy(), dtype=np.float32)
    return found


def states_of(
    encoder: BertModel, encodings: Sequence[Encoding], *, causal: bool = False
) -> list[Tensor]:
    """The hidden states of layers 0 to L, (T, H) each."""
    with torch.inference_mode():
        output = encoder(rows_of(encodings), output_hidden_states=True, causal=causal)
    return list(output.hidden_states)


def embeddings_of(encoder: BertModel, encoding: Encoding) -> tuple[list[Floats], Floats, Floats]:
    """The summands, their sum, and the sum after LayerNorm, (n, H) each."""
    rows, parts = rows_of([encoding]), encoder.embeddings
    with torch.inference_mode(), _calls_of([parts.layer_norm]) as calls:
        normalized = parts(rows)
        summands = [as_array(each) for each in parts.summands(rows)]
        return summands, as_array(calls[0][0]), as_array(normalized)


def attention_of(encoder: BertModel, encoding: Encoding, *, causal: bool) -> list[Floats]:
    """Scores and probs (L, N, n, n); queries, keys and values (L, N, n, D)."""
    heads, size = encoder.config.num_attention_heads, len(encoding)
    visible = torch.ones(1, 1, size, size, dtype=torch.bool)
    if causal or encoder.is_causal:
        visible = visible.tril()
    layers: list[Any] = list(encoder.layers)
    joint = [layer.attention.query_key_value for layer in layers]
    found = []
    with torch.inference_mode(), _calls_of(joint) as calls:
        encoder(rows_of([encoding]), causal=causal)
        for _, projected in calls:
            # (n, 3H) to (3, 1, N, n, D)
            blocks = projected.view(1, size, 3, heads, -1).permute(2, 0, 3, 1, 4)
            query, key, value = blocks
            _, probs, scores = scaled_dot_product(query, key, value, visible, 0.0)
            found.append((scores.masked_fill(~visible, -torch.inf), probs, query, key, value))
        return [as_array(torch.cat(each)) for each in zip(*found, strict=True)]


@contextmanager
def _calls_of(modules: Sequence[nn.Module]) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Within the block, the first argument and the result of this thread's calls, in order."""
    calls: list[tuple[Tensor, Tensor]] = []
    this_thread = get_ident()

    def record(_module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        # A server's other threads may use the same model.
        if get_ident() == this_thread:
            calls.append((given[0], output))

    hooks = [each.register_forward_hook(record) for each in modules]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()
