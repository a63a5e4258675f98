"""A batch is rows of tokens: sequences laid end to end, and the places where each begins.

T tokens, B sequences, S longest length, H width.  A batch has no padding.  Every layer but
attention works on (T, H) and does not know that sequences exist.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tidybert.configuration import BertConfig
from tidybert.modeling.kernels.transfer import to_device


@dataclass(frozen=True)
class Rows:
    """Token rows of B sequences.

    input_ids, token_type_ids, position_ids: (T,) int64.  cu_seqlens: (B + 1,) int32, sequence b is
    rows cu_seqlens[b] to cu_seqlens[b + 1].  lengths: the B lengths as Python integers, so no layer
    waits for the device.
    """

    input_ids: Tensor
    token_type_ids: Tensor
    position_ids: Tensor
    cu_seqlens: Tensor
    lengths: tuple[int, ...]

    @property
    def num_sequences(self) -> int:
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        return self.input_ids.shape[0]

    @property
    def max_seqlen(self) -> int:
        return max(self.lengths)

    @cached_property
    def first_rows(self) -> Tensor:
        """(B,) int64: the row of each sequence's first token, [CLS]."""
        with torch.inference_mode(False):
            return self.cu_seqlens[:-1].long()

    @classmethod
    def from_lists(
        cls,
        input_ids: Sequence[npt.NDArray[Any] | Sequence[int]],
        token_type_ids: Sequence[npt.NDArray[Any] | Sequence[int]] | None = None,
        position_ids: Sequence[npt.NDArray[Any] | Sequence[int]] | None = None,
    ) -> "Rows":
        """Lay sequences end to end; types default to 0 and positions to 0, 1, 2, ….

        Raises ValueError for no sequences, an empty one, or types and positions of other lengths.
        """
        lengths = tuple(len(ids) for ids in input_ids)
        if not lengths:
            raise ValueError("a batch needs sequences of at least one token; got none")
        for name, other in (("token_type_ids", token_type_ids), ("position_ids", position_ids)):
            if other is not None and tuple(len(values) for values in other) != lengths:
                raise ValueError(f"{name} must have the lengths of input_ids, {lengths}")
        return cls.from_flat(
            np.concatenate(input_ids),
            None if token_type_ids is None else np.concatenate(token_type_ids),
            lengths,
            None if position_ids is None else np.concatenate(position_ids),
        )

    @classmethod
    def from_flat(
        cls,
        input_ids: npt.NDArray[Any],
        token_type_ids: npt.NDArray[Any] | None,
        lengths: tuple[int, ...],
        position_ids: npt.NDArray[Any] | None = None,
    ) -> "Rows":
        """Rows from arrays (T,) whose sequences are already laid end to end.

        Raises ValueError for an empty sequence, and for lengths that do not add up to T.
        """
        if not lengths or min(lengths) == 0 or sum(lengths) != len(input_ids):
            raise ValueError(
                f"a batch needs sequences of at least one token; got lengths {lengths} of "
                f"{len(input_ids)} tokens"
            )
        starts = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=starts[1:])
        if position_ids is None:
            position_ids = np.arange(len(input_ids)) - np.repeat(starts[:-1], lengths)
        types = np.zeros(len(input_ids)) if token_type_ids is None else token_type_ids
        return cls(
            input_ids=torch.from_numpy(input_ids.astype(np.int64)),
            token_type_ids=torch.from_numpy(types.astype(np.int64)),
            position_ids=torch.from_numpy(position_ids.astype(np.int64)),
            cu_seqlens=torch.from_numpy(starts),
            lengths=lengths,
        )

    @classmethod
    def from_padded(
        cls,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> tuple["Rows", Tensor]:
        """Unpad (B, S) tensors; also returns (T,) int64, the cell b * S + s of each row.

        ``attention_mask`` is 1 (or True) for a token and 0 for padding, which may be anywhere.
        Positions default to the column, as in the original code.
        """
        if input_ids.dim() != 2:
            raise ValueError(
                f"input_ids must have shape (batch, length), got {tuple(input_ids.shape)}"
            )
        shape = input_ids.shape
        for name, other in (
            ("attention_mask", attention_mask),
            ("token_type_ids", token_type_ids),
            ("position_ids", position_ids),
        ):
            if other is not None and other.shape != shape:
                raise ValueError(
                    f"{name} has shape {tuple(other.shape)}, input_ids has {tuple(shape)}: "
                    "pass tensors of one shape"
                )
        mask = torch.ones_like(input_ids)
        if attention_mask is not None:
            mask = (attention_mask != 0).long()
        lengths = tuple(mask.sum(1).tolist())
        if not lengths or min(lengths) == 0:
            raise ValueError(
                f"attention_mask leaves sequence {lengths.index(0) if lengths else 0} without a "
                "token: each needs at least one"
            )
        cells = mask.reshape(-1).nonzero().squeeze(1)
        positions = cells % shape[1] if position_ids is None else position_ids.reshape(-1)[cells]
        types = torch.zeros_like(cells)
        if token_type_ids is not None:
            types = token_type_ids.reshape(-1)[cells].long()
        starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        ids = input_ids.reshape(-1)[cells].long()
        return cls(ids, types, positions.long(), starts.to(ids.device), lengths), cells

    def check(self, config: BertConfig) -> None:
        """Raise ValueError for a sequence that is too long, or an id outside its table.

        Reads ids on the CPU alone: on another device the program would wait for them.
        """
        limit = config.max_position_embeddings
        if self.max_seqlen > limit:
            raise ValueError(
                f"a sequence has {self.max_seqlen} tokens, the model takes at most {limit}: "
                "pass max_seq_length to the tokenizer or cut the text"
            )
        if self.input_ids.device.type != "cpu":
            return
        for name, ids, size in (
            ("input_ids", self.input_ids, config.vocab_size),
            ("token_type_ids", self.token_type_ids, config.type_vocab_size),
            ("position_ids", self.position_ids, limit),
        ):
            lowest, highest = int(ids.min()), int(ids.max())
            if lowest < 0 or highest >= size:
                raise ValueError(
                    f"{name} go from {lowest} to {highest}, the model knows 0 to {size - 1}"
                    + ": tokenise with the model's own vocabulary" * (name == "input_ids")
                )

    def to(self, device: torch.device | str) -> "Rows":
        """The same rows on another device."""
        return self.each(lambda tensor: to_device(tensor, device))

    def each(self, change: Callable[[Tensor], Tensor]) -> "Rows":
        """The same rows with ``change`` of each tensor."""
        tensors = (self.input_ids, self.token_type_ids, self.position_ids, self.cu_seqlens)
        ids, types, positions, starts = map(change, tensors)
        return Rows(ids, types, positions, starts, self.lengths)

    @cached_property
    def derived(self) -> dict[Any, Any]:
        """What kernels computed from the lengths, for the next layers to use."""
        return {}


def pad(hidden: Tensor, cells: Tensor, shape: torch.Size) -> Tensor:
    """(T, C) to (B, S, C) with zeros as padding; the inverse of ``Rows.from_padded``."""
    size, length = shape
    flat = hidden.new_zeros(size * length, hidden.shape[1]).index_copy(0, cells, hidden)
    return flat.view(size, length, -1)


def pad_probs(probs: Tensor, cells: Tensor, shape: torch.Size) -> Tensor:
    """(B, N, S', S') over each sequence's tokens to (B, N, S, S) over the columns given."""
    size, length = shape
    result = probs.new_zeros(size, probs.shape[1], length, length)
    for sequence in range(size):
        columns = cells[cells // length == sequence] % length
        within = probs[sequence, :, : len(columns), : len(columns)]
        result[sequence][:, columns[:, None], columns] = within
    return result


def pooled(vectors: Tensor, rows: Rows, pooling: str) -> Tensor:
    """(B, d): the mean or the max of each sequence's vectors (T, d)."""
    sizes = to_device(torch.tensor(rows.lengths), vectors.device)
    # A check of the sizes would wait for the device.
    return torch.segment_reduce(vectors, pooling, lengths=sizes, unsafe=True)
