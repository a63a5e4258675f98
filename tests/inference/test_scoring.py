"""The pseudo-perplexity of a BERT: each token masked, and predicted from all others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidybert.errors import DataError
from tidybert.files.text_examples import TextExample
from tidybert.inference.language_model import TextScorer
from tidybert.inference.pretraining_heads import MaskFiller

WORDS = ["we", "saw", "a", "red", "hen"]


def test_each_token_has_the_probability_that_fill_mask_gives_it(
    pretrained: Callable[[str], tuple[Path, Any]],
) -> None:
    directory = pretrained("BertForMaskedLM")[0]
    filler, scorer = MaskFiller(directory), TextScorer(directory)

    (answer,) = scorer.score([" ".join(WORDS)])

    assert not scorer.is_causal
    expected = []
    for place, word in enumerate(WORDS):
        text = " ".join([*WORDS[:place], "[MASK]", *WORDS[place + 1 :]])
        (found,) = filler.fill([text], among=[word])
        expected.append(found["masks"][0]["words"][0]["probability"])
    assert [each["token"] for each in answer["tokens"]] == WORDS
    found = [each["probability"] for each in answer["tokens"]]
    assert found == pytest.approx(expected, rel=1e-4)
    assert answer["pseudo_perplexity"] == pytest.approx(np.exp(-np.log(expected).mean()), rel=1e-4)


def test_what_it_cannot_score_is_refused(pretrained: Callable[[str], tuple[Path, Any]]) -> None:
    scorer = TextScorer(pretrained("BertForMaskedLM")[0])

    with pytest.raises(DataError, match="text 2, '', has no token"):
        scorer.score(["a", ""])
    with pytest.raises(DataError, match="4: a pair of texts"):
        list(scorer.score_chunks([TextExample("a", "b", None, 4)]))
