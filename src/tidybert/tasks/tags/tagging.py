"""tag: a class for each word: named entities, parts of speech (paper 5.3, table 7)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tidybert.checkpoints.example_kinds import WORDS
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.data.batching import Batch
from tidybert.data.checks import (
    DataReport,
    TrainingData,
    check_labels,
    check_leaks,
    check_lengths,
    check_repetition,
)
from tidybert.data.features import Features, sequence
from tidybert.data.long_texts import check_windows, most_context, windows_of
from tidybert.data.splits import random_split
from tidybert.errors import LINE, DataError, UsageError, param
from tidybert.files.rows import count_of
from tidybert.files.text_examples import label_order
from tidybert.metrics.calibration import fit_temperature
from tidybert.metrics.entity_scores import TagCounts, TagScores, entities
from tidybert.metrics.metric import meanings_of
from tidybert.tasks.answer import Tagged
from tidybert.tasks.answers import Answers, Floats, Indices, Judgement, softmax
from tidybert.tasks.tags.tag_files import (
    TaggedExample,
    as_iob2,
    mark_entities,
    marked_by,
    read_tagged,
    shown_entities,
    untagged,
)
from tidybert.tasks.targets import Explained, Target, class_target
from tidybert.tasks.task import Task, refuse_unknown, softmax_divergence, tensor_on
from tidybert.tasks.task_options import WindowOptions
from tidybert.tokenization import BertTokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tidybert.checkpoints.model_directory import HeadDescription

# Features of tagged sentences: windows over the pieces of words, and where each word is read.
#
# Checks of sentences and their features before training are here too.
#
# A word is represented by the first of its pieces (paper, sections 5.3 and 5.4).  A sentence longer
# than the model reads is read in windows that overlap, and each word in the one that shows most of
# its surroundings, so that nothing is cut off and each word counts once.


@dataclass(frozen=True, slots=True)
class WordPlaces:
    """Which words a window answers for, W of them.

    Args:
        words: (W,) their numbers in the sentence.
        rows: (W,) the row of each one's first piece among the window's rows.
        num_silent: how many of them the tokenizer drops, such as an accent without a letter.
    """

    words: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    num_silent: int

    @property
    def repeated(self) -> npt.NDArray[np.bool_]:
        """(W,) whether a word is read at the row of the word before it, as in a piece of both."""
        return np.asarray(np.diff(self.rows, prepend=-1) == 0)


def tagged_features(
    examples: Sequence[TaggedExample],
    tokenizer: BertTokenizer,
    max_seq_length: int,
    doc_stride: int | None,
    *,
    running_text: bool = True,
) -> list[Features]:
    """One Features an example, or one a window, whose ``place`` are its WordPlaces.

    With ``running_text`` the model reads a raw text as transformers does, and each word at the
    first piece that covers it.  Words of a list have the pieces that they have after a space.
    Without it each word is cut alone, as versions without that setting did, and one that the
    tokenizer drops is [UNK]; else such a word is read at the piece before it.

    Its weight is the number of its words.  Each word is in the WordPlaces of one window.  A window
    that answers for no word is left out; an example without words has one Features.  Raises
    UsageError as ``check_windows``, and the tokenizer's TextError.
    """
    room = max_seq_length - tokenizer.layout.num_special(1)
    check_windows(room, doc_stride)
    return [
        each
        for number, words in enumerate(_cut_words(examples, tokenizer, running_text))
        for each in _windows(number, words, tokenizer, room, doc_stride)
    ]


# The ids (n,) of an example, the first of each word's, and whether the word has none.
_CutWords = tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.bool_]]


def _cut_words(
    examples: Sequence[TaggedExample], tokenizer: BertTokenizer, running_text: bool
) -> Iterator[_CutWords]:
    # Where words have the same pieces alone, nothing needs the places of pieces, which take time.
    is_placed = running_text and not tokenizer.cuts_words_alone()
    given = [one.text if running_text and one.spans else None for one in examples]
    texts = [each if each and not tokenizer.cuts_words_alone(each) else None for each in given]
    placed = iter(tokenizer.encode_with_offsets([each for each in texts if each is not None]))
    alone = [one for one, text in zip(examples, texts, strict=True) if text is None]
    words = [f" {word}" if is_placed else word for one in alone for word in one.words]
    encoded = iter(tokenizer.encode_batch(words, add_special_tokens=False))
    for one, text in zip(examples, texts, strict=True):
        if text is not None:
            numbers, found = next(placed)
            ids, spans = np.array(numbers, dtype=np.int32), np.array(one.spans, dtype=np.int64)
            offsets = np.array(found, dtype=np.int64).reshape(-1, 2)
            starts, ends = np.append(offsets[:, 0], len(text)), offsets[:, 1]
            reached = np.maximum.accumulate(np.where(ends > starts[:-1], ends, 0))
            firsts = np.searchsorted(reached, spans[:, 0], side="right")
            silent = starts[firsts] >= spans[:, 1]
        else:
            pieces = [next(encoded) for _ in one.words]
            silent = np.array([len(each) == 0 for each in pieces], dtype=np.bool_)
            if silent.any() and not running_text:
                unknown = np.array([tokenizer.unk_token_id])
                pieces = [each if len(each) else unknown for each in pieces]
            lengths = np.array([len(each) for each in pieces], dtype=np.int64)
            firsts = np.cumsum(lengths) - lengths
            ids = np.concatenate([np.empty(0, dtype=np.int32), *pieces])
        if running_text:
            firsts = (firsts - silent).clip(0, max(0, len(ids) - 1))
        yield ids, firsts, silent


def _windows(
    number: int,
    found: _CutWords,
    tokenizer: BertTokenizer,
    room: int,
    doc_stride: int | None,
) -> Iterator[Features]:
    ids, firsts, silent = found
    windows, before = windows_of(len(ids), room, doc_stride), tokenizer.layout.num_before(1)
    owners = most_context(windows)[firsts] if len(ids) else np.zeros_like(firsts)
    for window, (first, last) in enumerate(windows):
        words = np.flatnonzero(owners == window)
        if not len(words) and len(windows) > 1:
            continue
        yield Features(
            *sequence(tokenizer, [ids[first:last]]),
            num_tokens=len(ids) + tokenizer.layout.num_special(1),
            example=number,
            place=WordPlaces(words, firsts[words] - first + before, int(silent[words].sum())),
            weight=float(len(words)),
        )


def check_tags(report: DataReport, data: TrainingData[TaggedExample], *, of_entities: bool) -> None:
    """Check the types of entities, or the tags, and that every sentence has a word."""
    counts, in_dev = (_count(each, of_entities) for each in (data.train, data.held_out))
    if not counts:
        report.errors.append(
            f"every training tag is O, so no entity can be learned (is {param('label')} the "
            "right column?)"
        )
    elif not of_entities and len(counts) == 1:
        report.errors.append(
            f"every training word has the tag {next(iter(counts))!r}; two at least are needed (is "
            f"{param('label')} the right column?)"
        )
    nouns = "entities" if of_entities else "tags"
    check_labels(report, counts, in_dev, nouns, remedy="add examples")
    measured, part = (data.dev, "dev") if data.dev else (data.train, "training")
    tags = Counter(tag for one in measured for tag in one.tags or ())
    if tags:
        ((common, most),) = tags.most_common(1)
        of_entities_too = ", with an F1 of 0" if of_entities and common == "O" else ""
        report.facts.append(
            f"a guess, always {common}, is right for {most / tags.total():.1%} of the {part} "
            f"words{of_entities_too}"
        )
    for counted, lines in data.those(lambda one: not one.words):
        report.errors.append(f"{counted} without a word ({lines})")


def _count(examples: Sequence[TaggedExample], of_entities: bool) -> Counter[str]:
    """How often each type of entity, or each tag, occurs."""
    counts: Counter[str] = Counter()
    for one in examples:
        counts.update(marked_by(one.tags or (), of_entities=of_entities))
    return counts


def count_words(report: DataReport, data: TrainingData[TaggedExample]) -> None:
    """Report the number of words, and how the model reads them."""
    num_words = sum(len(one.words) for one in data.train)
    report.facts.append(f"{count_of(num_words, 'word')} to train")
    for part, _, features in data.parts():
        windows = Counter(one.example for one in features)
        longer = sum(count > 1 for count in windows.values())
        if longer:
            num_windows = len(features) - len(windows) + longer
            report.facts.append(
                f"{part}: {count_of(longer, 'example')} longer than {param('max_seq_length')} "
                f"{data.max_seq_length} and read in windows, {num_windows:,} of them"
            )
        silent = sum(one.place.num_silent for one in features)
        if silent:
            report.facts.append(
                f"{part}: {count_of(silent, 'word')} of characters that the tokenizer drops; each "
                "has the tag before it"
            )


class TagAnswers(Answers["Tagging", TaggedExample]):
    """A tag for each word, W words in all examples together."""

    @cached_property
    def starts(self) -> Indices:
        """(N + 1,) the first word of each example among all W, and W."""
        return np.cumsum([0, *(len(one.words) for one in self.examples)])

    @cached_property
    def logits(self) -> npt.NDArray[np.float32]:
        """(W, L), each word's from the window that answers for it."""
        logits = np.zeros((self.starts[-1], len(self.task.names)), dtype=np.float32)
        for one, rows in zip(self.features, self.outputs, strict=True):
            logits[self.starts[one.example] + one.place.words] = rows[one.place.rows]
        return logits

    @cached_property
    def probabilities(self) -> Floats:
        """(W, L)."""
        return softmax(self.logits / np.float32(self.task.temperature))

    @cached_property
    def repeated(self) -> npt.NDArray[np.bool_]:
        """(W,) whether a word is read with the one before it."""
        repeated = np.zeros(self.starts[-1], dtype=np.bool_)
        for one in self.features:
            repeated[self.starts[one.example] + one.place.words] = one.place.repeated
        return repeated

    @cached_property
    def label_ids(self) -> list[int]:
        """The right tag of each of the W words, or of the first of those that are read as one."""
        found = [self.task.label_ids[tag] for one in self.examples for tag in one.tags or ()]
        return _of_first(found, self.repeated)

    @cached_property
    def scores(self) -> list[Floats]:
        """The probability of each word's likeliest tag, by example."""
        return self._by_example(self.probabilities.max(1))

    @cached_property
    def tags(self) -> list[list[str]]:
        """Each example's tags, valid IOB2 where they mark entities."""
        found = [
            [self.task.names[label] for label in labels.tolist()]
            for labels in self._by_example(self.probabilities.argmax(1))
        ]
        if not self.task.of_entities:
            return found
        pairs = zip(found, self._by_example(self.repeated), strict=True)
        return [_entity_tags(tags, repeated) for tags, repeated in pairs]

    @cached_property
    def counted(self) -> TagCounts:
        """How many tags and entities are right."""
        expected = [one.tags or () for one in self.examples]
        return TagCounts.compare(expected, self.tags, of_entities=self.task.of_entities)

    @cached_property
    def _expected_scores(self) -> list[Floats]:
        """The probability of each word's right tag, by example."""
        words = np.arange(len(self.label_ids))
        return self._by_example(self.probabilities[words, self.label_ids])

    @cached_property
    def _shares_right(self) -> Floats:
        return self.counted.share_right()

    def metrics(self, chosen: Indices | None = None) -> dict[str, Any]:
        return self.counted.metrics() if chosen is None else self.counted.scores(chosen)

    def prediction(self, number: int) -> Tagged:
        """Words, tags and, where tags mark them, entities with their places in the text.

        An entity's score is the mean probability of its words' tags; of other tags each word has a
        score.
        """
        example, tags, scores = self.examples[number], self.tags[number], self.scores[number]
        if self.task.of_entities:
            entities = shown_entities(tags, example, scores)
            return Tagged(list(example.words), tags, entities=entities)
        return Tagged(list(example.words), tags, scores=scores.tolist())

    def judgement(self, number: int) -> Judgement:
        """``correct`` is a sentence's F1, or share of words; the least sure word is its confidence.

        The F1 of a sentence without entities is 1 if the model finds none.
        """
        example = self.examples[number]
        return Judgement(
            text=example.located()[0],
            expected=self._in_words(example.tags or (), example),
            predicted=self._in_words(self.tags[number], example),
            correct=float(self._shares_right[number]),
            confidence=float(self.scores[number].min(initial=1.0)),
            expected_probability=float(self._expected_scores[number].min(initial=1.0)),
            num_tokens=self.first_features[number].num_tokens,
            row=example.row,
        )

    def _in_words(self, tags: Sequence[str], example: TaggedExample) -> str:
        """The tags as a person reads them: the entities, or the tags themselves."""
        if not self.task.of_entities:
            return " ".join(tags)
        shown = shown_entities(tags, example, np.ones(len(tags)))
        return "; ".join(f"{one['type']}: {one['text']}" for one in shown) or "no entity"

    def _by_example(self, values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Values of all W words as those of each example."""
        return np.split(values, self.starts[1:-1])


class Tagging(Task[TaggedExample]):
    """Cross-entropy over the tags of each word, read at its first piece.

    Tags mark entities, in IOB2, if every tag is O or has a prefix; scores and answers are then of
    entities.  Other tags are classes of words.

    Args:
        label_names: the tags in the order of their ids.
        temperature: answers divide logits by this before the softmax.
        doc_stride: tokens from one window over a long sentence to the next; see ``windows_of``.
        running_text: how texts are cut; see ``tagged_features``.
    """

    name = "tag"
    inputs = WORDS
    answer, answers_class = Tagged, TagAnswers
    architecture = "BertForTokenClassification"
    read = read_tagged
    options_class = WindowOptions
    unit = "token"
    head = "classifier"
    meanings = meanings_of(TagScores)
    foreign_settings: ClassVar = {"running_text": True}
    running_text = False  # of a pickle that an older version wrote

    def __init__(
        self,
        label_names: Sequence[str],
        temperature: float = 1.0,
        doc_stride: int | None = None,
        running_text: bool = True,
    ) -> None:
        self.label_names = tuple(label_names)
        self.of_entities = mark_entities(self.names)
        self.metric = "f1" if self.of_entities else "accuracy"
        # The metric called accuracy counts the words of all sentences together.
        self.correctness = f"{'F1' if self.of_entities else 'fraction right'} per sentence"
        self.temperature = temperature
        self.doc_stride = doc_stride
        self.running_text = running_text
        # A file of few tags could be taken for one of another kind: B and E are POS tags too.
        self.read = self.read.with_details(of_entities=self.of_entities)

    @classmethod
    def from_texts(
        cls, texts: Sequence[Any], text_pairs: Sequence[Any] | None
    ) -> list[TaggedExample]:
        """Examples of raw texts, or of lists of words."""
        if text_pairs is not None:
            raise DataError("second texts were given; a model that tags reads single texts")
        return [
            untagged(text, row) if isinstance(text, str) else TaggedExample(tuple(text), None, row)
            for row, text in enumerate(texts, start=1)
        ]

    @classmethod
    def shown(cls, example: TaggedExample) -> Sequence[str]:
        return example.located()[:1]

    @classmethod
    def identity(cls, example: TaggedExample) -> tuple[str, ...]:
        return example.words

    @classmethod
    def split(
        cls, examples: Sequence[TaggedExample], fraction: float, seed: int
    ) -> tuple[Indices, Indices]:
        """Sentences with the only entities of a type, or words of a tag, are for training."""
        of_entities = mark_entities(tag for one in examples for tag in one.tags or ())
        return random_split(
            len(examples),
            fraction,
            seed,
            texts=[one.words for one in examples],
            labels=[marked_by(one.tags or (), of_entities=of_entities) for one in examples],
        )

    @classmethod
    def classes_of(cls, example: TaggedExample) -> Collection[str]:
        return set(example.tags or ())

    @classmethod
    def from_examples(
        cls, examples: Sequence[TaggedExample], options: WindowOptions = WindowOptions()
    ) -> Self:
        """The tags are B- and I- of each type of entity, seen or not, or else those seen."""
        tags = {tag for one in examples for tag in one.tags or ()}
        if mark_entities(tags):
            types = sorted({each.type for one in examples for each in entities(one.tags or ())})
            names = ["O", *(f"{prefix}-{name}" for name in types for prefix in "BI")]
        else:
            names = sorted(tags, key=label_order)
        return cls(names, doc_stride=options.doc_stride)

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        temperature = metadata.settings.get("temperature", 1.0)
        stride = metadata.settings.get("doc_stride")
        # Versions that did not write it cut each word alone.
        running_text = metadata.settings.get("running_text", False)
        return cls(cls.needed_names(metadata), temperature, stride, running_text)

    def settings(self) -> dict[str, Any]:
        names = ("temperature", "doc_stride", "running_text")
        return {name: getattr(self, name) for name in names}

    def features(
        self, examples: Sequence[TaggedExample], tokenizer: BertTokenizer, max_seq_length: int
    ) -> list[Features]:
        return tagged_features(
            examples, tokenizer, max_seq_length, self.doc_stride, running_text=self.running_text
        )

    @classmethod
    def reads_head(cls, head: HeadDescription) -> bool:
        return super().reads_head(head) and head.label_names is not None

    @classmethod
    def names_in(cls, head: HeadDescription) -> tuple[str, ...] | None:
        return head.label_names

    def examine(self, data: TrainingData[TaggedExample], report: DataReport) -> None:
        check_tags(report, data, of_entities=self.of_entities)
        check_repetition(
            report,
            data,
            self.identity,
            lambda one: one.tags,
            noun="sentence",
            label="tag",
            warn_repeated=False,
        )
        check_leaks(report, data, self.identity, noun="sentence")
        count_words(report, data)
        check_lengths(report, data)

    def add_labels(self, features: Sequence[Features], examples: Sequence[TaggedExample]) -> None:
        """Label ids of the words that each feature answers for."""
        refuse_unknown(
            "tag", ((tag, one.row) for one in examples for tag in one.tags or ()), self.label_ids
        )
        for one in features:
            example = examples[one.example]
            if example.tags is None:
                raise DataError(f"{LINE} {example.row}: the words have no tags")
            found = [self.label_ids[example.tags[word]] for word in one.place.words]
            one.label = tuple(_of_first(found, one.place.repeated))

    def trained_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """(W, L) of first pieces alone."""
        logits: Tensor = model(
            batch.rows, output_rows=_first_pieces(batch), lower_states=batch.lower_states
        )
        return logits

    def head_inputs(self, model: Any, batch: Batch) -> Tensor:
        states: Tensor = model.head_inputs(
            batch.rows, output_rows=_first_pieces(batch), lower_states=batch.lower_states
        )
        return states

    def as_outputs(self, rows: Any, one: Features) -> Any:
        """A row for each piece, as the whole head gives."""
        found = np.zeros((len(one.input_ids), len(self.names)), dtype=np.float32)
        found[one.place.rows] = rows
        return found

    def num_head_rows(self, one: Features) -> int:
        return len(one.place.words)

    def summed_loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """A sum over words, each with an equal part of its feature's weight: they count alike."""
        from torch.nn import functional

        labels = np.array([label for one in batch.features for label in one.label], dtype=np.int64)
        weights = [one.weight / len(one.label) for one in batch.features for _ in one.label]
        device = outputs.device
        losses = functional.cross_entropy(outputs, tensor_on(device, labels), reduction="none")
        return (losses * tensor_on(device, weights)).sum()

    def imitation_losses(
        self, outputs: Tensor, taught: Tensor, batch: Batch, temperature: float
    ) -> Tensor:
        """(F,) the mean over the words of each feature; 0 without words."""
        import torch

        words = softmax_divergence(outputs, taught, temperature)
        starts = np.cumsum([len(one.place.words) for one in batch.features[:-1]]).tolist()
        return torch.stack([each.sum() / max(1, len(each)) for each in words.tensor_split(starts)])

    def target(self, asked: Explained) -> Target:
        """The tag of one word, which the model reads at the word's first piece."""
        if asked.piece is None:
            raise UsageError(
                f"the model tags each word: name the characters of one with {param('at')}, such as "
                "(0, 5)"
            )
        rows = asked.features.place.rows.tolist()
        row = max((row for row in rows if row <= asked.piece), default=min(rows, default=0))
        chosen = self.chosen_label(asked.label, asked.logits[row])
        return class_target(self.names[chosen], chosen, self.temperature, (row,))

    def calibrated(self, answers: TagAnswers) -> Self:
        temperature = fit_temperature(answers.logits, answers.label_ids)
        return type(self)(self.names, temperature, self.doc_stride, self.running_text)


def _entity_tags(tags: Sequence[str], repeated: npt.NDArray[np.bool_]) -> list[str]:
    """Valid IOB2, in which words that are read as one are in one entity or none."""
    firsts = iter(as_iob2([tag for tag, again in zip(tags, repeated, strict=True) if not again]))
    made: list[str] = []
    for again in repeated.tolist():
        made.append(re.sub("^B", "I", made[-1]) if again else next(firsts))
    return made


def _of_first(values: list[int], repeated: npt.NDArray[np.bool_]) -> list[int]:
    """Each word's value, or that of the first of the words that are read as one."""
    for word in np.flatnonzero(repeated).tolist():
        values[word] = values[word - 1]
    return values


def _first_pieces(batch: Batch) -> Tensor:
    """(W,) the row of each word's first piece, for the words that the batch answers for."""
    starts = np.cumsum([0, *batch.rows.lengths[:-1]])
    places = [start + one.place.rows for start, one in zip(starts, batch.features, strict=True)]
    return tensor_on(batch.rows.input_ids.device, np.concatenate(places))
