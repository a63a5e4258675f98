"""Counts of a step on a CUDA device that does not exist; count_on_stub.py loads it first."""

import contextlib
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NUM_TOKENS = 32_768
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "addmv", "mv"}
VIEWS = {
    "view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze",
    "squeeze", "alias", "detach", "split", "split_with_sizes", "unbind", "as_strided",
    "_reshape_alias", "lift_fresh", "device", "narrow", "diagonal",
}  # fmt: skip
# Tensors that a thread pinned, by the thread: the program's own, or one beside it.
PINNED_BY: Counter[str] = Counter()
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "item"}


class CountingMode(TorchDispatchMode):
    """Counts operations on the device, bytes that they move, copies that block, and waits."""

    def __init__(self) -> None:
        super().__init__()
        self.forget()

    def forget(self) -> None:
        """Begin at 0."""
        self.launches: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()
        self.blocking_copies = 0
        PINNED_BY.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._overloadpacket.__name__
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        on_device = any(each.is_cuda for each in given)
        if name in WAITS and on_device:
            self.waits[name] += 1
        if name == "_local_scalar_dense" and isinstance(given[0], FakeTensor):
            # It has no value to give.
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
            "pinned_by": dict(PINNED_BY),
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


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that says of itself that it is pinned."""
    if hasattr(tensor, "is_pinned_here"):
        return tensor
    is_main = threading.current_thread() is threading.main_thread()
    PINNED_BY["the program" if is_main else "a thread beside it"] += 1
    pinned = tensor.detach()
    pinned.is_pinned_here = True
    return pinned


class Idle:
    """An event of a device that is always done."""

    def synchronize(self) -> None:
        pass


def pretend_ampere() -> None:
    """Answer what a build without CUDA cannot ask a device."""
    torch.cuda.get_device_capability = lambda _device=None: (9, 0)
    torch.cuda.device = lambda _device: contextlib.nullcontext()
    stream = type("Stream", (), {"record_event": lambda _stream: Idle()})()
    torch.cuda.current_stream = lambda _device: stream
    torch.cuda.is_bf16_supported = lambda *_given, **_named: True
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.cuda.set_device = lambda _device: None
    torch.random.fork_rng = lambda *_given, **_named: contextlib.nullcontext()
    torch.Tensor.pin_memory = pin
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


def base_config(dropout: float, num_layers: int = 3) -> Any:
    from dataclasses import replace

    from tidybert.configuration import BertConfig

    config = BertConfig.from_name("base", vocab_size=30522)
    return replace(
        config,
        num_hidden_layers=num_layers,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


def count(
    build: Callable[[], Any], loss: Callable[[Any], Any], *, mixed: bool = True
) -> dict[str, Any]:
    """Count the loss of a model that ``build`` makes on the device, and its backward."""
    from tidybert.modeling.kernels import fast_attention as grouped_attention
    from tidybert.training.precision import autocast

    grouped_attention.functional = type(
        "functional", (), {"scaled_dot_product_attention": staticmethod(fused_attention)}
    )
    device = torch.device("cuda")
    with FakeTensorMode(allow_non_fake_inputs=True):
        with device:
            model = build()
        model.train()
        counting = CountingMode()
        with counting:
            with autocast(device, mixed):
                total = loss(model)
            total.backward()
    return counting.summary()


def count_pretraining(dropout: float, *, mixed: bool = True, half: bool = False) -> dict[str, Any]:
    """One micro-batch of pre-training three layers of base, forward and backward.

    ``mixed``: in bfloat16.  ``half``: with a residual stream in bfloat16, as --recipe fast has it.
    """
    from tidybert.modeling.kernels.dropout import keep_half_residual
    from tidybert.pretraining.batches.masked_rows import masked_rows
    from tidybert.pretraining.batches.pretraining_batch import PretrainingBatch
    from tidybert.pretraining.pretraining_objective import build_pretraining_model, loss_parts

    lengths = lengths_of_a_batch(NUM_TOKENS, 128)
    total = int(lengths.sum())
    positions = np.sort(np.random.default_rng(1).permutation(total)[: round(0.15 * total)])
    ids, labels = np.zeros(total, np.int32), np.zeros(len(positions), np.int32)
    pairs = np.zeros(len(lengths), np.int64)
    batch = masked_rows(
        PretrainingBatch(ids, ids.astype(np.uint8), lengths, positions, labels, pairs)
    )

    def loss(model: Any) -> Any:
        parts = loss_parts(model, batch.to("cuda"))
        return torch.stack([each.total for each in parts.values()]).sum()

    def build() -> Any:
        model = build_pretraining_model("mlm+nsp")(base_config(dropout))
        if half:
            keep_half_residual(model)
        return model

    return count(build, loss, mixed=mixed)


def count_finetuning(name: str) -> dict[str, Any]:
    """One part of a step of fine-tuning three layers of base with dropout."""
    from tidybert.data.batching import collate
    from tidybert.data.features import Features
    from tidybert.tasks.classification import Classification
    from tidybert.tasks.multi_label import MultiLabelClassification
    from tidybert.tasks.multiple_choice import MultipleChoice
    from tidybert.tasks.questions.question_answering import QuestionAnswering
    from tidybert.tasks.regression import Regression
    from tidybert.tasks.tags.tagging import Tagging, WordPlaces

    task: Any
    task, label = {
        "classify": (Classification(["no", "yes"]), 1),
        "classify --multi-label": (MultiLabelClassification(["a", "b"]), (1,)),
        "regress": (Regression(), 0.5),
        "choose": (MultipleChoice(), 1),
        "answer": (QuestionAnswering(), (3, 4)),
        "tag": (Tagging(["O", "B-X"]), (0, 1, 1)),
    }[name]
    features = []
    for length in lengths_of_a_batch(NUM_TOKENS, 128).tolist():
        ids = np.zeros(length, np.int32)
        one = Features(ids, ids.astype(np.uint8), length)
        one.label = label
        if name == "choose":
            one.lengths = (length // 2, length - length // 2)
        if name == "tag":
            one.place = WordPlaces(np.arange(3), np.arange(1, 4), 0)
            one.weight = 3.0
        features.append(one)
    batch = collate(features)
    config = base_config(0.1)
    return count(lambda: task.build_model(config), lambda model: task.loss(model, batch.to("cuda")))


def count_what_waits() -> dict[str, Any]:
    """Two ways to wait for a device, which the counts must find."""
    with FakeTensorMode(allow_non_fake_inputs=True), CountingMode() as counting:
        torch.ones(2).to("cuda")
        torch.zeros(2, device="cuda").sum().item()
    return counting.summary()


class Enough(Exception):
    """Ends a run of training once its steps are counted."""


def count_steps_of(trainer: Any, run: Callable[[], Any]) -> dict[str, Any]:
    """Count whole steps of a training, from its second step on; ``run`` starts it.

    The summary also has the steps that had been launched when each step was reported.
    """
    counting = CountingMode()
    launched: list[int] = []
    steps: list[int] = []

    def report(done: Any) -> None:
        steps.append(done.step)
        launched.append(trainer.state.step)
        if done.step == 1:
            # Moments begin with the first step.
            counting.forget()
        if done.step == 3:
            raise Enough

    object.__setattr__(trainer.reporter, "step", report)
    with counting, contextlib.suppress(Enough):
        run()
    return {**counting.summary(), "reported": steps, "launched": launched}


@contextlib.contextmanager
def trained_on_the_stub() -> Iterator[torch.device]:
    """FakeTensorMode, and the kernels that CUDA would choose."""
    from tidybert.modeling.kernels import fast_attention as grouped_attention

    grouped_attention.functional = type(
        "functional", (), {"scaled_dot_product_attention": staticmethod(fused_attention)}
    )
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield torch.device("cuda")


def count_pretraining_steps(optimizer: str) -> dict[str, Any]:
    """Two steps of two micro-batches of pre-training two layers of base, with their updates."""
    from tidybert.pretraining.batches.masked_rows import longest_batch
    from tidybert.pretraining.batches.stream import StepBatches
    from tidybert.pretraining.pretraining_arguments import PretrainingArguments
    from tidybert.pretraining.pretraining_objective import (
        PretrainingObjective,
        build_pretraining_model,
    )
    from tidybert.training.loop import TrainingLoop

    tokens = NUM_TOKENS // 4
    # Made here: a thread that makes batches knows of no FakeTensorMode.
    batches = [longest_batch(tokens, 128, 19, True) for _ in range(2)]
    counts = {"mlm": 2 * tokens // 128 * 19, "nsp": 2 * tokens // 128}

    def take(step: int, _position: Any) -> StepBatches:
        return StepBatches(batches, counts, 2 * tokens, 2 * tokens, 2 * tokens // 128, [0, 0, 0, 0])

    with tempfile.TemporaryDirectory() as folder, trained_on_the_stub() as device:
        with device:
            model = build_pretraining_model("mlm+nsp")(base_config(0.1, num_layers=2))
        objective = PretrainingObjective(
            model,
            take,
            PretrainingArguments(optimizer=optimizer),
            evaluate=lambda _model: {"loss": 1.0},
            first_position=(0, 0, 0, 0),
        )
        trainer = TrainingLoop(objective, run=Path(folder))
        return count_steps_of(trainer, trainer.train)


def count_finetuning_steps() -> dict[str, Any]:
    """Two steps of two parts of fine-tuning two layers of base, with their updates."""
    from tidybert.data.features import Features
    from tidybert.tasks.classification import Classification
    from tidybert.training.fine_tuning import FineTuning
    from tidybert.training.loop import TrainingLoop
    from tidybert.training.training_arguments import TrainingArguments

    task = Classification(["no", "yes"])
    features = []
    for length in [100] * 320:
        ids = np.zeros(length, np.int32)
        one = Features(ids, ids.astype(np.uint8), length)
        one.label = 1
        features.append(one)
    with trained_on_the_stub() as device:
        with device:
            model = task.build_model(base_config(0.1, num_layers=2))
        arguments = TrainingArguments(train_batch_size=64)
        trainer = TrainingLoop(FineTuning(model, features, task.loss, arguments))
        return count_steps_of(trainer, trainer.train)


TASKS = ("classify", "classify --multi-label", "regress", "choose", "answer", "tag")


def count_steps() -> dict[str, Any]:
    """The counts of each step, by its name."""
    from counting_answers import count_predictions

    pretend_ampere()
    return {
        "what waits": count_what_waits(),
        **{
            f"pretrain {dropout} {'half' if half else 'float32'}": count_pretraining(
                dropout, half=half
            )
            for dropout, half in ((0.0, True), (0.1, True), (0.1, False))
        },
        "pretrain steps adamw": count_pretraining_steps("adamw"),
        "pretrain steps muon": count_pretraining_steps("muon"),
        "finetune steps": count_finetuning_steps(),
        "pretrain float32": count_pretraining(0.1, mixed=False),
        **{f"finetune {name}": count_finetuning(name) for name in TASKS},
        **count_predictions(),
    }
