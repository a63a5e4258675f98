"""Pre-training instances, made from token shards while training and never stored on disk.

Pairs and lengths follow create_pretraining_data.py, which also puts unused text back.  That program
cuts all documents, shuffles the instances and writes them, ten times with other draws.  Here:

- Each epoch visits the documents in groups, in another order.  Any group is cut without the others,
  in some hundredth of a second, and its instances are shuffled (``segments``).
- All draws are hashes of the seed, the epoch and the token that an instance begins with
  (``random_streams``).  So an instance is the same in any batch, order or process.
- A ``Position`` names the epoch, the group and the place in it.  To resume there takes the time of
  one group, at any size of corpus.

The number of instances in a group follows from its draws.  So finding an instance by its number in
the epoch counts the groups before it, at some hundred million tokens a second.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.corpus.corpora import first_documents
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import DataError, UsageError, param
from tidybert.files.rows import count_of
from tidybert.pretraining.batches.instance_options import (
    NEXT_TOKEN,
    InstanceOptions,
    MaskingOptions,
    Objective,
)
from tidybert.pretraining.batches.masking import Masking
from tidybert.pretraining.batches.pretraining_batch import (
    Places,
    Position,
    PretrainingBatch,
    next_token_batch,
)
from tidybert.pretraining.batches.random_streams import (
    Array,
    Bits,
    Purpose,
    below,
    heads,
    permuted,
    random_bits,
    uniform,
)
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import TEXT_TOKENS

# Documents in groups, and each group cut into segments (create_pretraining_data.py).
#
# A chunk is as many consecutive sentences as reach the target length; an instance begins with one.
# Each chunk of a document begins where the one before ended, so all documents go one step at a
# time, together.  A random draw belongs to the token that a chunk begins with.  So nothing depends
# on the number of earlier draws, or on which documents are cut together.

FOLLOWS: Final = 0
RANDOM_NEXT: Final = 1
SWAPPED: Final = 1
_GROUP_TOKENS: Final = 2**23
_MAX_GROUP_DOCUMENTS: Final = 2**16
_STRETCH_TOKENS: Final = 2**15


@dataclass(frozen=True)
class Documents:
    """Sentences of D documents, laid end to end; tokens have numbers that rise from one on.

    bounds: (N,) the first token of each sentence, and after a document's last one the document's
    end, which is where the next one begins.  first, last: (D,) the places in ``bounds`` of each
    document's first sentence and of its end.  targets: (D,) tokens that a chunk aims at.
    draws: (N,) random bits for each sentence.  room: most tokens of text in a sequence.
    """

    bounds: Array
    first: Array
    last: Array
    targets: Array
    draws: Bits
    room: int


@dataclass(frozen=True)
class Segments:
    """n instances in no particular order: (n,) int64 each.

    Segment A is the tokens from ``begin`` to ``middle``.  Segment B is those from ``middle`` to
    ``end``; where ``label`` is RANDOM_NEXT, it is from another document and aims at
    ``end - middle`` tokens.  Where ``label`` is SWAPPED the two are in the other order.
    ``document``: the number of their document, from 0 to below D.
    """

    document: Array
    begin: Array
    middle: Array
    end: Array
    label: Array

    def __len__(self) -> int:
        return len(self.begin)


def cut_documents(objective: Objective, documents: Documents) -> Segments:
    steps = list(_STEPS[objective](documents))
    columns = zip(*steps, strict=True) if steps else [[np.empty(0, np.int64)]] * 5
    return Segments(*(np.concatenate(column) for column in columns))


_Step = tuple[Array, Array, Array, Array, Array]


def _next_sentence(documents: Documents) -> Iterator[_Step]:
    """Pairs for next sentence prediction: create_instances_from_document.

    A chunk is split between two of its sentences.  Half the time, and where it is one sentence, B
    comes from another document, and the chunk's rest begins the next chunk.
    """
    bounds = documents.bounds
    left = np.arange(len(documents.first))
    place = documents.first
    while len(left):
        begin, target = bounds[place], documents.targets[left]
        after = _reaching(documents, left, place, target)
        draws = documents.draws[place]
        middle = _between(place, after, draws)
        is_random = (after == place + 1) | _coin(draws)
        end = np.where(is_random, begin + target, bounds[after])
        yield left, begin, bounds[middle], end, np.where(is_random, RANDOM_NEXT, FOLLOWS)
        place = np.where(is_random, middle, after)
        going_on = place < documents.last[left]
        left, place = left[going_on], place[going_on]


def _sentence_order(documents: Documents) -> Iterator[_Step]:
    """Pairs for sentence order prediction (ALBERT: Lan et al. 2020, section 3.1).

    Every chunk is two consecutive segments, swapped half the time.  A single sentence is split
    between two of its tokens; a single token, left at the end, makes no pair.
    """
    bounds = documents.bounds
    left = np.arange(len(documents.first))
    place = documents.first
    while len(left):
        begin = bounds[place]
        after = _reaching(documents, left, place, documents.targets[left])
        end, draws = bounds[after], documents.draws[place]
        is_one = after == place + 1
        middle = np.where(
            is_one, _between(begin, end, draws), bounds[_between(place, after, draws)]
        )
        label = np.where(_coin(draws), SWAPPED, FOLLOWS)
        is_pair = middle < end
        yield left[is_pair], begin[is_pair], middle[is_pair], end[is_pair], label[is_pair]
        going_on = after < documents.last[left]
        left, place = left[going_on], after[going_on]


def _full(documents: Documents) -> Iterator[_Step]:
    """Single segments: DOC-SENTENCES of RoBERTa (Liu et al. 2019, section 4.2).

    As many whole sentences as fit the target, at least one, never of two documents.  The rest of a
    sentence that is longer than the room begins the next segment.
    """
    bounds = documents.bounds
    left = np.arange(len(documents.first))
    begin = bounds[documents.first]
    while len(left):
        last = documents.last[left]
        fitting = np.searchsorted(bounds, begin + documents.targets[left], "right") - 1
        one = np.searchsorted(bounds, begin, "right")
        end = bounds[np.minimum(np.maximum(fitting, one), last)]
        end = np.minimum(end, begin + documents.room)
        yield left, begin, end, end, np.full(len(left), FOLLOWS)
        going_on = end < bounds[last]
        left, begin = left[going_on], end[going_on]


_STEPS: Final = {"mlm+nsp": _next_sentence, "mlm": _full, "mlm+sop": _sentence_order, "lm": _full}


def _reaching(documents: Documents, left: Array, place: Array, target: Array) -> Array:
    """Where the chunks that begin at ``place`` end: with the sentence that reaches the target."""
    after = np.searchsorted(documents.bounds, documents.bounds[place] + target)
    return np.clip(after, place + 1, documents.last[left])


def _between(first: Array, after: Array, draws: Bits) -> Array:
    """Places strictly between the two, all equally likely; ``after`` if none exists."""
    return first + 1 + below(draws, np.maximum(after - first - 1, 0))


def _coin(draws: Bits) -> npt.NDArray[np.bool_]:
    return (draws & np.uint64(1)).astype(np.bool_)


class Groups:
    """The groups of documents of each epoch; ``number`` is how many an epoch has.

    ``which``: the number of the corpus among those that ``corpus`` joins.

    A group has some 8 million tokens: enough to shuffle its instances well, and few enough to cut
    in a moment.  A formula gives the order of the documents in an epoch, so a group's documents are
    known without the others'.
    """

    def __init__(
        self, corpus: TokenCorpus, options: InstanceOptions, seed: int, which: int = 0
    ) -> None:
        own = corpus.corpora[which]
        self._corpus = corpus
        self._first, self._num_documents = first_documents(corpus)[which], own.num_documents
        self._options = options
        self._seed = seed
        per_document = own.num_tokens / own.num_documents
        self._size = int(np.clip(_GROUP_TOKENS / per_document, 1, _MAX_GROUP_DOCUMENTS))
        self.number = -(-own.num_documents // self._size)

    def segments(self, epoch: int, group: int) -> Segments:
        """The group's instances, in no particular order, by the tokens' numbers in the corpus."""
        size = self._num_documents
        places = np.arange(group * self._size, min((group + 1) * self._size, size))
        documents = permuted(places, size, self._seed, epoch, Purpose.DOCUMENT_ORDER) + self._first
        bounds, counts = self._corpus.sentence_bounds(documents)
        ends = np.cumsum(counts) - 1
        begins = ends - counts + 1
        num_tokens = bounds[ends] - bounds[begins]
        # Cutting needs documents that follow each other, as if the corpus had them in this order.
        shift = bounds[begins] - (np.cumsum(num_tokens) - num_tokens)
        first, last, document = _stretches(bounds - np.repeat(bounds[begins], counts), ends)
        cut = cut_documents(
            self._options.objective,
            Documents(
                bounds=bounds - np.repeat(shift, counts),
                first=first,
                last=last,
                targets=self.targets(epoch, bounds[first]),
                draws=random_bits(self._seed, epoch, Purpose.SEGMENTS, bounds),
                room=self._options.room,
            ),
        )
        document = document[cut.document]
        shift = shift[document]
        return Segments(
            documents[document], cut.begin + shift, cut.middle + shift, cut.end + shift, cut.label
        )

    def targets(self, epoch: int, keys: Array) -> Array:
        """(L,): the tokens that a stretch's chunks aim at: the whole room, or sometimes fewer."""
        room = self._options.room
        draws = random_bits(self._seed, epoch, Purpose.TARGET_LENGTH, keys)
        is_short = uniform(draws) < self._options.short_share
        lengths = random_bits(self._seed, epoch, Purpose.SHORT_LENGTH, keys)
        return np.where(is_short, 2 + below(lengths, room - 1), room)


def _stretches(within: Array, ends: Array) -> tuple[Array, Array, Array]:
    """Documents in stretches of about _STRETCH_TOKENS, each cut with a target length of its own.

    So no book takes a group's time for itself or has only short sequences.  The original goes
    through each document as a whole.

    within: (N,) tokens of the document before each sentence, and before its end.  ends: (D,) the
    places of the documents' ends.
    """
    is_end = np.zeros(len(within), np.bool_)
    is_end[ends] = True
    number = within // _STRETCH_TOKENS
    begins = ~is_end & ((within == 0) | (number != np.roll(number, 1)))
    first = np.flatnonzero(begins)
    following = np.append(first[1:], len(within))
    last = np.where(is_end[following - 1], following - 1, following)
    return first, last, np.searchsorted(ends, first)


class PretrainingInstances:
    """The endless sequence of a corpus's instances, epoch after epoch.

        instances = PretrainingInstances(TokenCorpus(directory), options, masking, seed)
        places, position = instances.take(position, 256)
        batch = instances.build(places[rank::num_processes])

    Of several joined corpora, it is the sequence of the one with ``number``; ``build`` takes the
    places of any of them.

    Raises DataError for a single document where B must come from another one, and for documents
    of one token each where two segments must be put in order.
    """

    def __init__(
        self,
        corpus: TokenCorpus,
        options: InstanceOptions | None = None,
        masking: MaskingOptions | None = None,
        seed: int = 0,
        number: int = 0,
    ) -> None:
        self.corpus = corpus
        self.options = options or InstanceOptions()
        self.seed = seed
        self.tokenizer = corpus.tokenizer()
        self.is_causal = self.options.objective == NEXT_TOKEN
        if self.is_causal:
            self.tokenizer = self.tokenizer.with_tokens(TEXT_TOKENS)
        self._masking = Masking(masking or MaskingOptions(), self.tokenizer)
        own = corpus.corpora[number]
        objective = self.options.objective
        needed = 2 if objective == "mlm+nsp" else 1
        if own.num_documents < needed:
            other = f" and a larger {param('held_out')}" if own.part == "held-out" else ""
            raise DataError(
                f"{own.directory}: the part {own.part} has "
                f"{count_of(own.num_documents, 'document')}, and {param('objective', objective)} "
                f"needs {needed}; build the corpus from more text{other}"
            )
        if objective == "mlm+sop" and own.num_tokens == own.num_documents:
            raise DataError(
                f"{own.directory}: each document of the part {own.part} is one token, which has "
                "no order; build the corpus from other text"
            )
        self._first_document = first_documents(corpus)[number]
        self._num_documents = own.num_documents
        self._groups = Groups(corpus, self.options, seed, number)
        self.num_groups = self._groups.number
        self._planned: dict[tuple[int, int], Segments] = {}

    def take(self, position: Position, count: int) -> tuple[Places, Position]:
        """The next ``count`` instances from a position, across epochs, and the position after."""
        runs = list(self._runs(position, count))
        parts = [
            self._places(epoch, planned, chosen)
            for epoch, planned, chosen, _ in runs
            if chosen.stop > chosen.start
        ]
        return Places.join(parts), runs[-1][-1]

    def after(self, position: Position, count: int) -> Position:
        return list(self._runs(position, count))[-1][-1]

    def _runs(
        self, position: Position, count: int
    ) -> Iterator[tuple[int, Segments, slice, Position]]:
        """The next ``count`` instances by group: epoch, group, which, and the position after."""
        while count:
            epoch, group = position.epoch, position.group
            planned = self._plan(epoch, group)
            chosen = slice(position.offset, min(position.offset + count, len(planned)))
            count -= chosen.stop - chosen.start
            position = Position(epoch, group, chosen.stop)
            if chosen.stop == len(planned):
                is_last = group + 1 == self.num_groups
                position = Position(epoch + 1) if is_last else Position(epoch, group + 1)
            yield epoch, planned, chosen, position

    @property
    def beginning(self) -> Position:
        return Position()

    def lengths(self, places: Places) -> Array:
        """(n,): tokens of each sequence, special ones counted, as ``build`` will make them."""
        return places.num_text_tokens() + self.options.num_special

    def most_predictions(self, lengths: Array) -> Array:
        """(n,): the most predictions in sequences of these lengths."""
        return lengths if self.is_causal else self._masking.budgets(lengths)

    def build(self, places: Places) -> PretrainingBatch:
        """The batch of some instances, masked unless every token is predicted."""
        if self.is_causal:
            return next_token_batch(self.corpus, places, *self.tokenizer.vocabulary.text_bounds)
        cls = np.array([self.tokenizer.cls_token_id], self.corpus.dtype)
        sep = np.array([self.tokenizer.sep_token_id], self.corpus.dtype)
        lengths = self.lengths(places)
        parts = []
        firsts = self.corpus.tokens(places.begin_a, places.end_a)
        if self.options.pairs:
            seconds = self.corpus.tokens(places.begin_b, places.end_b)
            for first, second in zip(firsts, seconds, strict=True):
                parts += [cls, first, sep, second, sep]
        else:
            for first in firsts:
                parts += [cls, first, sep]
        ids = np.concatenate(parts)
        self.corpus.check_ids(ids)
        masked = self._masking.mask(ids.astype(np.int32), lengths, places.key)
        seconds_lengths = places.end_b - places.begin_b + 1 if self.options.pairs else 0 * lengths
        by_segment = np.stack([lengths - seconds_lengths, seconds_lengths], axis=1).ravel()
        types = np.tile(np.array([0, 1], np.uint8), len(places))
        return PretrainingBatch(
            input_ids=masked.input_ids,
            token_type_ids=np.repeat(types, by_segment),
            lengths=lengths,
            masked_lm_positions=masked.positions,
            masked_lm_labels=masked.labels,
            next_sentence_label=places.label if self.options.pairs else None,
        )

    def position(self, epoch: int, index: int) -> Position:
        """The place of an epoch's instance ``index``, from 0; cuts the groups before it."""
        before = 0
        for group in range(self.num_groups):
            count = len(self._groups.segments(epoch, group))
            if index < before + count:
                return Position(epoch, group, index - before)
            before += count
        raise UsageError(
            f"{param('index', index)}: epoch {epoch} has {before:,} instances, and the first is 0"
        )

    def _plan(self, epoch: int, group: int) -> Segments:
        """A group's instances in their order; the last few groups are kept."""
        planned = self._planned.get((epoch, group))
        if planned is None:
            segments = self._groups.segments(epoch, group)
            order = np.argsort(
                random_bits(self.seed, epoch, Purpose.INSTANCE_ORDER, segments.begin)
            )
            planned = Segments(*(column[order] for column in vars(segments).values()))
            if len(self._planned) > 1:
                del self._planned[min(self._planned)]
            self._planned[epoch, group] = planned
        return planned

    def _places(self, epoch: int, planned: Segments, chosen: slice) -> Places:
        label, document_a = planned.label[chosen], planned.document[chosen]
        begin_a, end_a = planned.begin[chosen], planned.middle[chosen]
        document_b, begin_b, end_b = document_a.copy(), end_a.copy(), planned.end[chosen].copy()
        key = begin_a.copy()
        if self.options.objective == "mlm+nsp":
            is_random = np.flatnonzero(label == RANDOM_NEXT)
            document_b[is_random], begin_b[is_random], end_b[is_random] = self._other_segments(
                epoch, key[is_random], document_a[is_random], (end_b - begin_b)[is_random]
            )
        elif self.options.objective == "mlm+sop":
            swapped = label == SWAPPED
            begin_a, begin_b = (
                np.where(swapped, begin_b, begin_a),
                np.where(swapped, begin_a, begin_b),
            )
            end_a, end_b = np.where(swapped, end_b, end_a), np.where(swapped, end_a, end_b)
        begin_a, end_a, begin_b, end_b = self._truncated(epoch, key, begin_a, end_a, begin_b, end_b)
        mask_key = random_bits(self.seed, epoch, Purpose.MASK_KEY, key)
        return Places(mask_key, label, document_a, begin_a, end_a, document_b, begin_b, end_b)

    def _other_segments(
        self, epoch: int, key: Array, documents: Array, num_tokens: Array
    ) -> tuple[Array, Array, Array]:
        """Document, begin and end (n,) of a B from another document, of ``num_tokens`` or less."""
        draws = random_bits(self.seed, epoch, Purpose.OTHER_DOCUMENT, key)
        others = self._first_document + below(draws, self._num_documents - 1)
        others += others >= documents
        bounds, counts = self.corpus.sentence_bounds(others)
        last = np.cumsum(counts) - 1
        draws = random_bits(self.seed, epoch, Purpose.OTHER_START, key)
        start = last - counts + 1 + below(draws, counts - 1)
        begin = bounds[start]
        end = np.array(
            [
                bounds[first + 1 + int(np.searchsorted(bounds[first + 1 : final], wanted))]
                for first, final, wanted in zip(
                    start.tolist(), last.tolist(), (begin + num_tokens).tolist(), strict=True
                )
            ],
            np.int64,
        )
        return others, begin, end

    def _truncated(
        self, epoch: int, key: Array, begin_a: Array, end_a: Array, begin_b: Array, end_b: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Pairs that fit the room: truncate_seq_pair, all its steps at once.

        It takes tokens from the longer segment, or B where they are equal, until the two fit.  A
        coin decides for each token whether it goes from the front or the back.
        """
        length_a, length_b = end_a - begin_a, end_b - begin_b
        excess = np.maximum(length_a + length_b - self.options.room, 0)
        levelled = np.minimum(excess, np.abs(length_a - length_b))
        rest = excess - levelled
        cut_a = np.where(length_a > length_b, levelled, 0) + rest // 2
        cut_b = np.where(length_a > length_b, 0, levelled) + (rest + 1) // 2
        front_a = heads(cut_a, self.seed, epoch, Purpose.TRUNCATION_A, key)
        front_b = heads(cut_b, self.seed, epoch, Purpose.TRUNCATION_B, key)
        return (
            begin_a + front_a,
            end_a - (cut_a - front_a),
            begin_b + front_b,
            end_b - (cut_b - front_b),
        )


# An instance in plain values, as training reads it: of a corpus, or of texts.


def describe_texts(
    texts: Sequence[str],
    tokenizer: BertTokenizer,
    masking: MaskingOptions,
    *,
    max_seq_length: int,
    seed: int,
    epoch: int,
    index: int,
) -> dict[str, Any]:
    """One or two texts as one instance, with the masks of number ``index`` of an epoch."""
    if len(texts) > 2:
        raise UsageError(f"{param('input')} is given {len(texts)} times; expected one text or two")
    encoding = tokenizer.encode(texts[0], texts[1] if len(texts) == 2 else None)
    ids = np.asarray(encoding.input_ids, np.int32)
    types = np.asarray(encoding.token_type_ids)
    counts = [encoding.sequence_ids.count(side) for side in range(len(texts))]
    if len(ids) > max_seq_length:
        raise UsageError(
            f"{param('input')} has {len(ids):,} tokens; give "
            f"{param('max_seq_length', len(ids))} to show them all"
        )
    if not all(counts):
        raise UsageError(f"{param('input')} is a text without a token")
    starts = [encoding.sequence_ids.index(side) for side in range(len(texts))]
    key = random_bits(seed, epoch, Purpose.MASK_KEY, np.array([index]))
    masks = Masking(masking, tokenizer)
    masked = masks.mask(ids, np.array([len(ids)]), key)
    return {
        "epoch": epoch,
        "index": index,
        "seed": seed,
        "segments": [
            {
                "segment": name,
                "num_tokens": count,
                "text": tokenizer.decode(
                    masked.input_ids[start : start + count].tolist(), skip_special_tokens=False
                ),
            }
            for name, start, count in zip("AB", starts, counts, strict=False)
        ],
        **_masked(tokenizer, masked.input_ids, masked.positions, masked.labels),
        "token_type_ids": types,
    }


def _masked(tokenizer: BertTokenizer, ids: Any, rows: Any, labels: Any) -> dict[str, Any]:
    """All tokens, and how masking changes those to predict: [MASK], a random token, no change."""
    predictions = []
    for row, label in zip(rows, labels, strict=True):
        if ids[row] == label:
            what = "kept"
        else:
            what = "masked" if ids[row] == tokenizer.mask_token_id else "replaced"
        token, became = tokenizer.convert_ids_to_tokens([label, ids[row]])
        predictions.append({"position": row, "token": token, "became": became, "what": what})
    return {"predictions": predictions, "tokens": tokenizer.convert_ids_to_tokens(ids)}


def describe(instances: PretrainingInstances, position: Position) -> dict[str, Any]:
    """One instance of a corpus: segments, tokens as the model reads them, predictions."""
    places, _ = instances.take(position, 1)
    batch = instances.build(places)
    tokenizer, ids = instances.tokenizer, batch.input_ids
    segments = []
    end = 1
    for name, document, begin, after in (
        ("A", places.document_a, places.begin_a, places.end_a),
        ("B", places.document_b, places.begin_b, places.end_b),
    )[: 1 + instances.options.pairs]:
        start, end = end, end + int(after[0] - begin[0]) + 1
        segments.append(
            {
                "segment": name,
                "document": document[0],
                "source": instances.corpus.source_of(int(document[0])),
                "first_token": begin[0],
                "num_tokens": after[0] - begin[0],
                "text": tokenizer.decode(ids[start : end - 1].tolist(), skip_special_tokens=False),
            }
        )
    label = None if batch.next_sentence_label is None else int(batch.next_sentence_label[0])
    return {
        "objective": instances.options.objective,
        "seed": instances.seed,
        "next_sentence_label": label,
        "segments": segments,
        **_masked(tokenizer, ids, batch.masked_lm_positions, batch.masked_lm_labels),
        "token_type_ids": batch.token_type_ids,
    }
