"""Written by python tests/stubs.py --write, from the options of tidybert.estimators.keywords."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

@dataclass(eq=False, repr=False, kw_only=True)
class TextParameters:
    doc_stride: int | None = None
    "Tokens from the start of one window over a long text to the start of the next, as in Google's code."
    long: Literal['truncate', 'head-tail', 'windows'] | None = 'truncate'
    'classify, regress: cut a text that is too long: truncate keeps its start, head-tail its start and end; windows reads it all and averages.'

@dataclass(eq=False, repr=False, kw_only=True)
class ClassParameters:
    doc_stride: int | None = None
    "Tokens from the start of one window over a long text to the start of the next, as in Google's code."
    long: Literal['truncate', 'head-tail', 'windows'] | None = 'truncate'
    'classify, regress: cut a text that is too long: truncate keeps its start, head-tail its start and end; windows reads it all and averages.'
    class_weight: Literal['balanced'] | Mapping[Any, float] | None = None
    'classify: balanced gives rare classes more weight in the loss.'
    min_coverage: float | None = None
    'classify: give null as the label below the score from which this share of dev has a label.'
    min_accuracy: float | None = None
    'classify: give null as the label below the lowest score from which this share of the labels given to dev is right.'
    min_score: float | None = None
    'Give null as the label of a class whose score is below S, and entities from S on. If not set: as in training.'

@dataclass(eq=False, repr=False, kw_only=True)
class QuestionParameters:
    doc_stride: int | None = None
    "Tokens from the start of one window over a long text to the start of the next, as in Google's code."
    max_query_length: int = 64
    'answer: most tokens of a question; a longer one is cut.'
    max_answer_length: int = 30
    'answer: most tokens of an answer.'
    null_score_diff_threshold: float | None = None
    'answer: give "no answer" where its score is higher than the best answer\'s by this. If not set: fitted on dev.'
