"""MODEL directories: loaded into modules, saved for transformers, and whole or refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tidybert.checkpoints.conversion import from_huggingface
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import HeadDescription, ModelDirectory
from tidybert.checkpoints.model_saving import save_model_directory
from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.checkpoints.weight_loading import LoadReport
from tidybert.configuration import BertConfig
from tidybert.errors import ConfigError, WeightsError
from tidybert.modeling.bert import BertModel
from tidybert.modeling.heads import BertForSequenceClassification
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

Make = Callable[..., Any]
Save = Callable[..., Path]
Same = Callable[[dict[str, Tensor], dict[str, Tensor]], bool]


def tokenizer_of(word: str = "a") -> BertTokenizer:
    """A vocabulary of the fixture's size."""
    return BertTokenizer(Vocabulary([*SPECIAL_TOKENS, word, *"bcdefghijklmnopqr"]), True)


def save_classifier(
    directory: Path,
    model: BertForSequenceClassification,
    *,
    tokenizer: BertTokenizer | None = None,
    task: str = "classify",
    label_names: tuple[str, ...] | None = ("bad", "fair", "good"),
    problem_type: str | None = "single_label_classification",
) -> ModelMetadata:
    return save_model_directory(
        directory,
        model_state=model.state_dict(),
        config=model.config,
        tokenizer=tokenizer or tokenizer_of(),
        metadata=ModelMetadata(task=task, label_names=label_names, max_seq_length=16),
        architecture="BertForSequenceClassification",
        problem_type=problem_type,
    )


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


INPUT_IDS = torch.tensor([[2, 7, 9, 3], [2, 11, 3, 0]])
ATTENTION_MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def test_an_encoder_takes_an_encoder(saved: Save, config: BertConfig, same_state: Same) -> None:
    directory = saved("BertModel")
    model = BertModel(config)
    report = ModelDirectory(directory).load_into(model)
    assert report.new == report.ignored == ()
    assert len(report.loaded) == 5 + 2 * 16 + 2
    assert report.num_parameters == config.num_parameters
    assert same_state(state(model), from_huggingface(read_tensors(directory), config).tensors)


def test_a_head_model_takes_an_encoder_without_prefix(saved: Save, config: BertConfig) -> None:
    model = BertForSequenceClassification(config, num_labels=3)
    before = state(model)
    report = ModelDirectory(saved("BertModel")).load_into(model)
    assert report.new == ("classifier.weight", "classifier.bias")
    assert report.ignored == ()
    assert torch.equal(model.state_dict()["classifier.weight"], before["classifier.weight"])
    assert not torch.equal(
        model.state_dict()["bert.pooler.dense.weight"], before["bert.pooler.dense.weight"]
    )


def test_an_encoder_takes_the_encoder_of_a_head_model(saved: Save, config: BertConfig) -> None:
    report = ModelDirectory(saved("BertForPreTraining")).load_into(
        BertModel(config, add_pooler=False)
    )
    assert report.new == ()
    assert set(report.ignored) == {
        "bert.pooler.dense.weight",
        "bert.pooler.dense.bias",
        "cls.predictions.bias",
        "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.bias",
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
    }


def test_a_pooler_that_the_file_lacks_is_new(saved: Save, config: BertConfig) -> None:
    model = BertForSequenceClassification(config, num_labels=2)
    report = ModelDirectory(saved("BertForMaskedLM")).load_into(model)
    assert report.new == (
        "bert.pooler.dense.weight",
        "bert.pooler.dense.bias",
        "classifier.weight",
        "classifier.bias",
    )


def test_logits_of_a_classifier_are_those_of_transformers(
    saved: Save, make_reference: Make, config: BertConfig
) -> None:
    reference = make_reference("BertForSequenceClassification", num_labels=3)
    model = BertForSequenceClassification(config, num_labels=3)
    ModelDirectory(saved("BertForSequenceClassification", num_labels=3)).load_into(model)
    with torch.no_grad():
        ours = model.eval()(INPUT_IDS, ATTENTION_MASK)
        theirs = reference(INPUT_IDS, attention_mask=ATTENTION_MASK).logits
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_transformers_opens_what_was_saved(
    tmp_path: Path, config: BertConfig, same_state: Same
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
    tmp_path: Path, config: BertConfig, same_state: Same
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


def test_a_regressor_has_one_output_and_no_names(tmp_path: Path, config: BertConfig) -> None:
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


def test_label_names_must_fit_the_classifier(tmp_path: Path, config: BertConfig) -> None:
    with pytest.raises(WeightsError, match="3 label names do not fit a classifier of 2 outputs"):
        save_classifier(tmp_path, BertForSequenceClassification(config, num_labels=2))
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path, config: BertConfig) -> None:
    model = BertForSequenceClassification(config, num_labels=3)
    with torch.no_grad():
        model.classifier.bias[1] = float("nan")
    with pytest.raises(WeightsError, match=r"classifier.bias \(1 of 3\)"):
        save_classifier(tmp_path / "run", model)
    assert not (tmp_path / "run").exists()


def test_another_head_is_an_error_or_new(saved: Save, config: BertConfig) -> None:
    directory = saved("BertForSequenceClassification", num_labels=3)
    model = BertForSequenceClassification(config, num_labels=2)
    before = state(model)
    with pytest.raises(
        WeightsError, match=r"classifier.weight has the shape \(3, 8\).*\(2, 8\)"
    ) as caught:
        ModelDirectory(directory).load_into(model)
    assert "new_head=True" in str(caught.value)
    # Nothing is copied before everything fits.
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    report = ModelDirectory(directory).load_into(model, new_head=True)
    assert report.new == report.ignored == ("classifier.weight", "classifier.bias")


def test_another_width_is_an_error_with_both_shapes(saved: Save) -> None:
    directory = saved("BertModel")
    wide = BertConfig(
        vocab_size=24,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
    )
    with pytest.raises(
        WeightsError, match=r"word_embeddings.weight has the shape \(23, 8\).*\(24, 8\)"
    ):
        ModelDirectory(directory).load_into(BertModel(wide))


def test_a_missing_encoder_weight_is_named(saved: Save, config: BertConfig) -> None:
    directory = saved("BertModel")
    deeper = BertConfig.from_dict({**config.to_dict(), "num_hidden_layers": 3})
    with pytest.raises(
        WeightsError, match=r"lacks encoder\.layers\.2\..* 8 more; its own configuration has 2"
    ):
        ModelDirectory(directory).load_into(BertModel(deeper))


def test_fewer_layers_are_taken_and_the_rest_reported(saved: Save, config: BertConfig) -> None:
    shallow = BertConfig.from_dict({**config.to_dict(), "num_hidden_layers": 1})
    report = ModelDirectory(saved("BertModel")).load_into(BertModel(shallow))
    assert len(report.ignored) == 16
    assert all(name.startswith("encoder.layer.1.") for name in report.ignored)


def test_unknown_tensors_are_reported(saved: Save, config: BertConfig) -> None:
    from safetensors.torch import load_file, save_file

    directory = saved("BertModel")
    tensors = load_file(directory / "model.safetensors")
    save_file({**tensors, "adapter.weight": torch.ones(1)}, directory / "model.safetensors")
    assert ModelDirectory(directory).load_into(BertModel(config)).ignored == ("adapter.weight",)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_files_load_into_float32(
    make_reference: Make, tmp_path: Path, config: BertConfig, dtype: torch.dtype
) -> None:
    reference = make_reference("BertModel").to(dtype)
    reference.save_pretrained(tmp_path)
    model = BertModel(config)
    ModelDirectory(tmp_path).load_into(model)
    weight = model.state_dict()["pooler.dense.weight"]
    assert weight.dtype == torch.float32
    assert torch.equal(weight, reference.pooler.dense.weight.float())


def test_a_pickle_only_on_request(make_reference: Make, saved: Save, config: BertConfig) -> None:
    directory = saved("BertModel")
    (directory / "model.safetensors").unlink()
    torch.save(make_reference("BertModel").state_dict(), directory / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="allow_pickle=True"):
        ModelDirectory(directory).load_into(BertModel(config))
    assert ModelDirectory(directory).load_into(BertModel(config), allow_pickle=True).new == ()


def test_the_summary_is_one_line() -> None:
    report = LoadReport(
        source="minilm",
        loaded=tuple(f"t{i}" for i in range(103)),
        new=("classifier.weight", "classifier.bias"),
        ignored=(),
        num_parameters=22_713_216,
    )
    assert report.summary() == (
        "loaded 103 tensors (22.7 M parameters) from minilm; "
        "new: classifier.weight, classifier.bias; ignored: none"
    )
    many = LoadReport("x", (), (), tuple("abcdefg"), 0)
    assert many.summary().endswith("new: none; ignored: a, b, c, d and 3 more")


@pytest.mark.weights
def test_minilm_loads_whole(minilm_directory: Path) -> None:
    config = BertConfig.from_file(minilm_directory / "config.json")
    model = BertForSequenceClassification(config, num_labels=2)
    report = ModelDirectory(minilm_directory).load_into(model)
    assert report.summary() == (
        f"loaded 103 tensors (22.7 M parameters) from {minilm_directory}; "
        f"new: classifier.weight, classifier.bias; ignored: none"
    )


def test_a_swapped_vocabulary_is_refused(tmp_path: Path, config: BertConfig) -> None:
    model = BertForSequenceClassification(config, num_labels=3)
    save_classifier(tmp_path, model)
    (tmp_path / "vocab.txt").write_text("[PAD]\nother\n")
    with pytest.raises(WeightsError, match=r"changed since the model was saved: vocab\.txt"):
        ModelDirectory(tmp_path).load_into(model)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("moves", range(7))
def test_a_kill_between_any_two_files_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: BertConfig, old: bool, moves: int
) -> None:
    torch.manual_seed(0)
    first = BertForSequenceClassification(config, num_labels=3)
    second = BertForSequenceClassification(config, num_labels=3)
    if old:
        save_classifier(tmp_path, first, tokenizer=tokenizer_of("old"))
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: BertConfig
) -> None:
    model = BertForSequenceClassification(config, num_labels=3)
    sealed = save_classifier(tmp_path, model)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tidybert.checkpoints.tensor_files.save_file", full)
    with pytest.raises(WeightsError, match="No space left on device"):
        save_classifier(tmp_path, model, label_names=("x", "y", "z"))
    ModelDirectory(tmp_path).verify()
    assert ModelDirectory(tmp_path).metadata == sealed
    assert not list(tmp_path.glob(".*"))


def test_other_files_in_the_directory_stay(tmp_path: Path, config: BertConfig) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    save_classifier(tmp_path, BertForSequenceClassification(config, num_labels=3))
    assert (tmp_path / "metrics.jsonl").read_text() == "{}\n"
    ModelDirectory(tmp_path).verify()


def test_the_head_of_a_foreign_model(saved: Save) -> None:
    names = {0: "low", 1: "high"}
    directory = saved("BertForTokenClassification", id2label=names)
    assert ModelDirectory(directory).head == HeadDescription(
        ("BertForTokenClassification",), ("low", "high"), None
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id2label": ["a"]}, "id2label"),
        ({"id2label": {"0": "a", "2": "b"}}, "0 to 1"),
        ({"id2label": {"0": "a", "1": 3}}, "0 to 1"),
        ({"label2id": {"a": 1, "b": 0}}, "label2id"),
        ({"label2id": 3}, "label2id"),
        ({"num_labels": 5}, "num_labels"),
        ({"architectures": "BertModel"}, "architectures"),
    ],
)
def test_a_head_that_contradicts_itself(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    values = {"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1}, "num_labels": 2}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    assert ModelDirectory(tmp_path).head == HeadDescription((), ("a", "b"), None)
    path.write_text(json.dumps({**values, **changes}))
    with pytest.raises(ConfigError, match=said):
        _ = ModelDirectory(tmp_path).head
