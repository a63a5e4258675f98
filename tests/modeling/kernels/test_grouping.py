"""Groups of sequences of similar length: every token has one cell, and blocks come back whole."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tidybert.modeling.kernels.fast_attention import are_in_order, groups_of
from tidybert.modeling.rows import Rows

lengths_of_a_batch = st.lists(st.integers(1, 90), min_size=1, max_size=12)


@given(lengths_of_a_batch)
def test_every_token_is_in_one_group_in_a_cell_of_its_sequence(lengths: list[int]) -> None:
    rows = Rows.from_lists([[1] * length for length in lengths])
    sequence_of = torch.repeat_interleave(torch.tensor(lengths))

    seen = []
    for group in groups_of(rows, cost=512):
        assert torch.equal(group.gather[group.cells], group.rows)
        is_token = torch.zeros(group.size * group.length, dtype=torch.bool)
        is_token[group.cells] = True
        is_token = is_token.view(group.size, group.length)
        if group.key_bias is None:
            assert is_token.all()
        else:
            assert torch.equal(group.key_bias[:, 0] == 0, is_token)
        blocks = group.gather.view(group.size, group.length)
        for block, tokens in zip(blocks, is_token, strict=True):
            (member,) = set(sequence_of[block[tokens]].tolist())
            start = int(rows.cu_seqlens[member])
            assert block[tokens].tolist() == list(range(start, start + lengths[member]))
        seen += group.rows.tolist()
    assert sorted(seen) == list(range(sum(lengths)))


@given(lengths_of_a_batch)
def test_what_is_taken_and_put_back_is_the_same(lengths: list[int]) -> None:
    rows = Rows.from_lists([[1] * length for length in lengths])
    hidden = torch.randn(rows.num_tokens, 3)
    back = torch.full_like(hidden, torch.nan)

    groups = groups_of(rows, cost=512)
    for group in groups:
        block = group.take(hidden).view(group.size, group.length, 3)
        assert torch.equal(group.tokens(block), hidden[group.rows])
        back.index_copy_(0, group.rows, group.tokens(block))

    assert torch.equal(back, hidden)
    in_order = torch.cat([group.rows for group in groups]).tolist() == list(range(rows.num_tokens))
    assert in_order or not are_in_order(rows)


def test_groups_are_made_once_for_each_cost() -> None:
    rows = Rows.from_lists([[1, 2], [3]])

    assert groups_of(rows, 0) is groups_of(rows, 0)
    assert len(groups_of(rows, 0)) == 2
    assert len(groups_of(rows, 100)) == 1


def test_no_group_is_shorter_than_it_is_asked_to_be() -> None:
    rows = Rows.from_lists([[1] * length for length in (3, 16, 40, 5)])

    assert [group.length for group in groups_of(rows, 100)] == [40, 16, 5]
    groups = groups_of(rows, 100, 16)
    assert [(group.size, group.length) for group in groups] == [(1, 40), (1, 16), (2, 16)]
    assert [len(group.cells) for group in groups] == [40, 16, 8]
