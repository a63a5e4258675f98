"""The planned pass over few rows: the plain encoder's states, whatever is asked."""

import copy
import pickle
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from tidybert.configuration import BertConfig
from tidybert.modeling.encoder import LowerStates
from tidybert.modeling.heads import BertForSequenceClassification, BertForTokenClassification
from tidybert.modeling.kernels import answer_layers
from tidybert.modeling.kernels import linear as linear_module
from tidybert.modeling.kernels.answer_layers import (
    AnswerEncoder,
    use_bfloat16,
    use_float32,
    use_int8,
)
from tidybert.modeling.kernels.linear import (
    MOST_ROWS,
    PackedLinear,
    largest_weight,
    lays_out_float32,
    size_of,
)
from tidybert.modeling.kernels.threads import ChosenThreads, on_one_thread
from tidybert.modeling.rows import Rows

CONFIG = BertConfig(
    vocab_size=100,
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=512,
)
LENGTHS = ([1], [2], [3], [8], [19], [64, 2], [127], [128], [20, 20, 5], [1, 1], [129], [512])


def rows_of(lengths: Sequence[int]) -> Rows:
    return Rows.from_lists([(np.arange(length) * 7 + length) % 100 for length in lengths])


def states_of(count: int) -> LowerStates:
    generator = torch.Generator().manual_seed(count)
    return LowerStates(torch.randn(count, CONFIG.hidden_size, generator=generator), 0)


def pair() -> tuple[BertForSequenceClassification, BertForSequenceClassification]:
    """A model, and the same one with layers for answers."""
    torch.manual_seed(0)
    plain = BertForSequenceClassification(CONFIG, num_labels=3).eval()
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            parameter.add_(0.2 * torch.randn_like(parameter) * ("embeddings" not in name))
    planned = copy.deepcopy(plain)
    use_float32(planned)
    return plain, planned


def passes_of(stack: AnswerEncoder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each pass through the first layer."""
    seen: list[int] = []
    first = stack.layers[0]
    forward = first.forward

    def run(hidden: torch.Tensor, *given: object, **named: object) -> torch.Tensor:
        seen.append(len(hidden))
        return forward(hidden, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(first, "forward", run)
    return seen


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@torch.inference_mode()
def test_its_states_are_those_of_the_plain_encoder(lengths: list[int]) -> None:
    plain, planned = pair()
    rows = rows_of(lengths)
    some = torch.tensor([0, rows.num_tokens - 1, rows.num_tokens // 2])

    for expected, found in (
        (plain(rows), planned(rows)),
        (plain.bert(rows).last_hidden_state, planned.bert(rows).last_hidden_state),
        (plain.bert(rows).pooler_output, planned.bert(rows).pooler_output),
        [each.bert(rows, output_rows=some).last_hidden_state for each in (plain, planned)],
    ):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_rows_are_filled_up_to_sizes_that_recur(monkeypatch: pytest.MonkeyPatch) -> None:
    _, planned = pair()
    seen = passes_of(planned.bert.encoder, monkeypatch)

    for count in (1, 2, 8, 9, 17, 65, 90, 128, 129):
        planned(rows_of([count]))

    # The first pass of a size is computed on one thread and on all.
    assert list(dict.fromkeys(seen)) == [2, 8, 16, 24, 80, 96, 128, 144]


@pytest.mark.parametrize("threads", [1, 2])
@torch.inference_mode()
def test_a_text_is_the_same_alone_and_in_company(threads: int) -> None:
    _, planned = pair()
    lengths = [3, 17, 60, 128, 129, 300, 1]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together = planned(rows_of(lengths))

        alone = torch.cat([planned(rows_of([each])) for each in lengths])
    finally:
        torch.set_num_threads(before)
    if lays_out_float32():
        assert torch.equal(alone, together)
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_the_weights_are_held_once_and_given_back_as_they_were() -> None:
    plain, planned = pair()
    rows, state = rows_of([5, 9]), planned.state_dict()

    assert list(state) == list(plain.state_dict())
    assert all(torch.equal(state[name], each) for name, each in plain.state_dict().items())
    left = sum(each.nbytes for each in planned.bert.layers.parameters())
    assert left < 0.02 * sum(each.nbytes for each in plain.bert.layers.parameters())
    loaded = copy.deepcopy(plain)
    loaded.load_state_dict(state)
    for each in (loaded, copy.deepcopy(planned), pickle.loads(pickle.dumps(planned))):
        torch.testing.assert_close(each(rows), planned(rows), rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_hidden_states_and_causal_passes_are_those_of_the_plain_encoder() -> None:
    plain, planned = pair()
    rows = rows_of([5, 9])
    found, expected = (each.bert(rows, output_hidden_states=True) for each in (planned, plain))

    for mine, theirs in zip(found.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(mine, theirs)
    causal = (each.bert(rows, causal=True).last_hidden_state for each in (planned, plain))
    torch.testing.assert_close(*causal)
    with pytest.raises(ValueError, match=r"has no attentions: open it with tidybert\.load"):
        planned.bert(rows, output_attentions=True)


def test_there_are_no_gradients() -> None:
    plain, planned = pair()
    rows = rows_of([5, 9])

    plain(rows).sum().backward()

    with pytest.raises(RuntimeError, match="does not require grad"):
        planned(rows).sum().backward()


@pytest.mark.skipif(linear_module._ONEDNN is None, reason="PyTorch has no oneDNN here")
@pytest.mark.parametrize(
    ("is_amd", "units", "laid_out", "products"),
    [
        (True, {"AVX2", "AVX-512"}, True, "onednn"),
        (True, {"AVX2"}, True, "default"),
        (False, {"AVX2", "AVX-512"}, True, "default"),
        (False, {"AVX2"}, True, "default"),
        (True, set(), False, "default"),
    ],
)
@torch.inference_mode()
def test_the_processors_flags_decide_who_multiplies(
    is_amd: bool,
    units: set[str],
    laid_out: bool,
    products: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear_module, "is_amd", lambda: is_amd)
    monkeypatch.setattr(linear_module, "has", units.__contains__)
    own = linear_module.lays_out_float32.__wrapped__
    for module in (linear_module, answer_layers):
        monkeypatch.setattr(module, "lays_out_float32", own)
    assert linear_module.faster_products() == products
    rows = rows_of([19, 300])

    plain, planned = pair()

    assert planned.bert.layers[0].output.is_laid_out is laid_out
    assert planned.classifier.is_steady is laid_out
    torch.testing.assert_close(planned(rows), plain(rows), rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_tags_too() -> None:
    torch.manual_seed(1)
    plain = BertForTokenClassification(CONFIG, num_labels=5).eval()
    planned = copy.deepcopy(plain)
    use_float32(planned)
    rows = rows_of([6, 11])
    words = torch.tensor([1, 4, 8, 9])

    found, expected = (each(rows, output_rows=words) for each in (planned, plain))

    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("has_onednn", [True, False])
def test_a_packed_linear_is_a_linear(has_onednn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if has_onednn and linear_module._ONEDNN is None:
        pytest.skip("PyTorch has no oneDNN here")
    monkeypatch.setattr(linear_module, "lays_out_float32", lambda: has_onednn)
    weight, bias = torch.randn(48, 40), torch.randn(48)
    packed = PackedLinear(weight, bias)
    for count in (1, 2, 7, MOST_ROWS):
        hidden, added = torch.randn(count, 40), torch.randn(count, 48)
        with torch.inference_mode():
            torch.testing.assert_close(packed(hidden), hidden @ weight.T + bias)
            torch.testing.assert_close(packed(hidden, added), hidden @ weight.T + bias + added)


@pytest.mark.parametrize("precision", ["float32", "int8", "bfloat16"])
def test_a_planned_pass_takes_the_threads_that_are_chosen(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, planned = pair()
    if precision == "int8":
        if not largest_weight():
            pytest.skip("no exact 8-bit products here")
        planned = plain
        assert use_int8(planned) is None
    if precision == "bfloat16":
        planned = plain
        if not use_bfloat16(planned):
            pytest.skip("no products of bfloat16 here")
    stack = planned.bert.encoder
    passes: list[Hashable] = []
    run = ChosenThreads.run

    def counted(self: ChosenThreads, size: Hashable, work: Callable[[], Tensor]) -> Tensor:
        passes.append(size)
        return run(self, size, work)

    monkeypatch.setattr(ChosenThreads, "run", counted)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch.inference_mode():
            for count in (9, 64):
                shared = stack(states_of(count), rows_of([count]))
                with on_one_thread():
                    assert torch.equal(stack(states_of(count), rows_of([count])), shared)
        assert passes == [(size_of(9), None)] * 2 + [(size_of(64), None)] * 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
