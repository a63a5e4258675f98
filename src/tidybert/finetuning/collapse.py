"""A model that gives every example the same answer: how it is found, and what to say."""

from typing import Any

from tidybert.errors import param
from tidybert.tasks.answers import Answers


def collapsed_to(answers: Answers[Any, Any]) -> str | None:
    """The one answer that the model gives to all examples although several are right, or None."""
    judgements = answers.judgements()
    first = next(judgements)
    is_one_right = True
    for one in judgements:
        if one.predicted != first.predicted:
            return None
        is_one_right &= one.expected == first.expected
    return None if is_one_right else first.predicted


def collapse_message(answer: str) -> str:
    """Say what happened and what to try, where ``collapsed_to`` found one answer to all."""
    return (
        f"the model collapsed: it gives every dev example the answer {answer!r:.80}; try another "
        f"{param('seed')}, a lower {param('learning_rate')}, or more {param('num_train_epochs')}"
    )
