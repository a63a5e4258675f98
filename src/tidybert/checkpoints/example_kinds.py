"""ExampleKind: what one example of a task holds, as tidybert.json names it under ``inputs``.

A task names its kind.  What the shell asks for, what a card says, what Python takes and what the
server reads follow from these objects; no other table lists the kinds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Part:
    """A part of an example: its key in JSON, a list of texts or one text."""

    key: str
    is_list: bool = False
    is_needed: bool = True


@dataclass(frozen=True)
class ExampleKind:
    """What an example holds.

    Args:
        name: in tidybert.json; None for a kind that no file names.
        plural: several of them, in words.
        parts: one or two; the second belongs to the first.
        asked: in words, what each ``--input`` of ``tidybert predict`` is.
        python: the arguments of ``Predictor.predict`` for one example.
        schema, description: the class of its JSON object in the server's OpenAPI document.
        may_be_text: whether a text alone, and no object, is an example.
    """

    name: str | None
    plural: str
    parts: tuple[Part, ...]
    asked: str
    python: str
    schema: str = ""
    description: str = ""
    may_be_text: bool = False

    @property
    def written(self) -> str:
        """How its JSON is written, for messages."""
        cells = (f'"{part.key}": {"[…]" if part.is_list else "…"}' for part in self.parts)
        written = f"{{{', '.join(cells)}}}"
        if self.may_be_text:
            return f"a text, or {written}" if self.schema else "a text"
        return written

    @property
    def takes_choices(self) -> bool:
        """Whether the second part is a list of texts."""
        return any(part.is_list for part in self.parts[1:])

    @property
    def fewest_texts(self) -> int:
        """Texts that an example has at least; two are the fewest to choose from."""
        return 1 + sum(2 if part.is_list else part.is_needed for part in self.parts[1:])

    @property
    def most_texts(self) -> int | None:
        """Texts that an example is given as at most; None without a limit."""
        return None if self.takes_choices else len(self.parts)

    def of_texts(self, texts: Sequence[str]) -> tuple[list[Any], list[Any] | None]:
        """One example's texts as the lists of first and of second parts that a task takes."""
        first, *others = texts
        if not others:
            return [first], None
        return [first], [others] if self.takes_choices else others

    def of_json(self, values: Sequence[Any]) -> tuple[list[Any], list[Any] | None]:
        """The lists of first and of second parts of objects, or texts, that the server read."""
        columns = [
            [one if isinstance(one, str) else getattr(one, part.key) for one in values]
            for part in self.parts
        ]
        return columns[0], columns[1] if columns[1:] else None


TEXT: Final = ExampleKind(
    "text",
    "single texts",
    (Part("text"),),
    "a text",
    '["a text"]',
    may_be_text=True,
)
PAIR: Final = ExampleKind(
    "pair",
    "pairs of texts",
    (Part("text"), Part("text_pair")),
    "the first text of the pair, then the second",
    '["a text"], ["its second text"]',
    "TextPair",
    "Two texts that a model reads as one input.",
)
CHOICES: Final = ExampleKind(
    "choices",
    "contexts with choices",
    (Part("context"), Part("choices", is_list=True)),
    "the context, then each choice",
    '["a context"], [["a choice", "another one"]]',
    "Choices",
    "A context and the texts to choose from.",
)
QUESTION: Final = ExampleKind(
    "question",
    "questions with the texts that may answer them",
    (Part("question"), Part("context")),
    "the question, then the text",
    '["a question"], ["a text"]',
    "Question",
    "A question, and the text that answers it.",
)
WORDS: Final = ExampleKind(
    "words",
    "the words of sentences",
    (Part("words", is_list=True),),
    "a text",
    '["a text"]',
    "Words",
    "A sentence that is cut into words already.",
    may_be_text=True,
)
TEXT_OR_PAIR: Final = ExampleKind(
    None,
    "texts, and pairs of texts",
    (Part("text"), Part("text_pair", is_needed=False)),
    "a text, and the second text of a pair",
    '["a text"]',
)
"""The kind of a task on texts whose training examples differed, or that another program trained."""

KINDS: Final = {str(kind.name): kind for kind in (TEXT, PAIR, QUESTION, CHOICES, WORDS)}
"""By name in tidybert.json."""


def name_of(kind: ExampleKind | None) -> str | None:
    """Its name in tidybert.json."""
    return None if kind is None else kind.name
