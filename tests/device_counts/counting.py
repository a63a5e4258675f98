"""Counts of a step on a CUDA device that does not exist; count_on_stub.py loads it first."""

from collections import Counter
from typing import Any

import numpy as np
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "addmv", "mv"}
VIEWS = {
    "view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze",
    "squeeze", "alias", "detach", "split", "split_with_sizes", "unbind", "as_strided",
    "_reshape_alias", "lift_fresh", "device", "narrow", "diagonal",
}  # fmt: skip
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "item"}


class CountingMode(TorchDispatchMode):
    """Counts operations on the device, bytes that they move, copies that block, and waits."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()
        self.blocking_copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._overloadpacket.__name__
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        on_device = any(each.is_cuda for each in given)
        if name in WAITS and on_device:
            self.waits[name] += 1
            if name == "_local_scalar_dense":
                return 1.0
        found = func(*args, **kwargs)
        made = [each for each in tree_leaves(found) if isinstance(each, torch.Tensor)]
        if name in ("_to_copy", "copy_") and given[-1].is_cuda != made[0].is_cuda:
            if not (kwargs.get("non_blocking") or (len(args) > 2 and args[2])):
                self.blocking_copies += 1
            return found
        if name == "index" and any(
            each is not None and each.dtype == torch.bool for each in args[1]
        ):
            self.waits["index by bool"] += 1
        is_free = name in VIEWS or name.startswith(("empty", "new_empty"))
        if is_free or not (on_device or any(each.is_cuda for each in made)):
            return found
        self.launches[name] += 1
        self.bytes[name] += moved(name, given, made)
        return found

    def summary(self) -> dict[str, Any]:
        """The counts as JSON takes them; GB are 10^9 bytes."""
        outside = {
            name: count
            for name, count in self.bytes.items()
            if name not in PRODUCTS and "attention" not in name
        }
        return {
            "operations": sum(self.launches.values()),
            "blocking_copies": self.blocking_copies,
            "waits": dict(self.waits),
            "gb_outside_products": round(sum(outside.values()) / 1e9, 2),
            "most_launched": dict(self.launches.most_common(24)),
            "most_moved": {n: round(b / 1e9, 2) for n, b in self.bytes.most_common(24)},
            "attention": {n: c for n, c in self.launches.items() if "attention" in n},
        }


def moved(name: str, given: list[torch.Tensor], made: list[torch.Tensor]) -> int:
    """Bytes that an operation reads and writes; a lookup reads only the rows that it gives."""
    size = sum(each.nbytes for each in made)
    if name.startswith(("new_", "zeros", "ones", "full", "bernoulli_")):
        return size
    if name in ("embedding", "index_select", "gather", "index"):
        return 2 * size
    if name == "index_copy":
        return 2 * given[-1].nbytes
    if name == "scatter_add_":
        return 3 * given[1].numel() * 8
    return size + sum(each.nbytes for each in given)


def pretend_ampere() -> None:
    """Answer what a build without CUDA cannot ask a device."""
    torch.cuda.get_device_capability = lambda _device=None: (9, 0)
    torch.cuda.is_bf16_supported = lambda *_given, **_named: True
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.nn.init.trunc_normal_ = lambda tensor, **_named: tensor


def fused_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False,
) -> Any:  # fmt: skip
    """The kernels that CUDA's own scaled_dot_product_attention would choose."""
    if attn_mask is None and query.dtype != torch.float32:
        return torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False
        )[0]
    if attn_mask is not None:
        size = (*query.shape[:3], key.shape[2])
        attn_mask = attn_mask.expand(size)
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal
    )[0]


def lengths_of_a_batch(num_tokens: int, longest: int) -> np.ndarray:
    """Two sequences of three as long as they may be, the others of any length, as in prose."""
    generator = np.random.default_rng(0)
    short = generator.integers(16, longest, num_tokens)
    lengths = np.where(generator.random(num_tokens) < 2 / 3, longest, short)
    return lengths[: np.searchsorted(lengths.cumsum(), num_tokens, side="right")]


def count_pretraining(dropout: float, size: str = "base", num_tokens: int = 32_768) -> Any:
    """One micro-batch of pre-training, forward and backward."""
    from dataclasses import replace

    from tidybert.configuration import BertConfig
    from tidybert.modeling.kernels import grouped_attention
    from tidybert.pretraining.instances import PretrainingBatch
    from tidybert.pretraining.masked_rows import masked_rows
    from tidybert.pretraining.objectives import build_pretraining_model, loss_parts
    from tidybert.training.precision import autocast

    grouped_attention.functional = type(
        "functional", (), {"scaled_dot_product_attention": staticmethod(fused_attention)}
    )
    lengths = lengths_of_a_batch(num_tokens, 128)
    total = int(lengths.sum())
    positions = np.sort(np.random.default_rng(1).permutation(total)[: round(0.15 * total)])
    batch = masked_rows(
        PretrainingBatch(
            np.zeros(total, np.int32),
            np.zeros(total, np.uint8),
            lengths,
            positions,
            np.zeros(len(positions), np.int32),
            np.zeros(len(lengths), np.int64),
        )
    )
    config = BertConfig.from_name(size, vocab_size=30522)
    config = replace(config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    device = torch.device("cuda")
    with FakeTensorMode(allow_non_fake_inputs=True):
        with device:
            model = build_pretraining_model("mlm+nsp")(config)
        model.train()
        counting = CountingMode()
        with counting:
            with autocast(device, True):
                parts = loss_parts(model, batch.to(device))
            torch.stack([each.total for each in parts.values()]).sum().backward()
    return counting.summary() | {"tokens": total, "sequences": len(lengths)}


def count_steps() -> dict[str, Any]:
    """The counts of each step, by its name."""
    pretend_ampere()
    return {f"pretrain {dropout}": count_pretraining(dropout) for dropout in (0.0, 0.1)}
