"""From start and end logits to answers: every span of tokens scored, over all windows of a text.

Follows write_predictions of run_squad.py (paper 4.2 and 4.3), with two differences.  All spans are
looked at, and not only those between the best starts and ends of each window; and a probability is
a share of all spans of the text, and not of those in the list of the best, so that it can be
compared between questions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from tidybert.data.features import Features
from tidybert.tasks.questions.question_features import ContextTokens, ContextWindow

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SpanScores:
    """The scores of all answers to one question.

    Args:
        tokens: those of the text, n in number.
        spans: (n, L) the sum of start and end logit of the answer from token i to token i + l; -inf
            where there is no answer: past the end of its window, or within a character.
        null: the score of "no answer": of [CLS] in the window that has most against it.
    """

    tokens: ContextTokens
    spans: Floats
    null: float

    def best(self, count: int) -> tuple[Ints, Floats]:
        """(k, 2) first and last token and (k,) score of at most ``count`` answers, the best first.

        Among equal scores the answer that begins first, then ends first, is the better.
        """
        flat = self.spans.reshape(-1)
        chosen = np.arange(flat.size)
        if flat.size > count:
            least = np.partition(flat, -count)[-count]
            chosen = np.flatnonzero(flat >= least)
        chosen = chosen[flat[chosen] > -np.inf]
        chosen = chosen[np.argsort(-flat[chosen], kind="stable")][:count]
        first, length = np.divmod(chosen, self.spans.shape[1])
        return np.stack([first, first + length], axis=1), flat[chosen]

    def candidates(self, *, with_null: bool) -> Floats:
        """(C,) the scores of all answers, then that of none."""
        found = self.spans[self.spans > -np.inf]
        return np.append(found, self.null) if with_null else found

    def log_total(self, temperature: float, *, with_null: bool) -> float:
        """The logarithm of the sum of exp(score / temperature) over all answers."""
        scaled = self.candidates(with_null=with_null) / temperature
        if not len(scaled):
            return -np.inf
        highest = scaled.max()
        return float(highest + np.log(np.exp(scaled - highest).sum()))

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """Where in the text the answer between two tokens begins and ends."""
        return int(self.tokens.starts[first]), int(self.tokens.ends[last])

    def score_of(self, first: int, last: int) -> float:
        """The score of the answer between two tokens; -inf where it cannot be given."""
        length = last - first
        return float(self.spans[first, length]) if length < self.spans.shape[1] else -np.inf


def span_scores(
    outputs: Sequence[npt.NDArray[np.float32]],
    windows: Sequence[ContextWindow],
    max_answer_length: int,
) -> SpanScores:
    """The scores of one question's answers, of at most ``max_answer_length`` tokens.

    outputs: for each window the logits (rows, 2), start and end.  A span is scored in the window
    that has most context for its first token, so that it counts once.
    """
    tokens = windows[0].tokens
    # No window is longer than the first.
    length = max(1, min(max_answer_length, windows[0].end))
    spans = np.full((len(tokens.starts), length), -np.inf)
    for logits, window in zip(outputs, windows, strict=True):
        shown = slice(window.begin, window.end)
        size = window.end - window.begin
        rows = logits[window.first_row : window.first_row + size].astype(np.float64)
        ends = np.full(size + length, -np.inf)
        ends[:size] = np.where(tokens.last[shown], rows[:, 1], -np.inf)
        following = np.lib.stride_tricks.sliding_window_view(ends, length)
        chosen = np.flatnonzero(window.owned & tokens.first[shown])
        spans[window.begin + chosen] = rows[chosen, :1] + following[chosen]
    null = min(float(logits[0].astype(np.float64).sum()) for logits in outputs)
    return SpanScores(tokens, spans, null)


def all_span_scores(
    outputs: Sequence[npt.NDArray[np.float32]],
    features: Sequence[Features],
    max_answer_length: int,
    step: int = 1,
) -> Iterator[SpanScores]:
    """``span_scores`` of every ``step``-th question in turn; its windows follow each other."""
    pairs = zip(outputs, features, strict=True)
    for number, (_, group) in enumerate(groupby(pairs, key=lambda pair: pair[1].example)):
        if number % step == 0:
            logits, windows = zip(*group, strict=True)
            yield span_scores(logits, [one.place for one in windows], max_answer_length)
