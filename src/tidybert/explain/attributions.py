"""How much each piece and word raised a model's answer, by three methods.

- integrated gradients (Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks") on the
  output of the embeddings, from a baseline that has [PAD] in place of each piece but [CLS], [SEP]
  and [MASK];
- gradient x input (Shrikumar et al. 2016), the quick one;
- leave one word out: the answer's score less its score without the word.

n pieces, H width, w words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tidybert.data.batching import collate
from tidybert.data.features import Features
from tidybert.errors import UsageError, param
from tidybert.explain import plots
from tidybert.explain.explained_text import ExplainedText, Word
from tidybert.explain.shown import Floats, Table, shaded_words, signed
from tidybert.explain.targets import Target
from tidybert.modeling.bert import BertModel
from tidybert.modeling.encoder import LowerStates
from tidybert.reporting.drawing import Picture
from tidybert.tokenization import BertTokenizer

METHODS: Final = ("integrated-gradients", "gradient-x-input", "leave-one-out")
STEPS: Final = 50
# Rows of tokens that a path's points take together.
_TOKENS_AT_ONCE: Final = 1024
# A gap above this share of the difference deserves more steps.
_WIDE_GAP: Final = 0.05


@dataclass(frozen=True, eq=False, repr=False)
class Attributions(ExplainedText):
    """The share of each piece and word in the score of one answer.

    Args:
        method: one of METHODS.
        target: the answer whose score is explained.
        score: ln(p / (1 - p)) of its probability; a regression's value; start plus end logit.
        baseline_score: of the baseline; None but for integrated gradients.
        values: (n,) of each piece; NaN for leave one word out.
        word_values: (w,) of each of ``words``, the sum over its pieces; NaN where leaving the word
            out would remove what is scored.
        completeness_gap: score - baseline_score - the sum of ``values``, which is 0 for infinitely
            many steps; None but for integrated gradients.
        steps: points of the path; None but for integrated gradients.
    """

    method: str
    target: str
    score: float
    baseline_score: float | None
    values: Floats
    word_values: Floats
    completeness_gap: float | None
    steps: int | None

    def facts(self) -> dict[str, object]:
        """The method, the answer and its score."""
        given = {"method": self.method, "target": self.target, "score": round(self.score, 4)}
        return {**super().facts(), **given}

    def table(self) -> Table:
        """The value of each word, in the order of the texts."""
        rows = [
            [word.text, signed(float(value))]
            for word, value in zip(self.words, self.word_values, strict=True)
        ]
        title = f"{self.method}: what raised the score of {self.target}"
        return Table(title, ("word", "value"), rows, frozenset({"word"}), self.note)

    @property
    def note(self) -> str:
        """The score and, for integrated gradients, whether the values add up to it."""
        if self.completeness_gap is None or self.baseline_score is None:
            return f"score {self.score:.4f}"
        difference = self.score - self.baseline_score
        said = (
            f"score {self.score:.4f}, of the baseline {self.baseline_score:.4f}; the values of all "
            f"tokens add up to their difference {difference:.4f} with a gap of "
            f"{self.completeness_gap:.1e} ({self.steps} steps)"
        )
        if abs(self.completeness_gap) > _WIDE_GAP * max(abs(difference), 1e-6):
            said += "; the gap is wide: take more steps"
        return said

    def _repr_html_(self) -> str:
        texts = [word.text for word in self.words]
        return shaded_words(texts, self.word_values) + super()._repr_html_()

    def plot(self) -> Picture:
        """A bar for each word."""
        values = np.nan_to_num(self.word_values)
        return plots.bars([word.text for word in self.words], values, self.table().title)


@dataclass(frozen=True)
class ExplainedInput:
    """The data of the methods: the input, its words, the baseline's ids (n,), and the target."""

    encoder: BertModel
    features: Features
    words: Sequence[Word]
    baseline_ids: npt.NDArray[np.int32]
    target: Target


@dataclass(frozen=True)
class Found:
    """The result of a method; the fields are those of Attributions."""

    score: float
    values: Floats
    word_values: Floats
    baseline_score: float | None = None
    completeness_gap: float | None = None
    steps: int | None = None


def check_method(method: str, steps: int | None) -> int:
    """The number of steps; UsageError for an unknown method, or steps that it does not take."""
    if method not in METHODS:
        raise UsageError(f"{param('method')} {method!r}: expected one of {', '.join(METHODS)}")
    if steps is None:
        return STEPS
    if method != METHODS[0]:
        raise UsageError(f"{param('steps')} has no meaning for {method}; leave it out")
    if steps < 1:
        raise UsageError(f"{param('steps')} is {steps}: expected at least 1")
    return steps


def baseline_ids(features: Features, tokenizer: BertTokenizer) -> npt.NDArray[np.int32]:
    """(n,) ids with [PAD] in place of each piece but [CLS], [SEP] and [MASK]."""
    kept = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id)
    ids = features.input_ids
    return np.where(np.isin(ids, kept), ids, np.int32(tokenizer.pad_token_id))


def attribute(given: ExplainedInput, method: str, steps: int) -> Found:
    """The values by one of METHODS; ``steps`` of ``check_method``."""
    if method == "leave-one-out":
        return leave_one_out(given)
    if method == "gradient-x-input":
        return gradient_x_input(given)
    return integrated_gradients(given, steps)


def integrated_gradients(given: ExplainedInput, steps: int) -> Found:
    """The path from the baseline to the input in ``steps`` points of Gauss and Legendre."""
    features = given.features
    at_input = _embedded(given, features.input_ids)
    baseline = _embedded(given, given.baseline_ids)
    difference = at_input - baseline
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    points = torch.from_numpy((nodes + 1) / 2).to(difference)[:, None, None]
    total = torch.zeros_like(difference)
    many = max(1, _TOKENS_AT_ONCE // len(features.input_ids))
    shares = torch.from_numpy(weights / 2).to(difference)[:, None, None]
    for point, share in zip(torch.split(points, many), torch.split(shares, many), strict=True):
        gradients, _ = _gradients(given, baseline + point * difference)
        total += (gradients * share).sum(0)
    values = (total * difference).sum(-1)
    with torch.no_grad():
        scores = _scores(given, torch.stack((at_input, baseline)))
    score, baseline_score = scores.tolist()
    gap = score - baseline_score - float(values.double().sum())
    return Found(score, *_of_words(given, values), baseline_score, gap, steps)


def gradient_x_input(given: ExplainedInput) -> Found:
    """The gradient of the score times the output of the embeddings, one pass each way."""
    at_input = _embedded(given, given.features.input_ids)
    gradients, scores = _gradients(given, at_input[None])
    values = (gradients[0] * at_input).sum(-1)
    return Found(float(scores[0]), *_of_words(given, values))


def leave_one_out(given: ExplainedInput) -> Found:
    """The score less the score without each word; the words' order and the pair stay."""
    features, target = given.features, given.target
    removed: list[tuple[int, ...]] = [
        (),
        *(word.pieces for word in given.words if not {*word.pieces} & {*target.positions}),
    ]
    shorter = [
        replace(
            features,
            input_ids=np.delete(features.input_ids, list(pieces)),
            token_type_ids=np.delete(features.token_type_ids, list(pieces)),
        )
        for pieces in removed
    ]
    many = max(1, _TOKENS_AT_ONCE // len(features.input_ids))
    found: list[float] = []
    with torch.inference_mode():
        for begin in range(0, len(shorter), many):
            part = slice(begin, begin + many)
            found += target.scores(collate(shorter[part]), removed[part]).tolist()
    score = found[0]
    losses = dict(zip(removed[1:], (score - each for each in found[1:]), strict=True))
    word_values = [losses.get(word.pieces, np.nan) for word in given.words]
    values = np.full(len(features.input_ids), np.nan, dtype=np.float32)
    return Found(score, values, np.array(word_values, dtype=np.float32))


def _embedded(given: ExplainedInput, ids: npt.NDArray[np.int32]) -> Tensor:
    """(n, H): the output of the embeddings."""
    with torch.no_grad():
        embedded: Tensor = given.encoder.embeddings(
            collate([replace(given.features, input_ids=ids)]).rows
        )
    return embedded


def _scores(given: ExplainedInput, embedded: Tensor) -> Tensor:
    """(B,) the scores of embeddings (B, n, H) in place of the input's."""
    batch = collate([given.features] * len(embedded))
    return given.target.scores(replace(batch, lower_states=LowerStates(embedded.flatten(0, 1), 0)))


def _gradients(given: ExplainedInput, embedded: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients (B, n, H) of the scores, and the scores (B,)."""
    embedded = embedded.detach().requires_grad_()
    with torch.enable_grad():
        scores = _scores(given, embedded)
        (gradients,) = torch.autograd.grad(scores.sum(), embedded)
    return gradients, scores.detach()


def _of_words(given: ExplainedInput, values: Tensor) -> tuple[Floats, Floats]:
    """Values (n,) of the pieces, and their sums (w,) over each word."""
    pieces = np.asarray(values.numpy(), dtype=np.float32)
    sums = [pieces[list(word.pieces)].sum() for word in given.words]
    return pieces, np.array(sums, dtype=np.float32)
