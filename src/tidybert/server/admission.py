"""What a request must pass before its inputs are computed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tidybert.data.features import Features
from tidybert.server.engine import Engine
from tidybert.server.faults import WRONG_TASK, Refusal, as_refusals
from tidybert.server.served_model import ModelLane, ServedModel
from tidybert.server.stages import SLICE


@asynccontextmanager
async def admitted(engine: Engine, client: str, num_inputs: int) -> AsyncIterator[None]:
    """Refuse what cannot be taken, end what takes too long, and turn users' errors into Refusals.

    ``client`` is who asks; each client has an equal share of the server.
    """
    settings = engine.settings
    if num_inputs == 0:
        raise Refusal(422, "there are no inputs; give one at least", "inputs")
    if num_inputs > settings.max_inputs:
        raise Refusal(
            422,
            f"{num_inputs:,} inputs in one request; at most {settings.max_inputs:,} are "
            "taken: send several requests",
            "inputs",
        )
    if not engine.is_ready:
        raise Refusal(503, "the server is not ready; send it again later", retry_after=1)
    engine.queue.admit(client)
    try:
        with as_refusals("inputs"):
            async with asyncio.timeout(settings.deadline):
                yield
    except TimeoutError:
        raise Refusal(
            504,
            f"no answer within {settings.deadline:g} seconds; send fewer inputs, or send it again "
            "later",
            retry_after=engine.queue.seconds_left(),
        ) from None


def lane_of(model: ServedModel, name: str) -> ModelLane:
    """The lane of one of a model's heads; Refusal if the model lacks it."""
    if name not in model.lanes:
        head = name.partition(":")[0]
        can = ", ".join(model.heads)
        raise Refusal(
            422, f"{model.name!r} has no head for {head}; it can {can}", "model", WRONG_TASK
        )
    return model.lanes[name]


def refuse_unknown_ids(model: ServedModel, ids: Sequence[object], where: str) -> None:
    """Raise Refusal for the first value that is no id of the model's vocabulary."""
    size = model.tokenizer.vocab_size
    for each in ids:
        if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each < size:
            raise Refusal(422, f"{each!r:.40} is not an id; the model knows 0 to {size - 1}", where)


def refuse_cut(made: Sequence[Sequence[Features]], longest: int) -> None:
    """Raise Refusal for the first input that was cut; ``made`` are the features of each slice."""
    for part, slice_ in enumerate(made):
        for one in slice_:
            if one.truncated:
                raise Refusal(
                    422,
                    f"{one.num_tokens:,} tokens, and the model reads {longest:,}: shorten the "
                    "text, or give truncate: true to cut it",
                    f"inputs.{part * SLICE + one.example}",
                    "too_long",
                )
