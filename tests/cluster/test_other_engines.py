"""BatchModel as docs/scale.md calls it, on a local Spark and Dask where they are installed."""

import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from tidybert import Predictor
from tidybert.cluster import BatchModel

TEXTS = ["the red fox", "a blue bird", "the sea", "a red bird", "the blue sea"]


def labels(run: str) -> list[str]:
    return [answer["label"] for answer in Predictor(run).predict(TEXTS)]


def test_spark(served: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="Spark is not installed")
    types = pytest.importorskip("pyspark.sql.pandas.types")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.getOrCreate()
    try:
        model = BatchModel(served["colours"])
        frame = session.createDataFrame(list(enumerate(TEXTS)), ["id", "text"]).repartition(2)
        columns = [pa.field("id", pa.int64()), pa.field("text", pa.string()), *model.schema()]
        schema = types.from_arrow_schema(pa.schema(columns))
        rows = frame.mapInArrow(model.map_arrow, schema).orderBy("id").collect()
    finally:
        session.stop()

    assert [row["label"] for row in rows] == labels(served["colours"])


def test_dask(served: dict[str, str]) -> None:
    dask = pytest.importorskip("dask.dataframe", reason="Dask is not installed")
    frame = dask.from_pandas(pd.DataFrame({"text": TEXTS}), npartitions=2)
    model = BatchModel(served["colours"])

    empty = model.map_frame(pd.DataFrame({"text": TEXTS[:1]})).iloc[:0]
    found = frame.map_partitions(model.map_frame, meta=empty).compute(scheduler="processes")

    assert list(found["label"]) == labels(served["colours"])
