"""Learning a vocabulary: places, order, characters, the same every time, and what others make."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.corpus.documents import read_documents
from tidybert.errors import DataError, UsageError
from tidybert.tokenization import BasicTokenizer, BertTokenizer, Vocabulary
from tidybert.tokenization.learning import vocabulary_training as training
from tidybert.tokenization.learning.vocabulary_training import (
    WordCounts,
    measure_fit,
    pruned,
    train_vocabulary,
)
from tidybert.tokenization.vocabulary import SPECIAL_TOKENS


def counted(texts: list[str], do_lower_case: bool = True, **options: Any) -> WordCounts:
    counts = WordCounts(BasicTokenizer(do_lower_case), **options)
    counts.add(texts)
    return counts


def some_texts(seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(1000)]
    weights = [1 / (rank + 1) for rank in range(1000)]
    return [" ".join(draw.choices(words, weights, k=30)).capitalize() + "." for _ in range(500)]


def pieces_of(vocabulary: Vocabulary) -> tuple[str, ...]:
    """The tokens but special and unused ones."""
    return tuple(token for token in vocabulary.tokens if not re.fullmatch(r"\[\w+\]", token))


def test_the_special_tokens_have_the_published_places(real_data: Path) -> None:
    published = Vocabulary.from_file(real_data / "vocab/bert-base-uncased/vocab.txt")
    full = train_vocabulary(counted(some_texts()), 1000).vocabulary
    short = train_vocabulary(counted(["a b"]), 1000).vocabulary

    assert full.tokens.index("[PAD]") == 0
    for token in ("[UNK]", "[CLS]", "[SEP]", "[MASK]"):
        place = published.tokens.index(token)
        assert full.tokens[place] == short.tokens[place] == token
    # A text that fills the places before them leaves none unused.
    assert not any("unused" in token for token in full.tokens)
    assert short.tokens[1:4] == ("a", "b", "[unused0]")
    assert len(short) == 104


def test_characters_come_first_and_then_what_is_joined_in_the_order_of_joining() -> None:
    learnt = train_vocabulary(counted(["ab ab ab abc abc c 中国"]), 1000)

    # ab is joined before abc; 中国 are two words, of which nothing is joined.  b may begin a word.
    assert pieces_of(learnt.vocabulary) == ("a", "b", "c", "中", "国", "##b", "##c", "ab", "abc")
    assert (learnt.num_characters, learnt.dropped_characters, learnt.num_left_out) == (6, (), 0)


def test_pieces_that_are_hardly_taken_are_dropped() -> None:
    words = {"nation": 10, "station": 9, "ation": 1, "tin": 3}
    single = ["n", "s", "a", "t", *(f"##{each}" for each in "ations")]
    merged = ["##io", "##ion", "##tion", "##ation", "na", "tin", "nation", "station"]

    # nation, station and tin are whole words; only ation is left to spell, of ##tion and ##ation
    # with the longer one not even there.
    assert pruned(merged, single, words, 4) == ["##tion", "tin", "nation", "station"]
    assert pruned(merged, single, words, 3) == ["tin", "nation", "station"]
    assert pruned(merged, single, words, 8) == merged


@pytest.mark.parametrize("size", [1000, 1040])
def test_it_takes_fewer_tokens_than_the_trainer_alone(size: int) -> None:
    from tokenizers import BertWordPieceTokenizer

    texts = some_texts()
    ours = BertTokenizer(train_vocabulary(counted(texts[::2]), size).vocabulary)
    alone = BertWordPieceTokenizer()
    alone.train_from_iterator(texts[::2], vocab_size=size, show_progress=False)
    ids = alone.get_vocab()
    theirs = BertTokenizer(Vocabulary(sorted(ids, key=ids.__getitem__)))

    fits = [measure_fit(each, texts[1::2]) for each in (ours, theirs)]
    assert ours.vocab_size == theirs.vocab_size == size
    assert fits[0].num_tokens < 0.99 * fits[1].num_tokens
    assert fits[0].num_unknown <= fits[1].num_unknown


def test_the_size_is_kept_and_frequent_words_are_one_piece() -> None:
    texts = some_texts()
    counts = counted(texts)
    learnt = train_vocabulary(counts, 1000)
    tokenizer = BertTokenizer(learnt.vocabulary)

    assert len(learnt.vocabulary) == 1000
    assert tokenizer.unk_token_id not in tokenizer.encode_flat(texts)[0]
    frequent = sorted(counts.words, key=counts.words.__getitem__, reverse=True)[:100]
    assert all(len(tokenizer.tokenize(word)) == 1 for word in frequent)


def test_the_same_counts_give_the_same_vocabulary_in_any_order() -> None:
    texts = some_texts()
    shuffled = random.Random(1).sample(texts, len(texts))
    vocabularies = {train_vocabulary(counted(each), 1000).vocabulary for each in (texts, shuffled)}

    assert len(vocabularies) == 1


def test_the_trainer_alone_does_not_number_the_characters_in_order() -> None:
    """What makes it necessary to hand them over in order; if this fails, that can go."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    orders = set()
    for _ in range(8):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.WordPieceTrainer(vocab_size=80, show_progress=False)
        tokenizer.train_from_iterator(["abcdefgh ijklmnop qrstuvwx"], trainer)
        ids = tokenizer.get_vocab()
        orders.add(tuple(sorted(ids, key=ids.__getitem__)))
    assert len(orders) > 1


@pytest.mark.parametrize("cased", [True, False])
def test_case_and_accents_follow_the_tokenizer(cased: bool) -> None:
    learnt = train_vocabulary(counted(["Café Café É"], do_lower_case=not cased), 1000)

    assert pieces_of(learnt.vocabulary)[-1] == ("Café" if cased else "cafe")
    assert ("É" in learnt.vocabulary) == cased


def test_characters_beyond_the_coverage_are_dropped_the_rarest_first() -> None:
    texts = ["aaab " * 50, "ç ø ø"]
    learnt = train_vocabulary(counted(texts, do_lower_case=False), 1000, character_coverage=0.99)

    assert learnt.dropped_characters == ("ç",)
    assert (learnt.num_dropped, learnt.num_left_out) == (1, 1)
    assert "ø" in learnt.vocabulary
    assert "ç" not in learnt.vocabulary


def test_characters_take_at_most_half_of_the_room() -> None:
    ideographs = [chr(0x4E00 + number) for number in range(2000)]
    # The first ones stand twice.
    learnt = train_vocabulary(counted([*ideographs, *ideographs[:5]]), 1000)

    room = 1000 - len(SPECIAL_TOKENS)
    assert learnt.num_characters - len(learnt.dropped_characters) == room // 2
    assert all(character in learnt.vocabulary for character in ideographs[: room // 2])


def test_time_and_memory_are_bounded_by_leaving_out_the_rarest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = counted(["aa " * 60 + "bb " * 30 + "cc " * 9 + "dd"])
    monkeypatch.setattr(training, "MAX_TRAINED_WORDS", 3)
    assert train_vocabulary(counts, 1000).num_left_out == 1
    monkeypatch.setattr(training, "MAX_GIVEN", 10)
    # 99 words told as 10: aa 6, bb 3, cc 1 times, which is too rare to be joined.
    learnt = train_vocabulary(counts, 1000)
    assert pieces_of(learnt.vocabulary)[-2:] == ("aa", "bb")


@pytest.mark.parametrize(
    ("size", "coverage", "message"),
    [
        (999, 1.0, "size=999: expected at least 1,000: each character"),
        (1000, 0.0, "character_coverage 0: expected a fraction above 0"),
        (1000, 1.01, "character_coverage 1.01"),
    ],
)
def test_sizes_and_coverages_that_are_none(size: int, coverage: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        train_vocabulary(counted(["a"]), size, character_coverage=coverage)


def test_a_text_without_words() -> None:
    with pytest.raises(DataError, match="no words"):
        train_vocabulary(counted([" \t", ""]), 1000)


@pytest.mark.real_data
@pytest.mark.parametrize("cased", [True, False])
def test_transformers_opens_it_and_gives_the_same_ids_on_real_lines(
    real_data: Path, tmp_path: Path, cased: bool, reference: Callable[[BertTokenizer], Any]
) -> None:
    from itertools import islice

    transformers = pytest.importorskip("transformers")
    paths = [real_data / "corpus/wiki-short-00.txt.xz", real_data / "zh/wiki-zh.txt"]
    lines = [line for path in paths for one in islice(read_documents([path]), 300) for line in one]
    counts = counted(lines[::2], do_lower_case=not cased)
    ours = BertTokenizer(train_vocabulary(counts, 5000).vocabulary, do_lower_case=not cased)
    ours.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.is_fast

    assert theirs(lines)["input_ids"] == [ids.tolist() for ids in ours.encode_batch(lines)]
    slow = [ours.encode(line).input_ids for line in lines[::20]]
    assert slow == [ids.tolist() for ids in ours.encode_batch(lines[::20])]
