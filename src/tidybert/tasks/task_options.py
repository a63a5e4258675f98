"""What a task can be given beyond its data, one field a flag; loads no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Literal

from tidybert.errors import UsageError, param
from tidybert.files.rows import finite_number
from tidybert.options import MEASURE, MODEL, NOTHING, STEPS, Options, option

_SHARES: Final = "a share between 0 and 1, or shares by type, as PER=0.99,LOC=0.9"
SCALE: Final = 20.0
"""Of cosines, where none is given: that of sentence-transformers' losses."""
_TRAINING: Final = ("finetune",)
"""Where options are shown of which the checks of data know nothing."""


@dataclass(frozen=True)
class TaskOptions(Options):
    """Each field is the flag of the same name, None where it is not given.

    ``option`` says of each, as of TrainingArguments, what another value changes in a run under way,
    whether it is about steps of fine-tuning, and which commands and estimators it is for.

    Raises UsageError for a value that no task could use.
    """

    PANEL: ClassVar = "Task"

    chooses: ClassVar[Mapping[str, str]] = {}
    """The name of the task that an option chooses instead, by the option's name."""

    @classmethod
    def field_names(cls) -> set[str]:
        return {each.name for each in fields(cls)}

    def given(self) -> list[str]:
        """The names of the options that are given."""
        return [each.name for each in fields(self) if getattr(self, each.name) is not None]


@dataclass(frozen=True)
class WindowOptions(TaskOptions):
    """For tasks that read a long text in windows."""

    doc_stride: int | None = option(None, MODEL, above=0)
    """Tokens from the start of one window over a long text to the start of the next, as in Google's
    code."""


@dataclass(frozen=True)
class TextOptions(WindowOptions):
    """For every task on texts."""

    long: Literal["truncate", "head-tail", "windows"] | None = option(None, MODEL)
    """``classify``, regress: cut a text that is too long: truncate keeps its start, head-tail its
    start and end; windows reads it all and averages."""


@dataclass(frozen=True)
class VectorOptions(TaskOptions):
    """For vectors of texts; None is the default of SentenceVectors."""

    loss: Literal["infonce", "cosent", "supcon"] | None = option(None, MODEL)
    """``embed``: infonce (pairs, with in-batch negatives), cosent (pairs with scores) or supcon
    (texts with labels). If not set: by the columns."""
    scale: float | None = option(None, STEPS, above=0, commands=_TRAINING)
    """``embed``: factor of the cosines in the loss, one over the temperature. If not set: 20."""
    both_directions: bool | None = option(None, STEPS, commands=_TRAINING)
    """``embed``: with infonce, also find each first text among all first ones."""
    matryoshka_dims: str | None = option(None, STEPS, commands=_TRAINING)
    """``embed``: also train the first so many values of each vector, as in 256,128,64."""
    query_prompt: str | None = option(None, MODEL)
    """``embed``: text to put before the first text of each pair, such as "query: "."""
    document_prompt: str | None = option(None, MODEL)
    """``embed``: text to put before all other texts, such as "passage: "."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.widths()

    def widths(self) -> tuple[int, ...]:
        """The numbers of ``matryoshka_dims``, the greatest first."""
        parts = [] if self.matryoshka_dims is None else self.matryoshka_dims.split(",")
        if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
            raise UsageError(
                f"{param('matryoshka_dims', self.matryoshka_dims)}: expected numbers of values "
                "with commas between them, as in 256,128,64"
            )
        return tuple(sorted({int(part) for part in parts}, reverse=True))


@dataclass(frozen=True)
class MultiLabelOptions(TextOptions):
    """For classes of which a text has any number."""

    multi_label: bool | None = option(None, MODEL, estimator=False)
    """``classify``: give a text any number of classes, each with its own threshold."""


@dataclass(frozen=True)
class TagOptions(WindowOptions):
    """For tags of words."""

    min_recall: str | float | None = option(
        None, NOTHING, estimator=False, commands=_TRAINING, expected=_SHARES
    )
    """``tag``: give entities from the score that finds this share of dev's: 0.99, or by type
    PER=0.99,LOC=0.9."""
    min_precision: str | float | None = option(
        None, NOTHING, estimator=False, commands=_TRAINING, expected=_SHARES
    )
    """``tag``: give entities from the lowest score at which this share of them is right: 0.95, or
    by type, as PER=0.95."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shares()

    def shares(self) -> dict[str, dict[str | None, float]]:
        """By option, the share for each type, and with the key None that for all others."""
        found: dict[str, dict[str | None, float]] = {}
        for name in ("min_recall", "min_precision"):
            value = getattr(self, name)
            for part in [] if value is None else str(value).split(","):
                type_name, sign, share = part.strip().rpartition("=")
                number = finite_number(share)
                if number is None or not 0 < number < 1 or bool(sign) != bool(type_name):
                    raise UsageError(f"{param(name, value)}: expected {_SHARES}")
                found.setdefault(name, {})[type_name or None] = number
        return found


@dataclass(frozen=True, kw_only=True)
class ScoreOption(Options):
    min_score: float | None = option(None, at_least=0, at_most=1)
    """``--min-score S``: Give null as the label of a class whose score is below S, and entities
    from S on. If not set: as in training."""


@dataclass(frozen=True, kw_only=True)
class DescriptionsOption(Options):
    descriptions: Any = option(None, panel="Data")
    """``--descriptions FILE``: A file of labels and texts that say what each class means."""


@dataclass(frozen=True)
class ClassOptions(MultiLabelOptions):
    """For classes of which a text has one."""

    chooses: ClassVar[Mapping[str, str]] = {"multi_label": "multi-label", "soft": "soft"}

    soft: bool | None = option(None, MODEL, estimator=False)
    """``classify``: labels may be probabilities: objects, a column a class, or several rows of a
    text."""

    class_weight: Literal["balanced"] | None = option(
        None, MODEL, of_steps=True, commands=_TRAINING
    )
    """``classify``: balanced gives rare classes more weight in the loss."""
    min_coverage: float | None = option(None, NOTHING, above=0, at_most=1, commands=_TRAINING)
    """``classify``: give null as the label below the score from which this share of dev has a
    label."""
    min_accuracy: float | None = option(None, NOTHING, above=0, below=1, commands=_TRAINING)
    """``classify``: give null as the label below the lowest score from which this share of the
    labels given to dev is right."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.soft and self.multi_label:
            raise UsageError(f"{param('soft')} is for one class a text, not {param('multi_label')}")
        if self.min_coverage is not None and self.min_accuracy is not None:
            raise UsageError(
                f"{param('min_coverage')} and {param('min_accuracy')} both choose a score: give "
                "one of them"
            )


@dataclass(frozen=True)
class QuestionOptions(WindowOptions):
    """None is the default of QuestionAnswering."""

    max_query_length: int | None = option(None, MODEL, above=0)
    """``answer``: most tokens of a question; a longer one is cut."""
    max_answer_length: int | None = option(None, MEASURE, above=0)
    """``answer``: most tokens of an answer."""
    n_best_size: int | None = option(None, NOTHING, above=0, estimator=False, commands=_TRAINING)
    """``answer``: number of answers to give for each question."""
    null_score_diff_threshold: float | None = option(None, MEASURE, commands=_TRAINING)
    """``answer``: give "no answer" where its score is higher than the best answer's by this. If not
    set: fitted on dev."""
