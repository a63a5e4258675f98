"""BatchModel: a model as a function from Arrow to Arrow, for Ray Data, Spark and Dask."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints, is_typeddict

import pyarrow as pa

from tidybert.data.features import example_features
from tidybert.errors import DataError, UsageError, param
from tidybert.files.reading import ReadOptions
from tidybert.files.rows import in_memory
from tidybert.files.text_files import read_examples
from tidybert.inference.embedding import Embedder
from tidybert.inference.forward import LARGEST_CHUNK
from tidybert.inference.predictor import Predictor
from tidybert.inference.text_jobs import EmbedJob, FileJob, PredictJob
from tidybert.storage.json_objects import plain_json
from tidybert.system.cores import use_threads
from tidybert.tasks.answer import OwnAnswer, TaskAnswer

# Answers as columns of Arrow, with one schema a model whatever a batch holds.

_READ = (("num_tokens", pa.int32()), ("truncated", pa.bool_()))
_PLAIN: Final = {str: pa.string(), Any: pa.string(), int: pa.int32(), float: pa.float64()}


def answer_schema(predictor: Predictor) -> pa.Schema:
    """The columns of a model's answers: their keys, in the types that they are declared with.

    The scores of classes are a struct with a field for each class, in the order of their ids.  The
    answer of somebody's own task is one column of JSON.
    """
    task = predictor.task
    if task.answer is OwnAnswer:
        return pa.schema([("answer", pa.string()), *_READ])
    types = get_type_hints(task.answer, include_extras=True)
    names = [each.name for each in task.answer.own_fields()]
    return pa.schema([*((name, _arrow(types[name], task.names)) for name in names), *_READ])


def _arrow(kind: Any, label_names: Sequence[str]) -> pa.DataType:
    """Arrow's type for values of a type."""
    if is_typeddict(kind):
        members = get_type_hints(kind).items()
        return pa.struct([(name, _arrow(each, label_names)) for name, each in members])
    if (origin := get_origin(kind)) is None:
        return _PLAIN[kind]
    inside = [each for each in get_args(kind) if each is not type(None)]
    if origin is dict:
        return pa.struct([(str(name), pa.float64()) for name in label_names])
    if origin is Annotated:
        return pa.list_(pa.type_for_alias(inside[1]))
    found = _arrow(inside[0], label_names)
    return pa.list_(found) if origin is list else found


def answer_table(answers: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Answers as a table; what an answer lacks is null."""
    rows = []
    for each in answers:
        found = TaskAnswer.of(each)
        own = found.own()
        if isinstance(found, OwnAnswer):
            own = {"answer": json.dumps(plain_json(own), ensure_ascii=False)}
        rows.append({**plain_json(own), **vars(found.read)})
    return pa.table(
        [pa.array([row.get(field.name) for row in rows], field.type) for field in schema],
        schema=schema,
    )


JOBS: Final[dict[str, type[FileJob]]] = {"predict": PredictJob, "embed": EmbedJob}


class BatchModel:
    """A RUN that answers, or a MODEL that embeds, a batch of rows at a time.

    A batch comes as a table, a record batch or a frame, and leaves as a table of the same rows: its
    columns, and those of the answers.  The model loads with the first batch of a process, once.
    Its weights are mapped from the file, so processes of one machine share them until a precision
    changes them.  An engine may send the object to any process that finds MODEL under its name.

        dataset.map_batches(BatchModel, fn_constructor_args=("RUN",), batch_format="pyarrow",
                            compute=ActorPoolStrategy(size=8))              # Ray Data
        frame.mapInArrow(BatchModel("RUN").map_arrow, schema)               # Spark
        frame.map_partitions(BatchModel("RUN").map_frame)                   # Dask

    Args:
        model: a RUN to predict, a MODEL to embed.
        job: predict or embed.
        read: the columns, as for files: text, text_pair; None guesses them from the names.
        num_threads: threads that compute; None leaves it to the engine's process.
        options: arguments of Predictor, or of Embedder.

    Raises what those classes raise, and DataError for rows without texts.
    """

    def __init__(
        self,
        model: str,
        job: str = "predict",
        *,
        read: ReadOptions | None = None,
        num_threads: int | None = 1,
        **options: Any,
    ) -> None:
        if job not in JOBS:
            raise UsageError(f"{param('job', job)}: expected one of {', '.join(JOBS)}")
        self.work = JOBS[job](model=model, options=options, read=read or ReadOptions())
        self.num_threads = num_threads
        self._opened: Any = None

    def __call__(self, batch: Any) -> pa.Table:
        """The batch's columns and those of the answers; a column of both is the answers'."""
        if isinstance(batch, pa.RecordBatch):
            batch = pa.Table.from_batches([batch])
        table = batch if isinstance(batch, pa.Table) else pa.table(batch)
        found = self._answers(table)
        for name in found.column_names:
            if name in table.column_names:
                table = table.drop_columns(name)
        for name in found.column_names:
            table = table.append_column(found.schema.field(name), found.column(name))
        return table

    def map_arrow(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For each record batch its rows with the answers, as Spark's mapInArrow wants it."""
        for batch in batches:
            yield from self(batch).combine_chunks().to_batches()

    def map_frame(self, frame: Any) -> Any:
        """A pandas frame with the answers' columns, as Dask's map_partitions wants it."""
        return self(pa.Table.from_pandas(frame, preserve_index=False)).to_pandas()

    def schema(self) -> pa.Schema:
        """The columns that the answers add."""
        opened = self._open()
        if isinstance(opened, Embedder):
            vector = pa.list_(pa.float32(), opened.dimension)
            read = [("num_tokens", pa.int32()), ("truncated", pa.bool_())]
            return pa.schema([("vector", vector), *read])
        return answer_schema(opened)

    def __getstate__(self) -> dict[str, Any]:
        # Weights do not travel: each process loads its own.
        return {**self.__dict__, "_opened": None}

    def _open(self) -> Any:
        if self._opened is None:
            if self.num_threads is not None:
                use_threads(self.num_threads)
            self._opened = self.work.load()
        return self._opened

    def _answers(self, table: pa.Table) -> pa.Table:
        opened, schema = self._open(), self.schema()
        if not len(table):
            return schema.empty_table()
        if isinstance(opened, Embedder):
            return self._vectors(opened, table, schema)
        assert isinstance(opened, Predictor)
        task = opened.task
        if task.read.tuple_names is None:
            raise DataError(f"the task {task.name} reads only files, and no rows in memory")
        rows = in_memory(table, "batch", task.read.tuple_names)
        examples = task.read(rows, self.work.read, need_label=False, like=opened.reading)
        chunks = opened.predict_chunks(examples, first=LARGEST_CHUNK)
        return answer_table([each for _, answers in chunks for each in answers], schema)

    def _vectors(self, opened: Embedder, table: pa.Table, schema: pa.Schema) -> pa.Table:
        assert read_examples.tuple_names is not None
        rows = in_memory(table, "batch", read_examples.tuple_names)
        examples = list(read_examples(rows, self.work.read, need_label=False))
        features = example_features(
            examples, opened.tokenizer, opened.max_seq_length, prompt=opened.prompt
        )
        vectors = opened.vectors(features)
        columns = [
            pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), opened.dimension),
            pa.array([one.num_tokens for one in features], pa.int32()),
            pa.array([one.truncated for one in features]),
        ]
        return pa.table(columns, schema=schema)
