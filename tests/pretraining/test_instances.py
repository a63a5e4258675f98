"""Instances: the published algorithm's laws, the same ones in any order, and from any place."""

import hashlib
import json
import math
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import DataError, UsageError
from tidybert.pretraining.batches import instances as groups
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.batches.instances import PretrainingInstances
from tidybert.pretraining.batches.pretraining_batch import Places, Position, PretrainingBatch

CLS, SEP, MASK = 2, 3, 4
VOCAB_SIZE = 40_000

Ids = list[list[int]]
WriteCorpus = Callable[..., Path]


def num_instances(instances: Any, epoch: int) -> int:
    """The number of an epoch's instances; cuts all of its groups."""
    return sum(len(instances._groups.segments(epoch, each)) for each in range(instances.num_groups))


def some_documents(count: int, seed: int = 0, most_sentences: int = 12) -> list[Ids]:
    """Documents whose every token is unlike any other's, so that a token tells where it is from."""
    generator = random.Random(seed)
    number = 5
    documents = []
    for _ in range(count):
        document = []
        for _ in range(generator.randint(1, most_sentences)):
            length = generator.randint(1, 14)
            document.append(list(range(number, number + length)))
            number += length
        documents.append(document)
    assert number <= VOCAB_SIZE
    return documents


DOCUMENTS = some_documents(300)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, write_corpus: WriteCorpus) -> Path:
    """Some thirteen thousand tokens in four shards."""
    target = tmp_path_factory.mktemp("corpora") / "corpus"
    return write_corpus(target, DOCUMENTS, vocab_size=VOCAB_SIZE, max_shard_tokens=4000)


@pytest.fixture(scope="module")
def make(directory: Path) -> Callable[..., PretrainingInstances]:
    """Instances of the corpus; short sequences, so that there are many of every kind."""

    tokenizer = TokenCorpus(directory).tokenizer()

    def build(
        objective: str = "mlm+nsp", max_seq_length: int = 32, seed: int = 1, **options: Any
    ) -> PretrainingInstances:
        corpus = TokenCorpus(directory)
        # A tenth of a second for its words, a hundred times.
        corpus.tokenizer = lambda: tokenizer
        return PretrainingInstances(
            corpus,
            InstanceOptions(objective, max_seq_length, **options),
            MaskingOptions(),
            seed,
        )

    return build


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_GROUP_TOKENS", 1500)


def epoch_of(instances: PretrainingInstances, epoch: int = 0) -> Places:
    places, position = instances.take(Position(epoch), num_instances(instances, epoch))
    assert position == Position(epoch + 1)
    return places


def sides(instances: PretrainingInstances, places: Places) -> list[tuple[list[int], list[int]]]:
    """The ids of A and of B, as the batch has them before masking."""
    batch = instances.build(places)
    ids = batch.input_ids.copy()
    ids[batch.masked_lm_positions] = batch.masked_lm_labels
    found = []
    for sequence in np.split(ids, np.cumsum(batch.lengths)[:-1]):
        first, second = (*np.flatnonzero(sequence == SEP), None)[:2]
        assert sequence[0] == CLS
        assert sequence[-1] == SEP
        found.append((sequence[1:first].tolist(), sequence[first + 1 : second].tolist()))
    return found


def bound(share: float, count: int) -> float:
    """Five standard deviations of a share among so many."""
    return 5 * math.sqrt(share * (1 - share) / count)


# --- one instance


def test_a_batch_is_laid_end_to_end(make: Callable[..., PretrainingInstances]) -> None:
    instances = make()
    places, _ = instances.take(Position(), 50)

    batch = instances.build(places)

    assert batch.input_ids.dtype == np.int32
    assert batch.token_type_ids.dtype == np.uint8
    assert batch.lengths.tolist() == instances.lengths(places).tolist()
    assert len(batch.input_ids) == len(batch.token_type_ids) == batch.lengths.sum()
    assert batch.next_sentence_label is not None
    assert batch.next_sentence_label.tolist() == places.label.tolist()
    starts = np.cumsum(batch.lengths) - batch.lengths
    for start, length, one in zip(starts, batch.lengths, sides(instances, places), strict=True):
        types = batch.token_type_ids[start : start + length].tolist()
        assert types == [0] * (len(one[0]) + 2) + [1] * (len(one[1]) + 1)
    special = np.isin(batch.input_ids, [CLS, SEP])
    assert special.sum() >= 3 * 50
    assert not special[batch.masked_lm_positions].all()


def test_segments_are_cut_from_the_documents(make: Callable[..., PretrainingInstances]) -> None:
    instances = make()
    flat = [[each for sentence in document for each in sentence] for document in DOCUMENTS]
    places = epoch_of(instances)

    for number, (first, second) in enumerate(sides(instances, places)):
        for ids, document in (
            (first, places.document_a[number]),
            (second, places.document_b[number]),
        ):
            assert ids
            assert set(ids) <= set(flat[document])
            # Consecutive tokens, for each token is the number after the one before it.
            assert ids == list(range(ids[0], ids[0] + len(ids)))
        assert len(first) + len(second) + 3 <= 32
        if places.label[number] == 0:
            assert places.document_a[number] == places.document_b[number]


@pytest.mark.parametrize("count", [2, 3, 300])
def test_a_random_next_is_never_from_the_same_document(
    tmp_path: Path, write_corpus: WriteCorpus, count: int
) -> None:
    directory = write_corpus(tmp_path / "corpus", DOCUMENTS[:count], vocab_size=VOCAB_SIZE)
    instances = PretrainingInstances(TokenCorpus(directory), InstanceOptions(max_seq_length=16))
    others: Counter[int] = Counter()
    for epoch in range(3):
        places = epoch_of(instances, epoch)
        is_random = places.label == 1
        assert is_random.any()
        assert (places.document_a[is_random] != places.document_b[is_random]).all()
        others.update(places.document_b[is_random].tolist())
    assert set(others) == set(range(count)) or count == 300


def test_other_documents_are_equally_likely(make: Callable[..., PretrainingInstances]) -> None:
    instances = make()
    counts = np.zeros(300)
    for epoch in range(8):
        places = epoch_of(instances, epoch)
        chosen = places.document_b[places.label == 1]
        counts += np.bincount(chosen, minlength=300)

    # A document is never chosen for its own instances, which takes off one in 300 at most.
    assert stats.chisquare(counts).pvalue > 1e-4


# --- the laws of an epoch


def test_each_sentence_is_in_one_chunk_of_an_epoch(
    make: Callable[..., PretrainingInstances], small_groups: None
) -> None:
    for objective in ("mlm+nsp", "mlm", "mlm+sop"):
        instances = make(objective)
        assert instances.num_groups > 5
        used: Counter[int] = Counter()
        for group in range(instances.num_groups):
            cut = instances._groups.segments(0, group)
            is_random = (cut.label == 1) & (objective == "mlm+nsp")
            after = np.where(is_random, cut.middle, cut.end)
            for begin, end in zip(cut.begin.tolist(), after.tolist(), strict=True):
                used.update(range(begin, end))
        assert set(used.values()) == {1}
        missing = set(range(instances.corpus.num_tokens)) - set(used)
        # A last sentence of one token, alone in its chunk, makes no two segments.
        assert not missing or objective == "mlm+sop"
        ends = sentence_ends(instances)
        assert all(ends.get(token) == token + 1 for token in missing)
        assert len(missing) < 20


def test_a_long_document_is_gone_through_in_stretches(
    tmp_path: Path, write_corpus: WriteCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_STRETCH_TOKENS", 100)
    documents = some_documents(6, most_sentences=150)
    directory = write_corpus(tmp_path / "corpus", documents, vocab_size=VOCAB_SIZE)
    corpus = TokenCorpus(directory)
    instances = PretrainingInstances(corpus, InstanceOptions("mlm", max_seq_length=40))
    bounds, counts = corpus.sentence_bounds(np.arange(6))
    cuts = []
    for one in np.split(bounds, np.cumsum(counts)[:-1]):
        # A stretch begins with the first sentence that begins in each hundred tokens.
        hundreds = (one[:-1] - one[0]) // 100
        cuts += one[:-1][np.diff(hundreds, prepend=-1) > 0].tolist()
    assert len(cuts) > 12

    cut = instances._groups.segments(0, 0)

    assert set(cuts) <= set(cut.begin.tolist())
    order = np.argsort(cut.begin)
    assert cut.end[order][:-1].tolist() == cut.begin[order][1:].tolist()
    assert (cut.begin[order][0], cut.end[order][-1]) == (0, corpus.num_tokens)
    starts = np.append(0, np.cumsum([sum(map(len, document)) for document in documents]))
    owners = np.searchsorted(starts, cut.begin, "right") - 1
    assert cut.document.tolist() == owners.tolist()


def test_labels_are_as_often_0_as_1_where_there_is_a_choice(
    make: Callable[..., PretrainingInstances],
) -> None:
    for objective in ("mlm+nsp", "mlm+sop"):
        instances = make(objective)
        end_of_first = sentence_ends(instances)
        labels = []
        for epoch in range(10):
            cut = instances._groups.segments(epoch, 0)
            ends = np.array([end_of_first[begin] for begin in cut.begin.tolist()])
            # Where A has several sentences there was a choice; for an order there always is.
            has_choice = (cut.middle > ends) | (objective == "mlm+sop")
            labels += cut.label[has_choice].tolist()
        assert len(labels) > 3000
        assert abs(np.mean(labels) - 0.5) < bound(0.5, len(labels))


def sentence_ends(instances: PretrainingInstances) -> dict[int, int]:
    """Where the sentence that begins with a token ends."""
    corpus = instances.corpus
    bounds, counts = corpus.sentence_bounds(np.arange(corpus.num_documents))
    per_document = np.split(bounds, np.cumsum(counts)[:-1])
    return dict(pair for one in per_document for pair in pairwise(one.tolist()))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_the_share_of_short_targets(
    make: Callable[..., PretrainingInstances], share: float
) -> None:
    instances = make(short_seq_prob=share)
    documents = np.arange(300)
    targets = np.concatenate([instances._groups.targets(epoch, documents) for epoch in range(30)])
    room = 32 - 3

    # A random target may be the whole room too: one of 2 … room.
    short = share * (1 - 1 / (room - 1))
    assert abs((targets < room).mean() - short) <= bound(short, len(targets))
    assert targets.max(initial=0) <= room
    if share == 1.0:
        counts = np.bincount(targets, minlength=room + 1)
        assert counts[:2].tolist() == [0, 0]
        assert stats.chisquare(counts[2:]).pvalue > 1e-4


def test_predictions_are_the_share_asked_for(make: Callable[..., PretrainingInstances]) -> None:
    instances = make(max_seq_length=128, short_seq_prob=0.0)
    batch = instances.build(epoch_of(instances))
    expected = np.maximum(np.rint(batch.lengths * 0.15), 1).sum()
    labels = batch.masked_lm_labels
    became = batch.input_ids[batch.masked_lm_positions]

    assert len(labels) == expected
    for kind, share in ((became == MASK, 0.8), (became == labels, 0.1)):
        assert abs(kind.mean() - share) < bound(share, len(labels)) + 1 / VOCAB_SIZE


# --- the plain algorithm


def plain_pairs(
    documents: list[Ids], max_seq_length: int, short_seq_prob: float, generator: random.Random
) -> list[tuple[list[int], list[int], int]]:
    """A, B and label of an epoch by the rules of create_pretraining_data.py, step by step."""
    room = max_seq_length - 3
    pairs = []
    for number, document in enumerate(documents):
        target = room
        if generator.random() < short_seq_prob:
            target = generator.randint(2, room)
        chunk: list[list[int]] = []
        i = 0
        while i < len(document):
            chunk.append(document[i])
            if i == len(document) - 1 or sum(map(len, chunk)) >= target:
                a_end = generator.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
                a = [token for sentence in chunk[:a_end] for token in sentence]
                b: list[int] = []
                label = int(len(chunk) == 1 or generator.random() < 0.5)
                if label:
                    wanted = target - len(a)
                    other = number
                    while other == number:
                        other = generator.randrange(len(documents))
                    start = generator.randrange(len(documents[other]))
                    for sentence in documents[other][start:]:
                        b += sentence
                        if len(b) >= wanted:
                            break
                    i -= len(chunk) - a_end
                else:
                    b = [token for sentence in chunk[a_end:] for token in sentence]
                while len(a) + len(b) > room:
                    longer = a if len(a) > len(b) else b
                    longer.pop(0 if generator.random() < 0.5 else -1)
                pairs.append((a, b, label))
                chunk = []
            i += 1
    return pairs


@pytest.mark.parametrize(("max_seq_length", "share"), [(24, 0.1), (48, 0.5)])
def test_pairs_have_the_laws_of_the_plain_algorithm(
    make: Callable[..., PretrainingInstances], max_seq_length: int, share: float
) -> None:
    generator = random.Random(0)
    instances = make(max_seq_length=max_seq_length, short_seq_prob=share)
    ours, theirs = [], []
    sizes: tuple[list[int], list[int]] = ([], [])
    for epoch in range(12):
        places = epoch_of(instances, epoch)
        ours += [
            (a, b, int(label))
            for (a, b), label in zip(sides(instances, places), places.label, strict=True)
        ]
        plain = plain_pairs(DOCUMENTS, max_seq_length, share, generator)
        theirs += plain
        sizes[0].append(len(places))
        sizes[1].append(len(plain))

    assert stats.ttest_ind(*sizes).pvalue > 1e-3
    sentence_starts = {sentence[0] for document in DOCUMENTS for sentence in document}
    for value in (
        lambda a, b, label: len(a),
        lambda a, b, label: len(b),
        lambda a, b, label: len(a) + len(b),
        lambda a, b, label: len(a) - len(b) if label else 100,
        lambda a, b, label: a[0] in sentence_starts,
        lambda a, b, label: b[0] in sentence_starts,
        lambda a, b, label: label,
    ):
        samples = [np.array([value(*pair) for pair in pairs], float) for pairs in (ours, theirs)]
        assert stats.ks_2samp(*samples).pvalue > 1e-3


def test_truncation_takes_what_the_plain_loop_takes(
    make: Callable[..., PretrainingInstances],
) -> None:
    instances = make()
    generator = np.random.default_rng(0)
    a, b = generator.integers(1, 60, (2, 4000))
    begin = np.zeros(4000, np.int64)

    found = instances._truncated(0, np.arange(4000), begin, a, begin + 100, b + 100)

    begin_a, end_a, begin_b, end_b = found
    for number in range(4000):
        left_a, left_b = int(a[number]), int(b[number])
        while left_a + left_b > 29:
            if left_a > left_b:
                left_a -= 1
            else:
                left_b -= 1
        assert end_a[number] - begin_a[number] == left_a
        assert end_b[number] - begin_b[number] == left_b
        assert 0 <= begin_a[number] <= end_a[number] <= a[number]
        assert 100 <= begin_b[number] <= end_b[number] <= 100 + b[number]
    for length, start, end in ((a, begin_a, end_a), (b, begin_b - 100, end_b - 100)):
        taken = (length - (end - start)).sum()
        assert abs(start.sum() / taken - 0.5) < bound(0.5, taken)


# --- the other objectives


def test_swapped_segments_follow_each_other_in_the_other_order(
    make: Callable[..., PretrainingInstances],
) -> None:
    instances = make("mlm+sop", short_seq_prob=0.0)
    places = epoch_of(instances)
    assert (places.document_a == places.document_b).all()
    touching = []
    for (first, second), label in zip(sides(instances, places), places.label, strict=True):
        before, after = (second, first) if label else (first, second)
        assert before[-1] < after[0]
        touching.append(before[-1] + 1 == after[0])
    # Some lose tokens where they meet, for truncation takes them from either end.
    assert 0.3 < np.mean(touching) < 1.0


def test_full_sequences_hold_one_segment(make: Callable[..., PretrainingInstances]) -> None:
    instances = make("mlm")
    places = epoch_of(instances)
    batch = instances.build(places)

    assert batch.next_sentence_label is None
    assert not batch.token_type_ids.any()
    assert batch.lengths.max() <= 32
    assert (batch.lengths == places.end_a - places.begin_a + 2).all()
    texts = [first for first, _ in sides(instances, places)]
    assert sorted(token for text in texts for token in text) == (
        [token for document in DOCUMENTS for sentence in document for token in sentence]
    )


# --- the same instance, however it is come by


def assert_equal(first: PretrainingBatch, second: PretrainingBatch) -> None:
    for name, value in vars(first).items():
        other = getattr(second, name)
        assert np.array_equal(value, other), name


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm", "mlm+sop"])
def test_an_instance_does_not_depend_on_how_it_is_come_by(
    make: Callable[..., PretrainingInstances], small_groups: None, objective: str
) -> None:
    instances = make(objective)
    size = num_instances(instances, 0)
    whole = epoch_of(instances)

    # One after another, in parts of any size, over the ends of groups and of the epoch.
    position, parts = Position(), []
    for count in [1, 7, 100, 3] * 100:
        part, position = make(objective).take(position, count)
        parts.append(part)
        if position.epoch > 0:
            break
    joined = Places.join(parts)
    assert_equal(instances.build(whole), instances.build(joined[: len(whole)]))

    # By number, backwards, each by itself, from another object.
    other = make(objective)
    for index in range(size - 1, -1, -37):
        alone, _ = other.take(other.position(0, index), 1)
        assert_equal(other.build(alone), instances.build(whole[index : index + 1]))

    # The shares of three processes, and parts of a batch in any order.
    for rank in range(3):
        share = whole[rank::3]
        order = np.random.default_rng(0).permutation(len(share))
        batch = other.build(share[order])
        for place in (0, len(order) // 2):
            start = int(batch.lengths[:place].sum())
            one = instances.build(share[order[place : place + 1]])
            end = start + len(one.input_ids)
            assert batch.input_ids[start:end].tolist() == one.input_ids.tolist()


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm"])
def test_parts_of_a_batch_are_the_batches_of_parts(
    make: Callable[..., PretrainingInstances], objective: str
) -> None:
    instances = make(objective)
    places, _ = instances.take(Position(), 20)

    parts = instances.build(places).parts([3, 1, 9, 7])

    expected = [instances.build(places[a:b]) for a, b in ((0, 3), (3, 4), (4, 13), (13, 20))]
    for part, other in zip(parts, expected, strict=True):
        assert_equal(part, other)


def test_another_process_makes_the_same_instances(
    directory: Path, make: Callable[..., PretrainingInstances]
) -> None:
    program = f"""
import hashlib, pickle
from tidybert.pretraining.batches.instances import *
from tidybert.pretraining.batches.instance_options import InstanceOptions
from tidybert.pretraining.batches.pretraining_batch import Position
from tidybert.corpus.token_shards import TokenCorpus
instances = PretrainingInstances(
    TokenCorpus({str(directory)!r}), InstanceOptions(max_seq_length=32), seed=1
)
places, _ = instances.take(Position(3), 500)
print(hashlib.sha256(instances.build(places).input_ids.tobytes()).hexdigest())
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    instances = make()
    places, _ = instances.take(Position(3), 500)
    ids = instances.build(places).input_ids
    assert found == {hashlib.sha256(ids.tobytes()).hexdigest() + "\n"}


def test_the_first_instances_of_a_corpus_stay_as_they_are(
    make: Callable[..., PretrainingInstances],
) -> None:
    """A change here means that runs begun before cannot go on with the same data."""
    instances = make()
    places, position = instances.take(Position(), 3)
    batch = instances.build(places)

    assert position == Position(0, 0, 3)
    assert places.document_a.tolist() == [234, 218, 287]
    assert places.label.tolist() == [1, 1, 0]
    assert batch.masked_lm_positions.tolist() == [1, 3, 13, 27, 30, 34, 38, 40, 53, 57]
    became = batch.input_ids[batch.masked_lm_positions]
    assert became.tolist() == [MASK] * 4 + [9837] + [MASK] * 5


def test_epochs_and_seeds_differ(make: Callable[..., PretrainingInstances]) -> None:
    kinds = [(make(), 0), (make(), 1), (make(seed=2), 0)]
    plans = [epoch_of(instances, epoch) for instances, epoch in kinds]
    for first in range(3):
        for second in range(first):
            a, b = (
                set(zip(plan.begin_a.tolist(), plan.end_a.tolist(), strict=True))
                for plan in (plans[first], plans[second])
            )
            # Other cuts, in another order, with other masks.
            assert len(a & b) < 0.9 * len(a)
            assert plans[first].document_a[:20].tolist() != plans[second].document_a[:20].tolist()
            assert not set(plans[first].key.tolist()) & set(plans[second].key.tolist())


def test_a_group_has_other_documents_in_each_epoch(
    make: Callable[..., PretrainingInstances], small_groups: None
) -> None:
    kinds = [(make(), 0), (make(), 1), (make(seed=2), 0)]
    groups = [
        set(instances._groups.segments(epoch, 0).document.tolist()) for instances, epoch in kinds
    ]
    assert len(groups[0]) > 20
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert len(groups[first] & groups[second]) < 0.5 * len(groups[first])


def test_an_instance_has_masks_of_its_own(make: Callable[..., PretrainingInstances]) -> None:
    places = epoch_of(make())
    assert len(set(places.key.tolist())) == len(places)


# --- seeking


def test_a_number_is_found_where_it_stands(
    make: Callable[..., PretrainingInstances], small_groups: None
) -> None:
    instances = make()
    size = num_instances(instances, 2)
    position, seen = Position(2), 0
    while position.epoch == 2:
        assert instances.position(2, seen) == position
        _, position = instances.take(position, 11)
        seen += 11
    assert size <= seen < size + 11
    with pytest.raises(UsageError, match=f"index={size}: epoch 2 has {size:,} instances"):
        instances.position(2, size)


def test_any_place_of_a_large_corpus_is_reached_in_under_a_second(
    tmp_path: Path, write_corpus: WriteCorpus
) -> None:
    directory = write_corpus(tmp_path / "corpus", [[[5]]])
    lengths = np.random.default_rng(0).integers(5, 40, 1_300_000)
    # Short documents, and one of two million tokens.
    grow(directory, lengths, np.append(np.full(60_000, 20), 100_000))
    instances = PretrainingInstances(TokenCorpus(directory))
    assert instances.corpus.num_tokens > 28_000_000
    assert instances.num_groups > 2

    seconds = []
    for epoch in (0, 7, 100_000):
        begun = time.perf_counter()
        places, _ = instances.take(Position(epoch, instances.num_groups - 1, 1000), 64)
        instances.build(places)
        seconds.append(time.perf_counter() - begun)

    assert min(seconds) < 1.0


def grow(directory: Path, sentences: Any, documents: Any) -> None:
    """Put a shard of sentences of such lengths, and documents of so many, in the corpus's place."""
    ids = np.arange(sentences.sum(), dtype=np.uint32) % 990 + 5
    ids.astype("<u2").tofile(directory / "train-00000.tokens")
    for suffix, counts in (("sentences", sentences), ("documents", documents)):
        np.append(0, np.cumsum(counts)).astype("<u4").tofile(directory / f"train-00000.{suffix}")
    content = json.loads((directory / "corpus.json").read_text())
    content["parts"]["train"][0] |= {
        "num_documents": len(documents),
        "num_sentences": len(sentences),
        "num_tokens": int(sentences.sum()),
    }
    content["sources"][0]["train"] = len(documents)
    (directory / "corpus.json").write_text(json.dumps(content))


# --- corpora that cannot serve


def test_a_random_next_needs_two_documents(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    directory = write_corpus(tmp_path / "corpus", DOCUMENTS[:1], vocab_size=VOCAB_SIZE)

    with pytest.raises(DataError, match=r"has 1 document, and objective='mlm\+nsp' needs 2"):
        PretrainingInstances(TokenCorpus(directory))
    assert epoch_of(PretrainingInstances(TokenCorpus(directory), InstanceOptions("mlm")))
    with pytest.raises(DataError, match=r"held-out has 0 documents, .* and a larger held_out"):
        PretrainingInstances(TokenCorpus(directory, "held-out"), InstanceOptions("mlm"))


def test_an_order_needs_two_tokens(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    directory = write_corpus(tmp_path / "corpus", [[[5]], [[6]]])

    with pytest.raises(DataError, match="is one token, which has no order"):
        PretrainingInstances(TokenCorpus(directory), InstanceOptions("mlm+sop"))
    assert len(epoch_of(PretrainingInstances(TokenCorpus(directory)))) == 2
