"""tag: a class for each word: named entities, parts of speech (paper 5.3, table 7)."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

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
from tidybert.errors import LINE, ConfigError, DataError, UsageError, param
from tidybert.files.rows import count_of
from tidybert.files.text_examples import label_order
from tidybert.metrics.calibration import ANSWERS_NONE, fewest_to_show, fit_temperature
from tidybert.metrics.entity_scores import Entity, TagCounts, TagScores, entities, iob2_tags
from tidybert.metrics.metric import meanings_of
from tidybert.tasks.answer import Tagged
from tidybert.tasks.answers import (
    Answers,
    Floats,
    Indices,
    Judgement,
    ScoredEntities,
    softmax,
)
from tidybert.tasks.tags.entity_lattice import (
    FLOOR,
    Candidates,
    entity_candidates,
    entity_types,
    is_iob2,
)
from tidybert.tasks.tags.entity_scores import (
    EntityScores,
    asked_shares,
    known_weights,
    not_overlapping,
    score_of_precision,
    score_of_recall,
)
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
from tidybert.tasks.task_options import ScoreOption, TagOptions
from tidybert.tokenization import BertTokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tidybert.checkpoints.model_directory import HeadDescription

_LOGGER: Final = logging.getLogger(__name__)
_ROUNDING: Final = 1e-6

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
    def path(self) -> list[list[str]]:
        """The likeliest tag of each word, by example, valid IOB2 where tags mark entities."""
        found = [
            [self.task.names[label] for label in labels.tolist()]
            for labels in self._by_example(self.probabilities.argmax(1))
        ]
        if not self.task.of_entities:
            return found
        pairs = zip(found, self._by_example(self.repeated), strict=True)
        return [_entity_tags(tags, repeated) for tags, repeated in pairs]

    @cached_property
    def candidates(self) -> Candidates:
        """The entities of the lattice, by the words of all examples."""
        # Words that are read as one are one in the lattice.
        firsts = np.flatnonzero(~self.repeated)
        logits = self.logits[firsts] / np.float32(self.task.temperature)
        starts = np.searchsorted(firsts, self.starts)
        found = entity_candidates(logits, starts, self.task.names)
        places = np.append(firsts, len(self.repeated))
        return replace(found, starts=places[found.starts], ends=places[found.ends])

    def key(self, types: Any, starts: Any, ends: Any) -> Any:
        """A number for each entity, equal for equal type and words; of numbers or arrays."""
        size = int(self.starts[-1]) + 1
        return (types * size + starts) * size + ends

    def keys_of(self, number: int, tags: Sequence[str]) -> list[tuple[Entity, int]]:
        """The entities that an example's tags mark, each with its ``key``."""
        types, start = entity_types(self.task.names), int(self.starts[number])
        return [
            (each, self.key(types.index(each.type), start + each.start, start + each.end))
            for each in entities(tags)
        ]

    @cached_property
    def right(self) -> npt.NDArray[np.bool_]:
        """(M,) which candidates are entities of the labels."""
        true = [
            key
            for number, one in enumerate(self.examples)
            for _, key in self.keys_of(number, one.tags or ())
        ]
        every = self.candidates
        return np.isin(self.key(every.types, every.starts, every.ends), np.array(true, np.int64))

    @cached_property
    def candidate_scores(self) -> Floats:
        """(M,) the scores of the candidates."""
        assert self.task.entity_scores is not None
        return self.task.entity_scores.of(self.candidates.probabilities)

    @cached_property
    def found(self) -> list[list[tuple[Entity, float]]]:
        """Each example's entities with their scores; of types with a threshold they may overlap."""
        scoring, thresholds = self.task.entity_scores, self.task.thresholds
        if scoring is None:
            # An entity's score is the mean of its words'.
            return [
                [
                    (each, score)
                    for each in entities(tags)
                    if (score := float(scores[each.start : each.end].mean()))
                    >= thresholds.get(each.type, 0.0)
                ]
                for tags, scores in zip(self.path, self.scores, strict=True)
            ]
        every, scores = self.candidates, self.candidate_scores
        keys = self.key(every.types, every.starts, every.ends).tolist()
        # The lattice hardly has an entity of a path that IOB2 does not allow.
        least, known = (
            float(scoring.of(np.array([FLOOR]))[0]),
            dict(zip(keys, scores.tolist(), strict=True)),
        )
        found = [
            [
                (each, known.get(key, least))
                for each, key in self.keys_of(number, tags)
                if each.type not in thresholds
            ]
            for number, tags in enumerate(self.path)
        ]
        types = entity_types(self.task.names)
        lowest = np.array([thresholds.get(name, np.inf) for name in types])
        owners = np.searchsorted(self.starts, every.starts, side="right") - 1
        for at in np.flatnonzero(scores >= lowest[every.types]).tolist():
            owner, type_name = int(owners[at]), types[every.types[at]]
            start, end = (int(each[at] - self.starts[owner]) for each in (every.starts, every.ends))
            found[owner].append((Entity(type_name, start, end), float(scores[at])))
        return [sorted(one, key=lambda each: each[0][1:]) for one in found]

    def entities_given(self) -> ScoredEntities | None:
        if not self.task.of_entities:
            return None
        true = [{*entities(one.tags or ())} for one in self.examples]
        every = [
            (score, each in own)
            for own, found in zip(true, self.found, strict=True)
            for each, score in found
        ]
        scores, right = np.array(every, dtype=np.float64).reshape(-1, 2).T
        return ScoredEntities(scores, right > 0, sum(map(len, true)))

    def entities_by_type(self) -> dict[str, ScoredEntities]:
        if self.task.entity_scores is None:
            return {}
        types, counts = self.candidates.types, _count(self.examples, True)
        return {
            name: ScoredEntities(
                self.candidate_scores[types == at],
                self.right[types == at],
                counts[name],
                self.task.thresholds.get(name),
            )
            for at, name in enumerate(entity_types(self.task.names))
        }

    def given(self, number: int) -> list[tuple[Entity, float]] | None:
        """The entities given to an example; None of other tags."""
        return self.found[number] if self.task.of_entities else None

    @cached_property
    def tags(self) -> list[list[str]]:
        """Each example's tags; where entities overlap, those of the surest."""
        if not self.task.thresholds:
            return self.path
        tags = []
        for one, found in zip(self.examples, self.found, strict=True):
            places = [(each.start, each.end) for each, _ in found]
            kept = not_overlapping(places, [score for _, score in found])
            tags.append(iob2_tags((found[at][0] for at in kept), len(one.words)))
        return tags

    @cached_property
    def counted(self) -> TagCounts:
        """How many tags and entities are right."""
        expected = [one.tags or () for one in self.examples]
        of_entities = self.task.of_entities
        found = [[each for each, _ in one] for one in self.found] if of_entities else None
        return TagCounts.compare(expected, self.tags, of_entities=of_entities, found=found)

    @cached_property
    def _expected_scores(self) -> list[Floats]:
        """The probability of each word's right tag, by example."""
        words = np.arange(len(self.label_ids))
        return self._by_example(self.probabilities[words, self.label_ids])

    @cached_property
    def _shares_right(self) -> Floats:
        return self.counted.share_right()

    def metrics(self, chosen: Indices | None = None) -> dict[str, Any]:
        """Those of the entities given; per_label has the thresholds of types that have one."""
        if chosen is not None:
            return self.counted.scores(chosen)
        found = self.counted.metrics()
        for name, each in found["per_label"].items():
            each |= (
                {"threshold": self.task.thresholds[name]} if name in self.task.thresholds else {}
            )
        return found

    def prediction(self, number: int) -> Tagged:
        """Words, tags and, where tags mark them, entities with their places in the text.

        Of other tags each word has a score.
        """
        example, tags = self.examples[number], self.tags[number]
        if (found := self.given(number)) is not None:
            shown = shown_entities(found, example)
            return Tagged(list(example.words), tags, entities=shown)
        return Tagged(list(example.words), tags, scores=self.scores[number].tolist())

    def judgement(self, number: int) -> Judgement:
        """``correct`` is a sentence's F1, or share of words; the least sure word is its confidence.

        The F1 of a sentence without entities is 1 if the model finds none.
        """
        example = self.examples[number]
        return Judgement(
            text=example.located()[0],
            expected=self._in_words(example.tags or (), None, example),
            predicted=self._in_words(self.tags[number], self.given(number), example),
            correct=float(self._shares_right[number]),
            confidence=float(self.scores[number].min(initial=1.0)),
            expected_probability=float(self._expected_scores[number].min(initial=1.0)),
            num_tokens=self.first_features[number].num_tokens,
            row=example.row,
        )

    def _in_words(
        self,
        tags: Sequence[str],
        found: Sequence[tuple[Entity, float]] | None,
        example: TaggedExample,
    ) -> str:
        """The tags as a person reads them: the entities, or the tags themselves."""
        if not self.task.of_entities:
            return " ".join(tags)
        shown = shown_entities(
            [(each, 1.0) for each in entities(tags)] if found is None else found, example
        )
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
        entity_scores: what makes scores of the lattice; None without a fit to dev.
        thresholds: by type, the score from which an entity is given.
        options: what else training was given, such as how to choose ``thresholds``.
        known: entities of the training data, in small letters.
    """

    name = "tag"
    inputs = WORDS
    answer, answers_class = Tagged, TagAnswers
    architecture = "BertForTokenClassification"
    read = read_tagged
    options_class = TagOptions
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
        entity_scores: EntityScores | None = None,
        thresholds: Mapping[str, float] | None = None,
        options: TagOptions = TagOptions(),
        known: Collection[str] = (),
    ) -> None:
        self.entity_scores, self.thresholds = entity_scores, dict(thresholds or {})
        self._options, self._known = options, known
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
        cls, examples: Sequence[TaggedExample], options: TagOptions = TagOptions()
    ) -> Self:
        """The tags are B- and I- of each type of entity, seen or not, or else those seen."""
        tags = {tag for one in examples for tag in one.tags or ()}
        types: list[str] = []
        known: set[str] = set()
        if mark_entities(tags):
            found = [(one, each) for one in examples for each in entities(one.tags or ())]
            types = sorted({each.type for _, each in found})
            known = {_spelt(one.words[each.start : each.end]) for one, each in found}
            names = ["O", *(f"{prefix}-{name}" for name in types for prefix in "BI")]
        else:
            names = sorted(tags, key=label_order)
        asked_shares(options, types)
        return cls(names, doc_stride=options.doc_stride, options=options, known=known)

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        temperature = metadata.settings.get("temperature", 1.0)
        stride = metadata.settings.get("doc_stride")
        # Versions that did not write it cut each word alone.
        running_text = metadata.settings.get("running_text", False)
        names, scores = cls.needed_names(metadata), metadata.settings.get("entity_scores")
        thresholds = metadata.settings.get("thresholds", {})
        if not (
            thresholds.keys() <= set(entity_types(names))
            and (scores is None or (is_iob2(names) and scores.keys() == {"slope", "offset"}))
        ):
            raise ConfigError(
                "tidybert.json: entity_scores and thresholds do not fit its label_names"
            )
        found = None if scores is None else EntityScores(**scores)
        return cls(names, temperature, stride, running_text, found, thresholds)

    def settings(self) -> dict[str, Any]:
        names = ("temperature", "doc_stride", "running_text")
        found = {name: getattr(self, name) for name in names}
        if self.entity_scores is not None:
            found["entity_scores"] = asdict(self.entity_scores)
        return {**found, **({"thresholds": self.thresholds} if self.thresholds else {})}

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
        counts = _count(data.held_out, True) if self.of_entities else Counter[str]()
        for name, (asked, share) in asked_shares(self._options, entity_types(self.names)).items():
            if counts[name] < (needed := fewest_to_show(share)):
                report.errors.append(
                    f"{param(asked, share)} needs {needed:,} entities of {name} in dev to know, "
                    f"and there are {counts[name]:,}: give more with {param('dev')}, or leave it "
                    "out"
                )
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

    def with_min_score(self, min_score: float | None) -> Self:
        """With one threshold for all types; 0 gives what the likeliest tags mark."""
        if min_score is None or not self.of_entities:
            return super().with_min_score(min_score)
        ScoreOption(min_score=min_score)
        found = copy(self)
        found.thresholds = dict.fromkeys(entity_types(self.names), min_score) if min_score else {}
        return found

    def calibrated(self, answers: TagAnswers) -> Self:
        """A temperature of the tags, then the scores of entities, then thresholds asked for."""
        found = copy(self)
        found.temperature = fit_temperature(answers.logits, answers.label_ids)
        if not is_iob2(self.names):
            return found
        warmed = TagAnswers(found, answers.outputs, answers.features, answers.examples)
        every, right = warmed.candidates, warmed.right
        words = [word for one in answers.examples for word in one.words]
        spans = zip(every.starts.tolist(), every.ends.tolist(), strict=True)
        is_known = np.array([_spelt(words[at:end]) in self._known for at, end in spans], np.bool_)
        weights = known_weights(is_known, right)
        found.entity_scores = EntityScores.fit(every.probabilities, right, weights)
        types, scores = entity_types(self.names), found.entity_scores.of(every.probabilities)
        counts = _count(answers.examples, True)
        for name, (asked, share) in asked_shares(self._options, types).items():
            of_type = every.types == types.index(name)
            if asked == "min_recall":
                chosen = score_of_recall(scores[of_type & right], counts[name], share)
                if chosen is None:
                    _LOGGER.warning(
                        f"no score finds {share:g} of the {name} entities of dev: all that may "
                        "be one are given"
                    )
                    chosen = float(scores[of_type].min(initial=1.0))
            else:
                chosen = score_of_precision(scores[of_type], right[of_type], share)
                if chosen == ANSWERS_NONE:
                    _LOGGER.warning(
                        f"no score makes {share:g} of the {name} entities of dev right, so the "
                        "model gives none: train it with more examples, or ask for less"
                    )
            # Other batches round otherwise.
            found.thresholds[name] = chosen * (1 - _ROUNDING)
        return found


def _spelt(words: Sequence[str]) -> str:
    return " ".join(words).casefold()


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
