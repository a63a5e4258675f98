"""Views: their numbers are the models' own, their code runs, and their sizes have limits."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tidybert import Explainer, Predictor
from tidybert.errors import TidyBertError
from tidybert.page.page_model import MOST_CHARACTERS, MOST_PIECES, PageModel, checked_text
from tidybert.page.views import VIEWS
from tidybert.pretraining.batches.masked_rows import MaskedRows
from tidybert.pretraining.pretraining_objective import loss_parts

SMALL = "tidybert-small"
TEXT = "The album was recorded in the city."
NEXT = "It was released in the summer."
Opened = Callable[[str], PageModel]
# For each view that shows code: the model and what is asked.
ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("tokens", SMALL, {"text": TEXT, "pair": NEXT}),
    ("gap", SMALL, {"text": TEXT, "word": 1}),
    ("attention", SMALL, {"text": TEXT, "layer": 2, "head": 3, "row": 1, "column": 4}),
    ("next", SMALL, {"text": TEXT, "pair": NEXT}),
    ("training", SMALL, {"text": TEXT, "pair": NEXT, "follows": False}),
    ("training", SMALL, {"text": TEXT}),
    ("word-apart", SMALL, {"word": "the", "text": TEXT, "pair": NEXT + " the end"}),
    ("left", "poem", {"text": "the red"}),
    ("left", "poem", {"text": "the red", "temperature": 1.0, "seed": 3}),
    ("answer", "questions", {"question": "the cat", "text": "the old dog was near the hen"}),
    ("entities", "tags", {"text": "we saw the dog"}),
    ("classify", "colours", {"text": "the red cat"}),
    ("classify", "pairs", {"text": "the red cat", "pair": "a dog"}),
    ("choose", "choices", {"text": "we saw", "choices": ["a dog", "the cow"]}),
]


@pytest.mark.parametrize(("name", "model", "given"), ASKED, ids=lambda one: str(one)[:20])
def test_the_code_of_a_view_runs(
    name: str, model: str, given: dict[str, Any], opened: Opened, capsys: pytest.CaptureFixture[str]
) -> None:
    found: Any = VIEWS[name](opened(model), **given)

    exec(compile(found["python"], name, "exec"), {})

    said = capsys.readouterr().out
    assert said
    if name == "training":
        numbers = [float(each) for each in said.splitlines()[-1].split()]
        wanted = [found["mean"]]
        if found["pair"]:
            wanted += [found["pair"]["loss"], found["pair"]["sum"]]
        assert numbers == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "file", "content", "fields"),
    [
        ("pairs", "a.csv", "sentence1,sentence2,label\na,b,no\n", {"text": "a", "pair": "b"}),
        ("scores", "a.csv", "text,score\nthe dog,2\n", {"text": "the dog"}),
        ("tags", "a.conll", "the O\ndog B-X\n", {"text": "the dog"}),
        (
            "choices",
            "a.jsonl",
            '{"context": "we saw", "choices": ["a dog", "it"], "answer": 0}\n',
            {"text": "we saw", "choices": "a dog\nit"},
        ),
        (
            "questions",
            "a.jsonl",
            '{"id": "1", "question": "who", "context": "the dog", "answers": []}\n',
            {"question": "who", "text": "the dog"},
        ),
    ],
)
def test_an_example_is_of_the_files_of_the_run(
    name: str,
    file: str,
    content: str,
    fields: dict[str, str],
    served: dict[str, str],
    tmp_path: Path,
) -> None:
    run, data = tmp_path / "run", tmp_path / file
    shutil.copytree(served[name], run)
    data.write_text(content)
    recorded = {"train": {"file": str(data), "bytes": len(content)}}
    (run / "arguments.json").write_text(json.dumps({"record": {"files": recorded}}))

    mine = PageModel(str(run), "mine", is_local=True)
    assert VIEWS["example"](mine) == fields
    # Others may not see the data of a RUN, and a changed file may not be its data.
    assert VIEWS["example"](PageModel(str(run), "mine")) == {}
    data.write_text(content * 2)
    assert VIEWS["example"](mine) == {}
    assert VIEWS["example"](PageModel(SMALL, SMALL, is_local=True)) == {}


def test_the_code_of_the_map_follows_that_of_the_word(opened: Opened) -> None:
    given = {"word": "the", "text": TEXT, "pair": TEXT}
    apart: Any = VIEWS["word-apart"](opened(SMALL), **given)
    compared: Any = VIEWS["word-map"](opened(SMALL), words=["king", "queen"])

    exec(apart["python"] + compared["python"], {})

    assert apart["cosines"] == pytest.approx([1.0] * 7, abs=1e-5)
    assert compared["map"].shape == (2, 2)


def test_attention_comes_by_layers_in_8_bits_and_by_heads_exactly(opened: Opened) -> None:
    model = opened(SMALL)
    exact = Explainer(SMALL).attention(TEXT, NEXT, causal=True)
    size = len(exact.tokens)
    given: dict[str, Any] = {"text": TEXT, "pair": NEXT, "layer": 2, "causal": True}

    layer = np.frombuffer(VIEWS["attention-layer"](model, **given), np.uint8)  # type: ignore[call-overload]
    head = np.frombuffer(VIEWS["attention-head"](model, **given, head=3), "<f4")  # type: ignore[call-overload]
    cell: Any = VIEWS["cell"](model, **given, head=3, row=2, column=5)

    assert np.abs(layer.reshape(-1, size, size) / 255 - exact.probs[1]).max() <= 0.5 / 255 + 1e-6
    probs, scores = head.reshape(2, size, size)
    np.testing.assert_allclose(probs, exact.probs[1, 2], atol=1e-6)
    assert probs.sum(1) == pytest.approx(np.ones(size), abs=1e-5)
    assert np.isneginf(scores[2, 3:]).all()
    assert (probs[2, 3:] == 0).all()
    assert cell["probs"][5] == 0
    assert np.isneginf(cell["scores"][5])
    np.testing.assert_allclose(cell["weighted"].sum(0), cell["context"], atol=1e-6)


def test_the_gap_has_the_hidden_word_in_every_layer(opened: Opened) -> None:
    found: Any = VIEWS["gap"](opened(SMALL), text=TEXT, word=1)

    (mask,) = found["masks"]
    assert mask["truth"] == "album"
    assert len(mask["words"]) == 10
    assert [each["layer"] for each in mask["layers"]] == [0, 1, 2, 3, 4, 5, 6]
    assert mask["layers"][-1]["truth_rank"] == mask["truth_rank"]
    # What a piece looks at adds to 1 before and after.
    assert found["change"]["from"].sum(1) == pytest.approx(np.zeros(6), abs=1e-5)


def test_the_loss_is_that_of_pretraining(opened: Opened) -> None:
    model = opened(SMALL)
    found: Any = VIEWS["training"](model, text=TEXT, pair=NEXT, seed=7, follows=True)
    tokenizer = model.tokenizer
    positions = np.array([each["position"] for each in found["hidden"]])
    truth = tokenizer.convert_tokens_to_ids([each["truth"] for each in found["hidden"]])
    batch = MaskedRows(
        _rows(model, found["read"]),
        torch.from_numpy(positions),
        torch.tensor(truth),
        torch.tensor([0]),
    )

    with torch.no_grad():
        parts = loss_parts(model.pretraining, batch)

    assert found["mean"] == pytest.approx(parts["mlm"].total.item() / len(positions), abs=1e-5)
    assert found["pair"]["loss"] == pytest.approx(parts["nsp"].total.item(), abs=1e-5)
    assert found["pair"]["sum"] == found["mean"] + found["pair"]["loss"]
    assert {each["what"] for each in found["hidden"]} <= {"masked", "replaced", "kept"}


def _rows(model: PageModel, read: list[str]) -> Any:
    from tidybert.modeling.rows import Rows

    types = model.tokenizer.encode(TEXT, NEXT).token_type_ids
    return Rows.from_lists([model.tokenizer.convert_tokens_to_ids(read)], [types])


def test_an_answer_has_the_scores_of_every_piece(opened: Opened) -> None:
    text = "the old dog was near the hen and we saw a new cow"
    found: Any = VIEWS["answer"](opened("questions"), text=text, question="the cat")

    pieces = found["pieces"]
    assert [each["text"] for each in pieces] == text.split()
    assert found["windows"] > 1
    inside = [each for each in pieces if found["start"] <= each["start"] < found["end"]]
    best = inside[0]["scores"][0] + inside[-1]["scores"][1]
    sums = [
        pieces[first]["scores"][0] + pieces[last]["scores"][1]
        for first in range(len(pieces))
        for last in range(first, min(first + 2, len(pieces)))
    ]
    assert best >= max(sums) - 1e-5


def test_a_deleted_word_is_gone_when_the_model_runs_again(
    opened: Opened, served: dict[str, str]
) -> None:
    found: Any = VIEWS["classify"](opened("colours"), text="the red cat", without=1)

    (again,) = Predictor(served["colours"], device="cpu").predict(["the  cat"])
    assert found["rerun"]["word"] == "red"
    assert found["rerun"]["scores"] == pytest.approx(again["scores"], abs=1e-6)
    assert found["scores"] != pytest.approx(again["scores"], abs=1e-6)
    assert [each["text"] for each in found["words"]] == ["the", "red", "cat"]


def test_a_language_model_takes_a_token_into_its_prompt(opened: Opened) -> None:
    found: Any = VIEWS["left"](opened("poem"), text="the red")
    places: Any = VIEWS["positions"](opened("poem"))

    steps = found["steps"]
    assert [one["prompt"] for one in steps[1:]] == [one["text"] for one in steps[:-1]]
    assert steps[0]["likeliest"][0] == (steps[0]["token"], steps[0]["probability"])
    # PE(3, 0) = sin 3 and PE(3, 1) = cos 3.
    assert places["values"][3][:2] == pytest.approx([np.sin(3), np.cos(3)], abs=0.006)


def test_a_text_may_have_as_many_characters_as_the_page_takes() -> None:
    checked_text("a" * MOST_CHARACTERS)


@pytest.mark.parametrize("model", ["labels", "scores"])
def test_labels_and_scores_are_explained_too(model: str, opened: Opened) -> None:
    found: Any = VIEWS["classify"](opened(model), text="the red cat", without=0)

    assert (found["value"] is None) == (model == "labels")
    assert len(found["words"]) == 3


@pytest.mark.parametrize(
    ("name", "model", "given", "message"),
    [
        ("tokens", SMALL, {"text": "a" * (MOST_CHARACTERS + 1)}, "4,001 characters"),
        ("tokens", SMALL, {"text": "a " * MOST_PIECES}, "258 tokens"),
        ("tokens", SMALL, {"text": " "}, "write a word"),
        ("embedding", SMALL, {"text": "a", "position": 3}, "expected 0 to 2"),
        ("gap", "colours", {"text": "red", "word": 0}, "masked-LM head"),
        ("gap", SMALL, {"text": "red", "word": 1}, "expected 0 to 0"),
        ("cell", SMALL, {"text": "a", "layer": 7, "head": 1, "row": 0, "column": 0}, "1 to 6"),
        ("next", SMALL, {"text": "a", "pair": ""}, "segment B is empty"),
        ("training", SMALL, {"text": "a", "seed": 2**40}, "seed is"),
        ("answer", "tags", {"text": "a", "question": "a"}, "was trained to tag"),
        ("entities", "base", {"text": "a"}, "is not fine-tuned"),
        ("classify", "colours", {"text": "cat " * 20}, "the model reads 16"),
        ("classify", "colours", {"text": "a cat", "without": 2}, "expected 0 to 1"),
        ("choose", "choices", {"text": "a", "choices": ["a"]}, "one a line"),
        ("word-apart", SMALL, {"word": "cat", "text": "a", "pair": "a cat"}, "cat"),
        ("word-map", SMALL, {"words": ["a"]}, "with commas"),
        ("word-apart", SMALL, {"word": "a" * 5000, "text": "a", "pair": "a"}, "5,000 characters"),
    ],
)
def test_what_cannot_be_shown_is_said(
    name: str, model: str, given: dict[str, Any], message: str, opened: Opened
) -> None:
    with pytest.raises(TidyBertError, match=message):
        VIEWS[name](opened(model), **given)
