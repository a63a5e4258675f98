"""Tensors cut into shards, each a file of its own."""

from collections.abc import Mapping

from torch import Tensor


def shards_of(tensors: Mapping[str, Tensor], max_bytes: int | None) -> list[dict[str, Tensor]]:
    """The tensors in their order, cut where a shard would have more bytes; at least one shard.

    A tensor that is larger has a shard of its own.  None: one shard.
    """
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if max_bytes is not None and shards[-1] and size + tensor.nbytes > max_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    return shards
