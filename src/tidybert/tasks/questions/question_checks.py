"""Checks of questions before training."""

from collections.abc import Sequence
from typing import Final

from tidybert.data.checks import DataReport, TrainingData, check_leaks, count_tokens
from tidybert.data.features import Features, first_features
from tidybert.errors import param
from tidybert.files.wording import count_of
from tidybert.tasks.questions.question_features import ContextWindow, answer_tokens
from tidybert.tasks.questions.question_files import QuestionExample

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
    check_leaks(report, data, lambda one: one.context, noun="text", where=_ids)


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
        shown[one.example] |= found is not None and window.rows_of(*found) is not None
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
