"""Answers as columns of Arrow, with one schema a model whatever a batch holds."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidybert.inference.predictor import Predictor
from tidybert.storage.json_objects import plain_json

_SPAN = pa.struct(
    [("answer", pa.string()), ("start", pa.int32()), ("end", pa.int32()), ("score", pa.float64())]
)
_ENTITY = pa.struct(
    [
        *(("type", pa.string()), ("text", pa.string()), ("start", pa.int32()), ("end", pa.int32())),
        ("score", pa.float64()),
    ]
)
_READ = (("num_tokens", pa.int32()), ("truncated", pa.bool_()))


def answer_schema(predictor: Predictor) -> pa.Schema:
    """The columns of a model's answers, as ``tidybert.tasks.answer_types`` names them.

    The scores of classes are a struct with a field for each class, in the order of their ids.
    """
    task = predictor.task
    scores = pa.struct([(str(name), pa.float64()) for name in task.names])
    by_task: dict[str, Sequence[tuple[str, pa.DataType]]] = {
        "classify": (("label", pa.string()), ("score", pa.float64()), ("scores", scores)),
        "multi-label": (("labels", pa.list_(pa.string())), ("scores", scores)),
        "regress": (("value", pa.float64()),),
        "choose": (
            *(("choice", pa.int32()), ("text", pa.string()), ("score", pa.float64())),
            ("scores", pa.list_(pa.float64())),
        ),
        "answer": (
            *(("id", pa.string()), ("answer", pa.string()), ("start", pa.int32())),
            *(("end", pa.int32()), ("score", pa.float64()), ("n_best", pa.list_(_SPAN))),
            *(("null_score", pa.float64()), ("null_score_diff", pa.float64())),
        ),
        "tag": (
            *(("words", pa.list_(pa.string())), ("tags", pa.list_(pa.string()))),
            *(("entities", pa.list_(_ENTITY)), ("scores", pa.list_(pa.float64()))),
        ),
        "embed": (("vector", pa.list_(pa.float32())), ("similarity", pa.float64())),
    }
    # A task of somebody's own: each answer as JSON.
    return pa.schema([*by_task.get(task.name, (("answer", pa.string()),)), *_READ])


def answer_table(answers: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Answers as a table; what an answer lacks is null."""
    rows = [plain_json(each) for each in answers]
    return pa.table(
        [pa.array([row.get(field.name) for row in rows], field.type) for field in schema],
        schema=schema,
    )
