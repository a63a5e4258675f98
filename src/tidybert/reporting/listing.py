"""The sections that list examples: errors, closest calls, and labels that look wrong."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidybert.reporting.markup import Markup, join, tag
from tidybert.reporting.tables import number

Contents = Mapping[str, Any]

LONGEST_TEXT: Final = 300
LONGEST_ANSWER: Final = 120

_FACTS: Final = {
    "suggested": "the model's class",
    "second": "next likeliest",
}
# Of these a few thousandths more or less mean nothing.
_PROBABILITIES: Final = ("confidence", "expected_probability", "margin")
_LEAST: Final = 0.001
_NUMBERS: Final = {
    "confidence": "confidence",
    "expected_probability": "probability of the expected",
    "margin": "margin",
    "residual": "off by",
    "correct": "share that is right",
    "num_tokens": "tokens",
}


def errors(contents: Contents) -> Markup | None:
    """What the model gets wrong, the surest first."""
    found = contents["errors"]
    if not found["total"]:
        return tag("p", "Every answer is right.")
    if contents["scores"] is not None:
        text = f"The {len(found['shown']):,} examples whose score is the farthest off."
    else:
        text = (
            f"{found['total']:,} of {contents['num_examples']:,} answers are not wholly right; "
            f"these {len(found['shown']):,} are the worst, by how wrong and how sure they are."
        )
    return join([tag("p", text), _example_list(found["shown"], "Errors")])


def uncertain(contents: Contents) -> Markup | None:
    """What the model was least sure of."""
    found = contents["uncertain"]
    if not found:
        return None
    text = (
        f"The {len(found['shown']):,} answers, right or wrong, that the model was least sure of. "
        "To label more texts like these often teaches it the most."
    )
    return join([tag("p", text), _example_list(found["shown"], "Closest calls")])


def suspects(contents: Contents) -> Markup | None:
    """Labels that the model speaks against."""
    found = contents["suspected_label_errors"]
    if not found:
        return None
    if not found["total"]:
        return tag("p", "No label is suspected.")
    text = (
        f"{found['total']:,} examples may bear a wrong label: the model gives their class a "
        "probability below the average of that class, and another class one above its own. Read "
        "them before you believe it: a model that is wrong and sure looks the same. The "
        f"{len(found['shown']):,} most striking are:"
    )
    return join([tag("p", text), _example_list(found["shown"], "Suspected label errors")])


def _example_list(examples: Sequence[Mapping[str, Any]], label: str) -> Markup:
    """The examples one below the other; a script lets them be filtered."""
    return tag("ol", *map(_item, examples), class_="examples", data_filter=label, aria_label=label)


def _item(example: Mapping[str, Any]) -> Markup:
    answers = [
        *((key, _answer(key, example)) for key in ("expected", "predicted")),
        *((name, example[key]) for key, name in _FACTS.items() if key in example),
    ]
    # Wholly right and wholly wrong are seen from the answers.
    numbers = [
        f"{name} {_number(key, example[key])}"
        for key, name in _NUMBERS.items()
        if example.get(key) is not None and not (key == "correct" and example[key] in (0, 1))
    ]
    return tag(
        "li",
        tag(
            "dl",
            *(
                tag("div", tag("dt", name), tag("dd", shortened(value, LONGEST_ANSWER)))
                for name, value in answers
            ),
        ),
        tag("div", shortened(example["text"], LONGEST_TEXT), class_="text"),
        tag("p", " · ".join([_place(example), *numbers]), class_="facts"),
    )


def _answer(key: str, example: Mapping[str, Any]) -> str:
    """An answer; of a score, which is given in full, the seven digits that float32 has."""
    value: str = example[key]
    return f"{float(value):.7g}" if "residual" in example else value


def _place(example: Mapping[str, Any]) -> str:
    """The id, where the file has one: all of a published SQuAD file is one line."""
    return f"row {example['row']:,}" if example["id"] is None else f"id {example['id']}"


def _number(key: str, value: float) -> str:
    below = key in _PROBABILITIES and value < _LEAST
    return f"below {_LEAST}" if below else number(value)


def shortened(text: str, longest: int) -> Markup:
    """A text; of a long one the beginning, with the whole of it folded away.

    Its own reading direction is kept inside it.
    """
    if len(text) <= longest:
        return tag("span", text or "(empty)", dir="auto", class_=None if text else "empty")
    # Cutting at a space leaves words whole; a text without spaces is cut where it is.
    start = text[:longest]
    start = start[: start.rfind(" ")] if " " in start[longest // 2 :] else start
    start = start.rstrip(" .,\n")
    return tag(
        "details",
        tag(
            "summary",
            tag("span", f"{start}…", dir="auto", class_="start"),
            tag("span", f" all {len(text):,} characters", class_="more"),
        ),
        tag("span", text, dir="auto", class_="whole"),
    )
