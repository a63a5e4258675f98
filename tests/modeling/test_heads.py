"""The heads against transformers' own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tidybert.configuration import BertConfig
from tidybert.modeling import (
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    Rows,
    heads,
)

MASK = torch.tensor([[1] * 8, [1] * 3 + [0] * 5, [1, 0, 0, 1, 1, 0, 1, 0]])


def padded_inputs(config: BertConfig) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    input_ids = torch.randint(1, config.vocab_size, (3, 8))
    return input_ids, MASK, torch.randint(0, 2, (3, 8))


@pytest.mark.parametrize(
    ("head", "sizes"),
    [
        *((BertForSequenceClassification, {"num_labels": number}) for number in (1, 2, 5)),
        (BertForNextSentencePrediction, {}),
    ],
)
def test_every_sequences_logits_are_transformers(
    head: Any,
    sizes: dict[str, int],
    tiny_config: Callable[..., BertConfig],
    reference: Callable[..., Any],
    copy_weights: Callable[..., Any],
) -> None:
    config = tiny_config()
    theirs = reference(config, head.__name__, **sizes)
    ours = copy_weights(theirs, head(config, **sizes))
    inputs = padded_inputs(config)

    with torch.no_grad():
        padded = ours(*inputs)
        rows = ours(Rows.from_padded(*inputs)[0])
        expected = theirs(*inputs).logits

    assert padded.shape == (3, sizes.get("num_labels", 2))
    assert torch.equal(padded, rows)
    torch.testing.assert_close(padded, expected, atol=1e-5, rtol=0)


def test_the_new_head_is_small_and_its_input_is_dropped_in_training(
    tiny_config: Callable[..., BertConfig],
) -> None:
    torch.manual_seed(0)
    config = tiny_config(hidden_dropout_prob=0.5, initializer_range=0.02)
    model = BertForSequenceClassification(config, 3)

    # A plain normal, as in transformers.
    assert 0.01 < model.classifier.weight.std() < 0.03
    assert model.classifier.weight.abs().max() > 0.04
    assert (model.classifier.bias == 0).all()
    model.eval()
    # With the encoder's own dropout off, what is left is that between pooler and classifier.
    model.training = True
    rows = Rows.from_lists([[5, 6, 7]])
    logits = torch.stack([model(rows) for _ in range(20)])
    assert logits.std(0).min() > 0


@pytest.mark.parametrize(
    ("head", "sizes"),
    [
        (BertForSequenceClassification, {"num_labels": 3}),
        (BertForTokenClassification, {"num_labels": 3}),
        (BertForMultipleChoice, {}),
    ],
)
@pytest.mark.parametrize(("own", "expected"), [(0.0, 0.0), (0.25, 0.25), (None, 0.5)])
def test_a_classifier_has_its_own_dropout(
    head: Any,
    sizes: dict[str, int],
    own: float | None,
    expected: float,
    tiny_config: Callable[..., BertConfig],
    reference: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = tiny_config(hidden_dropout_prob=0.5, classifier_dropout=own)
    used: list[float] = []

    def dropout(hidden: torch.Tensor, probability: float, training: bool) -> torch.Tensor:
        used.append(probability)
        return hidden

    monkeypatch.setattr(heads, "dropout", dropout)
    head(config, **sizes)(Rows.from_lists([[5, 6, 7]]))

    assert used == [expected] == [reference(config, head.__name__, **sizes).dropout.p]


@pytest.mark.parametrize(
    ("head", "sizes", "outputs"),
    [
        (BertForTokenClassification, {"num_labels": 5}, ("logits",)),
        (BertForQuestionAnswering, {}, ("start_logits", "end_logits")),
        (BertForMaskedLM, {}, ("logits",)),
    ],
)
def test_every_tokens_logits_are_transformers(
    head: Any,
    sizes: dict[str, int],
    outputs: tuple[str, ...],
    tiny_config: Callable[..., BertConfig],
    reference: Callable[..., Any],
    copy_weights: Callable[..., Any],
) -> None:
    config = tiny_config()
    theirs = reference(config, head.__name__, **sizes)
    ours = copy_weights(theirs, head(config, **sizes))
    inputs = padded_inputs(config)

    with torch.no_grad():
        padded = ours(*inputs)
        rows, cells = Rows.from_padded(*inputs)
        flat = ours(rows)
        found = theirs(*inputs)
    expected = torch.stack([found[name] for name in outputs], -1)
    expected = expected if len(outputs) > 1 else expected[..., 0]

    is_token = MASK.bool()
    torch.testing.assert_close(padded[is_token], expected[is_token], atol=1e-5, rtol=0)
    assert (padded[~is_token] == 0).all()
    assert torch.equal(flat, padded.flatten(0, 1)[cells])


def test_each_choice_has_transformers_logit(
    tiny_config: Callable[..., BertConfig],
    reference: Callable[..., Any],
    copy_weights: Callable[..., Any],
) -> None:
    config = tiny_config()
    theirs = reference(config, "BertForMultipleChoice")
    ours = copy_weights(theirs, BertForMultipleChoice(config))
    # Two questions of three choices.
    inputs = [torch.stack([each, each.flip(0)]) for each in padded_inputs(config)]

    with torch.no_grad():
        padded = ours(*inputs)
        rows = ours(Rows.from_padded(*(each.flatten(0, 1) for each in inputs))[0])
        expected = theirs(*inputs).logits

    assert padded.shape == (2, 3)
    torch.testing.assert_close(padded, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(rows, padded.flatten())


def test_the_heads_of_pre_training_are_transformers(
    tiny_config: Callable[..., BertConfig],
    reference: Callable[..., Any],
    copy_weights: Callable[..., Any],
) -> None:
    config = tiny_config()
    theirs = reference(config, "BertForPreTraining")
    ours = copy_weights(theirs, BertForPreTraining(config))
    inputs = padded_inputs(config)

    with torch.no_grad():
        found, expected = ours(*inputs), theirs(*inputs)
        rows = Rows.from_padded(*inputs)[0]
        positions = torch.tensor([9, 1, 10])
        masked = ours(rows, masked_lm_positions=positions)
        whole = ours(rows)

    is_token = MASK.bool()
    torch.testing.assert_close(
        found.prediction_logits[is_token],
        expected.prediction_logits[is_token],
        atol=1e-5,
        rtol=0,
    )
    torch.testing.assert_close(
        found.seq_relationship_logits, expected.seq_relationship_logits, atol=1e-5, rtol=0
    )
    torch.testing.assert_close(masked.prediction_logits, whole.prediction_logits[positions])
    torch.testing.assert_close(masked.seq_relationship_logits, whole.seq_relationship_logits)


@pytest.mark.parametrize("ours", [BertForPreTraining, BertForMaskedLM])
def test_labels_bring_the_loss_of_the_logits_and_its_gradients(
    ours: Any, tiny_config: Callable[..., BertConfig]
) -> None:
    torch.manual_seed(0)
    model = ours(tiny_config()).eval()
    rows = Rows.from_padded(*padded_inputs(model.config))[0]
    given = {"masked_lm_positions": torch.tensor([9, 1, 10])}
    labels = torch.tensor([3, -100, 5])

    whole = model(rows, **given)
    logits = getattr(whole, "prediction_logits", whole)
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    found = model(rows, **given, masked_lm_labels=labels)
    loss = getattr(found, "masked_lm_loss", found)

    torch.testing.assert_close(loss.total, expected)
    words = model.bert.embeddings.word_embeddings.weight
    trained = [words, *model.mlm.parameters(), *model.bert.encoder.parameters()]
    for one, other in zip(
        torch.autograd.grad(loss.total, trained),
        torch.autograd.grad(expected, trained),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
    if ours is BertForPreTraining:
        assert found.prediction_logits is None
        torch.testing.assert_close(found.seq_relationship_logits, whole.seq_relationship_logits)


def test_masked_rows_alone_have_the_logits_of_all(tiny_config: Callable[..., BertConfig]) -> None:
    model = BertForMaskedLM(tiny_config()).eval()
    rows = Rows.from_lists([[5, 6, 7, 8], [9, 10]])
    positions = torch.tensor([5, 0])

    with torch.no_grad():
        torch.testing.assert_close(
            model(rows, masked_lm_positions=positions), model(rows)[positions]
        )


def test_the_masked_lm_decoder_is_the_word_embeddings(
    tiny_config: Callable[..., BertConfig],
) -> None:
    config = tiny_config()
    model = BertForMaskedLM(config)

    assert not [name for name in model.state_dict() if "decoder" in name]
    model(Rows.from_lists([[5, 6]])).sum().backward()
    # A word that is not in the input gets its gradient through the decoder alone.
    weight = model.bert.embeddings.word_embeddings.weight
    assert weight.grad is not None
    assert weight.grad[20].abs().max() > 0
    assert (model.mlm.bias == 0).all()
