"""Real lines in several scripts, with the five published vocabularies, against the reference.

The Chinese vocabulary is compared both ways: Google ran its model lower-cased, the Hugging Face
configuration says that it is cased.
"""

import lzma
import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tidybert.tokenization import BertTokenizer, Vocabulary

pytestmark = pytest.mark.real_data


@pytest.fixture(scope="module")
def lines(real_data: Path) -> list[str]:
    """Some twenty thousand lines: English, Chinese, text messages, and words of 100 languages."""
    with lzma.open(real_data / "corpus/wiki-core-00.txt.xz", "rt", encoding="utf-8") as corpus:
        english = list(islice(corpus, 5000))
    with (real_data / "zh/wiki-zh.txt").open(encoding="utf-8") as corpus:
        chinese = list(islice(corpus, 5000))
    messages = (real_data / "text/sms_spam/SMSSpamCollection").read_text("utf-8").split("\n")
    return english + chinese + messages + many_scripts(real_data)


def many_scripts(real_data: Path) -> list[str]:
    """Pieces of the multilingual vocabulary, glued to words and the words to lines, at random."""
    path = real_data / "vocab/bert-base-multilingual-cased/vocab.txt"
    pieces = [token.removeprefix("##") for token in Vocabulary.from_file(path).tokens]
    draw = random.Random(0)
    glue = ["", " ", " ", "-", ", ", "\u3000", "'", "\u0301", "\u200b", "।", "、", "\u00a0"]
    return [
        "".join(piece + draw.choice(glue) for piece in draw.choices(pieces, k=15))
        for _ in range(5000)
    ]


@pytest.mark.parametrize(
    ("name", "do_lower_case"),
    [
        ("bert-base-uncased", True),
        ("bert-base-cased", False),
        ("bert-base-chinese", True),
        ("bert-base-chinese", False),
        ("bert-base-multilingual-cased", False),
        ("bert-base-multilingual-uncased", True),
    ],
)
def test_every_line_has_the_ids_of_the_reference(
    real_data: Path,
    lines: list[str],
    reference: Callable[[BertTokenizer], Any],
    name: str,
    do_lower_case: bool,
) -> None:
    tokenizer = BertTokenizer.from_file(real_data / "vocab" / name / "vocab.txt", do_lower_case)
    expected = reference(tokenizer).encode_batch(lines, add_special_tokens=False)
    found = tokenizer.encode_batch(lines, add_special_tokens=False)
    differing = [
        line
        for line, ids, encoding in zip(lines, found, expected, strict=True)
        if ids.tolist() != encoding.ids
    ]
    assert differing == []
    for line, encoding in islice(zip(lines, expected, strict=True), 0, None, 20):
        ours = tokenizer.encode(line, add_special_tokens=False)
        assert ours.input_ids == encoding.ids
        starts = [start for start, _ in ours.offset_mapping]
        assert starts == [start for start, _ in encoding.offsets]
