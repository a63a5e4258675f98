"""The processes of a run: those that torchrun started, or a single one."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from tidybert.errors import UsageError, param
from tidybert.modeling.architectures import encoder_of
from tidybert.training.determinism import on_cuda

# A model whose weights, gradients and moments are cut into shards, one a process (FSDP2).
#
# Zhao et al.  2023; ZeRO, stage 3.  FSDP gathers each layer when it runs, forward and backward, and
# frees it after; it gathers the embeddings and heads once for a forward and its backward.  Files on
# disk hold whole tensors, so a run may go on with any number of processes.


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


@dataclass(frozen=True)
class Processes:
    """This process's number among all, and on its host; ``is_group``: torchrun started them."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    is_group: bool = False

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def own_device(self, device: str) -> str:
        """This process's device: on CUDA each of several processes has one of its own."""
        return f"cuda:{self.local_rank}" if self.is_group and on_cuda(device) else device

    def sum(self, values: Tensor) -> Tensor:
        """The sum of a tensor over all processes, in place."""
        if self.is_group:
            distributed.all_reduce(values)
        return values

    # Numbers of the program go over gloo, from CPU to CPU: no device waits for them.

    def totals(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Each count's sum over all processes."""
        if not self.is_group:
            return dict(counts)
        summed = self.sum(torch.tensor(list(counts.values())))
        return dict(zip(counts, map(int, summed.tolist()), strict=True))

    def any(self, *flags: bool) -> list[bool]:
        """Whether each flag is set in any process."""
        if not self.is_group:
            return list(flags)
        return self.sum(torch.tensor(flags, dtype=torch.int64)).bool().tolist()

    def least(self, value: int) -> int:
        """The smallest of all processes' values."""
        found = torch.tensor(value)
        if self.is_group:
            distributed.all_reduce(found, distributed.ReduceOp.MIN)
        return int(found.item())

    def in_shares(self, work: Callable[[Tensor], Tensor], items: Tensor) -> Tensor:
        """``work`` of items (K, …), equal on all processes: each does its share, and gets all."""
        if not self.is_group:
            return work(items)
        count = -(-len(items) // self.size)
        own = items[self.rank * count : (self.rank + 1) * count]
        # Shares have one size; the last ones may be filled up.
        own = torch.cat([own, items.new_zeros(count - len(own), *items.shape[1:])])
        found = work(own)
        gathered = found.new_empty(self.size * count, *found.shape[1:])
        distributed.all_gather_into_tensor(gathered, found)
        return gathered[: len(items)]

    def from_first(self, tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        """The first process's tensors, on every one; all have the same names and shapes."""
        if not self.is_group:
            return dict(tensors)
        sent = {name: each.to(device) for name, each in tensors.items()}
        for each in sent.values():
            distributed.broadcast(each, 0)
        return sent

    def shared(self, model: nn.Module, sharding: str, mixed: bool) -> nn.Module:
        """The model whose backward averages all gradients; an optimizer comes after this."""
        if not self.is_group:
            return model
        if sharding == "full":
            return shard(model, self.size, mixed)
        device = next(model.parameters()).device
        return DistributedDataParallel(
            model,
            device_ids=[self.local_rank] if device.type == "cuda" else None,
            # A gradient then lies in the memory from which it travels, and is not copied there.
            gradient_as_bucket_view=True,
        )

    @contextmanager
    def apart(self, model: nn.Module) -> Iterator[None]:
        """Within the block a backward of the shared model does not share its gradients."""
        if isinstance(model, DistributedDataParallel):
            with model.no_sync():
                yield
            return
        # A sharded model has it.
        switch = getattr(model, "set_requires_gradient_sync", lambda wanted: None)
        switch(False)
        try:
            yield
        finally:
            switch(True)

    def wait(self) -> None:
        if self.is_group:
            distributed.barrier()


@contextmanager
def processes(device: str) -> Iterator[Processes]:
    """The group that torchrun describes: NCCL for CUDA's tensors, gloo for a CPU's."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 and not distributed.is_torchelastic_launched():
        yield Processes()
        return
    local_rank = int(os.environ["LOCAL_RANK"])
    is_cuda = on_cuda(device)
    if is_cuda:
        if local_rank >= torch.cuda.device_count():
            raise UsageError(
                f"{param('nproc_per_node')} is above the {torch.cuda.device_count()} CUDA devices "
                "here"
            )
        torch.cuda.set_device(local_rank)
    distributed.init_process_group("cpu:gloo,cuda:nccl" if is_cuda else "gloo")
    try:
        local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        yield Processes(distributed.get_rank(), size, local_rank, local_size, is_group=True)
    finally:
        distributed.destroy_process_group()
