"""Attention heads that look at a token's neighbours from the first step on.

A BERT with random weights must first learn that positions matter, and that a masked word's
neighbours matter most.  Until then its loss stays near that of the words' frequencies.  Here the
position embeddings begin as sines and cosines, in which a step to the side is a rotation.  A
head's queries begin as that rotation of its keys, so it attends to the token at a fixed offset.
Cordonnier et al. 2020 ("On the relationship between self-attention and convolutional layers") show
that attention can compute a convolution; d'Ascoli et al. 2021 ("ConViT") begin with one.  Training
may change all of it, and the model's form is BERT's.
"""

import math
from typing import Final

import torch
from torch import Tensor

from tidybert.modeling.bert import BertModel
from tidybert.modeling.encoder import BertLayer

OFFSETS: Final = (-1, 1, -2, 2, -3, 3, -4, 4)
"""Where the heads of each layer look, in this order; further heads stay random."""
# The neighbour's score; a token anywhere else has 0 on average.
_SCORE: Final = 7.5


@torch.no_grad()
def attend_to_neighbours(model: BertModel, standard_deviation: float, seed: int) -> None:
    """Overwrite the position embeddings, and the queries and keys of up to eight heads a layer.

    Args:
        standard_deviation: that of the position embeddings.  With the words' own, about half of
            what a layer reads is position.
        seed: draws the frequencies, and chooses which of them each head compares.
    """
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    width, num_heads = config.hidden_size, config.num_attention_heads
    head_width = width // num_heads
    frequencies = math.pi * torch.rand(width // 2, generator=generator)
    positions = model.embeddings.position_embeddings.weight
    angles = torch.arange(float(len(positions)))[:, None] * frequencies
    waves = torch.stack((angles.sin(), angles.cos()), 2).flatten(1)
    positions[:, : waves.shape[1]] = math.sqrt(2) * standard_deviation * waves
    # Half of a normalized row's variance is position, half of it sines, half cosines; attention
    # divides scores by the root of the head's width.
    gain = math.sqrt(2 * _SCORE / math.sqrt(head_width))
    for layer in model.layers:
        assert isinstance(layer, BertLayer)
        weight = layer.attention.query_key_value.weight
        for head, offset in zip(range(num_heads), OFFSETS, strict=False):
            chosen = torch.randperm(width // 2, generator=generator)[: head_width // 2]
            first = head * head_width
            query, key = _rotating(frequencies, chosen, offset, head_width, width)
            weight[first : first + head_width] = gain * query
            weight[width + first : width + first + head_width] = gain * key


def _rotating(
    frequencies: Tensor, chosen: Tensor, offset: int, head_width: int, width: int
) -> tuple[Tensor, Tensor]:
    """Matrices (D, H) that make a query equal to the key at the offset."""
    query, key = torch.zeros(head_width, width), torch.zeros(head_width, width)
    for row, number in enumerate(chosen.tolist()):
        angle = float(frequencies[number]) * offset
        sine, cosine = slice(2 * number, 2 * number + 1), slice(2 * number + 1, 2 * number + 2)
        key[2 * row, sine] = key[2 * row + 1, cosine] = 1.0
        query[2 * row, sine] = query[2 * row + 1, cosine] = math.cos(angle)
        query[2 * row, cosine] = math.sin(angle)
        query[2 * row + 1, sine] = -math.sin(angle)
    return query, key
