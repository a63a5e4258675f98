"""Checks of questions with choices before training."""

from tidybert.data.checks import TrainingData, lines_of
from tidybert.data.data_report import DataReport
from tidybert.files.wording import count_of
from tidybert.tasks.choices.choice_files import ChoiceExample


def check_numbers(report: DataReport, data: TrainingData[ChoiceExample]) -> None:
    """Tell how many choices there are, and how often a guess is right."""
    numbers = [len(one.choices) for one in data.train]
    least, most = min(numbers), max(numbers)
    report.facts.append(f"choices: {least if least == most else f'{least} to {most}'} an example")
    told = data.dev or data.train
    chance = sum(1 / len(one.choices) for one in told) / len(told)
    part = "dev" if data.dev else "training"
    report.facts.append(f"a guess is right in {chance:.1%} of the {part} examples")


def check_equal_choices(report: DataReport, data: TrainingData[ChoiceExample]) -> None:
    """Warn of examples that have a choice twice."""
    for part, examples, _ in data.parts():
        rows = [one.row for one in examples if len(set(one.choices)) < len(one.choices)]
        if rows:
            name = "training" if part == "train" else part
            report.warnings.append(
                f"{count_of(len(rows), f'{name} example')} with equal choices "
                f"({lines_of(rows)}), which no model can tell apart; change one of them"
            )
