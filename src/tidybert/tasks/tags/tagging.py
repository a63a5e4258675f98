"""tag: a class for each word: named entities, parts of speech (paper 5.3, table 7)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.configuration import BertConfig
from tidybert.data.batching import Batch
from tidybert.data.checks import DataReport
from tidybert.data.features import BatchTokenizer, Features, first_features
from tidybert.data.splits import random_split
from tidybert.errors import LINE, ConfigError, DataError, param
from tidybert.files.labels import label_order
from tidybert.files.read_options import ReadOptions
from tidybert.files.read_report import ReadReport
from tidybert.metrics.calibration import fit_temperature
from tidybert.metrics.entity_scores import TagCounts, entities
from tidybert.modeling.heads import BertForTokenClassification
from tidybert.tasks.classification import softmax
from tidybert.tasks.tags.tag_checks import check_tagged
from tidybert.tasks.tags.tag_features import tagged_features
from tidybert.tasks.tags.tag_files import read_tagged
from tidybert.tasks.tags.tag_schemes import as_iob2, mark_entities, marked_by
from tidybert.tasks.tags.tagged_sentences import TaggedExample, untagged
from tidybert.tasks.task import Judgement, Outputs, Scorer, Unit
from tidybert.tasks.task_options import TaskOptions
from tidybert.tasks.unknown_labels import refuse_unknown


class Tagging:
    """Cross-entropy over the tags of each word, which its first piece stands for.

    Where every tag is O or has a prefix the tags mark entities, in IOB2: these are what is scored
    and answered.  Other tags are classes of words.

    Args:
        label_names: the tags in the order of their ids.
        temperature: answers divide logits by this before the softmax.
        doc_stride: tokens from one window over a long sentence to the next; see ``data.windows``.
    """

    name = "tag"
    architecture = "BertForTokenClassification"
    problem_type: str | None = None
    unit: Unit = "token"
    meanings: ClassVar[Mapping[str, str]] = {
        "f1": "F1 of entities: type, first and last word are right",
        "precision": "share of the entities found that are right",
        "recall": "share of the entities there are that are found",
        "accuracy": "share of the words with the right tag",
        "macro_f1": "mean F1 of the tags, however rare",
    }
    default_max_seq_length: ClassVar[int] = 128
    truncation: ClassVar[str] = f"were cut to {param('max_seq_length')}"
    takes: ClassVar[frozenset[str]] = frozenset({"doc_stride"})

    def __init__(
        self,
        label_names: Sequence[str],
        temperature: float = 1.0,
        doc_stride: int | None = None,
    ) -> None:
        self.label_names: tuple[str, ...] | None = tuple(label_names)
        self._names = tuple(label_names)
        self._ids = {label: number for number, label in enumerate(self._names)}
        self.of_entities = mark_entities(self._names)
        self.metric = "f1" if self.of_entities else "accuracy"
        self.temperature = temperature
        self.doc_stride = doc_stride
        # A file of few tags could be taken for one of another kind: B and E are POS tags too.
        self.read = partial(self.read, of_entities=self.of_entities)  # type: ignore[method-assign]

    @classmethod
    def read(
        cls,
        path: str | Path,
        options: ReadOptions,
        *,
        need_label: bool,
        skip_bad_rows: bool = False,
        report: ReadReport | None = None,
        of_entities: bool | None = None,
    ) -> Iterator[TaggedExample]:
        return read_tagged(
            path,
            options,
            need_label=need_label,
            skip_bad_rows=skip_bad_rows,
            report=report,
            of_entities=of_entities,
        )

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
    def hold_out(
        cls, examples: Sequence[TaggedExample], fraction: float, seed: int
    ) -> tuple[list[TaggedExample], list[TaggedExample]]:
        """A sentence with the only entities of a type, or the only words of a tag, is learned."""
        of_entities = mark_entities(tag for one in examples for tag in one.tags or ())
        train, dev = random_split(
            len(examples),
            fraction,
            seed,
            texts=[one.words for one in examples],
            labels=[marked_by(one.tags or (), of_entities=of_entities) for one in examples],
        )
        return [examples[index] for index in train], [examples[index] for index in dev]

    @classmethod
    def from_examples(cls, examples: Sequence[TaggedExample], options: TaskOptions) -> Self:
        """With B- and I- of each type of entity, seen or not, or else with the tags there are."""
        tags = {tag for one in examples for tag in one.tags or ()}
        if mark_entities(tags):
            types = sorted({each.type for one in examples for each in entities(one.tags or ())})
            names = ["O", *(f"{prefix}-{name}" for name in types for prefix in "BI")]
        else:
            names = sorted(tags, key=label_order)
        return cls(names, doc_stride=options.doc_stride)

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        if not metadata.label_names:
            raise ConfigError(f"tidybert.json: {cls.name} needs label_names, and there are none")
        stride = None
        if metadata.settings.get("doc_stride") is not None:
            stride = int(metadata.number("doc_stride", 1))
        return cls(metadata.label_names, metadata.number("temperature", 1.0), stride)

    def settings(self) -> dict[str, Any]:
        return {"temperature": self.temperature, "doc_stride": self.doc_stride}

    def build_model(self, config: BertConfig) -> BertForTokenClassification:
        return BertForTokenClassification(config, num_labels=len(self._names))

    def features(
        self, examples: Sequence[TaggedExample], tokenizer: BatchTokenizer, max_seq_length: int
    ) -> list[Features]:
        return tagged_features(examples, tokenizer, max_seq_length, self.doc_stride)

    def check(
        self,
        train: Sequence[TaggedExample],
        dev: Sequence[TaggedExample] | None,
        train_features: Sequence[Features],
        dev_features: Sequence[Features],
        max_seq_length: int,
    ) -> DataReport:
        return check_tagged(
            train,
            dev,
            train_features,
            dev_features,
            of_entities=self.of_entities,
            max_seq_length=max_seq_length,
        )

    def add_labels(self, features: Sequence[Features], examples: Sequence[TaggedExample]) -> None:
        """Label ids of the words that each feature answers for; its weight is their number."""
        refuse_unknown(
            "tag", ((tag, one.row) for one in examples for tag in one.tags or ()), self._ids
        )
        for one in features:
            example = examples[one.example]
            if example.tags is None:
                raise DataError(f"{LINE} {example.row}: the words have no tags")
            one.label = tuple(self._ids[example.tags[word]] for word in one.place.words)
            one.weight = float(len(one.label))

    def start(self, model: nn.Module, features: Sequence[Features]) -> None:
        """Nothing: the head begins as it was drawn, as in the original code."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """A sum over words, each with an equal part of its feature's weight: they count alike."""
        device = batch.rows.input_ids.device
        starts = np.cumsum([0, *batch.rows.lengths[:-1]])
        places = [start + one.place.rows for start, one in zip(starts, batch.features, strict=True)]
        labels = torch.tensor(
            [label for one in batch.features for label in one.label], dtype=torch.int64
        )
        weights = torch.tensor(
            [one.weight / len(one.label) for one in batch.features for _ in one.label]
        )
        # Only the rows of first pieces are worked out.
        logits = model(
            batch.rows,
            output_rows=torch.from_numpy(np.concatenate(places)).to(device),
            lower_states=batch.lower_states,
        )
        losses = functional.cross_entropy(logits.float(), labels.to(device), reduction="none")
        return (losses * weights.to(device)).sum()

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        logits: Tensor = model(batch.rows, lower_states=batch.lower_states)
        return logits

    def calibrated(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TaggedExample]
    ) -> Self:
        logits = self._logits(outputs, features, examples)
        labels = [self._ids[tag] for one in examples for tag in one.tags or ()]
        return type(self)(self._names, fit_temperature(logits, labels), self.doc_stride)

    def metrics(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TaggedExample]
    ) -> dict[str, Any]:
        return self._counts(outputs, features, examples).metrics()

    def predictions(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TaggedExample]
    ) -> list[dict[str, Any]]:
        """Words, tags and, where tags mark them, entities with their places in the text.

        An entity's score is the mean probability of its words' tags; of other tags each word has a
        score.
        """
        answers = []
        tagged = self._tagged(outputs, features, examples)
        for example, (tags, scores) in zip(examples, tagged, strict=True):
            answer: dict[str, Any] = {"words": list(example.words), "tags": tags}
            if self.of_entities:
                answer["entities"] = shown_entities(tags, example, scores)
            else:
                answer["scores"] = scores.tolist()
            answers.append(answer)
        return answers

    def judgements(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TaggedExample]
    ) -> list[Judgement]:
        """``correct`` is a sentence's F1, or share of words; the least sure word is its confidence.

        Of entities F1 is 1 where none is there and none is found.
        """
        labels = [self._ids[tag] for one in examples for tag in one.tags or ()]
        probabilities = self._probabilities(outputs, features, examples)
        return [
            Judgement(
                text=example.located()[0],
                expected=self._in_words(example.tags or (), example),
                predicted=self._in_words(tags, example),
                correct=float(share),
                confidence=float(scores.min(initial=1.0)),
                expected_probability=float(expected.min(initial=1.0)),
                num_tokens=one.num_tokens,
                row=example.row,
            )
            for example, one, (tags, scores), expected, share in zip(
                examples,
                first_features(features),
                self._tagged(outputs, features, examples),
                _by_example(probabilities[np.arange(len(labels)), labels], examples),
                self._counts(outputs, features, examples).share_right(),
                strict=True,
            )
        ]

    def scorer(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TaggedExample]
    ) -> Scorer:
        return self._counts(outputs, features, examples).scores

    def _counts(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TaggedExample]
    ) -> TagCounts:
        return TagCounts.compare(
            [one.tags or () for one in examples],
            [tags for tags, _ in self._tagged(outputs, features, examples)],
            of_entities=self.of_entities,
        )

    def _tagged(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TaggedExample]
    ) -> list[tuple[list[str], npt.NDArray[np.float64]]]:
        """Each example's tags, valid IOB2 where they mark entities, and their probabilities."""
        probabilities = self._probabilities(outputs, features, examples)
        tagged = []
        for labels, scores in zip(
            _by_example(probabilities.argmax(1), examples),
            _by_example(probabilities.max(1), examples),
            strict=True,
        ):
            tags = [self._names[label] for label in labels.tolist()]
            tagged.append((list(as_iob2(tags)) if self.of_entities else tags, scores))
        return tagged

    def _in_words(self, tags: Sequence[str], example: TaggedExample) -> str:
        """What a person reads of the tags: the entities, or the tags as they are."""
        if not self.of_entities:
            return " ".join(tags)
        shown = shown_entities(tags, example, np.ones(len(tags)))
        return "; ".join(f"{one['type']}: {one['text']}" for one in shown) or "no entity"

    def _probabilities(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TaggedExample]
    ) -> npt.NDArray[np.float64]:
        """(words of all examples, L)."""
        logits = self._logits(outputs, features, examples)
        return softmax(logits / np.float32(self.temperature))

    def _logits(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TaggedExample]
    ) -> npt.NDArray[np.float32]:
        """(words of all examples, L), each from the window that answers for it."""
        starts = np.cumsum([0, *(len(one.words) for one in examples)])
        logits = np.zeros((starts[-1], len(self._names)), dtype=np.float32)
        for one, rows in zip(features, outputs, strict=True):
            logits[starts[one.example] + one.place.words] = rows[one.place.rows]
        return logits


def shown_entities(
    tags: Sequence[str], example: TaggedExample, scores: npt.NDArray[np.float64]
) -> list[dict[str, Any]]:
    """The entities that a sentence's tags mark, as ``tidybert predict`` prints them.

    ``scores`` (words,) are the tags' probabilities.  Their mean is the entity's score: of entities
    of several words it was off by 0.04 on CoNLL-2003 test, where their product was off by 0.14
    (expected calibration error, a small model).
    """
    text, spans = example.located()
    shown = []
    for entity in entities(tags):
        start, end = spans[entity.start][0], spans[entity.end - 1][1]
        shown.append(
            {
                "type": entity.type,
                "text": text[start:end],
                "start": start,
                "end": end,
                "score": float(scores[entity.start : entity.end].mean()),
            }
        )
    return shown


def _by_example(
    values: npt.NDArray[Any], examples: Sequence[TaggedExample]
) -> list[npt.NDArray[Any]]:
    """Values of the words of all examples as those of each."""
    return np.split(values, np.cumsum([len(one.words) for one in examples])[:-1])
