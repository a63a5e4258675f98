"""The view Left to right: a language model goes on with a text, and its positions."""

from typing import Any, Final

from tidybert.inference.generation import Sampling
from tidybert.page.page_model import PageModel, checked_text

_MOST_STEPS: Final = 64
_POSITIONS: Final = 64


def left_to_right(
    model: PageModel, text: str, temperature: float | None = None, seed: int = 1
) -> dict[str, Any]:
    """Each next token with the ten likeliest ones, up to [EOS] or 64 of them.

    ``temperature`` draws the tokens; without it each is the likeliest.
    """
    checked_text(text)
    sampling = Sampling(temperature, seed=seed)
    steps = list(model.generator.steps(text, max_tokens=_MOST_STEPS, sampling=sampling))
    drawn = "" if temperature is None else f", temperature={temperature}, seed={seed}"
    python = f"""from tidybert import TextGenerator
from tidybert.inference.generation import Sampling

generator = TextGenerator({model.written!r})
sampling = Sampling({drawn.removeprefix(", ")})
for step in generator.steps({text!r}, max_tokens={_MOST_STEPS}, sampling=sampling):
    print(step.prompt, "|", step.token, round(step.probability, 3))
"""
    return {
        "steps": [
            {
                "prompt": one.prompt,
                "token": one.token,
                "probability": one.probability,
                "likeliest": one.likeliest,
                "text": one.text,
            }
            for one in steps
        ],
        "ended": bool(steps) and steps[-1].is_end,
        "python": python,
    }


def positions(model: PageModel) -> dict[str, Any]:
    """What the model adds to a token at each of its first positions: (P, H), to two decimals."""
    generator = model.generator
    table = generator.model.bert.embeddings.position_embeddings.weight.detach()
    config = generator.model.config
    return {
        "kind": getattr(config, "positions", "learned"),
        "values": table[:_POSITIONS].numpy().round(2).tolist(),
    }
