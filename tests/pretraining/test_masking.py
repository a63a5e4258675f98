"""Masking: exact numbers of predictions, shares within their binomial bounds, and whole words."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tidybert.errors import UsageError
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.batches.masking import Masked, Masking
from tidybert.pretraining.batches.random_streams import Purpose, random_bits
from tidybert.tokenization import BertTokenizer

# Ids 5 to 104 begin words, 105 to 304 go on with them.
TOKENIZER = BertTokenizer(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    + [f"w{number}" for number in range(100)]
    + [f"##c{number}" for number in range(200)]
)
CLS, SEP, MASK = TOKENIZER.cls_token_id, TOKENIZER.sep_token_id, TOKENIZER.mask_token_id
MODES: dict[str, dict[str, Any]] = {
    "tokens": {},
    "words": {"whole_word": True},
}

# A segment as the numbers of pieces of its words.
segments = st.lists(st.integers(1, 5), min_size=1, max_size=20)
batches = st.lists(st.lists(segments, min_size=1, max_size=2), min_size=1, max_size=6)


def sequence_of(words: Sequence[Sequence[int]]) -> list[int]:
    """[CLS] A [SEP] and perhaps B [SEP]; every word and every piece has an id of its own."""
    ids = [CLS]
    word, piece = 5, 105
    for segment in words:
        for size in segment:
            ids += [word, *range(piece, piece + size - 1)]
            word, piece = word + 1, piece + size - 1
        ids.append(SEP)
    return ids


def mask(
    sequences: Sequence[Sequence[int]], keys: Sequence[int] | None = None, **options: Any
) -> Masked:
    masking = Masking(MaskingOptions(**options), TOKENIZER)
    lengths = np.array([len(ids) for ids in sequences], np.int64)
    flat = np.array([each for ids in sequences for each in ids], np.int32)
    keys = range(len(sequences)) if keys is None else keys
    return masking.mask(flat, lengths, random_bits(1, np.array(keys)))


def by_sequence(masked: Masked, sequences: Sequence[Sequence[int]]) -> list[list[int]]:
    """Places of the predictions within each sequence."""
    starts = np.cumsum([0, *map(len, sequences)])
    return [
        [int(row - start) for row in masked.positions if start <= row < end]
        for start, end in pairwise(starts)
    ]


def many(count: int, words: Sequence[int] = (1,) * 100) -> list[list[int]]:
    return [sequence_of([words])] * count


@pytest.mark.parametrize("mode", MODES)
@given(batches, st.floats(0.01, 1.0))
def test_what_holds_for_every_batch(mode: str, batch: list[list[list[int]]], share: float) -> None:
    sequences = [sequence_of(words) for words in batch]
    flat = np.array([each for ids in sequences for each in ids])

    masked = mask(sequences, masked_lm_prob=share, **MODES[mode])

    assert masked.input_ids.dtype == masked.labels.dtype == np.int32
    assert (np.diff(masked.positions) > 0).all()
    assert (masked.labels == flat[masked.positions]).all()
    assert not set(masked.labels.tolist()) & {CLS, SEP}
    others = np.ones(len(flat), np.bool_)
    others[masked.positions] = False
    assert (masked.input_ids[others] == flat[others]).all()
    for ids, places in zip(sequences, by_sequence(masked, sequences), strict=True):
        budget = max(1, round(len(ids) * share))
        assert 1 <= len(places) <= budget
        if mode == "tokens":
            assert len(places) == min(budget, sum(each not in (CLS, SEP) for each in ids))


@pytest.mark.parametrize("mode", MODES)
def test_a_sequence_is_masked_alike_alone_and_in_any_batch(mode: str) -> None:
    sequences = [sequence_of([[1, 2, 3] * n, [2] * n]) for n in (2, 5, 3, 8)]
    together = mask(sequences, **MODES[mode])
    starts = np.cumsum([0, *map(len, sequences)])

    for number, ids in enumerate(sequences):
        alone = mask([ids], [number], **MODES[mode])
        inside = slice(starts[number], starts[number + 1])
        assert alone.input_ids.tolist() == together.input_ids[inside].tolist()
        assert alone.positions.tolist() == by_sequence(together, sequences)[number]
    assert (
        mask([sequences[0]], [99], **MODES[mode]).positions.tolist()
        != (by_sequence(together, sequences)[0])
    )


def test_the_original_rounds_the_share_of_all_tokens() -> None:
    # 102 tokens with [CLS] and [SEP]: round(15.3), and at least one.
    sequences = many(3)
    assert [len(places) for places in by_sequence(mask(sequences), sequences)] == [15] * 3
    short = [sequence_of([[1]])]
    assert len(mask(short).positions) == 1


def bound(share: float, count: int) -> float:
    """Five standard deviations of a share among so many."""
    return 5 * math.sqrt(share * (1 - share) / count)


@pytest.mark.parametrize("mode", MODES)
def test_shares_of_what_becomes_of_a_token(mode: str) -> None:
    masked = mask(many(2000), **MODES[mode])
    became, labels = masked.input_ids[masked.positions], masked.labels

    # A random token is one of 305, the label and [MASK] among them.
    by_chance = 0.1 / TOKENIZER.vocab_size
    for share, expected in (((became == MASK).mean(), 0.8), ((became == labels).mean(), 0.1)):
        assert abs(share - expected - by_chance) <= bound(expected + by_chance, len(labels))


def test_every_place_is_as_likely_to_be_predicted() -> None:
    masked = mask(many(4000))
    counts = np.bincount(masked.positions % 102, minlength=102)

    assert counts[0] == counts[101] == 0
    assert stats.chisquare(counts[1:101]).pvalue > 1e-4


def test_random_tokens_come_from_the_whole_vocabulary() -> None:
    masked = mask(many(20_000))
    became = masked.input_ids[masked.positions]
    # Of the tokens that a prediction may become, these come by chance alone.
    changed = became[(became != MASK) & (became != masked.labels)]
    counts = np.bincount(changed, minlength=TOKENIZER.vocab_size)

    assert len(counts) == TOKENIZER.vocab_size
    never_labels = np.delete(np.r_[0:5, 105:305], MASK)
    assert stats.chisquare(counts[never_labels]).pvalue > 1e-4


# --- whole words


def plain_whole_words(ids: list[int], budget: int, key: int) -> list[int]:
    """Shuffled words one after another, those that do not fit passed over."""
    words: list[list[int]] = []
    for place, each in enumerate(ids):
        if each in (CLS, SEP):
            continue
        if each >= 105 and ids[place - 1] not in (CLS, SEP):
            words[-1].append(place)
        else:
            words.append([place])
    bits = random_bits(1, np.array([key]))
    words.sort(key=lambda word: int(random_bits(Purpose.MASK_ORDER, bits, word[0])[0]))
    chosen: list[int] = []
    for word in words:
        if len(chosen) + len(word) <= budget:
            chosen += word
    return sorted(chosen or words[0][:budget])


@given(batches, st.floats(0.01, 1.0))
def test_whole_words_are_those_of_the_plain_loop(
    batch: list[list[list[int]]], share: float
) -> None:
    sequences = [sequence_of(words) for words in batch]
    masked = mask(sequences, whole_word=True, masked_lm_prob=share)

    for number, places in enumerate(by_sequence(masked, sequences)):
        budget = max(1, round(len(sequences[number]) * share))
        assert places == plain_whole_words(sequences[number], budget, number)


def test_a_word_too_long_for_the_budget_gives_some_of_its_pieces() -> None:
    sequences = [sequence_of([[5, 5]])]
    masked = mask(sequences, whole_word=True, masked_lm_prob=0.2)

    assert masked.positions.tolist() in ([1, 2], [6, 7])


def test_a_segment_that_begins_amid_a_word_begins_with_a_word_of_its_own() -> None:
    ids = [CLS, 105, 106, 5, SEP, 107, 108, SEP]
    for key in range(30):
        masked = mask([ids], [key], whole_word=True, masked_lm_prob=0.25)
        assert masked.positions.tolist() in ([1, 2], [3], [5, 6])


# --- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"masked_lm_prob": 0.0}, "masked_lm_prob is 0.0; expected a fraction above 0, up to 1"),
        ({"masked_lm_prob": 1.5}, "masked_lm_prob is 1.5; expected a fraction above 0, up to 1"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        MaskingOptions(**options)
    assert message in str(raised.value)


def test_the_most_predictions_follow_from_the_length() -> None:
    assert MaskingOptions().num_predictions(128) == 20
    assert MaskingOptions().num_predictions(512) == 77


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "nsp"}, "objective is nsp; expected mlm+nsp, mlm or mlm+sop"),
        ({"max_seq_length": 4}, "max_seq_length is 4; expected at least 5"),
        ({"objective": "mlm", "max_seq_length": 3}, "expected at least 4"),
        ({"short_seq_prob": 2.0}, "short_seq_prob is 2.0"),
    ],
)
def test_instance_options_that_cannot_be_used(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        InstanceOptions(**options)
    assert message in str(raised.value)


def test_short_sequences_are_for_pairs_unless_asked_for() -> None:
    assert InstanceOptions().short_share == InstanceOptions(objective="mlm+sop").short_share == 0.1
    assert InstanceOptions(objective="mlm").short_share == 0.0
    assert InstanceOptions(objective="mlm", short_seq_prob=0.3).short_share == 0.3


@pytest.mark.parametrize("mode", MODES)
def test_more_sequences_than_the_bits_of_a_key_tell_apart(mode: str) -> None:
    count = 2**16 + 9
    lengths, keys = np.full(count, 4), random_bits(1, np.arange(count))
    flat = np.tile(np.array([CLS, 5, 6, SEP], np.int32), count)
    masking = Masking(MaskingOptions(masked_lm_prob=0.3, **MODES[mode]), TOKENIZER)

    masked = masking.mask(flat, lengths, keys)

    for some in (slice(0, 9), slice(count - 18, count)):
        rows = slice(4 * some.start, 4 * some.stop)
        part = masking.mask(flat[rows], lengths[some], keys[some])
        found = masked.positions[(masked.positions >= rows.start) & (masked.positions < rows.stop)]
        assert np.array_equal(part.positions, found - rows.start)
        assert np.array_equal(part.input_ids, masked.input_ids[rows])
