"""Segments of documents against a plain loop by the rules of create_pretraining_data.py."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.pretraining.batches.instances import (
    FOLLOWS,
    RANDOM_NEXT,
    SWAPPED,
    Documents,
    cut_documents,
)
from tidybert.pretraining.batches.random_streams import below, random_bits

ROOM = 30
# Sentence lengths of some documents, and the tokens that each document's chunks aim at.
corpora = st.lists(
    st.tuples(st.lists(st.integers(1, 12), min_size=1, max_size=25), st.integers(2, ROOM)),
    min_size=1,
    max_size=8,
)

Row = tuple[int, int, int, int, int]


def documents_of(corpus: list[tuple[list[int], int]], seed: int = 0) -> Documents:
    bounds, first, last = [0], [], []
    for lengths, _ in corpus:
        first.append(len(bounds) - 1)
        for length in lengths:
            bounds.append(bounds[-1] + length)
        last.append(len(bounds) - 1)
        bounds.append(bounds[-1])
    array = np.array(bounds[:-1])
    targets = np.array([target for _, target in corpus])
    draws = random_bits(seed, np.arange(len(array)))
    return Documents(array, np.array(first), np.array(last), targets, draws, ROOM)


def rows(objective: str, documents: Documents) -> list[Row]:
    found = cut_documents(objective, documents)  # type: ignore[arg-type]
    columns = (found.document, found.begin, found.middle, found.end, found.label)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def between(first: int, after: int, draw: np.uint64) -> int:
    """A place strictly between the two, drawn."""
    return first + 1 + int(below(np.array([draw]), after - first - 1)[0])


def plain_rows(objective: str, documents: Documents) -> list[Row]:
    """Sentence by sentence, as the original goes through its list of segments."""
    found: list[Row] = []
    for number, (start, stop) in enumerate(zip(documents.first, documents.last, strict=True)):
        bounds = documents.bounds[start : stop + 1].tolist()
        sentences = [bounds[i + 1] - bounds[i] for i in range(len(bounds) - 1)]
        chunk: list[int] = []
        length = 0
        i = 0
        while i < len(sentences):
            chunk.append(i)
            length += sentences[i]
            if i == len(sentences) - 1 or length >= documents.targets[number]:
                draw = documents.draws[start + chunk[0]]
                begin, end = bounds[chunk[0]], bounds[i + 1]
                a_end = 1
                if len(chunk) >= 2:
                    a_end = between(0, len(chunk), draw)
                middle = bounds[chunk[0] + a_end]
                heads = bool(int(draw) & 1)
                if objective == "mlm+nsp":
                    if len(chunk) == 1 or heads:
                        end = begin + int(documents.targets[number])
                        found.append((number, begin, middle, end, RANDOM_NEXT))
                        i -= len(chunk) - a_end
                    else:
                        found.append((number, begin, middle, end, FOLLOWS))
                elif len(chunk) > 1 or end - begin > 1:
                    if len(chunk) == 1:
                        middle = between(begin, end, draw)
                    found.append((number, begin, middle, end, SWAPPED if heads else FOLLOWS))
                chunk, length = [], 0
            i += 1
    return sorted(found)


@given(corpora, st.integers(0, 1000))
@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm+sop"])
def test_pairs_are_those_of_the_plain_loop(
    objective: str, corpus: list[tuple[list[int], int]], seed: int
) -> None:
    documents = documents_of(corpus, seed)

    assert rows(objective, documents) == plain_rows(objective, documents)


def test_a_chunk_ends_with_the_sentence_that_reaches_the_target() -> None:
    documents = documents_of([([4, 4, 4, 4, 3], 10)])
    coins = (documents.draws & np.uint64(1)).tolist()

    for _, begin, middle, end, label in rows("mlm+sop", documents):
        assert (begin, end) in {(0, 12), (12, 19)}
        assert middle in {4, 8, 16}
        assert label == coins[begin // 4]


@given(corpora, st.integers(0, 1000))
def test_each_sentence_is_in_one_chunk_unless_it_is_put_back(
    corpus: list[tuple[list[int], int]], seed: int
) -> None:
    documents = documents_of(corpus, seed)
    for objective in ("mlm+nsp", "mlm"):
        used = []
        for _, begin, middle, end, label in rows(objective, documents):
            after = middle if objective == "mlm+nsp" and label == RANDOM_NEXT else end
            used += range(begin, after)

        assert sorted(used) == list(range(sum(sum(lengths) for lengths, _ in corpus)))


@given(corpora)
def test_single_segments_are_whole_sentences_that_fit(corpus: list[tuple[list[int], int]]) -> None:
    documents = documents_of(corpus)
    for number, begin, middle, end, _ in rows("mlm", documents):
        target = corpus[number][1]
        inside = documents.bounds[documents.first[number] : documents.last[number] + 1].tolist()
        one_sentence = sum(begin < bound < end for bound in inside) == 0

        assert middle == end
        assert begin in inside
        assert end in inside
        assert end - begin <= target or one_sentence
        # The next sentence would not have fitted.
        following = [bound for bound in inside if bound > end][:1]
        assert not following or following[0] - begin > target


def test_a_sentence_longer_than_the_room_is_cut_and_its_rest_goes_on() -> None:
    documents = documents_of([([70, 5, 20], ROOM)])

    spans = [(begin, end) for _, begin, _, end, _ in rows("mlm", documents)]

    assert spans == [(0, 30), (30, 60), (60, 75), (75, 95)]


def test_one_token_makes_no_order_and_a_lone_sentence_is_split() -> None:
    documents = documents_of([([1], 10), ([2], 10), ([9], 10)])

    (short, long) = rows("mlm+sop", documents)

    assert short[:4] == (1, 1, 2, 3)
    assert 3 < long[2] < 12


def test_what_a_document_becomes_does_not_depend_on_those_beside_it() -> None:
    corpus = [([3, 4, 5, 6, 7, 2, 2], 12), ([5] * 9, 11), ([1, 2, 3], 4)]
    together = documents_of(corpus)
    for number in range(3):
        inside = slice(int(together.first[number]), int(together.last[number]) + 1)
        one = Documents(
            together.bounds[inside],
            np.array([0]),
            np.array([len(corpus[number][0])]),
            together.targets[number : number + 1],
            together.draws[inside],
            ROOM,
        )
        alone = [row[1:] for row in rows("mlm+nsp", one)]
        assert alone == [row[1:] for row in rows("mlm+nsp", together) if row[0] == number]


def test_nothing_comes_of_no_documents() -> None:
    none = np.empty(0, np.int64)
    documents = Documents(none, none, none, none, none.astype(np.uint64), ROOM)

    assert rows("mlm+nsp", documents) == []
