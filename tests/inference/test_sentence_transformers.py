"""Directories of sentence-transformers, which reads and writes them here as the oracle."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.sentence_directories import write_sentence_transformers

from tidybert.checkpoints.activations import ACTIVATIONS
from tidybert.checkpoints.dense import Dense
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.cli.main import run
from tidybert.errors import ConfigError, TidyBertError, UsageError, WeightsError
from tidybert.estimators import BertVectorizer
from tidybert.explain import Explainer
from tidybert.inference.embedding import Embedder
from tidybert.inference.loading import load

TEXTS = ["the red cat", "", "a dog", "we saw the old white hen near a new blue cow " * 2, "green"]
TANH, IDENTITY = "torch.nn.modules.activation.Tanh", "torch.nn.modules.linear.Identity"
PROMPTS = {"query": "red cow ", "document": ""}


def _dense(size: int, width: int, activation: str = TANH, bias: bool = True) -> Dense:
    generator = torch.Generator().manual_seed(size)
    weight = torch.randn(size, width, generator=generator)
    return Dense(weight, torch.randn(size, generator=generator) if bias else None, activation)


FORMS = {
    "mean": SentenceForm(),
    "cls": SentenceForm("cls", normalize=True, max_seq_length=9),
    "max": SentenceForm("max", prompts=PROMPTS),
    "dense": SentenceForm("mean", (_dense(12, 16), _dense(5, 12, IDENTITY, bias=False)), True),
    "all": SentenceForm("cls", (_dense(12, 16),), True, PROMPTS, "query", 8, 6),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> SentenceForm:
    return FORMS[request.param]


@pytest.fixture
def older(form: SentenceForm, tiny_model: Path, tmp_path: Path) -> Path:
    """A directory that tidybert wrote."""
    encoder, tokenizer = load(tiny_model)
    write_sentence_transformers(tmp_path / "older", encoder, tokenizer, form)
    return tmp_path / "older"


def _equal(found: SentenceForm, form: SentenceForm) -> bool:
    def plain(one: SentenceForm) -> Any:
        dense = [
            (str(each), {name: tensor.tolist() for name, tensor in each.state_dict().items()})
            for each in one.dense
        ]
        return replace(one, dense=()), dense

    return bool(plain(found) == plain(form))


@pytest.mark.filterwarnings("ignore::tidybert.errors.TruncationWarning")
def test_both_programs_give_the_same_vectors_of_either_form(
    form: SentenceForm, older: Path, tmp_path: Path
) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(older), device="cpu")
    theirs.truncate_dim = form.truncate_dim
    newer = tmp_path / "newer"
    theirs.save(str(newer), create_model_card=False)
    asked: list[dict[str, Any]] = [{}, {"truncate_dim": 3}]
    asked += [{"prompt_name": "document"}, {"prompt": "a cow "}] if form.prompts else []

    assert "embedding_dimension" in json.loads((newer / "1_Pooling/config.json").read_text())
    for given in asked:
        expected = theirs.encode(TEXTS, **given)
        for directory in (older, newer):
            embedder = Embedder(directory, **given)
            found = embedder.embed(TEXTS)
            np.testing.assert_allclose(found, expected, atol=1e-5)
            # In batches of other lengths.
            alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
            np.testing.assert_allclose(alone, expected, atol=1e-5)
    scaled = Embedder(newer, truncate_dim=3, normalize=True).embed(TEXTS)
    expected = theirs.encode(TEXTS, truncate_dim=3, normalize_embeddings=True)
    np.testing.assert_allclose(scaled, expected, atol=1e-5)


def test_what_is_written_is_read_back(form: SentenceForm, older: Path, tiny_model: Path) -> None:
    found = read_sentence_form(ModelDirectory(older))

    length = form.max_seq_length or 32
    assert _equal(found, replace(form, max_seq_length=length))
    ours, theirs = (load(each)[0].state_dict() for each in (tiny_model, older))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_that_of_sentence_transformers(
    activation: str, tiny_model: Path, tmp_path: Path
) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    encoder, tokenizer = load(tiny_model)
    form = SentenceForm(dense=(_dense(4, 16, activation),))
    write_sentence_transformers(tmp_path / "model", encoder, tokenizer, form)

    expected = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")

    found = Embedder(tmp_path / "model").embed(TEXTS[:3])
    np.testing.assert_allclose(found, expected.encode(TEXTS[:3]), atol=1e-5)


@pytest.fixture
def whole(tiny_model: Path, tmp_path: Path) -> Path:
    """A directory with every module, and a prompt that is put before each text."""
    encoder, tokenizer = load(tiny_model)
    write_sentence_transformers(tmp_path / "whole", encoder, tokenizer, FORMS["all"])
    return tmp_path / "whole"


def test_every_face_gives_the_vectors_of_the_directory(
    whole: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    texts = ["a red cat", "the dog"]
    expected = Embedder(whole).embed(texts)

    np.testing.assert_array_equal(BertVectorizer(str(whole)).fit_transform(texts), expected)
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    assert run(["embed", str(whole), str(tmp_path / "texts.txt")]) == 0
    printed = [json.loads(line)["vector"] for line in capsysbinary.readouterr().out.splitlines()]
    np.testing.assert_allclose(printed, expected, atol=1e-6)
    similar = Explainer(whole).similarities(texts)
    # It looks into a plain model, whose products may be another library's.
    np.testing.assert_allclose(similar.vectors, expected, atol=1e-6)
    unlike = BertVectorizer(str(whole), prompt="", normalize=False, truncate_dim=4)
    assert unlike.fit_transform(texts).shape == (2, 4)


def test_arguments_win_over_the_directory(whole: Path, tiny_model: Path) -> None:
    """Without Dense, the vectors are those of the plain encoder."""
    encoder, tokenizer = load(tiny_model)
    plain = whole.with_name("plain")
    write_sentence_transformers(plain, encoder, tokenizer, replace(FORMS["all"], dense=()))
    given: dict[str, Any] = {"pooling": "max", "normalize": False, "max_seq_length": 32}

    found = Embedder(plain, **given, prompt="", truncate_dim=16).embed(TEXTS)

    expected = Embedder(tiny_model, **given).embed(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_token_vectors_have_the_prompt_but_no_module(whole: Path) -> None:
    (one,) = Embedder(whole).embed_tokens(["a cat"])

    assert one.tokens == ["[CLS]", "red", "cow", "a", "cat", "[SEP]"]
    assert one.vectors.shape == (6, 16)
    assert not np.allclose(np.linalg.norm(one.vectors, axis=1), 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"prompt_name": "querry"},
            "prompt_name='querry': the model has no prompt of .*; did",
        ),
        ({"prompt_name": "query", "prompt": "a"}, "prompt and prompt_name: give one of the two"),
        ({"truncate_dim": 13}, "truncate_dim=13: expected 1 to 12"),
        ({"layers": 1}, "layers=1: the Dense module of .* reads the last layer alone"),
    ],
)
def test_an_argument_that_does_not_fit(whole: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Embedder(whole, **given)


def _change(path: Path, **values: Any) -> None:
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, **values}))


def test_a_dense_has_a_bias_unless_its_config_says_no(tiny_model: Path, tmp_path: Path) -> None:
    encoder, tokenizer = load(tiny_model)
    form = SentenceForm("mean", (_dense(12, 16),))
    write_sentence_transformers(tmp_path / "older", encoder, tokenizer, form)
    expected = Embedder(tmp_path / "older").embed(TEXTS)
    path = tmp_path / "older/2_Dense/config.json"
    config = json.loads(path.read_text())
    assert config.pop("bias") is True
    path.write_text(json.dumps(config))
    assert np.array_equal(Embedder(tmp_path / "older").embed(TEXTS), expected)


def _modules(folder: Path, *kinds: str, path: str | None = None) -> None:
    entries = [
        {"type": kind, "path": path if number == 1 and path else f"{number}_x"[: 9 * number]}
        for number, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(entries))


OLD = "sentence_transformers.models."
FAULTS: dict[str, tuple[Callable[[Path], Any], type[TidyBertError], str]] = {
    "module": (
        lambda one: _modules(one, f"{OLD}Transformer", f"{OLD}LSTM"),
        ConfigError,
        r"modules.json: tidybert does not know the module 'sentence_transformers.models.LSTM'",
    ),
    "another package": (
        lambda one: _modules(one, "custom_st.Transformer"),
        ConfigError,
        "does not know the module 'custom_st.Transformer'",
    ),
    "order": (
        lambda one: _modules(one, f"{OLD}Transformer", f"{OLD}Normalize", f"{OLD}Pooling"),
        ConfigError,
        "the modules are Transformer, Normalize, Pooling; tidybert computes",
    ),
    "traversal": (
        lambda one: _modules(one, f"{OLD}Transformer", f"{OLD}Pooling", path="../1_Pooling"),
        ConfigError,
        "the path '../1_Pooling' of .*Pooling is not a plain folder name",
    ),
    "no list": (
        lambda one: (one / "modules.json").write_text("{}"),
        ConfigError,
        "modules.json: a list of JSON objects was expected",
    ),
    "mode": (
        lambda one: _change(one / "1_Pooling/config.json", pooling_mode_mean_tokens=True),
        ConfigError,
        r"1_Pooling/config.json: the pooling is cls and mean; tidybert computes one of mean, cls",
    ),
    "newer mode": (
        lambda one: _change(one / "1_Pooling/config.json", pooling_mode="lasttoken"),
        ConfigError,
        "the pooling is lasttoken",
    ),
    "width": (
        lambda one: _change(one / "1_Pooling/config.json", word_embedding_dimension=17),
        ConfigError,
        "for states of 17 numbers, and the encoder's have 16",
    ),
    "activation": (
        lambda one: _change(one / "2_Dense/config.json", activation_function="os.system"),
        ConfigError,
        "2_Dense/config.json: the activation_function is 'os.system'",
    ),
    "residual": (
        lambda one: _change(one / "2_Dense/config.json", use_residual=True),
        ConfigError,
        "use_residual is True; tidybert computes False",
    ),
    "shape": (
        lambda one: _change(one / "2_Dense/config.json", out_features=11),
        WeightsError,
        r"2_Dense: its weights are .*12, 16.*; the Dense of config.json",
    ),
    "no weights": (
        lambda one: (one / "2_Dense/model.safetensors").unlink(),
        WeightsError,
        "2_Dense: no weights here",
    ),
    "length": (
        lambda one: _change(one / "sentence_bert_config.json", max_seq_length=0),
        ConfigError,
        "max_seq_length is 0; expected a whole number from 1 on",
    ),
    "task": (
        lambda one: _change(one / "sentence_bert_config.json", transformer_task="fill-mask"),
        ConfigError,
        "transformer_task is 'fill-mask'",
    ),
    "prompts": (
        lambda one: _change(one / "config_sentence_transformers.json", prompts={"a": 1}),
        ConfigError,
        "config_sentence_transformers.json: prompts is {'a': 1}",
    ),
    "default": (
        lambda one: _change(one / "config_sentence_transformers.json", default_prompt_name="b"),
        ConfigError,
        "default_prompt_name is 'b', which is not in prompts",
    ),
    "kind": (
        lambda one: _change(one / "config_sentence_transformers.json", model_type="SparseEncoder"),
        ConfigError,
        "model_type is 'SparseEncoder'",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_directory_that_is_not_computed_is_refused(whole: Path, name: str) -> None:
    spoil, error, message = FAULTS[name]
    spoil(whole)

    with pytest.raises(error, match=message):
        Embedder(whole)


@pytest.mark.weights
def test_minilm_is_what_sentence_transformers_makes_of_it(minilm_directory: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    texts = ["A late train.", "The train was late, as it has been every day this week.", "Soup"]
    theirs = sentence_transformers.SentenceTransformer(str(minilm_directory), device="cpu")

    np.testing.assert_allclose(Embedder("minilm").embed(texts), theirs.encode(texts), atol=1e-5)
