"""The page's routes: files under a strict policy, views in one thread, keys, and errors."""

import inspect
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import anyio
import httpx
import pytest

from tidybert.page.page_model import POLICY, page_files
from tidybert.page.views import VIEWS
from tidybert.reporting.pretraining_curves import write_curves
from tidybert.server.engine import Engine
from tidybert.server.protocols import page_routes

Make = Callable[..., Any]


async def asked(client: httpx.AsyncClient, view: str, **body: Any) -> httpx.Response:
    return await client.post(f"/page/{view}", json=body)


@pytest.mark.anyio
async def test_the_page_is_at_the_root_under_its_policy(
    make_engine: Make, make_client: Make
) -> None:
    async with make_client(make_engine("colours")) as client:
        index = await client.get("/")
        script = await client.get("/page/tabs/gap.js")
        absent = await client.get("/page/../app.py")
        about = (await client.get("/page/about")).json()

    for one in (index, script):
        assert one.status_code == 200
        assert one.headers["content-security-policy"] == POLICY
        assert one.headers["x-content-type-options"] == "nosniff"
    assert POLICY.startswith("default-src 'self';")
    assert "unsafe" not in POLICY
    assert script.headers["content-type"].startswith("text/javascript")
    assert absent.status_code == 404
    assert about["ready"]
    assert [(one["name"], one["task"]) for one in about["models"]] == [("colours", "classify")]


def test_no_file_has_script_or_style_in_its_markup() -> None:
    index = page_files()["index.html"][0].decode()

    assert "<style" not in index
    assert "style=" not in index
    assert "onclick" not in index
    for name, (content, _) in page_files().items():
        text = content.decode()
        assert "innerHTML" not in text, name
        assert "insertAdjacentHTML" not in text, name
        addresses = text.replace("http://www.w3.org/", "")
        assert "http://" not in addresses, name
        assert "https://" not in addresses, name


@pytest.mark.anyio
async def test_the_page_shows_float32_where_the_server_answers_in_int8(
    make_engine: Make, make_client: Make
) -> None:
    async with make_client(make_engine("base", precision="int8")) as client:
        layer = await asked(client, "attention-layer", model="base", text="the cat", layer=1)

    assert layer.status_code == 200


@pytest.mark.anyio
async def test_views_answer_or_say_why_not(make_engine: Make, make_client: Make) -> None:
    async with make_client(make_engine("base", "colours")) as client:
        found = await asked(client, "tokens", model="base", text="the cat")
        layer = await asked(client, "attention-layer", model="base", text="the cat", layer=1)
        errors = [
            (await asked(client, "tokens", model="base", text=5), 422, "text"),
            (await asked(client, "tokens", model="base", text="a", more=1), 422, "more"),
            (await asked(client, "tokens", text="a"), 422, "name of a model"),
            (await asked(client, "tokens", model="none", text="a"), 404, "no model is named"),
            (await asked(client, "none", model="base", text="a"), 404, "no such view"),
            (await asked(client, "tokens", model="base", text="a " * 99), 422, "positions for 32"),
            (await asked(client, "gap", model="colours", text="a", word=0), 422, "masked-LM head"),
            (await client.post("/page/tokens", content=b"{"), 415, "Content-Type"),
        ]

    assert [each["piece"] for each in found.json()["tokens"]] == ["[CLS]", "the", "cat", "[SEP]"]
    assert layer.headers["content-type"] == "application/octet-stream"
    assert len(layer.content) == 2 * 4 * 4
    for response, status, message in errors:
        assert response.status_code == status, message
        assert message in response.json()["error"]["message"]


@pytest.mark.anyio
async def test_with_keys_the_files_are_open_and_the_views_are_not(
    make_engine: Make, make_client: Make
) -> None:
    engine = make_engine("base", keys=("a-long-key",), host="0.0.0.0")
    async with make_client(engine) as client:
        assert (await client.get("/")).status_code == 200
        assert (await client.get("/page/app.js")).status_code == 200
        assert (await client.get("/page/about")).status_code == 401
        assert (await asked(client, "tokens", model="base", text="cat")).status_code == 401
        assert (await client.post("/", json={"inputs": "cat"})).status_code == 401
        client.headers["authorization"] = "Bearer a-long-key"
        found = (await asked(client, "tokens", model="base", text="cat")).json()

    # A server that others reach does not say where its models are.
    assert "from_pretrained('base')" in found["python"]


@pytest.mark.anyio
async def test_a_language_model_is_on_the_page_alone(make_engine: Make, make_client: Make) -> None:
    async with make_client(make_engine("poem")) as client:
        found = await asked(client, "left", model="poem", text="the red")
        refused = await client.post("/v1/models/poem/embed", json={"inputs": "the cat"})

    assert found.json()["steps"][0]["prompt"] == "the red"
    assert refused.status_code == 422
    assert "it can generate" in refused.json()["error"]["message"]


@pytest.mark.anyio
async def test_too_many_questions_are_refused(
    make_engine: Make, make_client: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(model: Any, text: str) -> dict[str, Any]:
        begun.set()
        go_on.wait(20)
        return {}

    monkeypatch.setitem(VIEWS, "slow", slow)
    monkeypatch.setattr(page_routes, "_MOST_WAITING", 1)
    engine: Engine = make_engine("base")
    async with make_client(engine) as client, anyio.create_task_group() as group:
        group.start_soon(lambda: asked(client, "slow", model="base", text="a"))
        await anyio.to_thread.run_sync(begun.wait)
        second = await asked(client, "slow", model="base", text="a")
        other = await client.post("/v1/models/base/embed", json={"inputs": "the cat"})
        go_on.set()

    assert second.status_code == 429
    assert other.status_code == 200


@pytest.mark.parametrize("name", ["colours", "poem", "tidybert-small"])
def test_the_page_shares_the_embeddings_of_the_server_and_all_of_a_language_model(
    make_engine: Make, served: dict[str, str], name: str
) -> None:
    engine = make_engine(paths={"one": served.get(name, name)})
    model = page_routes.PageDesk(engine)._opened(engine.models["one"])
    theirs = {each.data_ptr() for each in engine.models["one"].encoder.parameters()}
    parts = [model.explainer.model]
    parts += [model.generator.model] if name == "poem" else []
    parts += [model.next_sentences.model, model.pretraining] if name == "tidybert-small" else []

    for part in parts:
        shared = part.bert if name == "poem" else part.bert.embeddings
        assert {each.data_ptr() for each in shared.parameters()} <= theirs
    # Its layers are not laid out for answers alone.
    assert model.explainer.encoder.layers is parts[-1].bert.layers


@pytest.mark.anyio
async def test_no_view_fails_by_what_it_is_given(make_engine: Make, make_client: Make) -> None:
    names = ("base", "colours", "questions", "tags", "choices", "poem")
    texts = ["a red cat", "", "[CLS] [SEP]", "the [MASK] cat", "\0", "a " * 99, "x" * 5000]
    values: list[Any] = [
        *texts, None, True, -1, 2, 10**30, 1e300, {}, ["a"], ["a", "a [MASK]"], [["a"]], ["a"] * 99
    ]  # fmt: skip
    draw = random.Random(0)
    async with make_client(make_engine(*names)) as client:
        for view, function in VIEWS.items():
            keys = list(inspect.signature(function).parameters)[1:]
            for number in range(18):
                body = {key: draw.choice(values if number % 2 else texts) for key in keys}
                if number % 4 == 0:
                    body |= {key: 1 for key in ("layer", "head", "word", "seed") if key in keys}
                    body |= {"choices": ["a", "b"]} if "choices" in keys else {}
                body["model"] = names[number % len(names)]
                found = await client.post(f"/page/{view}", json=body)
                assert found.status_code in (200, 422), (view, body, found.text)


HOSTILE_RUNS = {
    "metrics.jsonl": [
        {"step": 20, "loss": 1, "mlm_loss": 1, 'eval_probe_"><img src=x onerror=alert(1)>': 7},
        {"step": 20, "eval_mlm_loss": 1, "eval_mlm_loss/<script>alert(1)</script>": 0.5},
        {"step": 20, "eval_probe_\u202e\u0007": 0.25},
    ],
    "arguments.json": {
        "record": {"changed_on_the_way": [{"step": 3, "<b>": ["</title><script>", "&"]}]}
    },
}


@pytest.mark.anyio
async def test_names_of_a_run_are_no_markup(
    make_engine: Make, make_client: Make, own_copy: Callable[[str], Path]
) -> None:
    run = own_copy("base")
    for name, content in HOSTILE_RUNS.items():
        lines = content if isinstance(content, list) else [content]
        (run / name).write_text("".join(json.dumps(each) + "\n" for each in lines))
    write_curves(run)
    async with make_client(make_engine(paths={"run": str(run)})) as client:
        found = (await asked(client, "run", model="run", text="a [MASK] cat")).json()

    for picture in (found["picture"], (run / "curves.svg").read_text()):
        root = ElementTree.fromstring(picture)
        tags = {each.tag.rpartition("}")[2] for each in root.iter()}
        assert not tags & {"script", "img", "b", "foreignObject", "a"}
        assert not any(name.startswith("on") for each in root.iter() for name in each.attrib)
        assert "<script>alert(1)</script>" in "".join(root.itertext())
        assert "\u202e" not in picture


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.jsonl", '{"step": -5, "loss": 1, "mlm_loss": 1}'),
        ("metrics.jsonl", '{"step": 1e308, "loss": 1, "mlm_loss": 1}'),
        ("metrics.jsonl", '{"step": 0, "loss": 1, "mlm_loss": 1}'),
        ("arguments.json", '{"record": {"changed_on_the_way": [5]}}'),
        ("arguments.json", '{"record": {"changed_on_the_way": [{"step": "x", "a": [1, 2]}]}}'),
        ("arguments.json", "["),
    ],
)
async def test_a_damaged_run_gives_a_message_without_its_place(
    make_engine: Make,
    make_client: Make,
    own_copy: Callable[[str], Path],
    name: str,
    content: str,
) -> None:
    run = own_copy("base")
    (run / "metrics.jsonl").write_text('{"step": 5, "loss": 1, "mlm_loss": 1}')
    (run / name).write_text(content)
    engine = make_engine(paths={"run": str(run)}, host="0.0.0.0")
    async with make_client(engine) as client:
        found = await asked(client, "run", model="run")
        (run / "metrics.jsonl").write_text('{"step": 5, "loss": 1, "mlm_loss": 1}')
        (run / "arguments.json").unlink(missing_ok=True)
        well = await asked(client, "run", model="run")

    assert (found.status_code, well.status_code) == (422, 200)
    assert str(run) not in found.text + well.text
