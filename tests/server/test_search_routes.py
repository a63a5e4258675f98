"""POST /search gives the hits of ``Index.search``."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.errors import UsageError
from tidybert.files.text_examples import TextExample
from tidybert.inference.embedding import Embedder
from tidybert.inference.predictor import CrossEncoder
from tidybert.search.index import Index
from tidybert.search.index_files import write_index
from tidybert.server.engine import Engine

Make = Callable[..., Engine]


@pytest.fixture
def index(served: dict[str, str], tmp_path: Path) -> Path:
    texts = ["a red cat", "the old dog", "a cow was near", "blue"]
    examples = [
        TextExample(text, None, None, row, columns={"id": row}) for row, text in enumerate(texts, 1)
    ]
    embedder = Embedder(served["base"], normalize=True)
    write_index(embedder, examples, tmp_path / "index", model=served["base"])
    return tmp_path / "index"


def post(client: Any, body: Any) -> Any:
    async def send() -> Any:
        async with client as open_client:
            return await open_client.post("/search", json=body)

    return asyncio.run(send())


def test_a_query_finds_what_the_index_finds(
    make_engine: Make, make_client: Any, index: Path
) -> None:
    engine = make_engine("colours", "base", index=index)

    one = post(make_client(engine), {"inputs": "the old dog", "top_k": 2})
    two = post(make_client(engine), {"inputs": ["the old dog", "a cat"]})

    expected = [hit.to_dict() for hit in Index.open(index).search("the old dog", 2)]
    for found, hit in zip(one.json(), expected, strict=True):
        assert found == {**hit, "score": pytest.approx(hit["score"], abs=1e-6)}
    assert [len(hits) for hits in two.json()] == [4, 4]
    (hit,) = post(make_client(engine), {"inputs": "a", "where": ["id>3"] * 64}).json()
    assert hit["position"] == 3
    for by, keys in (("words", {"rank_words"}), ("meaning", set[str]())):
        (alone,) = post(make_client(engine), {"inputs": "dog", "top_k": 1, "by": by}).json()
        assert one.json()[0].keys() - alone.keys() == {"rank_words", "rank_meaning", "fused"} - keys
    # The second model made it.
    assert "search" in engine.model("base").heads
    assert "search" not in engine.model("colours").heads


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"inputs": " "}, "inputs", "the query is empty"),
        ({"inputs": ["a", ""]}, "inputs", "query 2 is empty"),
        ({"inputs": "a", "top_k": 5}, "top_k", "the index has 4 texts"),
        ({"inputs": "a", "top_k": 0}, "top_k", "greater than or equal to 1"),
        ({"inputs": []}, "inputs", "no inputs"),
        ({"inputs": "cat " * 200}, "inputs.0", "tokens"),
        ({"inputs": "a", "by": "both"}, "by", "'words' or 'meaning'"),
        ({"inputs": "a", "where": ["id>0"] * 65}, "where", "65 filters; at most 64 are taken"),
    ],
)
def test_what_cannot_be_searched_gets_422(
    make_engine: Make, make_client: Any, index: Path, body: Any, field: str, message: str
) -> None:
    refused = post(make_client(make_engine("base", index=index)), body)

    assert refused.status_code == 422
    assert message in refused.json()["error"]["message"]
    assert refused.json()["error"]["field"] == field
    assert str(index) not in refused.text


@pytest.mark.anyio
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_the_page_learns_what_the_index_has(
    make_engine: Make, make_client: Any, index: Path, served: dict[str, str], host: str
) -> None:
    engine = make_engine("colours", "base", index=index, host=host, keys=("a-long-key",))
    key = {"authorization": "Bearer a-long-key"}
    async with make_client(engine, headers=key) as client:
        models = (await client.get("/page/about")).json()["models"]

    shown = (str(index), served["base"]) if host == "127.0.0.1" else ("index", "base")
    opened = "Index.open({!r}, {!r})".format(*shown)
    assert [each["index"] for each in models] == [None, {"texts": 4, "opened": opened}]


def test_without_an_index_there_is_none(make_engine: Make, make_client: Any) -> None:
    refused = post(make_client(make_engine("base")), {"inputs": "a"})

    assert refused.status_code == 404
    assert "start it with --index DIR" in refused.json()["error"]["message"]


def test_an_index_of_another_model_is_refused(make_engine: Make, index: Path) -> None:
    with pytest.raises(UsageError, match="made by other weights or another vocabulary"):
        make_engine("colours", index=index)


def test_a_served_run_orders_what_was_found_as_the_index_does(
    make_engine: Make, make_client: Any, index: Path, served: dict[str, str]
) -> None:
    engine = make_engine("base", "pairs", index=index)
    body = {"inputs": ["the old dog", "a cat"], "rerank": "pairs", "top_k": 2, "candidates": 3}

    found = post(make_client(engine), body).json()

    compare(found, index, served["pairs"], body)


def compare(found: Any, index: Path, ranker: Any, body: Any) -> None:
    judge = CrossEncoder.open(ranker)
    count, of = body.get("top_k", 4), body["candidates"]
    expected = Index.open(index).search(body["inputs"], count, rerank=judge, candidates=of)
    for hits, each in zip(found, expected, strict=True):
        assert [hit["position"] for hit in hits] == [hit.position for hit in each]
        scores = [hit.rerank_score for hit in each]
        assert [hit["rerank_score"] for hit in hits] == pytest.approx(scores, abs=1e-6)
        assert not any(hit["rerank_truncated"] for hit in hits)


@pytest.mark.anyio
async def test_a_cross_encoder_of_sentence_transformers_gives_its_own_scores(
    make_engine: Make, make_client: Any, index: Path, served: dict[str, str], own_copy: Any
) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    ranker: Path = own_copy("scores")
    (ranker / "tidybert.json").unlink()
    keys = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}
    config = json.loads((ranker / "config.json").read_text())
    (ranker / "config.json").write_text(json.dumps({**config, **keys}))
    engine = make_engine(paths={"base": served["base"], "ranker": str(ranker)}, index=index)
    body = {"inputs": ["the old dog"], "rerank": "ranker", "candidates": 4}
    texts = ["a red cat", "the old dog", "a cow was near", "blue"]
    async with make_client(engine) as client:
        found = (await client.post("/search", json=body)).json()
        asked = {"query": "the old dog", "texts": texts}
        ranked = (await client.post("/models/ranker/rerank", json=asked)).json()

    compare(found, index, ranker, body)
    theirs = sentence_transformers.CrossEncoder(str(ranker), device="cpu")
    expected = theirs.predict([("the old dog", text) for text in texts])
    scores = {each["index"]: each["score"] for each in ranked}
    assert [scores[number] for number in range(4)] == pytest.approx(expected, abs=1e-5)
    assert {hit["position"]: hit["rerank_score"] for hit in found[0]} == pytest.approx(
        scores, abs=1e-6
    )


@pytest.mark.parametrize(
    ("body", "status", "field", "message"),
    [
        ({"rerank": "colours"}, 422, "rerank", "colours was trained to classify with 2 classes on"),
        ({"rerank": "base"}, 422, "rerank", "base has no task"),
        ({"rerank": "none"}, 404, "rerank", "no model is named 'none'"),
        ({"candidates": 3}, 422, "candidates", "candidates needs rerank"),
        ({"rerank": "pairs", "inputs": ["a"] * 3}, 422, "candidates", "at most 11 pairs"),
        (
            {"rerank": "pairs", "inputs": ["a"] * 3, "candidates": 4},
            422,
            "candidates",
            "4 candidates for each query, of which there are 3; at most 11 pairs",
        ),
        ({"rerank": "pairs", "candidates": 0}, 422, "candidates", "greater than or equal to 1"),
    ],
)
def test_a_model_that_cannot_order_is_refused(
    make_engine: Make,
    make_client: Any,
    index: Path,
    body: Any,
    status: int,
    field: str,
    message: str,
) -> None:
    engine = make_engine("base", "pairs", "colours", index=index, max_inputs=11)

    refused = post(make_client(engine), {"inputs": "a", **body})

    assert (refused.status_code, refused.json()["error"]["field"]) == (status, field)
    assert message in refused.json()["error"]["message"]


@pytest.mark.parametrize(("top_k", "status"), [(3, 200), (4, 422)])
def test_hits_of_one_request_are_limited(
    make_engine: Make,
    make_client: Any,
    index: Path,
    monkeypatch: pytest.MonkeyPatch,
    top_k: int,
    status: int,
) -> None:
    monkeypatch.setattr("tidybert.server.protocols.search_routes._HITS_PER_INPUT", 2)
    client = make_client(make_engine("base", index=index, max_inputs=3))

    found = post(client, {"inputs": ["a", "b"], "top_k": top_k})

    assert found.status_code == status
    if status == 422:
        assert found.json()["error"]["field"] == "top_k"
        assert (
            "4 texts for each query, of which there are 2; at most 6 texts"
            in found.json()["error"]["message"]
        )
