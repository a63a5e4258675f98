"""BertTagger: a tag for each word, behind scikit-learn's interface."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from tidybert.errors import DataError
from tidybert.estimators.base import Begun, BertEstimator
from tidybert.estimators.checked_inputs import RaggedRows
from tidybert.files.rows import count_of
from tidybert.metrics.entity_scores import TagCounts
from tidybert.tasks.tags.tag_files import TaggedExample, as_iob2, kind_of
from tidybert.tasks.tags.tagging import TagAnswers, Tagging
from tidybert.tasks.task_options import TagOptions

_WORDS = 'expected sentences, each a list of words: [["Rome", "is", "old"], …]'
_TAGS = 'expected a list of tags for each sentence of X: [["B-LOC", "O", "O"], …]'


class BertTagger(BertEstimator):
    """Tag the words of sentences: named entities, parts of speech.

    X are sentences, each a list of words, and y a list of tags for each.  Tags mark entities if
    each is O or has a prefix (B-PER), in IOB1, IOB2, IOBES or BILOU; predictions are in IOB2.
    ``score`` reads y as ``fit`` did.

    The parameters are those of BertClassifier without ``long`` and ``class_weight``.  The model
    reads a sentence longer than ``max_seq_length`` in windows, ``doc_stride`` tokens apart.

    Attributes:
        classes_: the tags, in the order of the model's outputs.
        model_: the BertForTokenClassification, in evaluation mode.
        tokenizer_, task_, max_seq_length_, result_: see BertClassifier.
    """

    _task_names = ("tag",)
    task_: Tagging
    classes_: npt.NDArray[Any]

    def _read(self, X: Any) -> list[tuple[str, ...]]:
        return read_sentences(X)

    def _begin(self, read: Sequence[Any], y: Any, kept: npt.NDArray[np.int64]) -> Begun:
        tags = read_tags(y, read)
        examples = [TaggedExample(read[place], tags[place], place) for place in kept.tolist()]
        task = Tagging.from_examples(examples, self._task_options(TagOptions))
        return Begun(task, examples, fitted={"classes_": np.array(task.label_names)})

    def predict(self, X: Any) -> RaggedRows[list[str]]:
        """A list of tags for each sentence."""
        return RaggedRows(self._tagged(X).tags)

    def predict_proba(self, X: Any) -> RaggedRows[npt.NDArray[np.float64]]:
        """For each sentence (words, C), the probabilities in the order of ``classes_``.

        They are of each word alone: the likeliest tags need not be valid IOB2, as ``predict``'s
        are.
        """
        answers = self._tagged(X)
        return RaggedRows(np.split(answers.probabilities, answers.starts[1:-1]))

    def _tagged(self, X: Any) -> TagAnswers:
        check_is_fitted(self)
        examples = [
            TaggedExample(words, None, index) for index, words in enumerate(read_sentences(X))
        ]
        answers = self._run(examples)
        assert isinstance(answers, TagAnswers)
        return answers

    def _labelled(self, X: Any, y: Any, begun: Begun | None = None) -> list[TaggedExample]:
        task = self.task_ if begun is None else begun.task
        assert isinstance(task, Tagging)
        sentences = read_sentences(X)
        tags = read_tags(y, sentences, task.of_entities)
        pairs = zip(sentences, tags, strict=True)
        return [TaggedExample(*pair, index) for index, pair in enumerate(pairs)]

    def score(self, X: Any, y: Any) -> float:
        """The F1 of entities, as conlleval counts it, or the accuracy of other tags."""
        predicted, of_entities = self.predict(X), self.task_.of_entities
        tags = read_tags(y, predicted, of_entities)
        return TagCounts.compare(tags, predicted, of_entities=of_entities).scores()[
            self.task_.metric
        ]

    def _restore(self, values: Mapping[str, Any]) -> None:
        self.classes_ = np.array(self.task_.label_names)


def read_sentences(X: Any) -> list[tuple[str, ...]]:
    """The words of each sentence; raises DataError for no sentence or other values than strings."""
    sentences = _rows("X", X, _WORDS)
    if not sentences:
        raise DataError(f"X is empty: {_WORDS}")
    return sentences


def read_tags(
    y: Any, sentences: Sequence[Sequence[str]], of_entities: bool | None = None
) -> list[tuple[str, ...]]:
    """The tags of each sentence; tags of entities come back in IOB2, whatever their scheme.

    ``of_entities`` says whether they mark entities, if a model has learned that.  Raises DataError
    for other lengths than X's, and if only some of the tags mark entities.
    """
    if y is None:
        raise DataError("BertTagger requires y to be passed, but the target y is None")
    tags = _rows("y", y, _TAGS)
    if len(tags) != len(sentences):
        raise DataError(f"X has {len(sentences)} sentences and y has {len(tags)}: {_TAGS}")
    for number, (ours, words) in enumerate(zip(tags, sentences, strict=True)):
        if len(ours) != len(words):
            raise DataError(
                f"X[{number}] has {count_of(len(words), 'word')} and y[{number}] "
                f"{count_of(len(ours), 'tag')}: expected a tag for each word"
            )
        if "" in ours:
            raise DataError(f"y[{number}][{ours.index('')}] is empty: expected a tag for each word")
    kind = kind_of(tags, of_entities)
    if kind.wrong:
        number, place = kind.wrong[0]
        others = "other tags" if of_entities is None else "those in training"
        raise DataError(
            f"y[{number}][{place}] is {tags[number][place]!r}, but {others} mark entities: "
            f"expected O, or B- or I- and a type ({count_of(len(kind.wrong), 'word')} in all)"
        )
    return tags if kind.scheme is None else [as_iob2(each) for each in tags]


def _rows(name: str, values: Any, expected: str) -> list[tuple[str, ...]]:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise _wrong(name, values, expected)
    rows = []
    for number, row in enumerate(values):
        if not isinstance(row, list | tuple | np.ndarray):
            advice = "; for raw texts save the model and take Predictor" * isinstance(row, str)
            raise _wrong(f"{name}[{number}]", row, expected + advice)
        for place, value in enumerate(row):
            if not isinstance(value, str):
                raise _wrong(f"{name}[{number}][{place}]", value, expected)
        rows.append(tuple(map(str, row)))
    return rows


def _wrong(name: str, value: object, expected: str) -> DataError:
    return DataError(f"{name} is {value!r:.40}, of type {type(value).__name__}: {expected}")
