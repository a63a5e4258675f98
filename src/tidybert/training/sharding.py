"""A model whose weights, gradients and moments are cut into shards, one a process (FSDP2).

Zhao et al. 2023; ZeRO, stage 3.  FSDP gathers each layer when it runs, forward and backward, and
frees it after; it gathers the embeddings and heads once for a forward and its backward.  Files on
disk hold whole tensors, so a run may go on with any number of processes.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tidybert.modeling.architectures import encoder_of


def shard(model: nn.Module, num_processes: int, mixed: bool) -> nn.Module:
    """Cut the parameters among all processes, in place; each process calls this alike.

    ``mixed``: steps run under bfloat16 autocast.  Weights then travel in bfloat16, half the bytes.
    So autocast casts nothing, and keeps no copy of the whole model from the forward to the
    backward.  Products are those of autocast; embeddings and LayerNorm's gains and biases are
    rounded.  Gradients are summed in float32.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    device = next(model.parameters()).device
    mesh = init_device_mesh(device.type, (num_processes,))
    # Casting the inputs would undo autocast's float32, and copy the rows for each layer.
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if mixed else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    for layer in encoder_of(model).layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def sync_gradients(model: nn.Module, wanted: bool) -> bool:
    """Set whether backwards share gradients; returns False where the model is not sharded."""
    switch = getattr(model, "set_requires_gradient_sync", None)
    if switch is None:
        return False
    switch(wanted)
    return True


def give_up_gathered(model: nn.Module) -> None:
    """Keep the shards alone: after a forward without a backward the root would stay whole."""
    reshard = getattr(model, "reshard", None)
    if reshard is not None:
        reshard()


def whole(value: Tensor) -> Tensor:
    """The whole tensor of a shard; all processes must call this together."""
    gather = getattr(value, "full_tensor", None)
    if gather is None:
        return value
    gathered = gather()
    assert isinstance(gathered, Tensor)
    return gathered


def own_part(value: Tensor) -> Tensor:
    """This process's shard, with the memory of the tensor, or all of one that is not sharded."""
    local = getattr(value, "to_local", None)
    if local is None:
        return value
    part = local()
    assert isinstance(part, Tensor)
    return part


def placed_like(value: Tensor, target: Tensor) -> Tensor:
    """A whole tensor, equal on all processes, moved and cut to match ``target``."""
    mesh = getattr(target, "device_mesh", None)
    placed = value.to(target.device)
    if mesh is None or value.shape != target.shape:
        return placed
    from torch.distributed.tensor import distribute_tensor

    # Every process has read the same file, so none needs to send it.
    return distribute_tensor(placed, mesh, target.placements, src_data_rank=None)  # type: ignore[attr-defined]


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """``load_state_dict`` of whole tensors into a model that may be sharded."""
    targets = model.state_dict()
    model.load_state_dict(
        {
            name: placed_like(value, targets[name]) if name in targets else value
            for name, value in weights.items()
        }
    )
