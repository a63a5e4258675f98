"""A cross-encoder orders hits by its own scores, which are those of ``Predictor``."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tidybert.errors import UsageError
from tidybert.inference.predictor import CrossEncoder, Predictor
from tidybert.search.index import Index


def test_hits_come_in_the_order_of_the_cross_encoder(
    make_index: Callable[..., Path], served: dict[str, str]
) -> None:
    index = Index.open(make_index())
    plain = index.search("a red cat", 8)

    found = index.search("a red cat", 3, rerank=CrossEncoder.open(served["pairs"]), candidates=8)

    answers = Predictor(served["pairs"]).predict(["a red cat"] * 8, [hit.text for hit in plain])
    scores = [answer["scores"]["yes"] for answer in answers]
    yes = {hit.position: score for hit, score in zip(plain, scores, strict=True)}
    expected = sorted(yes, key=lambda position: -yes[position])[:3]
    assert [hit.position for hit in found] == expected
    assert [hit.rerank_score for hit in found] == pytest.approx([yes[at] for at in expected])
    assert found[0].to_dict()["rerank_score"] == found[0].rerank_score


@pytest.mark.parametrize("name", ["colours", "scores", "labels", "questions"])
def test_a_run_of_another_kind_is_refused(served: dict[str, str], name: str) -> None:
    with pytest.raises(UsageError, match="to score pairs of texts give a RUN"):
        CrossEncoder.open(served[name])
