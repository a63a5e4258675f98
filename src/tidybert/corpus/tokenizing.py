"""Documents to ids, in spawned processes or in this one, in the order given."""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from typing import Any, Final, TypeVar

import numpy as np

from tidybert.corpus.documents import Document
from tidybert.corpus.screening import Found, Screening
from tidybert.corpus.sentences import split_sentences
from tidybert.corpus.shard_writer import Block
from tidybert.errors import DataError
from tidybert.system.signals import uninterrupted_children
from tidybert.tokenization import BertTokenizer

Given = TypeVar("Given")

# Blocks in work or waiting, for each process: enough that no process is ever idle.
_AHEAD = 3

_tokenizer: BertTokenizer
_screening: Screening
_NONE: Final = Screening()
Made = tuple[Block, Found]


def tokenized(documents: Sequence[Document], tokenizer: BertTokenizer) -> Block:
    """Documents as sentences of ids, without the sentences that have no token."""
    sentences: list[str] = []
    ends = []
    for document in documents:
        for paragraph in document:
            sentences += split_sentences(paragraph)
        ends.append(len(sentences))
    ids, offsets = tokenizer.encode_flat(sentences, add_special_tokens=False)
    lengths = np.diff(offsets)
    is_kept = lengths > 0
    kept = np.concatenate([[0], np.cumsum(is_kept)])
    return Block(ids, lengths[is_kept], np.diff(kept[ends], prepend=0))


def tokenize_in_order(
    blocks: Iterable[tuple[Sequence[Document], Given]],
    tokenizer: BertTokenizer,
    num_workers: int,
    screening: Screening = _NONE,
) -> Iterator[tuple[Made, Given]]:
    """Tokenise and screen blocks of documents; each comes back with the caller's companion to it.

    ``num_workers`` 0 tokenises in this process.  Raises DataError if a process is killed.
    """
    if not num_workers:
        for documents, given in blocks:
            yield (tokenized(documents, tokenizer), screening.found(documents)), given
        return
    context = get_context("spawn")
    pool = ProcessPoolExecutor(
        num_workers, context, initializer=_begin_work, initargs=(tokenizer, screening)
    )
    waiting: deque[tuple[Future[Made], Given]] = deque()
    try:
        for documents, given in blocks:
            # The first call starts the processes.
            with uninterrupted_children():
                submitted = pool.submit(_work, documents)
            waiting.append((submitted, given))
            if len(waiting) > _AHEAD * num_workers:
                yield _next(waiting)
        while waiting:
            yield _next(waiting)
    except BrokenProcessPool as error:
        raise DataError(
            "a process that tokenised was killed, perhaps for lack of memory; run the same command "
            "again, if need be with fewer worker processes, and it continues from there"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _next(waiting: deque[tuple[Future[Made], Any]]) -> tuple[Made, Any]:
    future, given = waiting.popleft()
    return future.result(), given


def _begin_work(tokenizer: BertTokenizer, screening: Screening) -> None:
    global _tokenizer, _screening
    _tokenizer, _screening = tokenizer, screening
    # Where no signals can be held back from a process that starts (Windows).
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End with the parent; a process whose parent was killed would otherwise wait for ever."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _work(documents: Sequence[Document]) -> Made:
    return tokenized(documents, _tokenizer), _screening.found(documents)
