"""The native routes: typed bodies, the objects of ``tidybert predict``, and errors with a field."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.conftest import TINY_VOCABULARY

from tidybert.inference.embedding import Embedder
from tidybert.inference.predictor import Predictor
from tidybert.server.engine import Engine

Make = Callable[..., Engine]

INPUTS: dict[str, Any] = {
    "colours": "a red cat",
    "pairs": {"text": "a red cat", "text_pair": "a dog"},
    "questions": {"question": "the cat", "context": "a red cat was near"},
    "choices": {"context": "a red cat", "choices": ["red", "dog"]},
    "tags": {"words": ["a", "red", "cat"]},
}


def post(client: Any, path: str, body: Any) -> Any:
    async def send() -> Any:
        async with client as open_client:
            return await open_client.post(f"/v1/models/{path}", json=body)

    return asyncio.run(send())


@pytest.mark.parametrize("name", INPUTS)
def test_one_input_has_an_answer_and_a_list_has_a_list(
    make_engine: Make, make_client: Any, served: dict[str, str], name: str
) -> None:
    engine = make_engine(name)
    given = INPUTS[name]

    one = post(make_client(engine), f"{name}/predict", {"inputs": given})
    two = post(make_client(engine), f"{name}/predict", {"inputs": [given, given]})

    values: list[Any] = list(given.values()) if isinstance(given, dict) else [given]
    predictor = Predictor(served[name], device="cpu")
    (expected,) = predictor.predict(*([each] for each in values))
    assert one.status_code == two.status_code == 200
    assert one.json().keys() == expected.keys()
    assert len(two.json()) == 2
    assert one.headers["x-request-id"] != two.headers["x-request-id"]


def test_top_k_keeps_the_likeliest(make_engine: Make, make_client: Any) -> None:
    engine = make_engine("colours", "scores")

    found = post(make_client(engine), "colours/predict", {"inputs": "cat", "top_k": 1}).json()
    refused = post(make_client(engine), "scores/predict", {"inputs": "cat", "top_k": 1})

    assert found["scores"] == {found["label"]: found["score"]}
    assert refused.json()["error"]["field"] == "top_k"


def test_a_request_asks_for_a_score(make_engine: Make, make_client: Any) -> None:
    engine = make_engine("colours", "scores")
    body = {"inputs": "cat", "min_score": 1.0}

    found = post(make_client(engine), "colours/predict", body).json()
    refused = post(make_client(engine), "scores/predict", body)

    assert found["label"] is None
    assert found["score"] == max(found["scores"].values())
    assert refused.json()["error"]["field"] == "min_score"


def test_texts_without_their_entities(make_engine: Make, make_client: Any) -> None:
    engine = make_engine("tags")
    text = "the red cat and under a dog the old cat"
    entities = post(make_client(engine), "tags/predict", {"inputs": text}).json()["entities"]
    assert entities

    body = {"inputs": [text, "a cat"], "redact": True, "redact_with": "{type}{number}"}
    found, other = post(make_client(engine), "tags/predict", body).json()

    kept = [text[one["end"] : two["start"]] for one, two in pairwise(entities)]
    places = [found["text"][one["start"] : one["end"]] for one in found["entities"]]
    assert all(one.startswith("X") for one in places)
    assert found["text"].startswith(text[: entities[0]["start"]] + "X1" + kept[0])
    assert [one["score"] for one in found["entities"]] == [one["score"] for one in entities]
    assert other["text"] is not None


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("tags", {"inputs": ["a cat", "Qrst cat"], "redact": True}, "inputs.1"),
        ("tags", {"inputs": "Qrst", "patterns": "iban"}, "redact"),
        ("tags", {"inputs": "Qrst", "redact": True, "patterns": "iban,x"}, "redact"),
        ("colours", {"inputs": "Qrst", "redact": True}, "redact"),
    ],
)
def test_a_text_that_cannot_be_redacted_is_refused_and_not_shown(
    make_engine: Make, make_client: Any, name: str, body: dict[str, Any], field: str
) -> None:
    response = post(make_client(make_engine("tags", "colours")), f"{name}/predict", body)

    assert response.status_code == 422
    assert response.json()["error"]["field"] == field
    assert "Qrst" not in response.text


def test_entities_from_a_score_on(make_engine: Make, make_client: Any) -> None:
    engine, text = make_engine("tags"), "the red cat and under a dog the old cat"
    every = post(make_client(engine), "tags/predict", {"inputs": text}).json()["entities"]
    middle = sorted(one["score"] for one in every)[len(every) // 2]

    body = {"inputs": text, "min_score": middle}
    found = post(make_client(engine), "tags/predict", body).json()
    redacted = post(make_client(engine), "tags/predict", {**body, "redact": True}).json()

    assert found["entities"] == [one for one in every if one["score"] >= middle]
    assert len(redacted["entities"]) == len(found["entities"]) < len(every)


def test_the_other_heads(make_engine: Make, make_client: Any) -> None:
    engine = make_engine("base")

    def of(path: str, **body: Any) -> Any:
        return post(make_client(engine), f"base/{path}", body).json()

    assert of("fill-mask", inputs="a [MASK] cat", top_k=2)["masks"][0]["words"][1]["word"]
    pair = {"text": "a cat", "text_pair": "a dog"}
    assert of("next-sentence", inputs=[pair])[0].keys() == {"follows", "num_tokens", "truncated"}
    vector = of("embed", inputs="a cat", normalize=True)["vector"]
    assert sum(each**2 for each in vector) == pytest.approx(1)
    assert len(of("embed", inputs=[[5, 6], [7]])) == 2
    tokens = of("tokenize", inputs="A cat")
    assert tokens["tokens"] == ["[CLS]", "a", "cat", "[SEP]"]
    assert tokens["offset_mapping"][2] == [2, 5]


@pytest.mark.parametrize("marked", [False, True])
def test_a_special_token_of_a_client_is_text_unless_the_operator_allows_it(
    make_engine: Make, make_client: Any, served: dict[str, str], own_copy: Any, marked: bool
) -> None:
    foreign = own_copy("base")
    (foreign / "tidybert.json").unlink()
    paths = {"base": str(foreign), "colours": served["colours"]}
    engine = make_engine(paths=paths, special_tokens_in_text=marked)
    text = "a [SEP] cat"

    def of(path: str, **body: Any) -> Any:
        return post(make_client(engine), path, {"inputs": text, **body}).json()

    own = Embedder(foreign)
    own.tokenizer = own.tokenizer.reading(special_tokens_in_text=marked)
    assert of("base/embed")["vector"] == pytest.approx(own.embed(text).tolist(), abs=1e-5)
    tokens = of("base/tokenize")["tokens"]
    assert tokens == own.tokenizer.encode(text).tokens
    assert (tokens.count("[SEP]"), len(tokens)) == ((2, 5) if marked else (1, 7))
    # [MASK] is what is filled in; a RUN of an older version reads text either way.
    assert len(of("base/fill-mask", inputs="[MASK] cat")["masks"]) == 1
    assert of("colours/predict")["num_tokens"] == 7


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("colours/predict", {"inputs": {"text": "a", "text_pair": "b"}}, 422, "inputs.0"),
        ("colours/predict", {"inputs": "red " * 20}, 422, "inputs.0"),
        ("colours/predict", {}, 422, "inputs"),
        ("colours/predict", {"inputs": "a", "truncated": True}, 422, "truncated"),
        ("colours/predict", {"inputs": "a", "truncate": "yes"}, 422, "truncate"),
        ("colours/fill-mask", {"inputs": "a [MASK]"}, 422, "model"),
        ("colours/embed", {"inputs": "a", "pooling": "sum"}, 422, "pooling"),
        ("colours/embed", {"inputs": [[1, len(TINY_VOCABULARY)]]}, 422, "inputs.0"),
        ("absent/predict", {"inputs": "a"}, 404, "model"),
    ],
)
def test_an_error_names_its_field(
    make_engine: Make, make_client: Any, path: str, body: Any, status: int, field: str
) -> None:
    found = post(make_client(make_engine("colours")), path, body)

    error = found.json()["error"]
    assert (found.status_code, error["field"]) == (status, field)
    assert error["message"]
    assert "/" not in error["message"]


def test_models_health_and_metrics(make_engine: Make, make_client: Any) -> None:
    engine = make_engine("colours", "base")

    async def get() -> list[Any]:
        async with make_client(engine) as client:
            await client.post("/v1/models/colours/predict", json={"inputs": "cat"})
            paths = ("/v1/models", "/v1/models/base", "/health/live", "/health/ready", "/metrics")
            # A batch is counted after its answers are on their way.
            while "tidybert_batch_tokens_sum 3.0" not in (await client.get("/metrics")).text:
                await asyncio.sleep(0.01)
            found = [await client.get(path) for path in paths]
            engine.is_ready = False
            return [*found, await client.get("/health/ready")]

    models, base, live, ready, metrics, ending = asyncio.run(asyncio.wait_for(get(), 60))

    assert [each["id"] for each in models.json()["data"]] == ["colours", "base"]
    assert models.json()["data"][0]["labels"] == ["animal", "colour"]
    assert base.json()["heads"] == ["embed", "fill-mask", "next-sentence"]
    assert (live.status_code, ready.status_code, ending.status_code) == (200, 200, 503)
    route = 'route="/v1/models/{name}/predict",status="200"'
    assert f"tidybert_requests_total{{{route}}} 1.0" in metrics.text
    assert 'tidybert_stage_seconds_count{stage="compute"} 1.0' in metrics.text
