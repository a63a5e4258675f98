"""A second ranking: what a cross-encoder says of a query and each text that was found."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidybert.inference.cross_encoder import CrossEncoder
from tidybert.search.hit import Hit


def reordered(
    hits: Sequence[Hit], encoder: CrossEncoder, answers: Sequence[Mapping[str, Any]]
) -> list[Hit]:
    """The same hits with their scores, the best first; equal ones stay in their order.

    ``answers``: that of the encoder's predictor to each pair of query and text.
    """
    found = [
        replace(hit, rerank_score=encoder.score(answer), rerank_truncated=answer["truncated"])
        for hit, answer in zip(hits, answers, strict=True)
    ]
    return sorted(found, key=lambda hit: -(hit.rerank_score or 0.0))
