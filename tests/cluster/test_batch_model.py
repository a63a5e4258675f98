import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tidybert import Embedder, Predictor
from tidybert.cluster import BatchModel
from tidybert.errors import DataError, UsageError
from tidybert.files.reading import ReadOptions

ROWS: dict[str, dict[str, list[Any]]] = {
    "colours": {"text": ["the red fox", "a blue bird"]},
    "labels": {"text": ["the red fox", "a blue bird"]},
    "scores": {"text": ["the red fox", "a blue bird"]},
    "choices": {"context": ["the red", "a blue"], "choices": [["fox", "sea"], ["bird", "dog"]]},
    "questions": {"question": ["the red", "a blue"], "context": ["the red fox", "a blue bird"]},
    "tags": {"words": [["the", "red", "fox"], ["a", "bird"]]},
}


@pytest.mark.parametrize("name", ROWS)
def test_answers_are_those_of_the_predictor_in_columns(served: dict[str, str], name: str) -> None:
    batch = pa.table({"number": [7, 8], **ROWS[name]})

    found = BatchModel(served[name])(batch)

    assert found.column("number").to_pylist() == [7, 8]
    answers = Predictor(served[name]).predict(batch)
    schema = BatchModel(served[name]).schema()
    assert set(schema.names) <= set(found.column_names)
    for place, answer in enumerate(answers):
        row = found.slice(place, 1).to_pylist()[0]
        # Both computed the same batch, so the bits are the same.
        assert {key: row[key] for key in answer} == answer


def test_a_second_column_is_named_as_for_a_file(served: dict[str, str]) -> None:
    texts, pairs = ["the red fox", "a blue bird"], ["a dog", "the sea"]
    model = BatchModel(served["pairs"], read=ReadOptions(text="one", text_pair="two"))

    found = model(pa.table({"one": texts, "two": pairs}))

    answers = Predictor(served["pairs"]).predict(texts, pairs)
    assert found.column("score").to_pylist() == [each["score"] for each in answers]


def test_a_batch_of_nothing_has_the_same_columns(served: dict[str, str]) -> None:
    model = BatchModel(served["tags"])
    full = model(pa.table(ROWS["tags"]))

    empty = model(full.select(["words"]).slice(0, 0))

    assert empty.schema == full.schema


def test_vectors_are_those_of_the_embedder(tiny_model: Path) -> None:
    texts = ["the red fox", "a blue bird", "the sea"]
    model = BatchModel(str(tiny_model), "embed")
    model(pa.table({"text": texts}))

    # A process that the object is sent to loads the weights itself.
    sent = pickle.loads(pickle.dumps(model))
    found = sent(pa.table({"text": texts}))

    vectors = np.stack([np.array(each) for each in found.column("vector").to_pylist()])
    np.testing.assert_allclose(vectors, Embedder(tiny_model).embed(texts), atol=1e-6)


def test_spark_and_dask_get_what_they_ask_for(served: dict[str, str]) -> None:
    model = BatchModel(served["colours"])
    frame = pd.DataFrame({"text": ["the red fox"] * 3})

    batches = list(model.map_arrow(pa.Table.from_pandas(frame).to_batches(max_chunksize=2)))
    labels = model.map_frame(frame)["label"]

    assert [batch.num_rows for batch in batches] == [2, 1]
    assert set(labels) <= {"animal", "colour"}
    assert len(labels) == 3


def test_what_it_cannot_read_is_an_error(served: dict[str, str]) -> None:
    with pytest.raises(DataError, match="batch"):
        BatchModel(served["colours"])(pa.table({"text": ["a", None]}))
    with pytest.raises(UsageError, match="predict, embed"):
        BatchModel(served["colours"], "tokenise")
