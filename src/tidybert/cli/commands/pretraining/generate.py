"""``tidybert generate``: a language model goes on with a text, token by token."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_part

if TYPE_CHECKING:
    from tidybert.inference.language_model import NextToken

_WHY: Final = {
    "[EOS]": "the model ended the text: [EOS]",
    "max_tokens": "stopped at --max-tokens",
    "max_seq_length": "stopped at the longest sequence that the model takes, {} tokens with [SOS]",
}


@dataclass(frozen=True, kw_only=True)
class GenerateFlags(flags.DeviceFlag, flags.JsonFlag):
    max_tokens: int | None = None
    """Most new tokens. If not set: up to [EOS] or the model's longest sequence."""
    temperature: float | None = None
    """Draw tokens with logits divided by this. If not set: take the likeliest token, or 1 with
    --top-k or --top-p."""
    top_k: int | None = None
    """Draw from this many likeliest tokens."""
    top_p: float | None = None
    """Draw from the likeliest tokens that together have this probability."""
    seed: int = 42
    """Random seed for drawing tokens."""


@takes(given=GenerateFlags)
def generate(
    model: Annotated[str, typer.Argument(metavar="RUN", help="A RUN of train-lm.")],
    prompt: Annotated[str, typer.Argument(metavar="TEXT", help="The beginning of the text.")] = "",
    *,
    given: GenerateFlags,
) -> None:
    """Continue a text: the likeliest next token each time, or one drawn by its probability.

    The words come as the model says them. With --json the tokens have their probabilities.
    """
    from tidybert.inference.language_model import Sampling, TextGenerator

    sampling = Sampling(given.temperature, given.top_k, given.top_p, given.seed)
    generator = TextGenerator(model, device=given.device)
    coming = generator.steps(prompt, max_tokens=given.max_tokens, sampling=sampling)
    steps: list[NextToken] = []
    for part in _parts(coming, steps, generator.spelled(prompt)):
        if not given.json:
            print_part(part)
    answer = generator.answer(prompt, steps, given.max_tokens)
    if given.json:
        print_json(answer)
        return
    print_part("\n")
    note(_WHY[answer["stopped"]].format(generator.max_seq_length))


def _parts(coming: "Iterable[NextToken]", steps: "list[NextToken]", before: str) -> Iterator[str]:
    """The text in parts that no later token changes; ``steps`` collects what comes."""
    shown = 0
    for step in coming:
        steps.append(step)
        # The next token may join the last one to it, as in don't.
        pairs = enumerate(zip(before, step.text, strict=False))
        shorter = min(len(before), len(step.text))
        settled = next((at for at, (old, new) in pairs if old != new), shorter)
        yield step.text[shown:settled]
        shown, before = max(shown, settled), step.text
    yield before[shown:]
