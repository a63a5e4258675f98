"""Classes by their names alone: a text has the class whose name has the nearest vector.

This is dataless classification (Chang et al. 2008) by sentence vectors.  What the texts have in
common is taken out of them first, as in All-but-the-top (Mu & Viswanath 2018, section 2).  N texts,
C classes, d values a vector.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, Unpack, overload

import numpy as np
import numpy.typing as npt

from tidybert.catalog import DEFAULT_MODEL
from tidybert.checkpoints.example_kinds import TEXT
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.data.features import example_features
from tidybert.errors import DataError, DataWarning, UsageError, param
from tidybert.files.rows import count_of
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples
from tidybert.inference.embedding import Embedder
from tidybert.inference.keywords import PredictorKeywords
from tidybert.inference.loading import Finished
from tidybert.inference.options import PredictorOptions
from tidybert.inference.predictor import AnswerList, Predictor
from tidybert.options import spelled_out
from tidybert.system.reporter import SILENT, Reporter
from tidybert.system.terminal import warn_user
from tidybert.tasks.answer_types import ClassAnswer
from tidybert.tasks.answers import Answers
from tidybert.tasks.classification import Classification

_LOGGER: Final = logging.getLogger(__name__)
Vectors = npt.NDArray[np.float32]

TEMPERATURE: Final = 0.065
"""Of cosines: it has the lowest mean loss over eight sets (benchmarks/NOTES.md, "No labels")."""
MOST_MEASURED: Final = 77
"""Classes of the largest set that was measured."""
COMMON_TEXTS: Final = 256
"""Texts of a file that tell what all have in common, evenly spaced in its first rows."""
_FIRST_ROWS: Final = 16_384
_NOTHING_IN_COMMON: Final = 20
"""Texts at the origin that count beside the given ones, because a few share more by chance."""


def cleaned(name: str) -> str:
    """A label's name as words: "card_not_working" and "CardNotWorking" are of three."""
    words = re.sub(r"(?<=[a-z]{2})(?=[A-Z])", " ", name)
    return " ".join(re.sub(r"[\s_/-]+", " ", words).split())


def says_nothing(name: str) -> bool:
    """Whether a name has no meaning: 0, 1, LABEL_3, "class 2"."""
    numbered = r"((label|class|category|cluster|topic|type)\W*\d)?[\W\d_]*"
    return re.fullmatch(numbered, cleaned(name), re.IGNORECASE) is not None


def nameless(labels: Sequence[str]) -> list[str]:
    """The labels whose names tell nothing apart: they have no meaning, or one that others share."""
    words = {label: cleaned(label).casefold() for label in labels}
    counts = Counter(words.values())
    return [label for label in labels if says_nothing(label) or counts[words[label]] > 1]


def class_texts(
    labels: Sequence[str], descriptions: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """By label, the texts that say what it is: its name in words, and its description, if any.

    Names that tell nothing apart are left out.  Raises DataError for a description of no label.
    """
    given = descriptions or {}
    if unknown := [name for name in given if name not in labels]:
        raise DataError(
            f"{param('descriptions')} describes {unknown[0]!r:.80}, which is no label: the labels "
            f"are {shortened(labels)}"
        )
    found = {label: [cleaned(label)] for label in labels}
    found |= {label: [] for label in nameless(labels)}
    return {label: [*texts, *filter(None, [given.get(label)])] for label, texts in found.items()}


def shortened(labels: Sequence[str]) -> str:
    """Labels as a message lists them."""
    return ", ".join(labels[:10]) + (", …" if len(labels) > 10 else "")


def read_descriptions(file: str | Path) -> dict[str, str]:
    """The descriptions in a file of labels and texts, by label; raises as reading does."""
    found: dict[str, str] = {}
    for one in read_examples(str(file), need_label=True):
        label = str(one.label)
        if label in found:
            raise DataError(f"{file}:{one.row}: {label!r:.80} is described a second time")
        found[label] = one.text
    return found


class NamePredictor(Predictor[ClassAnswer]):
    """Answers with classes that are known by their names: see ``zero_shot``.

    Raises DataError as ``class_texts``, for two labels of one name, and where nothing says what a
    label is or a text that does is too long; UsageError for fewer than two labels.
    """

    #: Texts that tell what all have in common; None for those that ``predict`` is given.
    sample: Sequence[TextExample] | None = None

    def __init__(
        self,
        model: str | Path,
        labels: Sequence[str] | None,
        descriptions: Mapping[str, str] | None = None,
        min_score: float | None = None,
        **options: Any,
    ) -> None:
        if isinstance(labels, str):
            raise UsageError(f"{param('labels')} is one text, {labels!r:.60}: give a list of names")
        labels = list(descriptions or ()) if labels is None else list(labels)
        if len(labels) < 2:
            raise UsageError(
                f"{param('labels')} has {count_of(len(labels), 'label')}; two at least are needed, "
                f"as in {param('labels', 'billing,hardware')}"
            )
        if not all(label.strip() for label in labels):
            raise UsageError(f"{param('labels')} has an empty name: give each label a word")
        seen: dict[str, str] = {}
        for label in labels:
            if (words := cleaned(label).casefold()) in seen:
                raise DataError(
                    f"the labels {seen[words]!r:.80} and {label!r:.80} are both "
                    f"{cleaned(label)!r:.80} in words: leave one of them out, or name them "
                    "differently"
                )
            seen[words] = label
        texts = class_texts(labels, descriptions)
        if left_out := nameless(labels):
            _LOGGER.warning(f"names that say nothing are left out: {shortened(left_out)}")
        if unsaid := [label for label, found in texts.items() if not found]:
            raise DataError(
                f"nothing says what the label {unsaid[0]!r:.80} means: name it by a word, or give "
                f"{param('descriptions')} a text on it"
            )
        if len(labels) > MOST_MEASURED:
            _LOGGER.warning(
                f"{len(labels):,} labels: names alone were measured with {MOST_MEASURED} at most, "
                "and more are told apart less well; check some answers"
            )
        self.embedder = Embedder(model, **options)
        task = Classification(labels, temperature=TEMPERATURE).with_min_score(min_score)
        settings = {**task.settings(), "class_texts": texts}
        length, tokenizer = self.embedder.max_seq_length, self.embedder.tokenizer
        metadata = ModelMetadata("classify", task.names, length, TEXT, settings)
        precision, name = self.embedder.precision, str(model)
        network = self.embedder.encoder
        self._take(Finished(name, task, network, tokenizer, metadata, precision, {}, None))
        self._anchors = np.stack([self._anchor(label, found) for label, found in texts.items()])
        self._common: Vectors | None = None

    def compare_with(self, examples: Iterable[TextExample]) -> None:
        """Take out of all texts to come what these have in common."""
        rows = list(islice(examples, _FIRST_ROWS))
        self.sample = rows[:: max(1, len(rows) // COMMON_TEXTS)][:COMMON_TEXTS]
        self._common = None

    def _answers(
        self,
        examples: Sequence[TextExample],
        *,
        labelled: bool = False,
        reporter: Reporter = SILENT,
    ) -> Answers[Any, Any]:
        self.task.check_inputs(examples, self.metadata.inputs)
        features = self._features(examples)
        self.unknown.add(features)
        if labelled:
            self.task.add_labels(features, examples)
        vectors = _unit(self.embedder.vectors(features, reporter))
        if self.sample is None:
            common = _shared(vectors)
        elif self._common is None:
            sample = self.embedder.vectors(self._features(self.sample))
            common = self._common = _shared(_unit(sample))
        else:
            common = self._common
        unit = _unit(vectors - common)
        # A library's product of one row adds up in another order than that of many.
        cosines = np.stack([(unit * each).sum(1) for each in self._anchors], axis=1)
        return self.task.answers([*cosines[:, None]], features, examples)

    def _features(self, examples: Sequence[TextExample]) -> list[Any]:
        prompt = self.embedder.prompt
        return example_features(examples, self.tokenizer, self.max_seq_length, prompt=prompt)

    def _anchor(self, label: str, texts: Sequence[str]) -> Vectors:
        """(d,) the mean of what says what a label is."""
        features = self._features(self.task.from_texts(texts, None))
        for one in features:
            if one.truncated:
                raise DataError(
                    f"the name or description of {label!r:.80} has {one.num_tokens:,} tokens, and "
                    f"{self._run} reads {self.max_seq_length}: shorten it"
                )
        found: Vectors = _unit(_unit(self.embedder.vectors(features)).mean(0))
        return found


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def _shared(vectors: Vectors) -> Vectors:
    """(d,) the part that texts (N, d) have in common; of few less than their mean."""
    return np.asarray(vectors.sum(0) / (len(vectors) + _NOTHING_IN_COMMON), dtype=np.float32)


class NamedKeywords(PredictorKeywords, total=False):
    """The keyword arguments of ``zero_shot``."""

    descriptions: Mapping[str, str] | None
    model: str | Path
    progress: bool


@overload
def zero_shot(
    texts: str, labels: Sequence[str] | None = ..., **options: Unpack[NamedKeywords]
) -> ClassAnswer: ...
@overload
def zero_shot(
    texts: Iterable[Any], labels: Sequence[str] | None = ..., **options: Unpack[NamedKeywords]
) -> AnswerList[ClassAnswer]: ...
@spelled_out(PredictorOptions)
def zero_shot(
    texts: Any,
    labels: Sequence[str] | None = None,
    *,
    descriptions: Mapping[str, str] | None = None,
    model: str | Path = DEFAULT_MODEL,
    progress: bool = False,
    **options: Unpack[PredictorKeywords],
) -> Any:
    """Classify texts by the names of the classes, without any label to learn from.

    Args:
        texts: one text, or several, as ``Predictor.predict`` takes them.
        labels: the classes; names in words tell more.  None for those of ``descriptions``.
        descriptions: by label, a sentence on what its texts say.
        model: a MODEL, whose vectors are compared.
        progress: show a bar.
        options: those of ``Predictor``.

    Returns an answer a text: label, score, the scores of all labels, num_tokens and truncated.

    Raises DataError and UsageError as ``NamePredictor``, and what opening ``model`` raises.
    """
    if labels is not None and not isinstance(labels, str):
        asked = [texts] if isinstance(texts, str) else texts
        if isinstance(asked, list | tuple) and _words(asked, max) < _words(labels, min):
            warn_user(
                "every label has more words than every text: are they swapped? "
                "zero_shot(texts, labels)",
                DataWarning,
            )
    predictor = NamePredictor(model, labels, descriptions, **options)
    return predictor.predict(texts, progress=progress)


def _words(texts: Sequence[Any], choose: Callable[[Iterable[int]], int]) -> int:
    """The most or the fewest words of some texts."""
    return choose([len(str(one).split()) for one in texts] or [0])
