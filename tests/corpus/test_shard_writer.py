"""The writer of a part: the same bytes however documents come, and after a stop."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.corpus.token_shards import Block, PartWriter

DTYPE = np.dtype("<u2")

# Documents as the lengths of their sentences.
documents = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=5), min_size=1, max_size=20)


def block_of(documents: Sequence[Sequence[int]], first: int = 0) -> Block:
    lengths = [length for document in documents for length in document]
    return Block(
        np.arange(first, first + sum(lengths)),
        np.array(lengths, np.int64),
        np.array([len(document) for document in documents], np.int64),
    )


def write(directory: Path, blocks: Sequence[Block], most: int) -> None:
    directory.mkdir()
    with PartWriter(directory, "train", DTYPE, most) as writer:
        for block in blocks:
            writer.add(block)
        writer.finish()


def test_a_block_tells_its_documents_lengths_and_gives_some_of_them() -> None:
    block = block_of([[3, 2], [1], [4, 1, 1]])

    assert block.document_lengths().tolist() == [5, 1, 6]
    some = block.chosen(np.array([True, False, True]))
    assert some.ids.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    assert some.sentence_lengths.tolist() == [3, 2, 4, 1, 1]
    assert some.document_sentences.tolist() == [2, 3]
    assert block.chosen(np.zeros(3, np.bool_)).document_lengths().tolist() == []


@settings(max_examples=20)
@given(documents, st.integers(1, 30), st.lists(st.integers(1, 5), max_size=10))
def test_shards_do_not_depend_on_the_blocks(
    tmp_path_factory: pytest.TempPathFactory,
    bytes_of: Callable[[Path], dict[str, str]],
    documents: list[list[int]],
    most: int,
    sizes: list[int],
) -> None:
    root = tmp_path_factory.mktemp("shards")
    write(root / "whole", [block_of(documents)], most)
    blocks, first, token = [], 0, 0
    for size in [*sizes, len(documents)]:
        some = documents[first : first + size]
        blocks.append(block_of(some, token))
        first, token = first + size, token + sum(map(sum, some))

    write(root / "parts", blocks, most)

    assert bytes_of(root / "whole") == bytes_of(root / "parts")


def test_a_shard_ends_with_the_document_that_fills_it(tmp_path: Path) -> None:
    with PartWriter(tmp_path, "train", DTYPE, 10) as writer:
        writer.add(block_of([[4], [5], [1, 1], [10], [3]]))
        assert writer.num_tokens == 24
        shards = writer.finish()

    assert [shard.num_tokens for shard in shards] == [11, 10, 3]
    assert [shard.num_documents for shard in shards] == [3, 1, 1]


def test_a_part_without_documents_has_no_files(tmp_path: Path) -> None:
    with PartWriter(tmp_path, "held-out", DTYPE) as writer:
        writer.add(block_of([]))
        assert writer.finish() == []
    assert list(tmp_path.iterdir()) == []
