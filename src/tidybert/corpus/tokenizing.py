"""Documents to ids, in spawned processes or in this one, in the order given."""

import os
import re
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
from tidybert.corpus.token_shards import Block
from tidybert.errors import DataError
from tidybert.system.signals import uninterrupted_children
from tidybert.tokenization import BertTokenizer

# A paragraph to its sentences, by a rule: for next sentence prediction and for packing text.
#
# A sentence ends at a terminator that white space and something other than a small letter follow,
# unless the word before is an abbreviation; the wide marks of Chinese and Japanese need no space.
# docs/vocabulary.md compares the rule's speed and its answers with those of the libraries.

# A name, a number or the rest of a sentence follows these far more often than a new sentence.
ABBREVIATIONS: Final = """
    mr mrs ms messrs dr prof gen col maj capt cpt cdr cmdr lt sgt adm rev fr hon gov sen rep pres
    st ste mt ft jr sr esq inc ltd co corp bros dept univ assn est ave blvd rd hwy
    vs cf viz etc al esp lit approx ca resp incl excl ed eds trans repr dist orig
    jan feb mar apr jun jul aug sept sep oct nov dec
    ph.d e.g i.e a.m p.m
    nr bzw usw ggf evtl inkl bspw vgl geb gest hrsg str sog
    mm mme mlle sra srta dña ud uds ee.uu gral av sig pág núm
"""
# Words too: abbreviations only before a number, as in "No. 5" and "p. 12".
BEFORE_NUMBERS: Final = """
    no nos art arts fig figs sect sec ch chap vol vols pp eq eqs par para op pt pts ver abs kap
"""
# After an abbreviation these begin a sentence: "in the U.S. He left", not "the U.S. Army".
STARTERS: Final = """
    The A An This That These Those There He She It They We You I His Her Its Their Our My Your
    In On At By For From With After Before During When While Where Since As If Although Though But
    And Or However Then Thus Also Both Each All Some Many Most Other Another One Two No Not Nobody
    Who What Why How Is Are Was Were Do Does Did To Of Only Such So Yet Now Today Later
    Der Die Das Ein Eine Er Sie Es Wir Im Am Bei Nach Als Il Elle Ils
"""
# German writes the day of a date as an ordinal: "am 3. Oktober".
GERMAN_MONTHS: Final = """
    Januar Februar März April Mai Juni Juli August September Oktober November Dezember
"""

_ABBREVIATIONS, _BEFORE_NUMBERS, _STARTERS, _GERMAN_MONTHS = (
    frozenset(words.split()) for words in (ABBREVIATIONS, BEFORE_NUMBERS, STARTERS, GERMAN_MONTHS)
)
_TERMINATORS: Final = ".!?…؟۔।॥։።。！？｡"
_OPENERS: Final = "\"'“‘„‚«‹¿¡([{「『（"
_CLOSERS: Final = "\"'”’“»›)\\]}」』）】》〉"
_JAPANESE_OR_CHINESE: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_BEFORE_SENTENCE: Final = rf"[{re.escape(_OPENERS)}—–\-\s]*+"
# Without a bound the engine would search a long run of marks again from each of them.
_FEW: Final = "{0,9}+"
# A single class of characters comes first: the engine finds it several times faster.
_END = re.compile(
    rf"[{_TERMINATORS}](?:"
    # と after a closing quote carries the sentence on: 「行こう。」と言った。
    rf"(?<=[。！？｡])[{_TERMINATORS}]{_FEW}[{_CLOSERS}]{_FEW}(?!と)"
    rf"|(?<=[!?])[!?]{_FEW}(?=[{_JAPANESE_OR_CHINESE}])"
    rf"|[{_TERMINATORS}]{_FEW}(?:[{_CLOSERS}]|\s»|\[\d+\]){_FEW}\s++"
    # A number in brackets belongs to the text before it, for example a year or a reference.
    rf"(?!\(\d)(?={_BEFORE_SENTENCE}(?:[a-z][A-Z]|[^a-z,;:{_TERMINATORS}{_CLOSERS}]))"
    ")"
)
# No abbreviation, initials or number of an item is longer; it bounds the look back.
_LONGEST_WORD: Final = 20
_NEXT_WORD = re.compile(rf"{_BEFORE_SENTENCE}(\w*)")
_NO_WORD = re.compile(r"[^\w.'’]+")
_NUMBER = re.compile(r"\d|[IVX]{2,}\Z")
_INITIALS = re.compile(r"[^\W\d](?:\.[^\W\d])*")


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, in order, without white space around them.

    Together they hold every character of the paragraph, without the white space between them.  Text
    without a terminator is one sentence; blank text has none.
    """
    paragraph = paragraph.strip()
    sentences = []
    start = 0
    is_ascii = paragraph.isascii()
    for match in _END.finditer(paragraph):
        stop, end = match.span()
        # The expression itself refuses small letters of ASCII.
        if not is_ascii and _next_word(paragraph, end).islower():
            continue
        if paragraph[stop] == "." and _is_in_sentence(paragraph, start, stop, end):
            continue
        sentences.append(paragraph[start:end].strip())
        start = end
    if start < len(paragraph):
        sentences.append(paragraph[start:].strip())
    return sentences


def _is_in_sentence(paragraph: str, start: int, stop: int, end: int) -> bool:
    """Whether the full stop ends an abbreviation and no sentence; ``end``: the next one's place."""
    start = max(start, stop - _LONGEST_WORD)
    begin = max(start, paragraph.rfind(" ", start, stop) + 1)
    word = paragraph[begin:stop].lower()
    if not word.isalnum():
        word = _NO_WORD.split(word)[-1].lstrip(".'’")
    if word in _BEFORE_NUMBERS:
        return _NUMBER.match(_next_word(paragraph, end)) is not None
    if word in _ABBREVIATIONS or _INITIALS.fullmatch(word):
        return (
            paragraph[stop + 1] not in _TERMINATORS and _next_word(paragraph, end) not in _STARTERS
        )
    if word.isdigit():
        # An item of a list, at the beginning, or a German date.
        return begin == 0 or _next_word(paragraph, end) in _GERMAN_MONTHS
    return False


def _next_word(paragraph: str, start: int) -> str:
    match = _NEXT_WORD.match(paragraph, start)
    assert match is not None
    return match[1]


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
        first = len(sentences)
        for paragraph in document:
            sentences += split_sentences(paragraph)
        sentences[first + 1 :] = map(tokenizer.following, sentences[first + 1 :])
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
    """Tokenise and screen blocks, here or in processes; each comes back with its companion."""
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
