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

from collections.abc import Iterator

import numpy as np

from tidybert.corpus.joined_corpora import first_documents
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import DataError, UsageError, param
from tidybert.files.wording import count_of
from tidybert.pretraining.batches.instance_options import (
    MOST_PLACES,
    NEXT_TOKEN,
    InstanceOptions,
    MaskingOptions,
)
from tidybert.pretraining.batches.masking import Masking
from tidybert.pretraining.batches.places import Places, Position
from tidybert.pretraining.batches.pretraining_batch import PretrainingBatch
from tidybert.pretraining.batches.random_streams import Array, Purpose, below, heads, random_bits
from tidybert.pretraining.batches.segments import RANDOM_NEXT, SWAPPED, Groups, Segments
from tidybert.pretraining.next_tokens import next_token_batch
from tidybert.tokenization.vocabulary import TEXT_TOKENS


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
        _check_corpus(own, self.options.objective)
        self._first_document = first_documents(corpus)[number]
        self._num_documents = own.num_documents
        self._groups = Groups(corpus, self.options, seed, number)
        self.num_groups = self._groups.number
        self._planned: dict[tuple[int, int], Segments] = {}

    def take(self, position: Position, count: int) -> tuple[Places, Position]:
        """The next ``count`` instances from a position on, across epochs, and the position after.

        Takes about a tenth of a second where a group begins, and otherwise a millisecond or two.
        """
        runs = list(self._runs(position, count))
        parts = [
            self._places(epoch, planned, chosen)
            for epoch, planned, chosen, _ in runs
            if chosen.stop > chosen.start
        ]
        return Places.join(parts), runs[-1][-1]

    def after(self, position: Position, count: int) -> Position:
        """The position ``count`` instances after another."""
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
        """The position of the first instance."""
        return Position()

    def lengths(self, places: Places) -> Array:
        """(n,): tokens of each sequence, special ones counted, as ``build`` will make them."""
        return places.num_text_tokens() + self.options.num_special

    def most_predictions(self, lengths: Array) -> Array:
        """(n,): the most predictions in sequences of these lengths."""
        return lengths if self.is_causal else self._masking.budgets(lengths)

    def build(self, places: Places) -> PretrainingBatch:
        """The batch of some instances, masked unless every token is predicted.

        Raises DataError for ids of a damaged corpus.
        """
        if self.is_causal:
            return next_token_batch(self.corpus, places, *self.tokenizer.vocabulary.text_bounds)
        starts = range(0, max(1, len(places)), MOST_PLACES)
        parts = [self._build(places[start : start + MOST_PLACES]) for start in starts]
        return PretrainingBatch.join(parts)

    def _build(self, places: Places) -> PretrainingBatch:
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

    def num_instances(self, epoch: int) -> int:
        """The number of an epoch's instances; cuts all of its groups."""
        return sum(len(self._groups.segments(epoch, group)) for group in range(self.num_groups))

    def position(self, epoch: int, index: int) -> Position:
        """The place of an epoch's instance number ``index``, from 0; cuts the groups before it.

        Raises UsageError where the epoch has fewer instances.
        """
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
        """Document, begin and end of a B for each instance: sentences of any document but its own.

        They begin at a random sentence, and end at ``num_tokens`` or the document's end.
        """
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


def _check_corpus(corpus: TokenCorpus, objective: str) -> None:
    needed = 2 if objective == "mlm+nsp" else 1
    if corpus.num_documents < needed:
        other = f" and a larger {param('held_out')}" if corpus.part == "held-out" else ""
        raise DataError(
            f"{corpus.directory}: the part {corpus.part} has "
            f"{count_of(corpus.num_documents, 'document')}, and {param('objective', objective)} "
            f"needs {needed}; build the corpus from more text{other}"
        )
    if objective == "mlm+sop" and corpus.num_tokens == corpus.num_documents:
        raise DataError(
            f"{corpus.directory}: each document of the part {corpus.part} is one token, which has "
            "no order; build the corpus from other text"
        )
