"""BERT's relatives beside transformers' classes: outputs, gradients, and passes for answers."""

import copy
from typing import Any, Final

import pytest
import torch
from tests.relatives import HEADS, LABELS, RELATIVES, ROBERTAS, configured, reference
from torch import Tensor, nn

from tidybert.checkpoints.weights import from_huggingface, load_weights, to_huggingface
from tidybert.configuration import BertConfig
from tidybert.modeling import BertForSequenceClassification, Rows
from tidybert.modeling.architectures import build_encoder
from tidybert.modeling.heads import ARCHITECTURES
from tidybert.modeling.kernels.answer_layers import use_bfloat16, use_float32, use_int8

LIMIT: Final = 32
#: Lengths of a batch's texts: one alone, the longest, and a mixture.
SHAPES: Final = ((1,), (LIMIT, LIMIT), (3, LIMIT, 1, 17, 9))
# CamemBERT and XLM-RoBERTa are RoBERTa by other names.
CASES: Final = [
    (kind, head)
    for kind in RELATIVES
    for head in HEADS
    if kind not in ("camembert", "xlm-roberta") or head == "ForSequenceClassification"
]


def pair(kind: str, head: str, **more: Any) -> tuple[nn.Module, Any, str]:
    """Our model and transformers' with the same weights, and BERT's name of the class."""
    theirs = reference(kind, head, **more)
    config = BertConfig.from_dict(theirs.config.to_dict())
    name = f"Bert{head}"
    is_encoder = head == "Model"
    ours = (
        build_encoder(config, add_pooler=False)
        if is_encoder
        else ARCHITECTURES[name].built(config, LABELS)
    )
    found = from_huggingface(theirs.state_dict(), config, name)
    assert not found.ignored
    ours.load_state_dict(found.tensors)
    return ours.eval(), theirs, name


def batch_of(lengths: tuple[int, ...], size: int, kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Ids without [PAD]'s, the mask, and types where the relative has them."""
    generator = torch.Generator().manual_seed(len(lengths))
    shape = (len(lengths), max(lengths))
    mask = (torch.arange(shape[1]) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(5, size, shape, generator=generator)
    # Where padding is, transformers' positions of RoBERTa follow from the ids.
    ids = ids.masked_fill(mask == 0, int(kind in ROBERTAS))
    types = torch.randint(0, 2 if kind == "electra" else 1, shape, generator=generator)
    return ids, mask, types


def both(
    ours: nn.Module, theirs: Any, head: str, batch: tuple[Tensor, Tensor, Tensor], kind: str
) -> tuple[Tensor, Tensor]:
    """Their outputs of texts, or of the tokens of a batch."""
    ids, mask, types = (each[None] if head == "ForMultipleChoice" else each for each in batch)
    named = {"token_type_ids": types} if kind == "electra" else {}
    expected = theirs(ids, attention_mask=mask, **named)
    found = ours(ids, mask, types)
    if head == "Model":
        return found.last_hidden_state[mask.bool()], expected.last_hidden_state[mask.bool()]
    if head == "ForQuestionAnswering":
        logits = torch.stack((expected.start_logits, expected.end_logits), -1)
        return found[mask.bool()], logits[mask.bool()]
    per_token = head in ("ForTokenClassification", "ForMaskedLM")
    other = expected.logits
    return (found[mask.bool()], other[mask.bool()]) if per_token else (found, other)


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_outputs_and_gradients_are_transformers(kind: str, head: str) -> None:
    ours, theirs, name = pair(kind, head)
    config: BertConfig = ours.config  # type: ignore[assignment]
    for lengths in SHAPES:
        one, other = both(ours, theirs, head, batch_of(lengths, config.vocab_size, kind), kind)
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
        weights = torch.randn(one.shape, generator=torch.Generator().manual_seed(0))
        for model, output in ((ours, one), (theirs, other)):
            model.zero_grad()
            (output * weights).sum().backward()
        given = {each: p.grad for each, p in theirs.named_parameters() if p.grad is not None}
        expected = from_huggingface(given, config, name).tensors
        found = {each: p.grad for each, p in ours.named_parameters() if p.grad is not None}
        assert found.keys() == expected.keys()
        greatest = max(float(each.abs().max()) for each in expected.values())
        for each, gradient in found.items():
            assert float((gradient - expected[each]).abs().max()) <= 1e-4 * greatest, each


@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForMultipleChoice"])
def test_modernbert_may_read_the_mean(head: str) -> None:
    ours, theirs, _ = pair("modernbert", head, classifier_pooling="mean")
    one, other = both(ours, theirs, head, batch_of((3, 32, 9), 300, "modernbert"), "modernbert")
    torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("roberta", {"hidden_act": "relu"}),
        ("electra", {"hidden_act": "relu"}),
        ("distilbert", {"activation": "relu"}),
        ("modernbert", {"hidden_activation": "relu"}),
        ("modernbert", {"hidden_activation": "gelu_new", "classifier_activation": "relu"}),
    ],
)
@pytest.mark.parametrize("head", ["ForMaskedLM", "ForSequenceClassification"])
def test_a_head_has_its_own_activation(kind: str, head: str, given: dict[str, Any]) -> None:
    ours, theirs, _ = pair(kind, head, **given)
    one, other = both(ours, theirs, head, batch_of((3, 32, 9), 20, kind), kind)
    torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_names_go_both_ways(kind: str, head: str) -> None:
    ours, theirs, name = pair(kind, head)
    config: BertConfig = ours.config  # type: ignore[assignment]
    written, expected = to_huggingface(ours.state_dict(), config, name), theirs.state_dict()
    for each, tensor in written.items():
        # No token reads the rows before the first position's.
        begin = config.first_position if "position_embeddings" in each else 0
        assert torch.equal(tensor[begin:], expected[each][begin:]), each
        assert tensor.shape == expected[each].shape
    tied = ("decoder.weight", "decoder.bias", "projector.weight", "generator_lm_head.weight")
    assert all(each.endswith(tied) for each in expected.keys() - written.keys())


@pytest.mark.parametrize("kind", RELATIVES)
def test_the_configuration_is_written_as_it_was_read(kind: str) -> None:
    given = configured(kind).to_dict()
    config = BertConfig.from_dict(given)
    written = config.written()
    # transformers 4 has names of its own for a layer's kind and its rotation.
    older = {"global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"}
    assert {name: given[name] for name in written if name not in older} == {
        name: value for name, value in written.items() if name not in older
    }
    assert BertConfig.from_dict(written) == config
    count = sum(each.numel() for each in reference(kind).parameters())
    width = config.hidden_size
    # The number counts RoBERTa's pooler, and not the rows that no token reads.
    count += (kind in ROBERTAS) * (width + 1 - config.first_position) * width
    assert config.num_parameters == count


@pytest.mark.parametrize("kind", ["electra", "modernbert"])
def test_planned_and_rounded_passes_are_near_the_plain_one(kind: str) -> None:
    torch.manual_seed(0)
    config = BertConfig.from_dict(configured(kind, local_attention=4).to_dict())
    model = BertForSequenceClassification(config, LABELS).eval()
    rows = Rows.from_lists([[5, 6, 7] * 3, [8, 9], [6] * 12])
    with torch.inference_mode():
        plain = model(rows), model.bert(rows).last_hidden_state
        planned, rounded = copy.deepcopy(model), copy.deepcopy(model)
        use_float32(planned)
        assert list(planned.state_dict()) == list(model.state_dict())
        for one, other in zip(
            (planned(rows), planned.bert(rows).last_hidden_state), plain, strict=True
        ):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
        done = [model] * (use_int8(model) is None) + [rounded] * use_bfloat16(rounded)
        for each in done:
            near = each(rows), each.bert(rows).last_hidden_state
            for one, other in zip(near, plain, strict=True):
                assert 0 < float((one - other).abs().max()) < 0.1 * float(other.abs().max())


def test_modernberts_heads_begin_as_the_masked_lm_head() -> None:
    words, _, _ = pair("modernbert", "ForMaskedLM")
    config: BertConfig = words.config  # type: ignore[assignment]
    stored = to_huggingface(words.state_dict(), config, "BertForMaskedLM")
    for name in ("SequenceClassification", "TokenClassification"):
        model = ARCHITECTURES[f"BertFor{name}"].built(config, LABELS)
        report = load_weights(
            model, stored, config, source="here", architecture="BertForMaskedLM", new_head=True
        )
        assert report.new == ("classifier.weight", "classifier.bias")
        assert torch.equal(model.bert.pooler.dense.weight, words.mlm.dense.weight)  # type: ignore[union-attr]
        assert torch.equal(model.bert.pooler.norm.weight, words.mlm.layer_norm.weight)  # type: ignore[union-attr]


def test_a_text_has_the_same_states_in_any_batch() -> None:
    ours, _, _ = pair("modernbert", "Model")
    texts = [[5, 6, 7, 8] * 8, [9, 10], [11] * 17]
    alone = [ours(Rows.from_lists([each])).last_hidden_state for each in texts]
    torch.testing.assert_close(
        ours(Rows.from_lists(texts)).last_hidden_state, torch.cat(alone), atol=1e-5, rtol=0
    )
