"""Answers as text: one JSON line an example, or one JSON object of all; and into a file."""

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.data.features import example_features
from tidybert.errors import UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.inference.embedding import Embedder, vectors_of_each
from tidybert.inference.forward import LARGEST_CHUNK, in_chunks
from tidybert.inference.passages import PLACE
from tidybert.storage.atomic_files import atomic_file
from tidybert.storage.json_objects import plain_json
from tidybert.storage.own_files import GrowingFile
from tidybert.storage.part_file import Form, Piece, Written, grow_file, settings_of_part
from tidybert.system.reporter import SILENT, Reporter
from tidybert.system.terminal import printable_json
from tidybert.tasks.answer import LabelledAnswer, TaskAnswer
from tidybert.tokenization.tokenizer import Encoding


@dataclass(frozen=True)
class AnswerForm(Form):
    """How answers are written: ``entry`` of each one, with texts around and between them."""

    name: str
    entry: Callable[[dict[str, Any]], str]
    head: str = ""
    between: str = ""
    tail: str = ""

    def begin(self) -> bytes:
        return self.head.encode()

    def piece(self, examples: Sequence[Any], answers: Sequence[Any], num_done: int) -> str:
        """The text of some answers, and of their examples, after so many."""
        return self.between.join(map(self.entry, answers))

    def make(self, file: GrowingFile, target: Path) -> None:
        file.write(self.tail.encode())
        file.become(target)


def json_line(values: Mapping[str, Any], **how: Any) -> str:
    """An object as a line of JSON; ``how``: further arguments of ``json.dumps``."""
    text = json.dumps(plain_json(values), ensure_ascii=False, allow_nan=False, **how)
    return f"{printable_json(text)}\n"


LINES: Final = AnswerForm("lines", json_line)
"""One JSON object a line."""
OFFICIAL: Final = AnswerForm(
    "official",
    lambda each: f"{json.dumps(each['id'])}: {json.dumps(each['answer'])}",
    head="{",
    between=", ",
    tail="}\n",
)
"""One JSON object of ids and answers, for SQuAD's script."""


def top_lines(top_k: int) -> AnswerForm:
    """LINES whose scores are those of the ``top_k`` likeliest classes, the likeliest first."""

    def entry(answer: dict[str, Any]) -> str:
        found = TaskAnswer.of(answer)
        assert isinstance(found, LabelledAnswer)
        return LINES.entry(found.likeliest(top_k).as_dict())

    return AnswerForm(f"lines, top {top_k}", entry)


Chunks = Iterator[tuple[list[Any], list[dict[str, Any]]]]
"""Examples in lists, each with their answers."""


def write_answers(
    opened: Any,
    examples: Iterable[Any],
    target: Path,
    form: AnswerForm = LINES,
    *,
    chunks: Callable[..., Chunks] | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    resume: bool = False,
    reporter: Reporter = SILENT,
) -> Written:
    """Write the answers to all examples to ``target``, whole or not at all.

    Calls ``advance`` with the number of examples done.  With ``resume``, goes on where a stopped
    run with the same examples and settings left off, and ends with the same bytes.  Raises as
    ``grow_file``.

    Args:
        chunks: as ``Predictor.predict_chunks``, which None takes; ``settings``: its options.
    """
    settings = {
        "model": opened.fingerprint,
        "max_seq_length": opened.max_seq_length,
        "device": opened.device.type,
        "precision": opened.precision,
        "form": form.name,
        **settings,
    }
    answered = chunks or opened.predict_chunks

    def pieces(left: Iterator[Any], num_done: int) -> Iterator[Piece[Any]]:
        before = form.between if num_done else ""
        done = num_done
        # The chunks of an uninterrupted run: 1, 2, 4, …, LARGEST_CHUNK, LARGEST_CHUNK, …
        first = min(num_done + 1, LARGEST_CHUNK)
        for chunk, answers in answered(left, first=first):
            text = form.piece(chunk, answers, done)
            done += len(chunk)
            cut = sum(each.get("truncated", False) for each in answers)
            yield f"{before}{text}".encode(), chunk, cut
            before = form.between

    return grow_file(target, settings, examples, pieces, form, resume=resume, reporter=reporter)


# Files of vectors: NumPy's .npy, Parquet and JSON lines.
#
# A format turns chunks of texts into bytes that a file grows by, and makes its file from all of
# them.

DTYPES: Final = ("float32", "float16")


@dataclass(frozen=True)
class Chunk:
    """Texts and their vectors: (n, d), or with encodings (T, d) for all their tokens."""

    examples: Sequence[TextExample]
    num_tokens: Sequence[int]
    truncated: Sequence[bool]
    vectors: npt.NDArray[Any]
    encodings: Sequence[Encoding] | None

    def of_each(self) -> Iterator[npt.NDArray[Any]]:
        """Each text's (d,), or (tokens, d)."""
        if self.encodings is None:
            return iter(self.vectors)
        return vectors_of_each(self.vectors, self.encodings)

    def places(self, number: int) -> dict[str, Any]:
        """Where a passage is in its document."""
        columns = self.examples[number].columns or {}
        return {name: columns[name] for name in PLACE}


@dataclass(frozen=True)
class Layout:
    """What a file holds: vectors of d values, one a text or one a token, of a dtype.

    ``passages``: the window and the stride of the passages that the texts are, if they are.
    """

    dimension: int
    per_token: bool
    dtype: str
    passages: tuple[int, int] | None = None


class VectorFormat(Form, ABC):
    """One kind of file: the bytes of its chunks, and the file that they become.

    Raises UsageError for a layout that it cannot hold.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @abstractmethod
    def encode(self, chunk: Chunk) -> bytes:
        """The bytes of a chunk."""


class NpyVectors(VectorFormat):
    """One array (n, d), which ``numpy.load(…, mmap_mode="r")`` opens without reading it."""

    def __init__(self, layout: Layout) -> None:
        if layout.per_token or layout.passages:
            what = f"{param('pooling', 'token')} gives a vector for each token"
            if layout.passages:
                what = f"{param('passages')} gives a place in the text with each vector"
            raise UsageError(
                f"{what}, which .npy cannot hold: name an {param('out')} that ends in .parquet or "
                ".jsonl"
            )
        super().__init__(layout)

    def begin(self) -> bytes:
        return self._header(0)

    def encode(self, chunk: Chunk) -> bytes:
        return chunk.vectors.tobytes()

    def make(self, file: GrowingFile, target: Path) -> None:
        vector = self.layout.dimension * np.dtype(self.layout.dtype).itemsize
        file.replace_head(self._header((file.size - len(self.begin())) // vector))
        file.become(target)

    def _header(self, num_rows: int) -> bytes:
        return npy_header(self.layout.dtype, (num_rows, self.layout.dimension))


def npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """What a .npy file begins with.

    NumPy leaves room in it for any number of rows, so its length does not depend on that number.
    """
    header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
        "fortran_order": False,
        "shape": shape,
    }
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


class JsonLines(VectorFormat):
    """One object a text, its vector last; each number has enough digits to restore its bits."""

    def encode(self, chunk: Chunk) -> bytes:
        lines = []
        for number, vector in enumerate(chunk.of_each()):
            fields: dict[str, Any] = {
                "row": chunk.examples[number].row,
                "num_tokens": chunk.num_tokens[number],
                "truncated": chunk.truncated[number],
            }
            if self.layout.passages:
                fields |= chunk.places(number)
            if chunk.encodings is not None:
                fields |= _token_fields(chunk.encodings[number])
                name, text = "vectors", f"[{', '.join(map(_numbers, vector))}]"
            else:
                name, text = "vector", _numbers(vector)
            begin = printable_json(json.dumps(fields, ensure_ascii=False)).removesuffix("}")
            lines.append(f'{begin}, "{name}": {text}}}\n')
        return "".join(lines).encode()


class ParquetVectors(VectorFormat):
    """One row a text, one row group a chunk, vectors in lists of fixed size.

    A Parquet file ends with an index and cannot grow after a kill.  So the part is an Arrow stream,
    and ``make`` writes the file from it at the end.
    """

    def __init__(self, layout: Layout) -> None:
        import pyarrow as pa

        super().__init__(layout)
        vector = pa.list_(pa.from_numpy_dtype(np.dtype(layout.dtype)), layout.dimension)
        fields = [("row", pa.int64()), ("num_tokens", pa.int32()), ("truncated", pa.bool_())]
        if layout.passages:
            fields += [(name, pa.int64()) for name in PLACE]
        if layout.per_token:
            fields += [
                ("tokens", pa.list_(pa.string())),
                ("offset_mapping", pa.list_(pa.list_(pa.int32(), 2))),
                ("sequence_ids", pa.list_(pa.int8())),
                ("vectors", pa.list_(vector)),
            ]
        else:
            fields.append(("vector", vector))
        self.schema = pa.schema(fields)

    def begin(self) -> bytes:
        return bytes(self.schema.serialize())

    def encode(self, chunk: Chunk) -> bytes:
        import pyarrow as pa

        columns = [[one.row for one in chunk.examples], chunk.num_tokens, chunk.truncated]
        if self.layout.passages:
            places = [chunk.places(number) for number in range(len(chunk.examples))]
            columns += [[each[name] for each in places] for name in PLACE]
        vectors = pa.FixedSizeListArray.from_arrays(
            pa.array(chunk.vectors.reshape(-1)), self.layout.dimension
        )
        if chunk.encodings is not None:
            tokens = [_token_fields(one) for one in chunk.encodings]
            columns += [[one[name] for one in tokens] for name in tokens[0]]
            ends = np.cumsum([0, *map(len, chunk.encodings)], dtype=np.int32)
            vectors = pa.ListArray.from_arrays(pa.array(ends), vectors)
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(columns, self.schema, strict=False)
        ]
        batch = pa.record_batch([*arrays, vectors], schema=self.schema)
        return bytes(batch.serialize())

    def make(self, file: GrowingFile, target: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file.close()
        with (
            file.path.open("rb") as stream,
            pa.ipc.open_stream(stream) as batches,
            atomic_file(target) as partial,
            # A dictionary of numbers that hardly repeat would cost time and save nothing.
            pq.ParquetWriter(partial, self.schema, use_dictionary=False) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)


FORMATS: Final[dict[str, type[VectorFormat]]] = {
    ".npy": NpyVectors,
    ".parquet": ParquetVectors,
    ".jsonl": JsonLines,
}


def format_of(target: Path, layout: Layout) -> VectorFormat:
    """The format that the file's suffix names; UsageError for any other suffix."""
    if target.suffix not in FORMATS:
        raise UsageError(
            f"{param('out', target)}: expected a name that ends in {', '.join(FORMATS)}"
        )
    return FORMATS[target.suffix](layout)


def _token_fields(encoding: Encoding) -> dict[str, Any]:
    return {
        "tokens": encoding.tokens,
        "offset_mapping": encoding.offset_mapping,
        "sequence_ids": encoding.sequence_ids,
    }


def _numbers(vector: npt.NDArray[Any]) -> str:
    """A vector as a JSON array, each number as short as its dtype allows."""
    return f"[{', '.join(map(str, vector))}]"


# Texts to a file of vectors, in constant memory.
#
# The size of a chunk depends only on the settings.  So a stopped run can be resumed, and ends with
# the same bytes as an uninterrupted one.

# Texts of many long vectors come in smaller chunks: this is 256 MiB of float32.
_CHUNK_VALUES: Final = 2**26


def write_vectors(
    embedder: Embedder,
    examples: Iterable[TextExample],
    target: Path,
    kind: VectorFormat,
    *,
    resume: bool = False,
    reporter: Reporter = SILENT,
) -> Written:
    """Write the vectors of all texts to ``target``, whole or not at all.

    Calls ``advance`` with the number of texts done.  With ``resume``, goes on where a stopped run
    with the same texts and settings left off.  Raises as ``grow_file``.
    """
    layout = kind.layout
    size = chunk_size(embedder, layout)
    if resume and (weights := settings_of_part(target).get("weights")):
        embedder = embedder.matching(str(weights))
    settings = {
        "weights": embedder.fingerprint,
        "pooling": "token" if layout.per_token else embedder.pooling,
        "layers": embedder.layers,
        "combine": embedder.combine,
        "normalize": embedder.normalize,
        "prompt": embedder.prompt,
        "dimension": layout.dimension,
        "max_seq_length": embedder.max_seq_length,
        "dtype": layout.dtype,
        "device": embedder.device.type,
        "precision": embedder.precision,
        "chunk_size": size,
        **({"passages": layout.passages} if layout.passages else {}),
    }

    def pieces(left: Iterator[TextExample], _num_done: int) -> Iterator[Piece[TextExample]]:
        for chunk in embedded_chunks(embedder, left, layout, first=size, largest=size):
            yield kind.encode(chunk), chunk.examples, sum(chunk.truncated)

    return grow_file(target, settings, examples, pieces, kind, resume=resume, reporter=reporter)


def chunk_size(embedder: Embedder, layout: Layout) -> int:
    """How many texts are held at once."""
    num_vectors = embedder.max_seq_length if layout.per_token else 1
    return max(1, min(LARGEST_CHUNK, _CHUNK_VALUES // (num_vectors * layout.dimension)))


def embedded_chunks(
    embedder: Embedder, examples: Iterator[TextExample], layout: Layout, *, first: int, largest: int
) -> Iterator[Chunk]:
    """The texts' vectors, in the chunks that ``in_chunks`` cuts."""
    inputs: Sequence[Any]
    for chosen in in_chunks(examples, first=first, largest=largest):
        if layout.per_token:
            inputs = encodings = embedder.encodings(
                [one.text for one in chosen], [one.text_pair for one in chosen]
            )
            vectors = embedder.token_vectors(encodings)
        else:
            encodings = None
            inputs = example_features(
                chosen, embedder.tokenizer, embedder.max_seq_length, prompt=embedder.prompt
            )
            vectors = embedder.vectors(inputs)
        yield Chunk(
            chosen,
            [one.num_tokens for one in inputs],
            [one.truncated for one in inputs],
            _rounded(vectors, layout.dtype),
            encodings,
        )


def _rounded(vectors: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[Any]:
    with np.errstate(over="ignore"):
        rounded = vectors.astype(dtype, copy=False)
    if not np.isfinite(rounded).all():
        raise UsageError(
            f"{param('dtype', dtype)} has no number as large as {np.abs(vectors).max():g}, which a "
            f"vector holds: give {param('dtype', 'float32')}, or {param('normalize')}"
        )
    return rounded
