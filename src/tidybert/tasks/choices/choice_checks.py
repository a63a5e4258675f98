"""What is worth knowing of questions with choices before training on them."""

from collections.abc import Sequence

from tidybert.data.checks import DataReport, check_lengths, lines_of, warn_of_empty_texts
from tidybert.data.features import Features
from tidybert.files.wording import count_of
from tidybert.tasks.choices.choice_files import ChoiceExample


def check_choices(
    train: Sequence[ChoiceExample],
    dev: Sequence[ChoiceExample] | None,
    train_features: Sequence[Features],
    dev_features: Sequence[Features],
    max_seq_length: int,
) -> DataReport:
    """Examine questions before training."""
    report = DataReport("choose", len(train), None if dev is None else len(dev))
    if not train:
        report.errors.append("there are no training examples")
        return report
    if dev is not None and not dev:
        report.errors.append("there are no dev examples")
    _tell_numbers(report, train, dev or ())
    for part, examples in (("training", train), ("dev", dev or ())):
        empty = [one.row for one in examples if not (one.context + one.start).strip()]
        warn_of_empty_texts(report, part, empty)
        _warn_of_equal_choices(report, part, examples)
    _warn_of_repetition(report, train, dev or ())
    check_lengths(report, train_features, dev_features, max_seq_length)
    return report


def _tell_numbers(
    report: DataReport, train: Sequence[ChoiceExample], dev: Sequence[ChoiceExample]
) -> None:
    numbers = [len(one.choices) for one in train]
    least, most = min(numbers), max(numbers)
    report.facts.append(f"choices: {least if least == most else f'{least} to {most}'} an example")
    told = dev or train
    chance = sum(1 / len(one.choices) for one in told) / len(told)
    part = "dev" if dev else "training"
    report.facts.append(f"a guess is right in {chance:.1%} of the {part} examples")


def _warn_of_equal_choices(
    report: DataReport, part: str, examples: Sequence[ChoiceExample]
) -> None:
    rows = [one.row for one in examples if len(set(one.choices)) < len(one.choices)]
    if rows:
        report.warnings.append(
            f"{count_of(len(rows), f'{part} example')} with equal choices ({lines_of(rows)}), "
            "which no model can tell apart; change one of them"
        )


def _warn_of_repetition(
    report: DataReport, train: Sequence[ChoiceExample], dev: Sequence[ChoiceExample]
) -> None:
    answers: dict[object, set[str | None]] = {}
    repeated: list[int] = []
    for one in train:
        seen = answers.setdefault(_question(one), set())
        if _answer(one) in seen:
            repeated.append(one.row)
        seen.add(_answer(one))
    if repeated:
        report.warnings.append(
            f"{count_of(len(repeated), 'training example')} repeating an earlier one, choices and "
            f"answer ({lines_of(repeated)})"
        )
    torn = [one.row for one in train if len(answers[_question(one)]) > 1]
    if torn:
        report.warnings.append(
            f"{count_of(len(torn), 'training example')} whose question and choices come with "
            f"another answer too ({lines_of(torn)}); decide on one"
        )
    shared = [one.row for one in dev if _question(one) in answers]
    if shared:
        report.warnings.append(
            f"{count_of(len(shared), 'dev example')} of {len(dev):,} that stand in the training "
            f"examples too ({lines_of(shared)} of dev), so the dev metrics flatter the model; "
            "remove them from one of the two"
        )


def _question(one: ChoiceExample) -> object:
    """What makes two examples the same, in whatever order their choices are."""
    return one.context, one.start, frozenset(one.choices)


def _answer(one: ChoiceExample) -> str | None:
    return None if one.label is None else one.choices[one.label]
