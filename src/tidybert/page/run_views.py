"""The view How a run goes: a RUN's curves, and a masked word as each checkpoint fills it in."""

from pathlib import Path
from typing import Any, Final

from tidybert.catalog import find_model
from tidybert.errors import DataError
from tidybert.inference.fill_mask import MaskFiller
from tidybert.page.page_model import PageModel, checked_text
from tidybert.reporting.pretraining_curves import run_picture
from tidybert.storage.model_files import (
    CHECKPOINTS_FOLDER,
    METRICS_FILE,
    checkpoints_by_step,
)
from tidybert.tokenization.vocabulary import MASK_TOKEN

_MOST_CHECKPOINTS: Final = 8
"""Each of them is opened for a text, so that only one is in memory."""
_LIKELIEST: Final = 3


def run_of(path: str) -> Path | None:
    """The pre-training RUN of a MODEL: its own directory, or that of its checkpoint."""
    directory = find_model(path)
    if directory.parent.name == CHECKPOINTS_FOLDER:
        directory = directory.parents[1]
    return directory if (directory / METRICS_FILE).exists() else None


def run(model: PageModel, text: str = "", at: int = 0) -> dict[str, Any]:
    """The curves so far as an SVG, and the words of up to 8 checkpoints for each [MASK].

    ``at``: another number asks again, of a RUN that goes on.
    """
    directory = run_of(model.path)
    picture = None if directory is None else run_picture(directory)
    if directory is None or picture is None:
        raise DataError("the model has no metrics.jsonl of its pre-training: name a RUN")
    checked_text(text)
    steps = _chosen(list(checkpoints_by_step(directory)))
    # The weights of a finished RUN come last, beside its checkpoints.
    models = [(f"step {step:,}", f"{directory}@{step}") for step in steps]
    if model.path == str(directory):
        models.append(("finished", model.path))
    python = f"""from tidybert import MaskFiller

for model in {[path for _, path in models]!r}:
    print(model, MaskFiller(model).fill([{text!r}], top_k={_LIKELIEST}))
"""
    return {
        "picture": picture.svg,
        "figures": picture.description,
        "title": picture.title,
        "fills": [_filled(name, path, text) for name, path in models] if text else [],
        "python": python,
    }


def _chosen(steps: list[int]) -> list[int]:
    """At most 8 of the steps, evenly spread, the last among them."""
    every = -(-len(steps) // _MOST_CHECKPOINTS)
    return steps[::-1][:: max(1, every)][::-1]


def _filled(name: str, path: str, text: str) -> dict[str, Any]:
    """What a checkpoint writes for each [MASK], the likeliest first."""
    if MASK_TOKEN not in text:
        raise DataError(f"the text has no {MASK_TOKEN}: write it where a word is missing")
    (answer,) = MaskFiller(path, device="cpu").fill([text], top_k=_LIKELIEST)
    return {"model": name, "masks": answer["masks"]}
