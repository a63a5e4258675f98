"""Tokenising in several processes, for corpora; one block of texts at a time.

Processes are spawned, never forked, so that nothing of the caller's threads or accelerator comes
along; a script that asks for workers therefore keeps its own start under
``if __name__ == "__main__":``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tidybert.tokenization.tokenizer import BertTokenizer, IdArray

# Small enough to share out evenly, large enough that sending a block costs next to nothing.
_BLOCK = 2000

_tokenizer: BertTokenizer


def encode_blocks(
    tokenizer: BertTokenizer, texts: Sequence[str], add_special_tokens: bool, num_workers: int
) -> Iterator[tuple[IdArray, npt.NDArray[np.int64]]]:
    """(ids, lengths) of each block of texts, in order, worked out by ``num_workers`` processes."""
    starts = range(0, len(texts), _BLOCK)
    with ProcessPoolExecutor(
        min(num_workers, len(starts)) or 1,
        mp_context=get_context("spawn"),
        initializer=_receive,
        initargs=(tokenizer,),
    ) as pool:
        blocks = (list(texts[start : start + _BLOCK]) for start in starts)
        yield from pool.map(_encode, blocks, [add_special_tokens] * len(starts), starts)


def _receive(tokenizer: BertTokenizer) -> None:
    global _tokenizer
    _tokenizer = tokenizer


def _encode(
    texts: list[str], add_special_tokens: bool, first: int
) -> tuple[IdArray, npt.NDArray[np.int64]]:
    return _tokenizer.encode_block(texts, add_special_tokens, first)
