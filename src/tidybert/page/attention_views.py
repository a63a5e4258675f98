"""The view Attention: a layer in 8 bits, a head exactly, and the arithmetic of one cell."""

from typing import Any, Final

import numpy as np

from tidybert.page.page_model import PageModel, checked_place, shown_tokens, written_texts

_STEPS: Final = 255


def attention(
    model: PageModel,
    text: str,
    pair: str = "",
    layer: int = 1,
    head: int = 1,
    row: int | None = None,
    column: int | None = None,
    causal: bool = False,
) -> dict[str, Any]:
    """The pieces, and how many layers and heads there are; the rest is for the code it shows.

    ``layer`` and ``head`` come back within what the model has.
    """
    encoding = model.encode(text, pair)
    config = model.explainer.config
    layer = min(max(layer, 1), config.num_hidden_layers)
    head = min(max(head, 1), config.num_attention_heads)
    is_open = row is not None and column is not None
    cell_code = f", row={row}, column={column}))\n" if is_open else ", row=1, column=1))\n"
    python = f"""from tidybert import Explainer

attention = Explainer({model.written!r}).attention({written_texts(text, pair)}, causal={causal})
print(attention.probs.shape)  # layers, heads, pieces that look, pieces looked at
print(attention.head(layer={layer}, head={head}))
print(attention.cell(layer={layer}, head={head}{cell_code}"""
    return {
        "tokens": shown_tokens(encoding),
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "layer": layer,
        "head": head,
        "has_pair": bool(pair),
        "python": python,
    }


def attention_layer(
    model: PageModel, text: str, layer: int, pair: str = "", causal: bool = False
) -> bytes:
    """The probabilities (N, n, n) of a layer, from 1, in steps of 1/255, as uint8."""
    found = model.attention(text, pair, causal=causal)
    at = checked_place("layer", layer, 1, found.num_layers)
    return bytes(np.rint(found.probs[at - 1] * _STEPS).astype(np.uint8).tobytes())


def attention_head(
    model: PageModel, text: str, layer: int, head: int, pair: str = "", causal: bool = False
) -> bytes:
    """The probabilities (n, n) of a head, then its scores (n, n), as little-endian float32."""
    found = model.attention(text, pair, causal=causal).head(layer, head)
    return bytes(np.stack([found.probs, found.scores]).astype("<f4").tobytes())


def cell(
    model: PageModel,
    text: str,
    layer: int,
    head: int,
    row: int,
    column: int,
    pair: str = "",
    causal: bool = False,
) -> dict[str, Any]:
    """How the piece ``row`` came to look at the piece ``column``, step by step."""
    found = model.attention(text, pair, causal=causal).cell(layer, head, row, column)
    return {
        "tokens": found.tokens,
        "row": row,
        "column": column,
        "query": found.query,
        "key": found.key,
        "products": found.products,
        "dot": found.dot,
        "scaled": found.scaled,
        "scores": found.row_scores,
        "probs": found.row_probs,
        "weighted": found.weighted_values,
        "context": found.context,
    }
