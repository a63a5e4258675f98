"""``tidybert generate`` prints a text in parts that later tokens leave as they are."""

import pytest

from tidybert.cli.commands.inside import _parts
from tidybert.inference.language_model import NextToken
from tidybert.tokenization.wordpiece import join_pieces


@pytest.mark.parametrize(
    ("prompt", "spaced"),
    [
        ("we", "do n ' t , we don ' t pay $ 1 , 000 ( or 1 , 000 ##0 ) ."),
        ("", "床 前 明 月 ， a ##b ##c 12 : 30 ."),
        ("it ends", ""),
    ],
)
def test_what_is_printed_is_the_text(prompt: str, spaced: str) -> None:
    given, tokens = prompt.split(), spaced.split()
    texts = [join_pieces([*given, *tokens[:count]]) for count in range(len(tokens) + 1)]
    coming = [
        NextToken(before, token, 0, 1.0, (), after)
        for before, token, after in zip(texts, tokens, texts[1:], strict=False)
    ]
    steps: list[NextToken] = []

    parts = list(_parts(coming, steps, texts[0]))

    assert "".join(parts) == texts[-1]
    assert steps == coming
    # All but the last tokens are there before the end.
    assert len("".join(parts[:-1])) >= len(texts[-1]) - 8
