"""A MODEL in every form and precision, with every head, and what a form has no place for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.sentence_directories import write_sentence_transformers
from torch import Tensor

from tidybert.checkpoints.converting import DTYPES, HEADS, WRITERS, convert
from tidybert.checkpoints.dense import Dense
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.checkpoints.tensorflow_bundle import TensorBundle, write_bundle
from tidybert.cli.main import run as shell
from tidybert.errors import UsageError, WeightsError
from tidybert.inference.embedding import Embedder
from tidybert.inference.loading import load
from tidybert.inference.predictor import Predictor
from tidybert.tasks.classification import Classification
from tidybert.tokenization import BertTokenizer

Make = Callable[[str], tuple[Path, Any]]
SEQUENCES = ("BertForSequenceClassification", "BertForMultipleChoice")
TEXTS = ["the red cat", "a dog", "we saw the old hen near a new blue cow"]


@pytest.mark.parametrize(
    ("dtype", "max_bytes"), [(None, None), ("float32", 3000), ("float16", 3000), ("bfloat16", None)]
)
@pytest.mark.parametrize("form", WRITERS)
def test_every_head_comes_back_to_the_bit(
    pretrained: Make,
    architecture: str,
    form: str,
    dtype: str | None,
    max_bytes: int | None,
    tmp_path: Path,
) -> None:
    """From transformers' directory to a form, and from there to transformers' again."""
    source, theirs = pretrained(architecture)
    kind = DTYPES[dtype or "float32"]
    expected = {name: each.to(kind) for name, each in _kept(theirs.state_dict(), form).items()}

    done = convert(
        ModelDirectory(source), tmp_path / "out", form, dtype=dtype, max_shard_bytes=max_bytes
    )

    assert (done.architecture, done.dtypes) == (architecture, (dtype or "float32",))
    weights = [*(tmp_path / "out").glob("*.safetensors"), *(tmp_path / "out").glob("*.data-*")]
    assert (len(weights) > 1) == (max_bytes is not None)
    found = read_tensors(tmp_path / "out")
    if form == "tensorflow":
        back = convert(ModelDirectory(tmp_path / "out"), tmp_path / "back", "huggingface")
        assert (back.architecture, back.lost) == (architecture, ())
        found = read_tensors(tmp_path / "back")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == kind
        assert torch.equal(found[name], tensor), name


def _kept(state: dict[str, Tensor], form: str) -> dict[str, Tensor]:
    """What the form holds of transformers' state, without the tied decoder."""
    state = {name: each for name, each in state.items() if "decoder" not in name}
    if form == "sentence-transformers":
        state = {
            name.removeprefix("bert."): each
            for name, each in state.items()
            if not name.startswith(tuple(HEADS))
        }
    return state


@pytest.mark.parametrize("max_bytes", [None, 3000])
def test_transformers_opens_what_was_converted(
    pretrained: Make, architecture: str, max_bytes: int | None, tmp_path: Path
) -> None:
    source, theirs = pretrained(architecture)

    convert(ModelDirectory(source), tmp_path / "out", "huggingface", max_shard_bytes=max_bytes)

    again, report = getattr(transformers, architecture).from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    state = theirs.state_dict()
    assert all(torch.equal(each, state[name]) for name, each in again.state_dict().items())


def test_heads_that_have_no_place_are_named(pretrained: Make, architecture: str) -> None:
    source, _ = pretrained(architecture)
    out = source.with_name(f"{source.name}-vectors")

    done = convert(ModelDirectory(source), out, "sentence-transformers")

    expected = {
        "BertForPreTraining": ("the masked-LM head", "the next-sentence head"),
        "BertForMaskedLM": ("the masked-LM head",),
        "BertForNextSentencePrediction": ("the next-sentence head",),
        "BertForTokenClassification": ("the classification head",),
        "BertForQuestionAnswering": ("the question-answering head",),
    }
    assert done.lost == expected.get(architecture, ())


@pytest.fixture(params=["cls", "mean"])
def classifier(
    request: pytest.FixtureRequest, tmp_path: Path, tiny_config: Any, tiny_model: Path
) -> Path:
    """A RUN whose head reads [CLS] or the mean."""
    torch.manual_seed(2)
    task = Classification(["animal", "colour", "none"], temperature=1.5)
    config = tiny_config().with_pooling(request.param)
    save_model_directory(
        tmp_path / "run",
        model_state=task.build_model(config).state_dict(),
        config=config,
        tokenizer=BertTokenizer.from_pretrained(tiny_model),
        metadata=ModelMetadata("classify", task.label_names, 16, settings=task.settings()),
        architecture=task.architecture,
    )
    return tmp_path / "run"


def test_a_classifier_leaves_whole(classifier: Path, tmp_path: Path) -> None:
    """sentence-transformers computes the logits of the head, of [CLS] or of the mean."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    predictor = Predictor(classifier)

    done = convert(ModelDirectory(classifier), tmp_path / "out", "sentence-transformers")

    model = sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    logits = model.encode(TEXTS)
    scores = [list(one["scores"].values()) for one in predictor.predict(TEXTS)]
    expected = torch.softmax(torch.tensor(logits) / 1.5, -1).numpy()
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    np.testing.assert_allclose(Embedder(tmp_path / "out").embed(TEXTS), logits, atol=1e-5)
    assert model.max_seq_length == 16
    assert done.lost == ("the task classify and its settings (tidybert.json)",)


@pytest.mark.parametrize("form", ["huggingface", "tensorflow"])
def test_a_run_answers_the_same_in_another_form(
    classifier: Path, form: str, tmp_path: Path
) -> None:
    is_mean = json.loads((classifier / "config.json").read_text())["model_type"] == "bert-mean"

    done = convert(ModelDirectory(classifier), tmp_path / "out", form, max_shard_bytes=5000)

    expected = list(Predictor(classifier).predict(TEXTS))
    assert list(Predictor(tmp_path / "out").predict(TEXTS)) == expected
    assert [("mean" in each) for each in done.lost] == [True] * is_mean
    (tmp_path / "out" / "vocab.txt").write_text("swapped")
    with pytest.raises(WeightsError, match=r"changed since the model was saved: vocab\.txt"):
        Predictor(tmp_path / "out")


def test_modules_and_prompts_that_are_lost_are_named(tiny_model: Path, tmp_path: Path) -> None:
    dense = Dense(torch.ones(5, 16), None, "torch.nn.modules.linear.Identity")
    form = SentenceForm("max", (dense,), True, {"query": "a", "none": ""}, None, 9, 4)
    write_sentence_transformers(tmp_path / "in", *load(tiny_model), form)
    source = ModelDirectory(tmp_path / "in")

    lost = convert(source, tmp_path / "hf", "huggingface").lost
    kept = convert(source, tmp_path / "same", "sentence-transformers")

    assert lost == (
        "the pooling max",
        "the Dense module to 5 numbers",
        "the scaling to length 1",
        "the prompt 'query'",
        "the cut to 4 numbers (truncate_dim)",
    )
    expected = (*lost, "the longest text of 9 tokens")
    assert convert(source, tmp_path / "tf", "tensorflow").lost == expected
    assert kept.lost == ()
    for path in (tmp_path / "in").rglob("*"):
        if path.is_file():
            assert (tmp_path / "same" / path.relative_to(tmp_path / "in")).read_bytes() == (
                path.read_bytes()
            )


def test_old_names_of_layer_norm_and_buffers_are_read(pretrained: Make, tmp_path: Path) -> None:
    source, _ = pretrained("BertForPreTraining")
    old = tmp_path / "old"
    convert(ModelDirectory(source), old, "huggingface")
    # Copies: the file is written again below, and the tensors may still be a view of it.
    stored = {name: each.clone() for name, each in load_file(old / "model.safetensors").items()}
    renamed = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): each
        for name, each in stored.items()
    }
    renamed["bert.embeddings.position_ids"] = torch.arange(32)[None]
    renamed["cls.predictions.decoder.weight"] = stored[
        "bert.embeddings.word_embeddings.weight"
    ].clone()
    renamed["visual.weight"] = torch.ones(1)
    save_file(renamed, old / "model.safetensors", {"format": "pt"})

    done = convert(ModelDirectory(old), tmp_path / "new", "huggingface")

    assert done.lost == ("visual.weight",)
    found = load_file(tmp_path / "new/model.safetensors")
    assert found.keys() == stored.keys()
    assert all(torch.equal(found[name], each) for name, each in stored.items())


def test_variables_of_an_optimizer_are_counted(pretrained: Make, tmp_path: Path) -> None:
    source, _ = pretrained("BertForPreTraining")
    convert(ModelDirectory(source), tmp_path / "tf", "tensorflow")
    index = tmp_path / "tf/bert_model.ckpt.index"
    bundle = TensorBundle(index)
    variables = {name: bundle.read(name) for name in bundle.variables}
    more = {"global_step": torch.tensor(7), "bert/pooler/dense/bias/adam_m": torch.ones(16)}
    write_bundle(index, {**variables, **more, "other/kernel": torch.ones(2)})

    done = convert(ModelDirectory(tmp_path / "tf"), tmp_path / "out", "huggingface")

    assert done.lost == ("2 variables of the optimizer", "other/kernel")


def test_what_cannot_be_converted_leaves_nothing(pretrained: Make, tmp_path: Path) -> None:
    source, _ = pretrained("BertModel")
    large = tmp_path / "large"
    convert(ModelDirectory(source), large, "huggingface")
    stored = load_file(large / "model.safetensors")
    stored["pooler.dense.bias"] += 1e5
    save_file(stored, large / "model.safetensors", {"format": "pt"})

    with pytest.raises(UsageError, match=r"'float16' has no number as large as some in pooler"):
        convert(ModelDirectory(large), tmp_path / "out", "huggingface", dtype="float16")
    with pytest.raises(UsageError, match="large is there already; name a new directory"):
        convert(ModelDirectory(source), large, "huggingface")
    del stored["encoder.layer.1.output.dense.weight"]
    save_file(stored, large / "model.safetensors", {"format": "pt"})
    with pytest.raises(WeightsError, match="the encoder's weights are incomplete"):
        convert(ModelDirectory(large), tmp_path / "out", "tensorflow")
    assert not (tmp_path / "out").exists()


def test_the_command(tiny_run: Path, tmp_path: Path, capsys: Any) -> None:
    out = str(tmp_path / "out")
    words = ["convert", str(tiny_run), out, "--to", "sentence-transformers", "--dtype", "bfloat16"]

    assert shell(words) == 0

    said = capsys.readouterr()
    assert said.out.startswith(f"{out}: BertForSequenceClassification for sentence-transformers, ")
    assert said.out.endswith(" parameters, bfloat16\n")
    assert "lost: the task classify and its settings (tidybert.json)" in said.err
    words = ["convert", out, f"{out}2", "--to", "huggingface", "--max-shard-size", "5KB", "--json"]
    assert shell(words) == 0
    assert json.loads(capsys.readouterr().out)["lost"] == [
        "the pooling cls",
        "the Dense module to 16 numbers",
        "the Dense module to 2 numbers",
    ]
    assert (tmp_path / "out2/model.safetensors.index.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "onx"], "--to 'onx'"),
        (["--to", "huggingfac"], "did you mean 'huggingface'?"),
        (["--to", "tensorflow", "--dtype", "int8"], "--dtype 'int8': expected one of float32,"),
        (["--to", "tensorflow", "--max-shard-size", "5"], "--max-shard-size '5': expected a size"),
    ],
)
def test_wrong_usage(words: list[str], message: str, tiny_model: Path, capsys: Any) -> None:
    assert shell(["convert", str(tiny_model), str(tiny_model / "out"), *words]) == 2
    assert message in capsys.readouterr().err


def test_the_layout_is_that_of_text_embeddings_inference(tiny_run: Path, tmp_path: Path) -> None:
    """Its files and keys, as its README and its structs of config.json have them."""
    convert(ModelDirectory(tiny_run), tmp_path / "out", "sentence-transformers")

    def read(name: str) -> Any:
        return json.loads((tmp_path / "out" / name).read_text())

    kinds = [each["type"] for each in read("modules.json")]
    package = "sentence_transformers.models."
    assert kinds == [f"{package}{kind}" for kind in ("Transformer", "Pooling", "Dense", "Dense")]
    assert [each["path"] for each in read("modules.json")] == [
        "",
        "1_Pooling",
        "2_Dense",
        "3_Dense",
    ]
    pooling = read("1_Pooling/config.json")
    assert pooling["pooling_mode_cls_token"] is True
    assert pooling["pooling_mode_mean_tokens"] is False
    assert pooling["word_embedding_dimension"] == 16
    dense = read("2_Dense/config.json")
    assert (dense["in_features"], dense["out_features"], dense["bias"]) == (16, 16, True)
    assert dense["activation_function"] == "torch.nn.modules.activation.Tanh"
    weights = load_file(tmp_path / "out/2_Dense/model.safetensors")
    assert sorted(weights) == ["linear.bias", "linear.weight"]
    assert read("sentence_bert_config.json")["max_seq_length"] == 16
    assert read("tokenizer.json")["model"]["type"] == "WordPiece"
    config = read("config.json")
    assert (config["architectures"], config["model_type"]) == (["BertModel"], "bert")
    assert {"hidden_act", "layer_norm_eps", "type_vocab_size", "pad_token_id"} <= config.keys()
    encoder = load_file(tmp_path / "out/model.safetensors")
    assert "embeddings.word_embeddings.weight" in encoder
    assert "encoder.layer.0.attention.self.query.weight" in encoder
