"""Models saved for transformers and for us: whole, or refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tidybert.checkpoints.dense import Dense
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.checkpoints.weights import from_huggingface
from tidybert.configuration import BertConfig
from tidybert.errors import DiskError, WeightsError
from tidybert.modeling import BertModel
from tidybert.modeling.heads import BertForSequenceClassification
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import SPECIAL_TOKENS

IDENTITY = "torch.nn.modules.linear.Identity"
Same = Callable[[dict[str, Tensor], dict[str, Tensor]], bool]


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


INPUT_IDS = torch.tensor([[2, 7, 9, 3], [2, 11, 3, 0]])
ATTENTION_MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def test_transformers_opens_what_was_saved(
    save_classifier: Callable[..., ModelMetadata],
    tmp_path: Path,
    config: BertConfig,
    same_state: Same,
) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = replace(config, classifier_dropout=0.25)
    model = BertForSequenceClassification(config, num_labels=3).eval()
    save_classifier(tmp_path, model)
    theirs, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert type(theirs).__name__ == "BertForSequenceClassification"
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert theirs.config.id2label == {0: "bad", 1: "fair", 2: "good"}
    assert theirs.config.label2id == {"bad": 0, "fair": 1, "good": 2}
    assert theirs.config.problem_type == "single_label_classification"
    assert theirs.config.classifier_dropout == theirs.dropout.p == 0.25
    assert same_state(from_huggingface(dict(theirs.state_dict()), config).tensors, state(model))
    with torch.no_grad():
        torch.testing.assert_close(
            model(INPUT_IDS, ATTENTION_MASK),
            theirs.eval()(INPUT_IDS, attention_mask=ATTENTION_MASK).logits,
            atol=1e-5,
            rtol=0,
        )


def test_what_was_saved_loads_with_the_same_bits(
    save_classifier: Callable[..., ModelMetadata],
    tmp_path: Path,
    config: BertConfig,
    same_state: Same,
) -> None:
    model = BertForSequenceClassification(config, num_labels=3)
    sealed = save_classifier(tmp_path / "runs" / "one", model)
    again = BertForSequenceClassification(config, num_labels=3)
    report = ModelDirectory(tmp_path / "runs" / "one").load_into(again)
    assert report.new == report.ignored == ()
    assert same_state(state(again), state(model))
    assert ModelDirectory(tmp_path / "runs" / "one").metadata == sealed
    assert BertConfig.from_file(tmp_path / "runs" / "one" / "config.json") == config
    assert sorted(path.name for path in (tmp_path / "runs" / "one").iterdir()) == [
        "config.json",
        "model.safetensors",
        "tidybert.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]


def test_a_regressor_has_one_output_and_no_names(
    save_classifier: Callable[..., ModelMetadata], tmp_path: Path, config: BertConfig
) -> None:
    transformers = pytest.importorskip("transformers")
    save_classifier(
        tmp_path,
        BertForSequenceClassification(config, num_labels=1),
        task="regress",
        label_names=None,
        problem_type="regression",
    )
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert theirs.num_labels == 1
    assert theirs.config.problem_type == "regression"


def test_label_names_must_fit_the_classifier(
    save_classifier: Callable[..., ModelMetadata], tmp_path: Path, config: BertConfig
) -> None:
    with pytest.raises(WeightsError, match="3 label names do not fit a classifier of 2 outputs"):
        save_classifier(tmp_path, BertForSequenceClassification(config, num_labels=2))
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_not_finite_are_not_saved(
    save_classifier: Callable[..., ModelMetadata], tmp_path: Path, config: BertConfig
) -> None:
    model = BertForSequenceClassification(config, num_labels=3)
    with torch.no_grad():
        model.classifier.bias[1] = float("nan")
    with pytest.raises(WeightsError, match=r"classifier.bias \(1 of 3\)"):
        save_classifier(tmp_path / "run", model)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("moves", range(7))
def test_a_kill_between_any_two_files_is_noticed(
    save_classifier: Callable[..., ModelMetadata],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: BertConfig,
    old: bool,
    moves: int,
) -> None:
    torch.manual_seed(0)
    first = BertForSequenceClassification(config, num_labels=3)
    second = BertForSequenceClassification(config, num_labels=3)
    if old:
        save_classifier(tmp_path, first, word="old")
    replace, done = Path.replace, 0

    def fail(self: Path, target: Path) -> Path:
        nonlocal done
        # What write_tensors renames within its own folder is no move into place.
        if self.parent != Path(target).parent:
            if done == moves:
                raise KeyboardInterrupt
            done += 1
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail)
    if moves == 6:
        save_classifier(tmp_path, second)
    else:
        with pytest.raises(KeyboardInterrupt):
            save_classifier(tmp_path, second)
    monkeypatch.undo()
    assert not list(tmp_path.glob(".*"))
    whole = (old and moves == 0) or moves == 6
    loaded = BertForSequenceClassification(config, num_labels=3)
    if whole:
        ModelDirectory(tmp_path).load_into(loaded)
        expected = second if moves == 6 else first
        assert torch.equal(loaded.classifier.weight, expected.classifier.weight)
    elif not old and moves == 0:
        assert list(tmp_path.iterdir()) == []
    else:
        with pytest.raises(WeightsError, match=r"changed since|incomplete"):
            ModelDirectory(tmp_path).verify()


def test_a_full_disk_keeps_the_old_model(
    save_classifier: Callable[..., ModelMetadata],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: BertConfig,
) -> None:
    model = BertForSequenceClassification(config, num_labels=3)
    sealed = save_classifier(tmp_path, model)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tidybert.checkpoints.tensor_files.save_file", full)
    with pytest.raises(DiskError, match=r"cannot be written: No space left on device; .* are free"):
        save_classifier(tmp_path, model, label_names=("x", "y", "z"))
    ModelDirectory(tmp_path).verify()
    assert ModelDirectory(tmp_path).metadata == sealed
    assert not list(tmp_path.glob(".*"))


def test_other_files_in_the_directory_stay(
    save_classifier: Callable[..., ModelMetadata], tmp_path: Path, config: BertConfig
) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    save_classifier(tmp_path, BertForSequenceClassification(config, num_labels=3))
    assert (tmp_path / "metrics.jsonl").read_text() == "{}\n"
    ModelDirectory(tmp_path).verify()


def test_what_follows_the_encoder_is_saved_and_hashed_with_it(
    tmp_path: Path, config: BertConfig
) -> None:
    """A RUN that embeds: the second form replaces the first one's folders, and no other."""
    model = BertModel(config)
    forms = [
        SentenceForm(dense=(Dense(torch.full((3, 8), value), None, IDENTITY),), truncate_dim=2)
        for value in (1.0, 2.0)
    ]
    (tmp_path / "checkpoints").mkdir()
    for form in forms:
        sealed = save_model_directory(
            tmp_path,
            model_state=model.state_dict(),
            config=config,
            tokenizer=BertTokenizer([*SPECIAL_TOKENS, *"abcdefghijklmnopqr"]),
            metadata=ModelMetadata("embed"),
            architecture="BertModel",
            sentence=form,
        )

    assert {"2_Dense/model.safetensors", "1_Pooling/config.json"} <= sealed.files.keys()
    found = read_sentence_form(ModelDirectory(tmp_path))
    assert found.truncate_dim == 2
    assert torch.equal(found.dense[0].linear.weight, torch.full((3, 8), 2.0))
    assert (tmp_path / "checkpoints").is_dir()
    ModelDirectory(tmp_path).verify()
    weights = tmp_path / "2_Dense" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(WeightsError, match=r"changed since .*: 2_Dense/model\.safetensors"):
        ModelDirectory(tmp_path).verify()
