"""A batch is rows of tokens: sequences laid end to end, and the places where each begins.

T tokens, B sequences, S longest length.  There is no padding: every layer but attention works on
(T, H) and does not know that sequences exist.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True)
class Group:
    """Sequences of similar length that attention computes together, as one dense block.

    ``members`` (b,) int64 are the sequences' numbers in the batch.
    ``gather`` (b * s,) int64 names the row of each cell of the (b, s) block, row 0 where a sequence
    is shorter than s.  ``cells`` (t,) int64 names the cells that hold a token, in the order of the
    group's rows ``rows`` (t,) int64.  ``key_bias`` is None where all lengths are equal, else
    (b, 1, s) float32: 0 for a token, -inf past a sequence's end.  ``start`` is the first row where
    lengths are equal and the rows follow each other, else None.
    """

    size: int
    length: int
    members: Tensor
    gather: Tensor
    cells: Tensor
    rows: Tensor
    key_bias: Tensor | None
    start: int | None


@dataclass(frozen=True)
class Rows:
    """Token rows of B sequences.

    input_ids, token_type_ids, position_ids: (T,) int64.  cu_seqlens: (B + 1,) int32, sequence b is
    rows cu_seqlens[b] to cu_seqlens[b + 1].  lengths: the B lengths as Python integers, so that no
    layer has to ask the device for them.
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
        """Rows from arrays (T,) of sequences that lie end to end already.

        Raises ValueError for an empty sequence, and for lengths that do not sum up to T.
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

        ``attention_mask`` is 1 (or True) for a token and 0 for padding, which may stand anywhere.
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
        mask = (
            torch.ones_like(input_ids) if attention_mask is None else (attention_mask != 0).long()
        )
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
        rows = cls(
            input_ids=input_ids.reshape(-1)[cells].long(),
            token_type_ids=types,
            position_ids=positions.long(),
            cu_seqlens=starts.to(input_ids.device),
            lengths=lengths,
        )
        return rows, cells

    def to(self, device: torch.device | str) -> "Rows":
        """The same rows on another device."""
        return Rows(
            self.input_ids.to(device, non_blocking=True),
            self.token_type_ids.to(device, non_blocking=True),
            self.position_ids.to(device, non_blocking=True),
            self.cu_seqlens.to(device, non_blocking=True),
            self.lengths,
        )

    def groups(self, cost: int) -> tuple[Group, ...]:
        """The sequences by similar length, for attention on dense blocks.

        A group ends where its padding would be more than ``cost`` cells of one head's scores.
        """
        if cost not in self._groups:
            starts = np.concatenate([[0], np.cumsum(self.lengths)])
            lengths = np.array(self.lengths)
            # They are kept, and what is made in inference mode could not serve a backward later.
            with torch.inference_mode(False):
                self._groups[cost] = tuple(
                    _group(starts, lengths, members, self.input_ids.device)
                    for members in _similar_lengths(lengths, cost)
                )
        return self._groups[cost]

    @cached_property
    def _groups(self) -> dict[int, tuple[Group, ...]]:
        return {}

    @cached_property
    def groups_in_order(self) -> bool:
        """Whether the groups' rows, one group after the other, are the rows in their order."""
        return list(self.lengths) == sorted(self.lengths, reverse=True)


def _similar_lengths(lengths: npt.NDArray[np.int64], cost: int) -> list[npt.NDArray[np.int64]]:
    """Cut the sequences, sorted by length, where the padding would exceed ``cost`` cells."""
    order = np.argsort(-lengths, kind="stable")
    groups: list[npt.NDArray[np.int64]] = []
    start = 0
    waste = 0
    for place, member in enumerate(order):
        longest = int(lengths[order[start]])
        waste += longest**2 - int(lengths[member]) ** 2
        if waste > cost:
            groups.append(order[start:place])
            start, waste = place, 0
    groups.append(order[start:])
    return groups


def _group(
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    members: npt.NDArray[np.int64],
    device: torch.device,
) -> Group:
    member_lengths = lengths[members]
    longest = int(member_lengths.max())
    columns = np.arange(longest)
    is_token = columns < member_lengths[:, None]
    gather = np.where(is_token, starts[members][:, None] + columns, 0)
    cells = is_token.reshape(-1).nonzero()[0]
    key_bias = None
    start: int | None = None
    if is_token.all():
        begins = starts[members]
        if (np.diff(begins) == longest).all():
            start = int(begins[0])
    else:
        bias = np.where(is_token, 0.0, -np.inf).astype(np.float32)[:, None, :]
        key_bias = torch.from_numpy(bias).to(device)
    return Group(
        size=len(members),
        length=longest,
        members=torch.from_numpy(members).to(device),
        gather=torch.from_numpy(gather.reshape(-1)).to(device),
        cells=torch.from_numpy(cells).to(device),
        rows=torch.from_numpy(gather.reshape(-1)[cells]).to(device),
        key_bias=key_bias,
        start=start,
    )
