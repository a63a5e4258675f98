"""Answers of ``tidybert predict`` in the shapes of transformers' pipelines.

The shapes are those of TextClassificationPipeline, of TokenClassificationPipeline with
``aggregation_strategy="simple"``, and of the QuestionAnsweringPipeline that transformers removed in
5.3.  All functions are pure.
"""

import base64
from collections.abc import Callable, Iterable
from itertools import accumulate, groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.tasks.answer import ABSENT, Answered, Tagged, TaskAnswer
from tidybert.tasks.tags.tag_files import split_text
from tidybert.tokenization.tokenizer import Encoding
from tidybert.tokenization.vocabulary import CONTINUATION, UNK_TOKEN

OUTSIDE: Final = "O"

# Only these tokens lose the space before them when transformers joins pieces.
_NO_SPACE_BEFORE: Final = frozenset(".?!,")


def label_scores(
    answer: TaskAnswer, *, raw: bool = False, top_k: int | None = None
) -> list[dict[str, Any]] | None:
    """{"label", "score"} of each label, or of ``top_k``, the highest first; None without labels."""
    scores = answer.label_scores(raw=raw)
    if scores is None:
        return None
    ranked = sorted(scores.items(), key=lambda pair: -pair[1])
    return [{"label": label, "score": score} for label, score in ranked[:top_k]]


def answers_to_question(
    answer: Answered, *, top_k: int = 1, allow_none: bool = True
) -> list[dict[str, Any]]:
    """{"score", "start", "end", "answer"} of the best answers, at most ``top_k``, at least one.

    "No answer" has the answer "" and is from 0 to 0.  It is first where the model prefers it; with
    ``allow_none`` false it is there only if the text has no other.
    """
    keys: Final = ("score", "start", "end", "answer")
    spans: list[dict[str, Any]] = [{key: one[key] for key in keys} for one in answer.n_best]
    if not answer.answer and (allow_none or not spans):
        spans.insert(0, {"score": answer.score, "start": 0, "end": 0, "answer": ""})
    return spans[:top_k]


def entity_groups(
    answer: Tagged, text: str, encode: Callable[[str], Encoding]
) -> list[dict[str, Any]]:
    """{"entity_group", "score", "word", "start", "end"} of each group of words with one tag.

    A group is an entity where tags mark entities, and else the neighbouring words with the same
    tag, without those of the tag O.

    Args:
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


def _groups(answer: Tagged, text: str) -> Iterable[tuple[str, float, int, int]]:
    """Name, score, start and end."""
    if answer.entities is not ABSENT:
        for one in answer.entities:
            yield one["type"], one["score"], one["start"], one["end"]
        return
    _, spans = split_text(text)
    words = zip(answer.tags, answer.scores, spans, strict=True)
    for tag, group in groupby(words, key=lambda word: word[0]):
        if tag != OUTSIDE:
            _, scores, places = zip(*group, strict=True)
            yield tag, sum(scores) / len(scores), places[0][0], places[-1][1]


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
