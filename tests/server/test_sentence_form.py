"""A served directory of sentence-transformers gives the vectors of ``Embedder`` on every path."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from tests.conftest import server_on_a_thread
from tests.sentence_directories import write_sentence_transformers

from tidybert.checkpoints.dense import Dense
from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.inference.embedding import Embedder
from tidybert.inference.loading import load

TEXTS = ["the red cat", "a dog"]


@pytest.fixture(scope="module")
def directory(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "vectors"
    weight = torch.randn(6, 16, generator=torch.Generator().manual_seed(0))
    dense = Dense(weight, None, "torch.nn.modules.activation.Tanh")
    prompts = {"query": "red cow ", "document": "old "}
    form = SentenceForm("cls", (dense,), True, prompts, "query", 16, 5)
    write_sentence_transformers(path, *load(tiny_model), form)
    return path


@pytest.fixture(scope="module")
def client(directory: Path) -> Iterator[Any]:
    with (
        server_on_a_thread(models={"vectors": str(directory)}) as (host, _),
        httpx.Client(base_url=f"http://{host}") as client,
    ):
        yield client


def _post(client: Any, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"prompt_name": "document"},
        {"normalize": False},
        {"normalize": True, "pooling": "mean"},
    ],
)
def test_the_native_path(client: Any, directory: Path, given: dict[str, Any]) -> None:
    found = _post(client, "/v1/models/vectors/embed", inputs=TEXTS, **given)

    expected = Embedder(directory, **given).embed(TEXTS)
    np.testing.assert_allclose([one["vector"] for one in found], expected, atol=1e-6)


def test_the_path_of_text_embeddings_inference(client: Any, directory: Path) -> None:
    found = _post(client, "/embed", inputs=TEXTS, prompt_name="document")

    expected = Embedder(directory, prompt_name="document", normalize=True).embed(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert client.get("/info").json()["model_type"] == {"embedding": {"pooling": "cls"}}
    assert client.post("/embed", json={"inputs": "a", "dimensions": 6}).status_code == 422


def test_the_path_of_openai(client: Any, directory: Path) -> None:
    found = _post(client, "/v1/embeddings", input=TEXTS, model="vectors", encoding_format="base64")

    vectors = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in found["data"]]
    expected = Embedder(directory, normalize=True).embed(TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_a_prompt_that_is_not_there_is_refused(client: Any) -> None:
    answer = client.post("/v1/models/vectors/embed", json={"inputs": "a", "prompt_name": "querry"})

    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "prompt_name"
    assert "did you mean 'query'?" in answer.json()["error"]["message"]
