"""Questions on texts as token ids: [CLS] question [SEP] window of the text [SEP].

Follows convert_examples_to_features of run_squad.py, but for the answers: there a text is cut at
white space first and an answer found again in the pieces; here every token knows the characters of
the text that it came from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.data.checks import DataReport, TrainingData, check_leaks, count_tokens
from tidybert.data.features import Features, first_features, sequence
from tidybert.data.long_texts import check_windows, most_context, windows_of
from tidybert.errors import LINE, DataError, UsageError, param
from tidybert.files.rows import count_of
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.tokenizer import Encoding

Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ContextTokens:
    """The characters ``starts`` (n,) and ``ends`` (n,) of the n tokens of a text.

    Several tokens may begin, or end, at one character: its bytes, or a space's mark and a word.
    """

    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, encoding: Encoding) -> "ContextTokens":
        """Those of a text that was encoded without special tokens."""
        spans = np.array(encoding.offset_mapping, dtype=np.int32).reshape(-1, 2)
        return cls(spans[:, 0], spans[:, 1])

    def covering(self, start: int, end: int) -> tuple[int, int] | None:
        """The first and the last token with a character of text[start:end]; None without any."""
        found = np.flatnonzero((self.ends > start) & (self.starts < end))
        return (int(found[0]), int(found[-1])) if len(found) else None

    def pairs(self, first: int, last: int) -> Ints:
        """(P, 2) every first and last token with the characters of those two, in order."""
        firsts = np.flatnonzero(self.starts == self.starts[first])
        lasts = np.flatnonzero(self.ends == self.ends[last])
        found = np.stack(np.meshgrid(firsts, lasts, indexing="ij"), axis=2).reshape(-1, 2)
        return found[found[:, 0] <= found[:, 1]].astype(np.int32)


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """A window over a text: the tokens begin to end - 1, from row ``first_row`` on.

    ``owned`` (end - begin,) says which of them have their most context here.
    """

    tokens: ContextTokens
    first_row: int
    begin: int
    end: int
    owned: Bools

    def rows_of(self, first: int, last: int) -> tuple[int, ...]:
        """The rows first, last, first, last, … of the pairs of tokens that the window shows."""
        found = self.tokens.pairs(first, last)
        found = found[(found[:, 0] >= self.begin) & (found[:, 1] < self.end)]
        return tuple((found + (self.first_row - self.begin)).reshape(-1).tolist())


def check_lengths_fit(
    max_seq_length: int, max_query_length: int, num_special: int, doc_stride: int | None
) -> None:
    """Raise UsageError where windows beside the longest question have no room or skip tokens."""
    room = max_seq_length - max_query_length - num_special
    if room < 1:
        raise UsageError(
            f"{param('max_seq_length', max_seq_length)} leaves no room for text beside a question "
            f"of {param('max_query_length', max_query_length)} and {num_special} special tokens: "
            f"give at least {max_query_length + num_special + 1}, or a lower "
            f"{param('max_query_length')}"
        )
    check_windows(room, doc_stride)


def question_features(
    examples: Sequence[QuestionExample],
    tokenizer: BertTokenizer,
    max_seq_length: int,
    max_query_length: int,
    doc_stride: int | None,
) -> list[Features]:
    """One Features a window, in order, without labels; ``place`` is a ContextWindow.

    The end of a question longer than ``max_query_length`` is cut, which is what ``truncated`` says:
    the text is always read whole.
    """
    special, before = tokenizer.layout.num_special(2), tokenizer.layout.num_before(2)
    check_lengths_fit(max_seq_length, max_query_length, special, doc_stride)
    questions = tokenizer.encode_batch([one.question for one in examples], add_special_tokens=False)
    contexts: dict[str, tuple[Ints, ContextTokens]] = {}
    features = []
    for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
        if example.context not in contexts:
            encoding = tokenizer.encode(example.context, add_special_tokens=False)
            ids = np.array(encoding.input_ids, dtype=np.int32)
            contexts[example.context] = ids, ContextTokens.of(encoding)
        ids, tokens = contexts[example.context]
        kept = question[:max_query_length]
        first_row = len(kept) + before
        windows = windows_of(len(ids), max_seq_length - len(kept) - special, doc_stride)
        owners = most_context(windows)
        for window, (begin, stop) in enumerate(windows):
            features.append(
                Features(
                    *sequence(tokenizer, [kept, ids[begin:stop]]),
                    num_tokens=len(question) + len(ids) + special,
                    truncated=len(question) > max_query_length,
                    example=number,
                    place=ContextWindow(
                        tokens, first_row, begin, stop, owners[begin:stop] == window
                    ),
                )
            )
    return features


def answer_tokens(example: QuestionExample, tokens: ContextTokens) -> tuple[int, int] | None:
    """The tokens of the first right answer; None where there is none, or no token in it."""
    if not example.answers:
        return None
    text, start = example.answers[0]
    return tokens.covering(start, start + len(text))


def add_answers(features: Sequence[Features], examples: Sequence[QuestionExample]) -> None:
    """Labels (first row, last row, …) of the first right answer in each window: see ``rows_of``.

    A window that does not show the whole answer points at [CLS], row 0, as in run_squad.py.
    """
    for one in features:
        window: ContextWindow = one.place
        example = examples[one.example]
        if not example.answers and not example.is_impossible:
            place = f"id {example.own_id}" if example.own_id else f"{LINE} {example.row}"
            raise DataError(
                f"{place}: the question has no right answer; give one, or say that it has none "
                "(is_impossible)"
            )
        found = answer_tokens(example, window.tokens)
        one.label = (found and window.rows_of(*found)) or (0, 0)


# Checks of questions before training.

SHOWN: Final = 3


def check_questions(
    report: DataReport,
    data: TrainingData[QuestionExample],
    max_query_length: int,
    max_answer_length: int,
) -> None:
    """Examine questions, and the windows over their texts, before training."""
    for part, examples, features in data.parts():
        if examples:
            _check_lengths(report, part, examples, features, max_query_length)
    _check_impossible(report, data.train, data.dev)
    _check_answers(report, data.train, data.train_features, max_answer_length)
    _check_chance(report, data, max_answer_length)
    check_leaks(report, data, lambda one: one.context, noun="text", where=_ids)


def _check_chance(
    report: DataReport, data: TrainingData[QuestionExample], max_answer_length: int
) -> None:
    """Report how often a guess is right: a span of the text's words, or that there is none."""
    measured, part = (data.dev, "dev") if data.dev else (data.train, "training")
    chance = 0.0
    for one in measured:
        words = len(one.context.split())
        longest = min(max_answer_length, words)
        spans = longest * words - longest * (longest - 1) // 2
        chance += len({text for text, _ in one.answers}) / max(1, spans)
    report.facts.append(
        f"a guess, {max_answer_length} words of the text or fewer, is right in "
        f"{chance / len(measured):.2%} of the {part} questions"
    )
    if impossible := sum(not one.answers for one in measured):
        report.facts.append(
            f"giving none an answer is right in {impossible / len(measured):.1%} of them"
        )


def _check_lengths(
    report: DataReport,
    part: str,
    examples: Sequence[QuestionExample],
    features: Sequence[Features],
    max_query_length: int,
) -> None:
    count_tokens(report, part, features)
    report.facts.append(
        f"windows, {part}: {count_of(len(features), 'window')} over the texts of "
        f"{count_of(len(examples), 'question')}"
    )
    empty = [one for one in examples if not one.question.strip()]
    if empty:
        report.warnings.append(
            f"{count_of(len(empty), f'{part} question')} without a word ({_ids(empty)})"
        )
    cut = [examples[one.example] for one in first_features(features) if one.truncated]
    if cut:
        report.warnings.append(
            f"{count_of(len(cut), f'{part} question')} longer than {param('max_query_length')} "
            f"{max_query_length} tokens, whose end is cut ({_ids(cut)}); give more, and "
            f"{param('max_seq_length')} too"
        )


def _check_impossible(
    report: DataReport, train: Sequence[QuestionExample], dev: Sequence[QuestionExample] | None
) -> None:
    counts = [sum(not one.answers for one in part) for part in (train, dev or ())]
    if any(counts):
        of_dev = f", {counts[1]:,} of {len(dev):,} to evaluate" if dev else ""
        report.facts.append(
            f"questions without an answer: {counts[0]:,} of {len(train):,} to train{of_dev}"
        )
    if counts[0] == len(train):
        report.errors.append("no training question has an answer; there is nothing to learn")
    elif dev and counts[1] and not counts[0]:
        report.warnings.append(
            "no training question is without an answer, so every dev question will be answered"
        )
    elif dev and counts[0] and not counts[1]:
        report.warnings.append(
            f"every dev question has an answer, so {param('null_score_diff_threshold')} cannot be "
            "fitted and is 0 where it is not given"
        )


def _check_answers(
    report: DataReport,
    train: Sequence[QuestionExample],
    features: Sequence[Features],
    max_answer_length: int,
) -> None:
    """Check the first right answers, which are the ones that the model learns."""
    shown = [False] * len(train)
    for one in features:
        window: ContextWindow = one.place
        found = answer_tokens(train[one.example], window.tokens)
        shown[one.example] |= found is not None and bool(window.rows_of(*found))
    torn, long, hidden, lost = [], [], [], []
    for example, one in zip(train, first_features(features), strict=True):
        if not example.answers:
            continue
        tokens = one.place.tokens
        found = answer_tokens(example, tokens)
        if found is None:
            lost.append(example)
            continue
        text, start = example.answers[0]
        begin = start + len(text) - len(text.lstrip())
        end = begin + len(text.strip())
        if tokens.starts[found[0]] != begin or tokens.ends[found[1]] != end:
            torn.append(example)
        if found[1] - found[0] >= max_answer_length:
            long.append(example)
        if not shown[one.example]:
            hidden.append(example)
    if lost:
        report.errors.append(
            f"{count_of(len(lost), 'training answer')} without a token ({_ids(lost)}); the "
            "tokenizer drops all of their characters: give other answers"
        )
    findings = {
        "that begin or end within a token, learned as the tokens that cover them": torn,
        f"longer than {param('max_answer_length', max_answer_length)} tokens, which no prediction "
        "is": long,
        f"whole in no window, learned as if there was none (give more {param('max_seq_length')}"
        ")": hidden,
    }
    for what, those in findings.items():
        if those:
            report.warnings.append(
                f"training answers {what}: {len(those):,} of {len(train):,} ({_ids(those)})"
            )


def _ids(examples: Sequence[QuestionExample]) -> str:
    shown = ", ".join(one.id for one in examples[:SHOWN])
    more = f" and {len(examples) - SHOWN:,} more" if len(examples) > SHOWN else ""
    return f"{'id' if len(examples) == 1 else 'ids'} {shown}{more}"
