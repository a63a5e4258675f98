"""TaskAnswer: what a model answers to one example, as an object that knows all its forms.

The fields of an answer are the keys of the dict that Python, JSON lines and the server give.  The
cells of a table, the rows of a frame, Arrow's columns, a ranking's score and the types of
``answer_types`` follow from them.  Loads no torch.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from math import log, log1p
from typing import Annotated, Any, ClassVar, Final, Self, TypedDict

ABSENT: Final[Any] = type("Absent", (), {"__repr__": lambda _: "ABSENT"})()
"""The value of a key that an answer does not have."""
ONLY_LABEL: Final = "LABEL_0"
"""The name that transformers gives to the one output of a regression."""

# A log-odds beyond this has a probability that float64 cannot tell from 0 or 1.
_LARGEST_LOG_ODDS: Final = 36.0
_SMALLEST_PROBABILITY: Final = 1e-300

_KINDS: list[type["TaskAnswer"]] = []


@dataclass(frozen=True, kw_only=True)
class Read:
    """How an input was read: its tokens before truncation, and whether it was cut.

    num_windows: of a text that is read in windows.
    """

    num_windows: int = ABSENT
    num_tokens: int = ABSENT
    truncated: bool = ABSENT


@dataclass(frozen=True)
class TaskAnswer:
    """The base of all answers; a subclass declares the keys."""

    dict_name: ClassVar[str]
    """The type of its dict in ``answer_types``, which is written from its fields."""
    has_windows: ClassVar[bool] = False
    """Whether it may say in how many windows its text was read."""

    read: Read = field(default=Read(), kw_only=True)

    def __init_subclass__(cls) -> None:
        _KINDS.append(cls)

    @classmethod
    def own_fields(cls) -> list[Field[Any]]:
        """Those of its keys that do not say how the input was read."""
        return [each for each in fields(cls) if each.name != "read"]

    @staticmethod
    def of(values: Mapping[str, Any]) -> "TaskAnswer":
        """The answer that a dict holds; that of somebody's own task is an OwnAnswer."""
        names = [each.name for each in fields(Read) if each.name in values]
        read = Read(**{name: values[name] for name in names})
        own = {name: value for name, value in values.items() if name not in names}
        for kind in _KINDS if own else ():
            known = kind.own_fields()
            needed = {each.name for each in known if each.default is not ABSENT}
            is_of_kind = needed <= own.keys() <= {each.name for each in known}
            if is_of_kind and kind is not OwnAnswer:
                return kind(**own, read=read)
        return OwnAnswer(own, read=read)

    def own(self) -> dict[str, Any]:
        """The values of its own keys."""
        found = {each.name: getattr(self, each.name) for each in self.own_fields()}
        return {name: value for name, value in found.items() if value is not ABSENT}

    def as_dict(self) -> dict[str, Any]:
        """The dict that Python and JSON lines give."""
        read = {name: value for name, value in vars(self.read).items() if value is not ABSENT}
        return {**self.own(), **read}

    def cells(self) -> dict[str, str]:
        """The cells of a table for people, by heading."""
        return {"label": str(self.as_dict())}

    def rows(self) -> list[dict[str, Any]]:
        """The rows of a flat frame: scores of classes as score_NAME, without lists."""
        row: dict[str, Any] = {}
        for name, value in self.as_dict().items():
            if isinstance(value, Mapping):
                row |= {f"score_{label}": score for label, score in value.items()}
            elif not isinstance(value, list):
                row[name] = value
        return [row]

    def row(self) -> dict[str, Any]:
        """The one row of a table with a row an example."""
        return self.rows()[0]

    def label_scores(self, *, raw: bool = False) -> dict[Any, float] | None:
        """The score of each label, ``raw`` before softmax or sigmoid; None without labels."""
        return None

    def relevance(self, *, raw: bool = False) -> float | None:
        """How well the second text of a pair fits the first; None without one score."""
        return None

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """With the labels that a program gave, by their names, in place of the names."""
        return self


class LabelledAnswer(TaskAnswer):
    """The base of answers with a probability for each label."""

    has_windows = True
    function: ClassVar[str]
    """What the probabilities come from: softmax or sigmoid."""

    scores: dict[Any, float]

    @property
    def given(self) -> list[Any]:
        """The labels that the text has."""
        raise NotImplementedError

    def likeliest(self, top_k: int) -> Self:
        """The same with the scores of the ``top_k`` likeliest labels, the likeliest first."""
        ranked = sorted(self.scores.items(), key=lambda each: each[1], reverse=True)
        changed: Any = {"scores": dict(ranked[:top_k])}
        return replace(self, **changed)

    def score_cells(self) -> dict[str, str]:
        """The cells of all scores, a line a label."""
        lines = [f"{score:.4f}" for score in self.scores.values()]
        return {"label": "\n".join(self.scores), "score": "\n".join(lines)}


@dataclass(frozen=True)
class Classified(LabelledAnswer):
    """classify: the likeliest class, or None, its probability, and that of every class."""

    dict_name = "ClassAnswer"
    function = "softmax"

    label: Any
    score: float
    scores: dict[Any, float]

    @property
    def given(self) -> list[Any]:
        return [] if self.label is None else [self.label]

    def from_score(self, min_score: float | None) -> Self:
        """With the likeliest class as the label, or None where its score is below ``min_score``."""
        if self.score < (min_score or 0.0):
            return replace(self, label=None)
        return replace(self, label=max(self.scores, key=self.scores.__getitem__))

    def cells(self) -> dict[str, str]:
        label = "(none)" if self.label is None else str(self.label)
        return {"label": label, "score": f"{self.score:.4f}"}

    def label_scores(self, *, raw: bool = False) -> dict[Any, float]:
        """Raw ones are log-probabilities, which differ from the logits by one number."""
        return {name: _log(each) if raw else each for name, each in self.scores.items()}

    def relevance(self, *, raw: bool = False) -> float | None:
        """The probability of the second of two classes, or its log-odds."""
        if len(self.scores) != 2:
            return None
        other, relevant = self.scores.values()
        return _log(relevant) - _log(other) if raw else relevant

    def with_values(self, values: Mapping[str, Any]) -> Self:
        label = None if self.label is None else values[self.label]
        return replace(self, label=label, scores=_renamed(self.scores, values))


@dataclass(frozen=True)
class LabelSet(LabelledAnswer):
    """classify with multi_label: the labels given, and the probability of every label."""

    dict_name = "LabelSetAnswer"
    function = "sigmoid"

    labels: list[Any]
    scores: dict[Any, float]

    @property
    def given(self) -> list[Any]:
        return self.labels

    def cells(self) -> dict[str, str]:
        return {"labels": ", ".join(self.labels) or "(none)"}

    def rows(self) -> list[dict[str, Any]]:
        given = {f"label_{label}": label in self.labels for label in self.scores}
        return [given | row for row in super().rows()]

    def label_scores(self, *, raw: bool = False) -> dict[Any, float]:
        """Raw ones are log-odds, within ±36."""
        return {name: _log_odds(each) if raw else each for name, each in self.scores.items()}

    def with_values(self, values: Mapping[str, Any]) -> Self:
        labels = [values[name] for name in self.labels]
        return replace(self, labels=labels, scores=_renamed(self.scores, values))


@dataclass(frozen=True)
class Scored(TaskAnswer):
    """regress: the number."""

    dict_name = "ScoreAnswer"
    has_windows = True

    value: float

    def cells(self) -> dict[str, str]:
        return {"value": f"{self.value:.4g}"}

    def label_scores(self, *, raw: bool = False) -> dict[Any, float]:
        return {ONLY_LABEL: self.value}

    def relevance(self, *, raw: bool = False) -> float:
        return float(self.value)


@dataclass(frozen=True)
class Chosen(TaskAnswer):
    """choose: the place of the likeliest choice, its text, and the probability of each."""

    dict_name = "ChoiceAnswer"

    choice: int
    text: str
    score: float
    scores: list[float]

    def cells(self) -> dict[str, str]:
        return {"choice": self.text, "score": f"{self.score:.4f}"}


class RankedSpan(TypedDict):
    """A possible answer to a question, its characters in the text, and its probability."""

    answer: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Answered(TaskAnswer):
    """answer: the best answer, "" without characters for none, and the next best ones."""

    dict_name = "SpanAnswer"

    id: str
    answer: str
    start: int | None
    end: int | None
    score: float
    n_best: list[RankedSpan]
    null_score: float = ABSENT
    null_score_diff: float | None = ABSENT

    def own(self) -> dict[str, Any]:
        """The next best answers come last."""
        found = super().own()
        n_best = found.pop("n_best")
        return {**found, "n_best": n_best}

    def cells(self) -> dict[str, str]:
        return {"answer": self.answer or "(no answer)", "score": f"{self.score:.4f}"}


class FoundEntity(TypedDict):
    """An entity, its characters in the text, and the mean probability of its words' tags."""

    type: str
    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Tagged(TaskAnswer):
    """tag: the words and their tags; entities, or else the probability of each word's tag."""

    dict_name = "TagAnswer"

    words: list[str]
    tags: list[str]
    entities: list[FoundEntity] = ABSENT
    scores: list[float] = ABSENT

    def cells(self) -> dict[str, str]:
        if self.entities is ABSENT:
            return {"tags": " ".join(self.tags)}
        found = (f"{each['text']} ({each['type']})" for each in self.entities)
        return {"entities": ", ".join(found) or "(none)"}

    def rows(self) -> list[dict[str, Any]]:
        """A row an entity, or a row a word where tags mark none."""
        if self.entities is not ABSENT:
            return [{**each} for each in self.entities]
        words = zip(self.words, self.tags, self.scores, strict=True)
        return [{"word": word, "tag": tag, "score": score} for word, tag, score in words]

    def row(self) -> dict[str, Any]:
        read = {name: value for name, value in vars(self.read).items() if value is not ABSENT}
        return {"tags": " ".join(self.tags), **self.cells(), **read}


@dataclass(frozen=True)
class Embedded(TaskAnswer):
    """embed: the vector of a text, or the cosine of two."""

    dict_name = "VectorAnswer"

    vector: Annotated[list[float], "float32"] = ABSENT
    similarity: float = ABSENT

    def cells(self) -> dict[str, str]:
        if self.vector is ABSENT:
            return {"similarity": f"{self.similarity:.4f}"}
        return {"vector": f"{len(self.vector)} numbers"}

    def row(self) -> dict[str, Any]:
        return self.as_dict()


@dataclass(frozen=True)
class OwnAnswer(TaskAnswer):
    """The answer of somebody's own task: any dict."""

    values: Mapping[str, Any]

    def own(self) -> dict[str, Any]:
        return {**self.values}


def _renamed(scores: Mapping[str, float], values: Mapping[str, Any]) -> dict[Any, float]:
    return {values[name]: score for name, score in scores.items()}


def _log(probability: float) -> float:
    return log(max(probability, _SMALLEST_PROBABILITY))


def _log_odds(probability: float) -> float:
    """The logit of a sigmoid, within ±36."""
    if not 0 < probability < 1:
        return _LARGEST_LOG_ODDS if probability else -_LARGEST_LOG_ODDS
    odds = log(probability) - log1p(-probability)
    return min(max(odds, -_LARGEST_LOG_ODDS), _LARGEST_LOG_ODDS)
