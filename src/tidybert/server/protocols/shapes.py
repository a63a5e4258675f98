"""Answers of ``tidybert predict`` in the shapes of transformers' pipelines.

The shapes are those of TextClassificationPipeline, of TokenClassificationPipeline with
``aggregation_strategy="simple"``, and of the QuestionAnsweringPipeline that transformers removed in
5.3.  All functions are pure.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, groupby
from math import log, log1p
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.tasks.tags.tag_files import split_text
from tidybert.tokenization.tokenizer import Encoding
from tidybert.tokenization.vocabulary import CONTINUATION, UNK_TOKEN

Answer = Mapping[str, Any]
"""One object of ``tidybert predict``."""

ONLY_LABEL: Final = "LABEL_0"
"""The name that transformers gives to the one output of a regression."""
OUTSIDE: Final = "O"

# A log-odds beyond this has a probability that float64 cannot tell from 0 or 1.
_LARGEST_LOG_ODDS: Final = 36.0
_SMALLEST_PROBABILITY: Final = 1e-300
# Only these tokens lose the space before them when transformers joins pieces.
_NO_SPACE_BEFORE: Final = frozenset(".?!,")


def label_scores(
    answer: Answer, *, raw: bool = False, top_k: int | None = None
) -> list[dict[str, Any]] | None:
    """{"label", "score"} of each label, the highest score first; None for another task's answer.

    Args:
        answer: of classification with one label or any number of them, or of regression, whose
            value is the score of LABEL_0.
        raw: gives scores before the softmax or sigmoid.  For classes that is the log-probability,
            which differs from the logit by the same number for all classes; for several labels it
            is the log-odds, within ±36.
        top_k: how many labels to give; None gives all.
    """
    if "value" in answer:
        return [{"label": ONLY_LABEL, "score": answer["value"]}]
    scores = answer.get("scores")
    if not isinstance(scores, dict):
        return None
    if raw:
        convert = _log_odds if "labels" in answer else _log_probability
        scores = {label: convert(score) for label, score in scores.items()}
    ranked = sorted(scores.items(), key=lambda pair: -pair[1])
    return [{"label": label, "score": score} for label, score in ranked[:top_k]]


def relevance(answer: Answer, *, raw: bool = False) -> float | None:
    """How well the second text of a pair fits the first, for a ranking; None without one score.

    That is the value of a regression, or the probability of the second of two classes; ``raw``
    gives the log-odds of that probability.
    """
    if "value" in answer:
        return float(answer["value"])
    scores = answer.get("scores")
    if not isinstance(scores, dict) or "labels" in answer or len(scores) != 2:
        return None
    other, relevant = scores.values()
    return _log_probability(relevant) - _log_probability(other) if raw else relevant


def answers_to_question(
    answer: Answer, *, top_k: int = 1, allow_none: bool = True
) -> list[dict[str, Any]]:
    """{"score", "start", "end", "answer"} of the best answers, at most ``top_k``, at least one.

    "No answer" has the answer "" and is from 0 to 0.  It is first where the model prefers it; with
    ``allow_none`` false it is there only if the text has no other.
    """
    spans = [_span(one) for one in answer["n_best"]]
    if not answer["answer"] and (allow_none or not spans):
        spans.insert(0, {"score": answer["score"], "start": 0, "end": 0, "answer": ""})
    return spans[:top_k]


def entity_groups(
    answer: Answer, text: str, encode: Callable[[str], Encoding]
) -> list[dict[str, Any]]:
    """{"entity_group", "score", "word", "start", "end"} of each group of words with one tag.

    A group is an entity where tags mark entities, and else the neighbouring words with the same
    tag, without those of the tag O.

    Args:
        answer: of tagging the ``text``.
        text: the text as it was given.
        encode: tokenises a text without special tokens, for "word".
    """
    return [
        {
            "entity_group": name,
            "score": score,
            "word": joined_pieces(encode(text[start:end]), text[start:end]),
            "start": start,
            "end": end,
        }
        for name, score, start, end in _groups(answer, text)
    ]


def joined_pieces(encoding: Encoding, text: str) -> str:
    """The pieces of a text as transformers joins them: a space before each word, as the model reads
    it (lower-cased by an uncased model); an unknown word is as in the text."""
    joined = ""
    for token, (start, end) in zip(encoding.tokens, encoding.offset_mapping, strict=True):
        if token.startswith(CONTINUATION):
            joined += token.removeprefix(CONTINUATION)
        else:
            word = text[start:end] if token == UNK_TOKEN else token
            joined += word if not joined or word in _NO_SPACE_BEFORE else f" {word}"
    return joined


def _groups(answer: Answer, text: str) -> Iterable[tuple[str, float, int, int]]:
    """Name, score, start and end."""
    if "entities" in answer:
        for one in answer["entities"]:
            yield one["type"], one["score"], one["start"], one["end"]
        return
    _, spans = split_text(text)
    words = zip(answer["tags"], answer["scores"], spans, strict=True)
    for tag, group in groupby(words, key=lambda word: word[0]):
        if tag != OUTSIDE:
            _, scores, places = zip(*group, strict=True)
            yield tag, sum(scores) / len(scores), places[0][0], places[-1][1]


def _span(one: Answer) -> dict[str, Any]:
    return {key: one[key] for key in ("score", "start", "end", "answer")}


def _log_probability(probability: float) -> float:
    return log(max(probability, _SMALLEST_PROBABILITY))


def _log_odds(probability: float) -> float:
    """The logit of a sigmoid, within ±36."""
    if not 0 < probability < 1:
        return _LARGEST_LOG_ODDS if probability else -_LARGEST_LOG_ODDS
    odds = log(probability) - log1p(-probability)
    return min(max(odds, -_LARGEST_LOG_ODDS), _LARGEST_LOG_ODDS)


# Vectors and tokens in the shapes of OpenAI and text-embeddings-inference; pure functions.

Vectors = npt.NDArray[np.float32]

_SMALLEST_LENGTH: Final = np.float32(1e-12)


def fitted(vectors: Vectors, dimensions: int | None, *, normalize: bool) -> Vectors:
    """The first ``dimensions`` numbers (None: all) of each vector (n, d), scaled to length 1 if
    ``normalize``."""
    found = vectors[:, :dimensions]
    if normalize:
        found = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), _SMALLEST_LENGTH)
    return np.ascontiguousarray(found)


def in_base64(vector: npt.NDArray[np.float32]) -> str:
    """The numbers as little-endian float32 in base64."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def similarities(source: Vectors, others: Vectors) -> list[float]:
    """(n,) the products of one vector (d,) with the others (n, d): cosines if all have length 1."""
    found: list[float] = (others @ source).tolist()
    return found


def simple_tokens(text: str, encoding: Encoding) -> list[dict[str, Any]]:
    """{"id", "text", "special", "start", "stop"} of each token.

    "text" is the token's part of the text, from byte "start" to byte "stop" in UTF-8.  A special
    token around the text has its name and no place.
    """
    places = byte_places(text)
    found = []
    for token, number, sequence, (start, end) in zip(
        encoding.tokens,
        encoding.input_ids,
        encoding.sequence_ids,
        encoding.offset_mapping,
        strict=True,
    ):
        special = sequence is None
        found.append(
            {
                "id": number,
                "text": token if special else text[start:end],
                "special": special,
                "start": None if special else places[start],
                "stop": None if special else places[end],
            }
        )
    return found


def byte_places(text: str) -> range | list[int]:
    """(len(text) + 1,) the byte in UTF-8 where each character begins, and the end."""
    if text.isascii():
        return range(len(text) + 1)
    return list(accumulate((len(each.encode()) for each in text), initial=0))
