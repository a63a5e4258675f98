"""The clients of OpenAI and Hugging Face against a real server, and transformers' pipelines."""

import base64
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import transformers
from huggingface_hub import InferenceClient, constants
from huggingface_hub.errors import HfHubHTTPError
from tests.conftest import TINY_VOCABULARY, server_on_a_thread

from tidybert.inference.embedding import Embedder
from tidybert.inference.predictor import Predictor
from tidybert.server.answers import Refusal
from tidybert.server.settings import ServerSettings
from tidybert.tokenization import BertTokenizer

TEXTS = ["red cat", "the old dog saw a white hen", ""]
LONG = "the " * 40
KEY = "a key"
CLASSIFIER = "BertForSequenceClassification"
SEVERAL = "multi_label_classification"

Served = SimpleNamespace


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Path,
    tiny_config: Callable[..., Any],
    reference: Callable[..., Any],
) -> Iterator[Served]:
    """A server of tiny models on a thread, with the directories of the models by name."""
    folder = tmp_path_factory.mktemp("served")

    def saved(name: str, head: str, length: int = 32, **config: Any) -> str:
        reference(tiny_config(max_position_embeddings=length), head, **config).save_pretrained(
            folder / name
        )
        BertTokenizer(TINY_VOCABULARY).save(folder / name)
        return str(folder / name)

    tags = dict(enumerate(("O", "B-PER", "I-PER", "B-LOC", "I-LOC")))
    models = {
        "classes": saved("classes", CLASSIFIER, id2label=dict(enumerate(("no", "yes", "maybe")))),
        "encoder": str(tiny_model),
        "scores": saved("scores", CLASSIFIER, num_labels=1),
        "tags": saved("tags", "BertForTokenClassification", id2label=tags),
        "questions": saved("questions", "BertForQuestionAnswering", 80),
        "several": saved("several", CLASSIFIER, num_labels=3, problem_type=SEVERAL),
        "pairs": saved("pairs", CLASSIFIER, num_labels=2),
    }
    given = {"models": models, "keys": (KEY,), "allow_token_ids": True}
    with server_on_a_thread(**given) as (address, engine):
        yield Served(url=f"http://{address}", models=models, engine=engine)


# --- OpenAI


@pytest.fixture
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_openai_gives_embeddings(server: Served, client: openai.OpenAI, encoding: Any) -> None:
    embedder = Embedder(server.models["encoder"], normalize=True)
    given = {} if encoding is None else {"encoding_format": encoding}

    answer = client.embeddings.create(model="encoder", input=TEXTS, **given)

    vectors = [one.embedding for one in answer.data]
    if encoding == "base64":
        # The client decodes what it asked for by itself, and hands on what its caller asked for.
        vectors = [np.frombuffer(base64.b64decode(one), "<f4") for one in vectors]
    np.testing.assert_allclose(vectors, embedder.embed(TEXTS), atol=1e-6)
    assert [one.index for one in answer.data] == [0, 1, 2]
    assert (answer.model, answer.object) == ("encoder", "list")
    # [CLS] and [SEP] count: 4, 9 and 2.
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 15


def test_openai_takes_ids(server: Served, client: openai.OpenAI) -> None:
    tokenizer = BertTokenizer.from_pretrained(server.models["encoder"])
    ids = [tokenizer.encode(text, add_special_tokens=False).input_ids for text in TEXTS[:2]]
    expected = client.embeddings.create(model="encoder", input=TEXTS[:2]).data

    both = client.embeddings.create(model="encoder", input=ids).data
    alone = client.embeddings.create(model="encoder", input=ids[0]).data

    np.testing.assert_allclose(
        [one.embedding for one in [*both, *alone]],
        [one.embedding for one in [*expected, expected[0]]],
        atol=1e-6,
    )


def test_openai_cuts_and_normalises(client: openai.OpenAI) -> None:
    def vector(**given: Any) -> Any:
        found = client.embeddings.create(model="encoder", input="red cat", **given)
        return np.array(found.data[0].embedding)

    expected = vector()[:5] / np.linalg.norm(vector()[:5])

    np.testing.assert_allclose(vector(dimensions=5), expected, atol=1e-6)


def test_openai_says_what_was_cut(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="42 tokens") as caught:
        client.embeddings.create(model="encoder", input=["a", LONG])
    assert caught.value.param == "input.1"
    assert caught.value.code == "too_long"

    answer = client.embeddings.create(
        model="encoder", input=["a", LONG], extra_body={"truncate": True}
    )
    assert [one.model_extra for one in answer.data] == [{"truncated": False}, {"truncated": True}]
    assert answer.usage.prompt_tokens == 3 + 32


def test_openai_takes_no_ids_of_other_tokenizers(
    server: Served, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ServerSettings(models=server.models, keys=(KEY,))
    monkeypatch.setattr(server.engine, "settings", settings)

    # What LangChain sends unless it is told otherwise: ids of tiktoken.
    for ids in ([7], [[7, 8], [9]]):
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model="encoder", input=ids)
        assert caught.value.param == "input"
        assert "OpenAIEmbeddings(check_embedding_ctx_length=False)" in caught.value.message
        assert "--allow-token-ids" in caught.value.message
    assert len(client.embeddings.create(model="encoder", input=["a", "cat"]).data) == 2


def test_openai_takes_2048_inputs(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="encoder", input=["a", "the cat"] * 1024)
    assert len(answer.data) == 2048

    with pytest.raises(openai.APIStatusError) as caught:
        client.embeddings.create(model="encoder", input=["a"] * 2049)
    assert caught.value.status_code == 413


@pytest.mark.parametrize(
    ("given", "error", "param"),
    [
        ({"input": []}, openai.BadRequestError, "input"),
        ({"input": [["a"]]}, openai.BadRequestError, "input.0"),
        ({"input": [True]}, openai.BadRequestError, "input.0"),
        ({"input": ["a", 1]}, openai.BadRequestError, "input.1"),
        ({"input": [[5], [10**9]]}, openai.BadRequestError, "input.1"),
        ({"input": "a", "dimensions": 17}, openai.BadRequestError, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, openai.BadRequestError, "encoding_format"),
        ({"input": "a", "extra_body": {"inputs": 1}}, openai.BadRequestError, "inputs"),
        ({"input": "a", "model": "encoders"}, openai.NotFoundError, "model"),
    ],
)
def test_openai_raises_for(client: openai.OpenAI, given: Any, error: Any, param: str) -> None:
    with pytest.raises(error) as caught:
        client.embeddings.create(**{"model": "encoder", **given})

    assert caught.value.param == param
    assert caught.value.body.keys() == {"message", "type", "param", "code"}
    assert caught.value.response.headers["x-should-retry"] == "false"


def test_openai_needs_the_key(server: Served) -> None:
    wrong = openai.OpenAI(base_url=f"{server.url}/v1", api_key="another", max_retries=0)
    with wrong, pytest.raises(openai.AuthenticationError) as caught:
        wrong.embeddings.create(model="encoder", input="a")
    assert caught.value.type == "authentication_error"


def test_openai_lists_models(server: Served, client: openai.OpenAI) -> None:
    assert [one.id for one in client.models.list()] == list(server.models)
    found = client.models.retrieve("tags")
    assert (found.object, found.owned_by) == ("model", "tidybert")
    assert found.created > 1_700_000_000
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none")


def test_openai_asks_again(
    server: Served, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit = server.engine.queue.admit
    asked = []

    def full_at_first(who: str) -> None:
        asked.append(who)
        if len(asked) == 1:
            raise Refusal(429, "the server is busy", retry_after=1)
        admit(who)

    monkeypatch.setattr(server.engine.queue, "admit", full_at_first)
    monkeypatch.setattr(time, "sleep", lambda seconds: asked.append(seconds))
    with pytest.raises(openai.RateLimitError):
        client.embeddings.create(model="encoder", input="a")
    asked.clear()

    client.with_options(max_retries=1).embeddings.create(model="encoder", input="a")

    assert asked[1] == 1
    assert len(asked) == 3


# --- Hugging Face


@pytest.fixture
def ask(server: Served, monkeypatch: pytest.MonkeyPatch) -> Callable[..., InferenceClient]:
    """Makes a client of a model, or of a path."""
    # The client takes this machine for the network.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)

    def build(path: str = "") -> InferenceClient:
        return InferenceClient(model=server.url + path, token=KEY)

    return build


def test_feature_extraction(server: Served, ask: Callable[..., InferenceClient]) -> None:
    plain = Embedder(server.models["encoder"]).embed(TEXTS)
    unit = Embedder(server.models["encoder"], normalize=True).embed(TEXTS)

    for path in ("/models/encoder", "/models/encoder/embed"):
        found = ask(path).feature_extraction(TEXTS)
        np.testing.assert_allclose(found, unit, atol=1e-6)
        found = ask(path).feature_extraction(TEXTS[0], normalize=False, truncate=True)
        np.testing.assert_allclose(found, plain[:1], atol=1e-6)
        assert ask(path).feature_extraction("a", dimensions=5).shape == (1, 5)
    # A model with a task embeds too, where it is asked to.
    assert ask("/models/tags/embed").feature_extraction("a").shape == (1, 16)


def test_sentence_similarity(server: Served, ask: Callable[..., InferenceClient]) -> None:
    unit = Embedder(server.models["encoder"], normalize=True).embed(TEXTS)

    for path in ("/models/encoder", "/models/encoder/similarity", "/models/classes"):
        found = ask(path).sentence_similarity(TEXTS[0], TEXTS[1:])
        if "encoder" in path:
            assert found == pytest.approx((unit[1:] @ unit[0]).tolist(), abs=1e-6)
        assert len(found) == 2


@pytest.mark.parametrize("name", ["classes", "several"])
def test_text_classification_is_as_the_pipeline(
    server: Served, ask: Callable[..., InferenceClient], name: str
) -> None:
    pipeline = transformers.pipeline("text-classification", server.models[name], top_k=None)
    (expected,) = pipeline([TEXTS[1]])

    found = ask(f"/models/{name}").text_classification(TEXTS[1])

    assert [one.label for one in found] == [one["label"] for one in expected]
    np.testing.assert_allclose(
        [one.score for one in found], [one["score"] for one in expected], atol=1e-5
    )
    (best,) = ask(f"/models/{name}").text_classification(TEXTS[1], top_k=1)
    assert best == found[0]
    raw = ask(f"/models/{name}").text_classification(TEXTS[1], function_to_apply="none")
    raised = np.exp([one.score for one in raw])
    raised = raised / (1 + raised if name == "several" else raised.sum())
    np.testing.assert_allclose(raised, [one.score for one in found], atol=1e-6)


TAGGED = "The old cat, Zoe and the white-green hen. We saw a dog"


def test_token_classification_is_as_the_pipeline(
    server: Served, ask: Callable[..., InferenceClient]
) -> None:
    pipeline = transformers.pipeline(
        "token-classification", server.models["tags"], aggregation_strategy="simple"
    )
    expected = pipeline(TAGGED)

    found = ask("/models/tags").token_classification(TAGGED, aggregation_strategy="simple")

    assert len(found) > 2
    for one, other in zip(found, expected, strict=True):
        assert (one.entity_group, one.word) == (other["entity_group"], other["word"])
        assert (one.start, one.end) == (other["start"], other["end"])
        assert one.score == pytest.approx(other["score"], abs=1e-5)


def test_question_answering(server: Served, ask: Callable[..., InferenceClient]) -> None:
    given = {"question": "was the cat red", "context": "the old cat is green and the dog is red"}
    predictor = Predictor(server.models["questions"])
    (expected,) = predictor.predict([given["question"]], [given["context"]])

    found = ask("/models/questions").question_answering(**given)
    several = ask("/models/questions").question_answering(**given, top_k=3)

    assert {"score", "start", "end", "answer"} == set(found)
    assert (found.answer, found.start, found.end) == (
        expected["answer"],
        expected["start"],
        expected["end"],
    )
    assert found.score == pytest.approx(expected["score"], abs=1e-6)
    assert [one.answer for one in several] == [one["answer"] for one in expected["n_best"][:3]]


@pytest.mark.parametrize(
    ("path", "method", "given", "status", "error_type"),
    [
        ("encoder", "feature_extraction", {"text": LONG}, 422, "tokenizer"),
        ("encoder", "feature_extraction", {"text": []}, 400, "empty"),
        ("encoder/predict", "feature_extraction", {"text": "a"}, 424, "backend"),
        ("encoder", "feature_extraction", {"text": "a", "prompt_name": "q"}, 422, "tokenizer"),
        ("encoder", "text_classification", {"text": "a", "top_k": 2}, 422, "tokenizer"),
        ("none", "text_classification", {"text": "a"}, 404, "not_found"),
        ("tags", "text_classification", {"text": "a", "top_k": 2}, 422, "tokenizer"),
        ("classes", "question_answering", {"question": "a", "context": "b"}, 422, "tokenizer"),
        ("encoder", "question_answering", {"question": "a", "context": "b"}, 422, "tokenizer"),
    ],
)
def test_hugging_face_raises_for(
    ask: Callable[..., InferenceClient],
    path: str,
    method: str,
    given: Any,
    status: int,
    error_type: str,
) -> None:
    with pytest.raises(HfHubHTTPError) as caught:
        getattr(ask(f"/models/{path}"), method)(**given)

    assert caught.value.response.status_code == status
    assert caught.value.response.json().keys() == {"error", "error_type"}
    assert caught.value.response.json()["error_type"] == error_type


# --- text-embeddings-inference, whose objects no client checks


class Sender:
    """Sends JSON to a path; ``headers`` are those of the last answer."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.headers: httpx.Headers = httpx.Headers()

    def __call__(self, path: str, *, status: int = 200, **body: Any) -> Any:
        response = self.client.post(path, json=body)
        assert response.status_code == status, response.text
        self.headers = response.headers
        return response.json()


@pytest.fixture
def post(server: Served) -> Iterator[Sender]:
    """Sends JSON to a path, and gives the JSON of the answer."""
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {KEY}"}) as client:
        yield Sender(client)


def test_predict_takes_a_text_a_pair_or_a_batch(post: Sender) -> None:
    alone = post("/predict", inputs="red cat")
    pair = post("/models/pairs/predict", inputs=["a", "b"])
    batch = post("/models/pairs/predict", inputs=[["a", "b"], ["the", "b"]])

    assert sorted(one["label"] for one in alone) == ["maybe", "no", "yes"]
    assert [one.keys() for one in alone] == [{"label", "score"}] * 3
    scores = [one["score"] for one in alone]
    assert scores == sorted(scores, reverse=True)
    assert sum(scores) == pytest.approx(1)
    assert [len(one) for one in batch] == [2, 2]
    assert batch[0] == [
        {"label": one["label"], "score": pytest.approx(one["score"], abs=1e-6)} for one in pair
    ]
    assert post("/predict", inputs=[["red cat"]]) == [alone]
    for wrong in ([], [[]], [["a"], ["a", "b"]], ["a", "b", "c"], [["a"], "b"], 3):
        status = 400 if wrong == [] else 422
        assert post("/predict", inputs=wrong, status=status)["error"]


def test_an_answer_says_how_many_inputs_were_cut(post: Sender) -> None:
    post("/predict", inputs=[["a"], [LONG]], truncate=True)
    assert post.headers["X-Truncated"] == "1"
    assert "42 tokens" in post("/predict", inputs=LONG, status=422)["error"]


@pytest.mark.parametrize(
    ("status", "error_type", "openai_type"),
    [
        (413, "validation", "invalid_request_error"),
        (429, "overloaded", "rate_limit_error"),
        (503, "unhealthy", "server_error"),
        (504, "deadline_exceeded", "server_error"),
    ],
)
def test_a_refusal_has_each_protocols_words(
    server: Served,
    post: Sender,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    error_type: str,
    openai_type: str,
) -> None:
    def refuse(client: str) -> None:
        raise Refusal(status, "not now", retry_after=7)

    monkeypatch.setattr(server.engine.queue, "admit", refuse)

    expected = {"error": "not now", "error_type": error_type}
    for path in ("/embed", "/models/encoder/embed", "/models/encoder"):
        assert post(path, inputs="a", status=status) == expected
    assert post.headers["Retry-After"] == "7"
    error = post("/v1/embeddings", input="a", status=status)["error"]
    assert (error["type"], error["message"], error["param"]) == (openai_type, "not now", None)


def test_an_error_names_the_field(post: Sender) -> None:
    def error(**body: Any) -> str:
        return post("/embed", status=422, **body)["error"]

    assert error() == "inputs: Field required"
    assert error(inputs=["a", LONG]).startswith("inputs.1: 42 tokens")
    assert "'truncat'" in error(inputs="a", truncat=True)
    assert error(inputs=3).startswith("inputs: expected a text, a list of texts,")
    assert error(inputs=["a", 3]) == "inputs.1: Input should be a valid string"
    assert error(inputs="a", truncation_direction="left").startswith("truncation_direction: ")


HOSTILE = (
    b"",
    b"\xff\xfe",
    b'{"inputs": ',
    b"[" * 20_000,
    b'{"\\ud800": 1}',
    b'{"inputs": "\\ud800", "input": "\\ud800"}',
    b'{"ids": [1' + b"0" * 400 + b"]}",
    b'{"input": [1' + b"0" * 400 + b"]}",
    b'{"inputs": "a", "parameters": {"\\ud800": 1}}',
    b'{"inputs": {"question": 1}}',
    b'{"inputs": NaN, "input": NaN, "ids": NaN}',
    b'{"input": "a", "model": "\\u0000"}',
)


@pytest.mark.parametrize(
    "path", ["/v1/embeddings", "/embed", "/predict", "/rerank", "/tokenize", "/decode", "/"]
)
def test_a_hostile_body_has_an_error_of_its_protocol(post: Sender, path: str) -> None:
    for body in HOSTILE:
        answer = post.client.post(path, content=body, headers={"Content-Type": "application/json"})

        assert 400 <= answer.status_code < 500, body[:40]
        error = answer.json()["error"]
        message = error["message"] if path == "/v1/embeddings" else error
        assert message
        assert "Traceback" not in message


@pytest.mark.parametrize("name", ["pairs", "scores"])
def test_rerank(server: Served, post: Sender, name: str) -> None:
    texts = ["red cat", "a dog", "the hen was white"]
    answers = Predictor(server.models[name]).predict(["red"] * 3, texts)
    expected = [one["value"] if name == "scores" else one["scores"]["LABEL_1"] for one in answers]

    found = post(f"/models/{name}/rerank", query="red", texts=texts, return_text=True)

    assert [one["index"] for one in found] == np.argsort(expected)[::-1].tolist()
    for one in found:
        assert one["score"] == pytest.approx(expected[one["index"]], abs=1e-6)
        assert one["text"] == texts[one["index"]]
    assert post(f"/models/{name}/rerank", query="a", texts=["b"])[0].keys() == {"index", "score"}
    post("/models/classes/rerank", query="a", texts=["b"], status=424)
    post(f"/models/{name}/rerank", query="a", texts=[], status=400)


def test_tokenize_and_decode(post: Sender) -> None:
    special = {"special": True, "start": None, "stop": None}
    assert post("/tokenize", inputs="Réd cat") == [
        [
            {"id": 2, "text": "[CLS]", **special},
            {"id": 5, "text": "Réd", "special": False, "start": 0, "stop": 4},
            {"id": 9, "text": "cat", "special": False, "start": 5, "stop": 8},
            {"id": 3, "text": "[SEP]", **special},
        ]
    ]
    assert len(post("/tokenize", inputs=["red", "cat"], add_special_tokens=False)) == 2
    assert post("/decode", ids=[2, 5, 9, 3]) == ["red cat"]
    assert post("/decode", ids=[[5], [2, 9]], skip_special_tokens=False) == ["red", "[CLS] cat"]
    post("/decode", ids=[5, 99], status=422)


def test_info_and_health(server: Served) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=server.url, headers=headers) as client:
        assert client.get("/health").status_code == 200
        kinds = {
            name: client.get(f"/models/{name}/info").json()["model_type"] for name in server.models
        }
    assert kinds["encoder"] == kinds["tags"] == {"embedding": {"pooling": "mean"}}
    labels = {"0": "no", "1": "yes", "2": "maybe"}
    assert kinds["classes"]["classifier"]["id2label"] == labels
    assert kinds["classes"]["classifier"]["label2id"] == {"no": 0, "yes": 1, "maybe": 2}
