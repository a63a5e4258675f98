"""Answers as a flat frame: a row an answer, an entity or a word."""

from typing import Any

import pytest

from tidybert.inference.predictor import AnswerList

READ = {"num_tokens": 3, "truncated": False}
ENTITY = {"type": "LOC", "text": "Rome", "start": 0, "end": 4, "score": 0.5}


@pytest.mark.parametrize(
    ("answer", "rows"),
    [
        (
            {"label": True, "score": 0.75, "scores": {False: 0.25, True: 0.75}, **READ},
            [{"label": True, "score": 0.75, "score_False": 0.25, "score_True": 0.75, **READ}],
        ),
        (
            {"labels": ["a"], "scores": {"a": 0.9, "b": 0.1}, **READ},
            [{"label_a": True, "label_b": False, "score_a": 0.9, "score_b": 0.1, **READ}],
        ),
        ({"value": 1.5, **READ}, [{"value": 1.5, **READ}]),
        (
            {"choice": 1, "text": "b", "score": 0.6, "scores": [0.4, 0.6], **READ},
            [{"choice": 1, "text": "b", "score": 0.6, **READ}],
        ),
        (
            {"id": "1", "answer": "b", "start": 2, "end": 3, "score": 0.6, "n_best": [{}], **READ},
            [{"id": "1", "answer": "b", "start": 2, "end": 3, "score": 0.6, **READ}],
        ),
        ({"words": ["Rome"], "tags": ["B-LOC"], "entities": [ENTITY, ENTITY]}, [ENTITY, ENTITY]),
        (
            {"words": ["a", "b"], "tags": ["X", "Y"], "scores": [0.5, 0.25]},
            [{"word": "a", "tag": "X", "score": 0.5}, {"word": "b", "tag": "Y", "score": 0.25}],
        ),
    ],
)
def test_rows_of_each_task(answer: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    pytest.importorskip("pandas")

    found = AnswerList([answer, answer]).to_pandas()

    assert found.to_dict("records") == [{"input": at, **row} for at in (0, 1) for row in rows]


def test_a_frame_has_the_index_of_the_inputs() -> None:
    pandas = pytest.importorskip("pandas")
    found = AnswerList([{"value": 1.5}, {"value": 2.5}])
    found.index = pandas.Index([7, 3])

    assert found.to_pandas()["value"].to_dict() == {7: 1.5, 3: 2.5}

    found.append({"value": 3.5})
    assert found.to_pandas().index.tolist() == [0, 1, 2]
