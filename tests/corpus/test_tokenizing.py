"""Documents to ids in other processes: in order, and a death that is told."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tidybert.corpus import tokenizing
from tidybert.corpus.tokenizing import tokenize_in_order, tokenized
from tidybert.errors import DataError
from tidybert.tokenization import BertTokenizer


def test_sentences_become_ids_and_those_without_fall_out(tokenizer: BertTokenizer) -> None:
    block = tokenized([["Ba. Can?", "\u200d"], ["\u200d"], ["Da"]], tokenizer)

    assert tokenizer.convert_ids_to_tokens(block.ids) == ["ba", ".", "can", "?", "da"]
    assert block.sentence_lengths.tolist() == [2, 2, 1]
    assert block.document_sentences.tolist() == [2, 0, 1]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_blocks_come_back_in_order_and_are_asked_for_as_they_are_needed(
    tokenizer: BertTokenizer, num_workers: int
) -> None:
    asked = 0

    def blocks() -> Iterator[tuple[Any, int]]:
        nonlocal asked
        for number in range(30):
            asked += 1
            yield [["ba"] * (number % 3 + 1)], number

    made = tokenize_in_order(blocks(), tokenizer, num_workers)
    for place, ((block, _), number) in enumerate(made):
        assert number == place
        assert len(block.sentence_lengths) == number % 3 + 1
        assert asked <= place + 3 * num_workers + 2
    assert asked == 30


def die(documents: Any) -> None:
    os._exit(9)


def test_a_process_that_dies_is_told_of(
    tokenizer: BertTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizing, "_work", die)
    with pytest.raises(DataError, match="was killed, perhaps for lack of memory; run the same"):
        list(tokenize_in_order([([["ba"]], 0)], tokenizer, 1))
