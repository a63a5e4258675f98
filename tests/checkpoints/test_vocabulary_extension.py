"""A model with more pieces: rows that are means, everything else bit for bit as it was."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tidybert.checkpoints.converting import ExtensibleModel
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.tensor_files import read_tensors, write_tensors
from tidybert.configuration import BertConfig
from tidybert.errors import WeightsError
from tidybert.inference.loading import load
from tidybert.inference.predictor import Predictor
from tidybert.modeling import Rows
from tidybert.tokenization import BertTokenizer, Vocabulary
from tidybert.tokenization.learning.new_pieces import NewPiece, extend_vocabulary

TEXTS = ["the red cat is near", "we saw the old green dog under a hen"]


@pytest.fixture
def extended(tiny_model: Path) -> tuple[BertTokenizer, dict[int, list[int]]]:
    """The tiny model's tokenizer with two words more, and what they replace."""
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    pieces = [NewPiece("fox", ("red", "dog"), 9), NewPiece("owl", ("[UNK]",), 9)]
    vocabulary, places = extend_vocabulary(tokenizer.vocabulary, pieces)
    replaces = {
        place: tokenizer.convert_tokens_to_ids(piece.replaces)
        for place, piece in zip(places, pieces, strict=True)
    }
    return BertTokenizer(vocabulary), replaces


def test_new_rows_are_means_and_outputs_without_new_pieces_are_the_same_bit_for_bit(
    tiny_model: Path, tmp_path: Path, extended: tuple[BertTokenizer, dict[int, list[int]]]
) -> None:
    tokenizer, replaces = extended
    out = tmp_path / "out"
    ExtensibleModel(ModelDirectory(tiny_model)).save(out, tokenizer, replaces)

    old, old_tokenizer = load(tiny_model)
    new, new_tokenizer = load(out)
    size = old.config.vocab_size
    assert new.config.vocab_size == new_tokenizer.vocab_size == size + 2
    before, after = old.state_dict(), new.state_dict()
    words = "embeddings.word_embeddings.weight"
    assert torch.equal(after[words][:size], before[words])
    mean = before[words][old_tokenizer.convert_tokens_to_ids(["red", "dog"])].mean(0)
    torch.testing.assert_close(after[words][size], mean)
    assert torch.equal(after[words][size + 1], before[words][old_tokenizer.unk_token_id])
    assert all(torch.equal(after[name], before[name]) for name in before if name != words)

    ids = old_tokenizer.encode_batch(TEXTS)
    assert [one.tolist() for one in ids] == [x.tolist() for x in new_tokenizer.encode_batch(TEXTS)]
    with torch.no_grad():
        one, two = (model(Rows.from_lists(ids)) for model in (old, new))
        assert torch.equal(one.last_hidden_state, two.last_hidden_state)
        new(Rows.from_lists(new_tokenizer.encode_batch(["the fox and the owl"])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_every_head_of_a_foreign_model_stays_and_the_tied_bias_grows(
    tiny_config: Callable[..., BertConfig],
    reference: Callable[..., Any],
    tmp_path: Path,
    extended: tuple[BertTokenizer, dict[int, list[int]]],
    dtype: torch.dtype,
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer, replaces = extended
    reference(tiny_config(), "BertForPreTraining").to(dtype).save_pretrained(tmp_path / "old")
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "old", dtype=dtype).eval()
    out = tmp_path / "out"
    ExtensibleModel(ModelDirectory(tmp_path / "old")).save(out, tokenizer, replaces)

    grown, info = transformers.BertForPreTraining.from_pretrained(
        out, dtype=dtype, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    size = theirs.config.vocab_size
    assert grown.config.vocab_size == size + 2
    assert transformers.AutoTokenizer.from_pretrained(out).convert_tokens_to_ids("fox") == size
    ids = torch.tensor([tokenizer.encode(TEXTS[0]).input_ids])
    with torch.no_grad():
        one, two = theirs(ids), grown.eval()(ids)
    assert torch.equal(one.seq_relationship_logits, two.seq_relationship_logits)
    logits, more = one.prediction_logits.float(), two.prediction_logits.float()
    tolerance = {torch.float32: 1e-5, torch.float16: 1e-2}[dtype]
    torch.testing.assert_close(more[..., :size], logits, atol=tolerance, rtol=0)
    # A new token is as likely, in the logarithm, as what it replaces on the mean.
    fox = logits[..., replaces[size]].mean(-1)
    torch.testing.assert_close(more[..., size], fox, atol=tolerance, rtol=0)


def test_a_run_stays_a_run_and_its_old_scores_go(
    tiny_run: Path, tmp_path: Path, extended: tuple[BertTokenizer, dict[int, list[int]]]
) -> None:
    tokenizer, replaces = extended
    out = tmp_path / "out"
    ExtensibleModel(ModelDirectory(tiny_run)).save(out, tokenizer, replaces)

    ModelDirectory(out).verify()
    metadata = ModelDirectory(out).metadata
    assert metadata is not None
    assert (metadata.task, metadata.metrics) == ("classify", {})
    assert Predictor(out).predict(TEXTS) == Predictor(tiny_run).predict(TEXTS)
    assert "fox" in Predictor(out).tokenizer.vocabulary


def test_rows_to_spare_are_used_before_the_matrix_grows(
    tiny_model: Path, tmp_path: Path, tiny_config: Callable[..., BertConfig]
) -> None:
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    vocabulary = Vocabulary([*tokenizer.vocabulary.tokens[:-2]])
    spare, out = tmp_path / "spare", tmp_path / "out"
    spare.mkdir()
    write_tensors(spare, read_tensors(tiny_model))
    (spare / "config.json").write_text((tiny_model / "config.json").read_text())
    size = len(vocabulary)
    grown, places = extend_vocabulary(vocabulary, [NewPiece("fox", ("red", "dog"), 9)])
    assert places == [size]
    ExtensibleModel(ModelDirectory(spare)).save(out, BertTokenizer(grown), {size: [5, 6]})

    words = read_tensors(out)["embeddings.word_embeddings.weight"]
    assert len(words) == json.loads((out / "config.json").read_text())["vocab_size"] == size + 2
    torch.testing.assert_close(words[size], words[5:7].mean(0))


def test_weights_that_are_no_model_of_this_vocabulary(tiny_model: Path, tmp_path: Path) -> None:
    config = (tiny_model / "config.json").read_text()
    (tmp_path / "config.json").write_text(config)
    tensors = read_tensors(tiny_model)
    words = tensors.pop("embeddings.word_embeddings.weight")
    write_tensors(tmp_path, tensors)
    with pytest.raises(WeightsError, match=r"no embeddings\.word_embeddings\.weight"):
        ExtensibleModel(ModelDirectory(tmp_path))
    write_tensors(tmp_path, tensors | {"embeddings.word_embeddings.weight": words[1:]})
    message = f"is for {len(words) - 1} tokens, config.json says {len(words)}"
    with pytest.raises(WeightsError, match=message):
        ExtensibleModel(ModelDirectory(tmp_path))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("encoder.layer.1.output.dense.weight", None, "encoder's weights are incomplete"),
        ("encoder.layer.0.output.LayerNorm.bias", torch.ones(3), r"has the shape \(3,\)"),
        ("embeddings.word_embeddings.weight", torch.ones(24, 5), r"has the shape \(24, 5\)"),
        ("pooler.dense.bias", torch.ones(8).long(), "has the dtype torch.int64"),
    ],
)
def test_weights_that_do_not_fit_the_configuration_are_not_extended(
    tiny_model: Path, tmp_path: Path, name: str, change: torch.Tensor | None, said: str
) -> None:
    (tmp_path / "config.json").write_text((tiny_model / "config.json").read_text())
    tensors = read_tensors(tiny_model)
    assert name in tensors
    del tensors[name]
    write_tensors(tmp_path, tensors if change is None else {**tensors, name: change})

    with pytest.raises(WeightsError, match=said):
        ExtensibleModel(ModelDirectory(tmp_path))
