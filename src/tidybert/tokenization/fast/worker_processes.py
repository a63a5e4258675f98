"""Tokenising in several processes, one block of texts at a time.

Processes are spawned, never forked, so that nothing of the caller's threads or accelerator comes
along.  A script that asks for workers therefore starts under ``if __name__ == "__main__":``.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tidybert.tokenization.fast.batch_encoder import BatchEncoder, IdArray, Lengths

# Small enough to share out evenly, large enough that sending a block costs next to nothing.
_BLOCK = 2000

_encoder: BatchEncoder


def encode_blocks(
    encoder: BatchEncoder, texts: Sequence[str], add_special_tokens: bool, num_workers: int
) -> Iterator[tuple[IdArray, Lengths]]:
    """(ids, lengths) of each block of texts, in order, worked out by ``num_workers`` processes."""
    starts = range(0, len(texts), _BLOCK)
    with ProcessPoolExecutor(
        min(num_workers, len(starts)) or 1,
        mp_context=get_context("spawn"),
        initializer=_receive,
        initargs=(encoder,),
    ) as pool:
        blocks = (list(texts[start : start + _BLOCK]) for start in starts)
        yield from pool.map(_encode, blocks, [add_special_tokens] * len(starts), starts)


def _receive(encoder: BatchEncoder) -> None:
    global _encoder
    _encoder = encoder


def _encode(texts: list[str], add_special_tokens: bool, first: int) -> tuple[IdArray, Lengths]:
    return _encoder.encode(texts, add_special_tokens, first)
