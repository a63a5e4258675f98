"""Cross-encoders of sentence-transformers: their scores here, and those of RUNs there."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from tidybert.checkpoints.converting import ExtensibleModel, convert
from tidybert.checkpoints.example_kinds import PAIR
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.cli.main import run as shell
from tidybert.errors import ConfigError, DataError
from tidybert.finetuning.head_start import built_from
from tidybert.inference.predictor import CrossEncoder, Predictor
from tidybert.system.reporter import Reporter
from tidybert.tasks.regression import Regression
from tidybert.tokenization import BertTokenizer

sentence_transformers = pytest.importorskip("sentence_transformers")
transformers = pytest.importorskip("transformers")

TORCH = "torch.nn.modules"
SIGMOID, IDENTITY = f"{TORCH}.activation.Sigmoid", f"{TORCH}.linear.Identity"
FORMS: dict[str, dict[str, Any]] = {
    "old": {"sbert_ce_default_activation_function": IDENTITY},
    "old-default": {"sbert_ce_default_activation_function": None},
    "new": {"sentence_transformers": {"activation_fn": SIGMOID, "version": "4.1.0"}},
    "new-default": {"sentence_transformers": {"version": "4.1.0"}},
    "other": {"sentence_transformers": {"activation_fn": f"{TORCH}.activation.Tanh"}},
}
FIRSTS = ["a red cat", "the old dog was near", "a cow", "blue dog"]
SECONDS = ["the cat", "a dog", "blue red green old cow cat dog was near the a " * 4, "cat cat"]


def theirs(folder: Path, **given: Any) -> Any:
    return sentence_transformers.CrossEncoder(str(folder), device="cpu", **given)


def scores_there(folder: Path, **given: Any) -> Any:
    return theirs(folder).predict(list(zip(FIRSTS, SECONDS, strict=True)), **given)


def scores_here(folder: Path) -> Any:
    return CrossEncoder.open(folder, device="cpu").scores(FIRSTS, SECONDS)


@pytest.fixture
def make(tmp_path: Path, tiny_config: Any, tiny_model: Path) -> Callable[..., Path]:
    """Makes a directory with a head of transformers, and keys in its config.json."""

    def build(keys: dict[str, Any], num_labels: int = 1) -> Path:
        torch.manual_seed(3)
        config = transformers.BertConfig(
            **{**tiny_config().to_dict(), "initializer_range": 0.4}, num_labels=num_labels
        )
        folder = tmp_path / "theirs"
        transformers.BertForSequenceClassification(config).save_pretrained(folder)
        BertTokenizer.from_pretrained(tiny_model).save(folder, model_max_length=24)
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**values, **keys}))
        return folder

    return build


@pytest.mark.parametrize("form", FORMS)
def test_scores_are_those_of_cross_encoder(make: Callable[..., Path], form: str) -> None:
    folder = make(FORMS[form])

    np.testing.assert_allclose(scores_here(folder), scores_there(folder), atol=1e-5)
    values = [each["value"] for each in Predictor(folder).predict(FIRSTS, SECONDS)]
    np.testing.assert_allclose(values, scores_here(folder), atol=1e-6)


def test_the_form_of_today_opens(make: Callable[..., Path], tmp_path: Path) -> None:
    tanh = torch.nn.Tanh()
    theirs(make({}), activation_fn=tanh).save_pretrained(str(tmp_path / "saved"))
    assert "sentence_transformers" not in (tmp_path / "saved/config.json").read_text()

    np.testing.assert_allclose(
        scores_here(tmp_path / "saved"), scores_there(tmp_path / "saved"), atol=1e-5
    )
    with pytest.raises(DataError, match="a single text, but the model was trained on pairs"):
        Predictor(tmp_path / "saved").predict("a red cat")
    for form in ("huggingface", "sentence-transformers"):
        convert(ModelDirectory(tmp_path / "saved"), tmp_path / form, form)
        np.testing.assert_array_equal(scores_here(tmp_path / form), scores_here(tmp_path / "saved"))
        np.testing.assert_allclose(
            scores_there(tmp_path / form), scores_there(tmp_path / "saved"), atol=1e-6
        )


def test_classes_are_their_softmax(make: Callable[..., Path]) -> None:
    folder = make(FORMS["old"], num_labels=3)

    scores = [[*each["scores"].values()] for each in Predictor(folder).predict(FIRSTS, SECONDS)]

    np.testing.assert_allclose(scores, scores_there(folder, apply_softmax=True), atol=1e-5)


@pytest.mark.parametrize("num_labels", [1, 2])
def test_an_unknown_activation_is_an_error(
    make: Callable[..., Path], num_labels: int, capsys: Any
) -> None:
    folder = make({"sentence_transformers": {"activation_fn": "my.Curve"}}, num_labels)

    with pytest.raises(ConfigError, match=r"the activation of its scores is 'my\.Curve'; tidy"):
        Predictor(folder)
    assert shell(["info", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["activation"], "unread_keys" in found) == ("my.Curve", False)


def test_a_prompt_is_an_error(make: Callable[..., Path]) -> None:
    folder = make({"sentence_transformers": {"default_prompt_name": "query"}})

    with pytest.raises(ConfigError, match="without a default prompt is expected"):
        Predictor(folder)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("form", ["huggingface", "sentence-transformers"])
def test_a_run_leaves_for_it(
    pooling: str, form: str, tiny_config: Any, tiny_model: Path, tmp_path: Path
) -> None:
    torch.manual_seed(2)
    task, run = Regression(), tmp_path / "run"
    config = tiny_config(initializer_range=0.4).with_pooling(pooling)
    save_model_directory(
        run,
        model_state=task.build_model(config).state_dict(),
        config=config,
        tokenizer=BertTokenizer.from_pretrained(tiny_model),
        metadata=ModelMetadata("regress", None, 20, PAIR, task.settings()),
        architecture=task.architecture,
        problem_type=task.problem_type,
    )

    done = convert(ModelDirectory(run), tmp_path / "out", form)

    if (pooling, form) == ("mean", "huggingface"):
        assert any("bert-mean" in each for each in done.lost)
    else:
        np.testing.assert_allclose(scores_there(tmp_path / "out"), scores_here(run), atol=1e-5)


def test_more_pieces_and_a_new_head_know_the_activation(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    theirs(make(FORMS["other"])).save_pretrained(str(tmp_path / "saved"))
    source, notes = ModelDirectory(tmp_path / "saved"), list[str]()

    ExtensibleModel(source).save(tmp_path / "more", source.tokenizer, {})
    _, is_kept = built_from(Regression(), source.config, source, False, Reporter(note=notes.append))

    np.testing.assert_array_equal(scores_here(tmp_path / "more"), scores_here(tmp_path / "saved"))
    assert not is_kept
    assert any("its scores pass through torch.nn.modules.activation.Tanh" in each for each in notes)
    teacher, batch = Regression(activation=SIGMOID), SimpleNamespace(rows=None, lower_states=None)
    model = Mock(return_value=torch.tensor([[0.0]]))
    assert teacher.trained_outputs(model, cast(Any, batch)).item() == 0.5
