"""The engine: its answers are those of the classes of inference, whoever else asks."""

import asyncio
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tidybert.checkpoints.example_kinds import name_of
from tidybert.inference.embedding import Embedder
from tidybert.inference.predictor import Predictor
from tidybert.inference.pretraining_heads import MaskFiller, NextSentencePredictor
from tidybert.server.answers import Refusal
from tidybert.server.engine import AskedModel, Engine

WORDS = (
    *("red", "green", "blue", "white", "cat", "dog", "cow", "hen", "the", "a", "is", "was"),
    *("near", "under", "old", "new", "and", "we", "saw"),
)
Make = Callable[..., Engine]


def texts(count: int, seed: int = 0, longest: int = 12) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(1, longest))) for _ in range(count)]


def inputs_of(kind: str | None, count: int) -> tuple[list[Any], list[Any] | None]:
    first, second = texts(count, 1, longest=5), texts(count, 2, longest=6)
    pairs: dict[str | None, list[Any] | None] = {
        "pair": second,
        # Long enough for several windows.
        "question": texts(count, 3, longest=40),
        "choices": [[one, "cow", "hen"] for one in second],
    }
    return first, pairs.get(kind)


def close_to(found: Any, expected: Any) -> bool:
    """Equal, numbers to 1e-6: other inputs of a batch change their last bits."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            close_to(found[key], each) for key, each in expected.items()
        )
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close_to, found, expected))
    return bool(found == pytest.approx(expected, abs=1e-6))


def ask(engine: Engine, name: str, client: str = "me") -> AskedModel:
    return AskedModel(engine, engine.model(name), client)


def test_every_task_answers_as_predictors_do_under_mixed_load(
    make_engine: Make, served: dict[str, str]
) -> None:
    names = [name for name in served if name not in ("base", "poem")]
    engine = make_engine(*names, batch_tokens=64)
    asked = {name: inputs_of(name_of(engine.model(name).inputs), 12) for name in names}

    async def ask_one(name: str, client: int) -> tuple[str, int, list[dict[str, Any]]]:
        first, second = asked[name]
        one = slice(client, client + 3)
        second = None if second is None else second[one]
        found = await ask(engine, name, f"client {client}").predict(first[one], second)
        return name, client, [each.as_dict() for each in found]

    async def ask_all() -> list[tuple[str, int, list[dict[str, Any]]]]:
        return await asyncio.gather(*(ask_one(name, at) for at in range(4) for name in names))

    found = asyncio.run(ask_all())

    predictors = {name: Predictor(served[name], device="cpu") for name in names}
    for name, client, answers in found:
        first, second = asked[name]
        one = slice(client, client + 3)
        expected = predictors[name].predict(first[one], None if second is None else second[one])
        assert close_to(answers, expected), name


def test_the_other_heads_answer_as_their_classes_do(
    make_engine: Make, served: dict[str, str]
) -> None:
    engine = make_engine("base", "colours")
    path, base = served["base"], ask(engine, "base")
    given = texts(5)
    masked = ["the [MASK] is red", "we saw [MASK] [MASK]"]

    async def ask_all() -> tuple[Any, ...]:
        return (
            await base.embed(given),
            await base.embed(given, pooling="cls", normalize=True),
            await ask(engine, "colours").embed(given, pooling="max"),
            await base.fill_mask(masked, top_k=3),
            await base.next_sentence(given, given[::-1]),
        )

    mean, cls, of_run, filled, follows = asyncio.run(ask_all())

    for found, run, settings in (
        (mean, "base", {}),
        (cls, "base", {"pooling": "cls", "normalize": True}),
        (of_run, "colours", {"pooling": "max"}),
    ):
        expected = Embedder(served[run], device="cpu", **settings).embed(given)
        np.testing.assert_allclose(found.vectors, expected, atol=1e-6)
    assert mean.num_tokens == [len(one.split()) + 2 for one in given]
    assert close_to(filled, MaskFiller(path, device="cpu").fill(masked, top_k=3))
    pairs = NextSentencePredictor(path, device="cpu").predict(given, given[::-1])
    assert close_to(follows, pairs)


def test_ids_embed_as_their_text_does(make_engine: Make) -> None:
    base = ask(make_engine("base"), "base")
    whole = base.model.tokenizer.encode("the red cat").input_ids

    async def embed_all() -> list[Any]:
        given = [["the red cat"], [whole], [whole[1:-1]]]
        return [await base.embed(one) for one in given]

    text, ids, bare = (one.vectors for one in asyncio.run(embed_all()))

    np.testing.assert_allclose(ids, text, atol=1e-6)
    np.testing.assert_allclose(bare, text, atol=1e-6)


@pytest.mark.parametrize("number", [0, 70])
def test_a_long_text_is_refused_with_its_place_and_cut_where_asked(
    make_engine: Make, number: int
) -> None:
    colours = ask(make_engine("colours"), "colours")
    given = ["cat"] * 75
    given[number] = "red " * 20

    with pytest.raises(Refusal, match="22 tokens, and the model reads 16") as caught:
        asyncio.run(colours.predict(given))
    found = asyncio.run(colours.predict(given, truncate=True))
    answers = [each.as_dict() for each in found]

    assert (caught.value.status, caught.value.param) == (422, f"inputs.{number}")
    assert [one["truncated"] for one in answers] == [at == number for at in range(75)]
    assert answers[number]["num_tokens"] == 22


def test_a_question_says_how_much_of_it_is_read(make_engine: Make) -> None:
    engine = make_engine("questions")

    with pytest.raises(Refusal, match="the model reads 6") as caught:
        asyncio.run(ask(engine, "questions").predict(["red " * 9], ["a cat"]))

    assert caught.value.param == "inputs.0"


@pytest.mark.parametrize(
    ("name", "texts", "pairs", "message"),
    [
        ("pairs", ["a cat"], None, "input 1: a single text"),
        ("colours", ["a cat"], ["a dog"], "input 1: a pair of texts"),
        ("colours", [], None, "no inputs"),
        ("colours", ["a cat"] * 9, None, "at most 8"),
        ("colours", ["a \ud800"], None, "surrogate"),
        ("choices", ["a cat"], [["red"]], "two at least"),
        ("base", ["a cat"], None, "no head for predict"),
    ],
)
def test_wrong_inputs_are_refused(
    make_engine: Make, name: str, texts: list[str], pairs: Any, message: str
) -> None:
    engine = make_engine(name, max_inputs=8)

    with pytest.raises(Refusal, match=message) as caught:
        asyncio.run(ask(engine, name).predict(texts, pairs))

    assert caught.value.status == 422


def test_a_server_that_ends_takes_nothing(make_engine: Make) -> None:
    engine = make_engine("colours")
    engine.close()

    with pytest.raises(Refusal, match="not ready") as caught:
        asyncio.run(ask(engine, "colours").predict(["a cat"]))

    assert (caught.value.status, caught.value.retry_after) == (503, 1)


def test_unknown_models_are_refused(make_engine: Make) -> None:
    engine = make_engine("colours")

    with pytest.raises(Refusal, match="did you mean 'colours'") as caught:
        engine.model("colors")

    assert caught.value.status == 404
    assert engine.model(None) is engine.model("colours")


class SlowLane:
    """Computes when it is let."""

    def __init__(self) -> None:
        self.may_go = threading.Event()

    def run(self, features: Any) -> list[Any]:
        assert self.may_go.wait(10)
        return [np.zeros((1, 2), np.float32) for _ in features]


def test_a_client_that_leaves_and_one_that_is_late_free_their_places(make_engine: Make) -> None:
    engine = make_engine("colours", queue_inputs=100)
    slow = SlowLane()
    engine.model("colours").lanes["predict"] = slow  # type: ignore[assignment]

    async def crowd() -> None:
        busy = [
            asyncio.ensure_future(ask(engine, "colours", "first").predict(["cat"]))
            for _ in range(4)
        ]
        await asyncio.sleep(0.05)
        taken = engine.queue.inputs
        leaving = asyncio.ensure_future(ask(engine, "colours").predict(["cat"] * 50))
        await asyncio.sleep(0.05)
        assert engine.queue.inputs == taken + 50
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert engine.queue.inputs == taken
        engine.settings = replace(engine.settings, deadline=0.05)
        with pytest.raises(Refusal) as caught:
            await ask(engine, "colours", "late").predict(["cat"] * 50)
        assert (caught.value.status, engine.queue.inputs) == (504, taken)
        slow.may_go.set()
        await asyncio.gather(*busy)

    asyncio.run(crowd())

    assert (engine.queue.inputs, engine.queue.tokens) == (0, 0)


def test_a_bad_input_fails_no_other_request(make_engine: Make) -> None:
    engine = make_engine("colours")
    lanes = engine.model("colours").lanes
    lane = lanes["predict"]

    class Touchy:
        def run(self, features: Any) -> list[Any]:
            if any(len(one.input_ids) == 5 for one in features):
                raise RuntimeError("a secret text")
            return lane.run(features)

    lanes["predict"] = Touchy()  # type: ignore[assignment]

    async def ask_all() -> list[Any]:
        given = ["cat", "a red cat", "red cat"] * 3
        asked = (ask(engine, "colours").predict([one]) for one in given)
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(ask_all())

    assert [isinstance(one, RuntimeError) for one in found] == [False, True, False] * 3


def test_reloading_fails_no_request_and_opens_what_is_there_now(
    make_engine: Make, own_copy: Callable[[str], Any], served: dict[str, str]
) -> None:
    path = own_copy("colours")
    engine = make_engine(paths={"one": str(path)})
    before = engine.model("one")

    async def crowd() -> None:
        is_over = False

        async def client() -> int:
            count = 0
            while not is_over:
                await ask(engine, "one").predict(["a red cat"])
                count += 1
            return count

        clients = [asyncio.ensure_future(client()) for _ in range(4)]
        for _ in range(3):
            assert await engine.reload()
        shutil.rmtree(path)
        assert not await engine.reload()
        assert (await ask(engine, "one").predict(["cat"]))[0].own()["label"]
        shutil.copytree(served["labels"], path)
        assert await engine.reload()
        is_over = True
        assert min(await asyncio.gather(*clients)) > 0

    asyncio.run(crowd())

    assert before.task is not None
    assert before.task.name == "classify"
    task = engine.model("one").task
    assert task is not None
    assert task.name == "multi-label"
