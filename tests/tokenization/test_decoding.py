"""Pieces back to text."""

import pytest

from tidybert.tokenization.decoding import join_pieces


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["un", "##want", "##ed", ",", "runn", "##ing", "!"], "unwanted, running!"),
        (["do", "##n", "'", "t", "say", "(", "it", ")", "."], "don't say (it)."),
        (["at", "10", ":", "30", ",", "3", ".", "5", "%"], "at 10:30, 3.5%"),
        (["1", ",", "234", ",", "567", "in", "1990", ",", "12"], "1,234,567 in 1990, 12"),
        (["中", "国", "。", "ok"], "中国。 ok"),
        (["##ed", "##s"], "eds"),
        (["##"], "##"),
        ([], ""),
    ],
)
def test_spacing(tokens: list[str], text: str) -> None:
    assert join_pieces(tokens) == text
