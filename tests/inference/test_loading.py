"""Loading models of any origin, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tidybert.configuration import BertConfig
from tidybert.errors import (
    ConfigError,
    ModelNotFoundError,
    UsageError,
    VocabularyError,
    WeightsError,
)
from tidybert.inference.loading import OpenedModel, choose_device, load, to_device
from tidybert.inference.predictor import Predictor
from tidybert.modeling import Rows
from tidybert.tasks.classification import Classification
from tidybert.tasks.regression import Regression
from tidybert.tokenization import BertTokenizer

TEXTS = ["we saw a red hen", "the dog", "old and new and blue and white", "a"]


@pytest.fixture
def foreign(
    tmp_path: Path,
    tiny_config: Callable[..., BertConfig],
    tiny_model: Path,
    reference: Callable[..., Any],
) -> Callable[..., tuple[Path, Any]]:
    """Makes a directory that transformers saved, and its model."""

    def make(name: str = "BertForSequenceClassification", **overrides: Any) -> tuple[Path, Any]:
        model = reference(tiny_config(), name, **overrides)
        model.save_pretrained(tmp_path)
        BertTokenizer.from_pretrained(tiny_model).save(tmp_path)
        return tmp_path, model

    return make


def their_logits(model: Any, directory: Path) -> torch.Tensor:
    """transformers' logits of TEXTS, each alone."""
    tokenizer = BertTokenizer.from_pretrained(directory)
    with torch.no_grad():
        logits = [model(torch.tensor([tokenizer.encode(text).input_ids])).logits for text in TEXTS]
    return torch.cat(logits)


def test_the_encoder_of_a_model_and_of_a_finished_run(tiny_model: Path, tiny_run: Path) -> None:
    encoder, tokenizer = load(tiny_model)
    assert tokenizer.vocab_size == 24
    assert not encoder.training
    assert encoder.pooler is not None

    tuned, _ = load(tiny_run)
    rows = Rows.from_lists([tokenizer.encode("the red hen").input_ids])
    assert tuned(rows).pooler_output.shape == (1, 16)
    assert not torch.equal(tuned(rows).pooler_output, encoder(rows).pooler_output)


def test_weights_without_a_pooler_have_none(foreign: Callable[..., Any]) -> None:
    directory, theirs = foreign("BertForMaskedLM")

    encoder, tokenizer = load(directory)

    assert encoder.pooler is None
    rows = Rows.from_lists([tokenizer.encode(TEXTS[0]).input_ids])
    with torch.no_grad():
        expected = theirs.bert(rows.input_ids[None]).last_hidden_state[0]
        torch.testing.assert_close(encoder(rows).last_hidden_state, expected, atol=1e-5, rtol=0)
        assert encoder(rows).pooler_output is None


def test_transformers_opens_a_run_to_the_same_logits(tiny_run: Path) -> None:
    import transformers

    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_run).eval()
    found = OpenedModel(tiny_run, device="cpu", precision=None).finished
    task, model, tokenizer = found.task, found.model, found.tokenizer

    assert theirs.config.id2label == {0: "animal", 1: "colour"}
    ids = [tokenizer.encode(text).input_ids for text in TEXTS]
    with torch.no_grad():
        ours = model(Rows.from_lists(ids))
    torch.testing.assert_close(ours, their_logits(theirs, tiny_run), atol=1e-5, rtol=0)
    assert task.label_names == ("animal", "colour")

    their_tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_run)
    assert their_tokenizer(TEXTS)["input_ids"] == ids


def test_transformers_opens_a_run_of_scores(tiny_score_run: Path) -> None:
    import transformers

    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_score_run).eval()
    values = [answer["value"] for answer in Predictor(tiny_score_run).predict(TEXTS)]

    assert theirs.config.problem_type == "regression"
    assert values == pytest.approx(their_logits(theirs, tiny_score_run)[:, 0].tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        ({}, ["LABEL_0", "LABEL_1"]),
        ({"num_labels": 3}, ["LABEL_0", "LABEL_1", "LABEL_2"]),
        (
            {
                "id2label": {0: "no", 1: "yes", 2: "both"},
                "label2id": {"no": 0, "yes": 1, "both": 2},
            },
            ["no", "yes", "both"],
        ),
    ],
)
def test_a_classifier_that_transformers_saved_predicts_the_same(
    foreign: Callable[..., Any], overrides: dict[str, Any], names: list[str]
) -> None:
    directory, theirs = foreign(**overrides)
    expected = their_logits(theirs, directory).softmax(-1)

    answers = Predictor(directory).predict(TEXTS)

    assert [list(answer["scores"]) for answer in answers] == [names] * len(TEXTS)
    scores = torch.tensor([list(answer["scores"].values()) for answer in answers])
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=0)
    assert [answer["label"] for answer in answers] == [names[each] for each in expected.argmax(1)]


def test_a_regressor_that_transformers_saved_predicts_the_same(
    foreign: Callable[..., Any],
) -> None:
    directory, theirs = foreign(num_labels=1)

    values = [answer["value"] for answer in Predictor(directory).predict(TEXTS)]

    assert values == pytest.approx(their_logits(theirs, directory)[:, 0].tolist(), abs=1e-5)
    assert isinstance(OpenedModel(directory).finished.task, Regression)


def test_a_model_of_several_labels_a_text_that_transformers_saved_predicts_the_same(
    foreign: Callable[..., Any],
) -> None:
    directory, theirs = foreign(num_labels=3, problem_type="multi_label_classification")
    expected = their_logits(theirs, directory).sigmoid()

    answers = Predictor(directory).predict(TEXTS)

    scores = torch.tensor([list(answer["scores"].values()) for answer in answers])
    torch.testing.assert_close(scores, expected.to(scores), atol=1e-5, rtol=0)
    names = ["LABEL_0", "LABEL_1", "LABEL_2"]
    chosen = [[names[at] for at in range(3) if row[at] >= 0.5] for row in expected]
    assert [answer["labels"] for answer in answers] == chosen
    assert 0 < sum(map(len, chosen)) < 3 * len(TEXTS)


@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM"])
def test_a_model_without_a_head_says_how_to_get_one(name: str, foreign: Callable[..., Any]) -> None:
    directory, _ = foreign(name)

    with pytest.raises(WeightsError, match=f"config.json names {name}.*finetune"):
        Predictor(directory)


def test_a_head_that_only_config_json_claims_is_missed(foreign: Callable[..., Any]) -> None:
    directory, _ = foreign("BertModel")
    config = json.loads((directory / "config.json").read_text())
    config["architectures"] = ["BertForSequenceClassification"]
    (directory / "config.json").write_text(json.dumps(config))

    with pytest.raises(WeightsError, match=r"has no classifier\.weight, classifier\.bias"):
        Predictor(directory)


def test_pre_trained_weights_predict_nothing_yet() -> None:
    """They have a tidybert.json, of their pre-training."""
    with pytest.raises(WeightsError, match=r"tidybert-small has no head that predicts .*: fine-"):
        Predictor("tidybert-small")


def test_a_tiny_model_directory_without_architectures_has_no_head(tiny_model: Path) -> None:
    with pytest.raises(WeightsError, match="no architecture"):
        Predictor(tiny_model)


@pytest.mark.parametrize("name", ["vocab.txt", "config.json", "model.safetensors"])
def test_a_part_that_was_swapped_is_an_error(name: str, tiny_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "swapped"
    shutil.copytree(tiny_run, run)
    content = (run / name).read_bytes()
    changed = content.replace(b"red", b"der", 1) if name == "vocab.txt" else content + b" "
    assert changed != content
    (run / name).write_bytes(changed)

    for use in (Predictor, load):
        with pytest.raises(WeightsError, match=f"changed since the model was saved: {name}"):
            use(run)


def test_a_length_above_the_positions_of_the_model_is_an_error(
    tiny_run: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(tiny_run, tmp_path / "run")
    path = run / "tidybert.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_seq_length": 100_000}))

    with pytest.raises(ConfigError, match="max_seq_length is 100000, but the model has"):
        Predictor(run)


def test_a_vocabulary_larger_than_the_embeddings_is_an_error(foreign: Callable[..., Any]) -> None:
    directory, _ = foreign()
    (directory / "tokenizer.json").unlink()
    with (directory / "vocab.txt").open("a") as file:
        file.write("more\n")

    for use in (Predictor, load):
        with pytest.raises(VocabularyError, match=r"25 entries, config\.json says 24"):
            use(directory)


def test_new_weights_are_drawn_only_where_the_file_has_none(
    foreign: Callable[..., Any], tiny_config: Callable[..., BertConfig]
) -> None:
    from tidybert.checkpoints.model_directory import ModelDirectory

    directory, theirs = foreign("BertForMaskedLM")
    task = Classification(["a", "b"])
    torch.manual_seed(1)
    model, report = ModelDirectory(directory).build(task.build_model, config=tiny_config())

    assert set(report.new) == {
        f"{module}.{kind}"
        for module in ("bert.pooler.dense", "classifier")
        for kind in ("weight", "bias")
    }
    for module in (model.bert.pooler.dense, model.classifier):
        assert (module.bias == 0).all()
        # A normal that nobody cuts: of a hundred numbers none is this far out.
        assert 0 < module.weight.abs().max() <= 5 * tiny_config().initializer_range
    ours = model.bert.embeddings.word_embeddings.weight
    assert torch.equal(ours, theirs.bert.embeddings.word_embeddings.weight)


def test_names_that_are_no_model_are_refused() -> None:
    for use in (Predictor, load):
        with pytest.raises(ModelNotFoundError, match="nowhere"):
            use("nowhere")
        with pytest.raises(ModelNotFoundError, match="size"):
            use("mini")


def test_devices() -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type in ("cpu", "cuda")
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="no CUDA device"):
            choose_device("cuda:0")


@pytest.mark.parametrize(
    "name", ["gpu", "meta", "xpu", "cpu:1", "mps", "cuda:", "cuda:-1", "cuda:a", "CUDA", ""]
)
def test_what_names_no_device_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"device='{name}': expected auto, cpu, cuda or cuda:N"):
        choose_device(name)


def test_only_devices_that_are_there_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda")
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    for name in ("cuda:2", "cuda:99999"):
        with pytest.raises(UsageError, match=f"device='{name}': .* expected cuda:0 to cuda:1"):
            choose_device(name)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UsageError, match=r"device='cuda:9': .* expected cuda:0$"):
        choose_device("cuda:9")


def test_a_device_without_room_for_the_model_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(1024, 1024, bias=False)
    assert to_device(model, "cpu") == torch.device("cpu")

    def full(device: torch.device) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(model, "to", full)
    with pytest.raises(UsageError, match=r"^device='cpu': cpu has no room for the model, 4 MiB"):
        to_device(model, "cpu")
