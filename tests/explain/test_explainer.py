"""The inside of a model: transformers' attention and states, and the sums that must come out."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tidybert import BertTokenizer, Explainer, MaskFiller
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.configuration import CausalConfig
from tidybert.errors import DataError, UsageError, WeightsError
from tidybert.modeling.heads import CausalLM
from tidybert.modeling.rows import Rows
from tidybert.tokenization.vocabulary import TEXT_TOKENS

TEXT, PAIR = "The red hen was old", "a cat saw the dog"


@pytest.fixture(scope="module")
def theirs(pretrained: Callable[[str], tuple[Path, Any]]) -> tuple[Path, Any]:
    return pretrained("BertForMaskedLM")


@pytest.fixture(scope="module")
def explainer(theirs: tuple[Path, Any]) -> Explainer:
    return Explainer(theirs[0])


def their_outputs(model: Any, explainer: Explainer, *texts: str) -> Any:
    one = explainer.encode(*texts)
    with torch.inference_mode():
        return model.bert(
            input_ids=torch.tensor([one.input_ids]),
            token_type_ids=torch.tensor([one.token_type_ids]),
            output_attentions=True,
            output_hidden_states=True,
        )


def test_attention_and_states_are_those_of_transformers(
    explainer: Explainer, theirs: tuple[Path, Any]
) -> None:
    expected = their_outputs(theirs[1], explainer, TEXT, PAIR)

    attention = explainer.attention(TEXT, PAIR)
    states = explainer.hidden_states(TEXT, PAIR)

    assert attention.probs.dtype == attention.scores.dtype == states.states.dtype == np.float32
    for ours, each in zip(attention.probs, expected.attentions, strict=True):
        np.testing.assert_allclose(ours, each[0].numpy(), atol=1e-5)
    for ours, each in zip(states.states, expected.hidden_states, strict=True):
        np.testing.assert_allclose(ours, each[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_states_and_heads_are_those_of_the_fast_path(explainer: Explainer, causal: bool) -> None:
    one = explainer.encode(TEXT)
    attention = explainer.attention(TEXT, causal=causal)
    states = explainer.hidden_states(TEXT, causal=causal)
    with torch.inference_mode():
        last = explainer.encoder(Rows.from_lists([one.input_ids]), causal=causal)
        # The layer itself, from the explained states and heads of layer 1.
        cells = [attention.cell(1, head, 2, 1).context for head in (1, 2)]
        below = torch.from_numpy(states.states[0][2:3])
        context = torch.from_numpy(np.concatenate(cells))[None]
        row = explainer.encoder.layers[0].after_attention(context, below)

    np.testing.assert_allclose(states.states[-1], last.last_hidden_state.numpy(), atol=1e-5)
    np.testing.assert_allclose(states.states[1][2], row[0].numpy(), atol=1e-5)


def test_a_causal_mask_is_minus_infinity_before_the_softmax_and_zero_after_it(
    explainer: Explainer,
) -> None:
    both, causal = explainer.attention(TEXT), explainer.attention(TEXT, causal=True)
    above = np.triu(np.ones(both.probs.shape[-2:], dtype=bool), 1)

    assert np.isneginf(causal.scores[..., above]).all()
    assert (causal.probs[..., above] == 0).all()
    assert np.isfinite(both.scores).all()
    assert (both.probs > 0).all()
    np.testing.assert_allclose(causal.probs.sum(-1), 1, atol=1e-6)
    # The first layer reads the same states, so its scores are the same where they are seen.
    np.testing.assert_allclose(causal.scores[0][:, ~above], both.scores[0][:, ~above], atol=1e-6)


def test_the_arithmetic_of_a_cell_leads_to_its_probability(explainer: Explainer) -> None:
    attention = explainer.attention(TEXT, PAIR, causal=True)

    cell = attention.cell(2, 1, 4, 3)

    np.testing.assert_allclose(cell.products, cell.query * cell.key)
    assert cell.dot == pytest.approx(float(cell.products.sum()), abs=1e-6)
    assert cell.scaled == pytest.approx(cell.dot / 8**0.5, abs=1e-6)
    assert cell.scaled == pytest.approx(float(cell.row_scores[3]), abs=1e-5)
    exps = np.exp(cell.row_scores)
    np.testing.assert_allclose(cell.row_probs, exps / exps.sum(), atol=1e-6)
    assert cell.prob == pytest.approx(float(attention.probs[1, 0, 4, 3]))
    np.testing.assert_allclose(cell.weighted_values, cell.row_probs[:, None] * cell.values)
    np.testing.assert_allclose(cell.context, cell.weighted_values.sum(0), atol=1e-6)


def test_the_three_embeddings_add_up(explainer: Explainer) -> None:
    found = explainer.embeddings(TEXT, PAIR)

    np.testing.assert_allclose(found.word + found.position + found.segment, found.total, atol=1e-6)
    one, parts = found.encoding, explainer.encoder.embeddings
    np.testing.assert_array_equal(
        found.word, parts.word_embeddings.weight.detach().numpy()[one.input_ids]
    )
    np.testing.assert_array_equal(
        found.position, parts.position_embeddings.weight.detach().numpy()[: len(one)]
    )
    np.testing.assert_array_equal(found.normalized, explainer.hidden_states(TEXT, PAIR).states[0])


def test_the_last_layers_cloze_is_that_of_fill_mask(
    explainer: Explainer, theirs: tuple[Path, Any]
) -> None:
    text = "the [MASK] hen saw a [MASK]"
    found = explainer.cloze(text, top_k=5)
    (expected,) = MaskFiller(theirs[0], device="cpu").fill([text], top_k=5)

    assert len(found.masks) == 2
    for mask, each in zip(found.masks, expected["masks"], strict=True):
        assert [layer.layer for layer in mask.layers] == [0, 1, 2]
        best = mask.layers[-1]
        assert list(best.words) == [word["word"] for word in each["words"]]
        assert list(best.probabilities) == pytest.approx(
            [word["probability"] for word in each["words"]], abs=1e-5
        )
        assert mask.truth is best.truth_rank is None


def test_a_hidden_word_has_its_rank_in_every_layer(explainer: Explainer) -> None:
    start = TEXT.index("hen")
    found = explainer.cloze(TEXT, hide=(start, start + 3), top_k=24)

    (mask,) = found.masks
    assert mask.truth == "hen"
    assert found.tokens[mask.position] == "[MASK]"
    for layer in mask.layers:
        assert layer.words[layer.truth_rank - 1] == "hen"
        assert layer.probabilities[layer.truth_rank - 1] == layer.truth_probability
        assert sum(layer.probabilities) == pytest.approx(1, abs=1e-5)
    # Attention and states see the same [MASK].
    hidden = explainer.hidden_states(TEXT, hide=(start, start + 3))
    written = explainer.hidden_states(TEXT.replace("hen", "[MASK]"))
    np.testing.assert_array_equal(hidden.states, written.states)


def test_another_threads_call_is_not_taken_for_ones_own(explainer: Explainer) -> None:
    alone = explainer.attention(TEXT)
    first = explainer.encoder.layers[0].attention.query_key_value
    begun: list[bool] = []

    def call_elsewhere(*_: object) -> None:
        if not begun:
            begun.append(True)
            thread = threading.Thread(target=explainer.attention, args=("a dog",))
            thread.start()
            thread.join()

    hook = first.register_forward_pre_hook(call_elsewhere)
    found = explainer.attention(TEXT)
    hook.remove()

    assert begun
    np.testing.assert_array_equal(found.probs, alone.probs)


def test_what_is_asked_wrongly(explainer: Explainer, tiny_model: Path) -> None:
    for call, kind, message in (
        (lambda: explainer.cloze("no gap"), DataError, r"has no \[MASK\]"),
        (lambda: explainer.cloze("a [MASK]", top_k=0), UsageError, "top_k is 0: expected 1 to 24"),
        (lambda: explainer.attention("red " * 40), DataError, "42 tokens.*positions for 32"),
        (lambda: explainer.attention("red  hen", hide=(3, 5)), DataError, "3 to 5 have no token"),
        (lambda: explainer.attention("a").head(3, 1), UsageError, "layer is 3: expected 1 to 2"),
        (lambda: explainer.attention("a").head(1, 0), UsageError, "head is 0: expected 1 to 2"),
        (lambda: explainer.attention("a").cell(1, 1, 0, 3), UsageError, "column is 3.*0 to 2"),
        (lambda: Explainer(tiny_model).cloze("a [MASK]"), WeightsError, "no masked-LM head"),
    ):
        with pytest.raises(kind, match=message):
            call()


def test_a_language_model_sees_what_came_before(
    tmp_path: Path, tiny_config: Callable[..., Any], tiny_model: Path
) -> None:
    tokenizer = BertTokenizer.from_pretrained(tiny_model).with_tokens(TEXT_TOKENS)
    sizes = tiny_config(vocab_size=tokenizer.vocab_size, type_vocab_size=1).to_dict()
    config = CausalConfig.from_dict({**sizes, "model_type": CausalConfig.model_type})
    torch.manual_seed(0)
    model = CausalLM(config).eval()
    save_model_directory(
        tmp_path / "lm",
        model_state=model.state_dict(),
        config=config,
        tokenizer=tokenizer,
        metadata=ModelMetadata("train-lm", max_seq_length=32),
        architecture="CausalLM",
    )
    explainer = Explainer(tmp_path / "lm")

    found, attention = explainer.embeddings(TEXT), explainer.attention(TEXT)

    assert found.tokens[:2] == ["[SOS]", "the"]
    assert found.segment is None
    np.testing.assert_allclose(found.word + found.position, found.total, atol=1e-6)
    assert "|segment|" not in str(found)
    assert attention.causal
    assert np.isneginf(attention.scores[:, :, 0, 1:]).all()
    with torch.inference_mode():
        last = model.bert(Rows.from_lists([found.encoding.input_ids])).last_hidden_state
    states = explainer.hidden_states(TEXT)
    np.testing.assert_allclose(states.states[-1], last.numpy(), atol=1e-5)
    with pytest.raises(DataError, match="single texts"):
        explainer.attention(TEXT, PAIR)
