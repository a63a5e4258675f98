"""Which files a corpus is, and their bytes: plain, or packed with gzip, xz or Zstandard."""

import io
import json
import lzma
import os
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob, has_magic
from gzip import BadGzipFile, GzipFile
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Final

from tidybert.corpus.sources import STANDARD_INPUT, Source, source_of, spooled
from tidybert.errors import DataError, UsageError
from tidybert.files.text_files import SUFFIXES
from tidybert.files.text_lines import GZIP_MAGIC, LimitedUnpacking, standard_input
from tidybert.files.wording import count_of
from tidybert.storage.limits import LINE_BYTES
from tidybert.storage.opening import open_regular, os_reason
from tidybert.storage.remote_files import is_remote, remote_files

XZ_MAGIC: Final = b"\xfd7zXZ\x00"
ZSTANDARD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
PACKED_SUFFIXES: Final = (".gz", ".xz", ".zst")
CORPUS_FORMATS: Final = ("text", "jsonl", "parquet")
# Large reads keep the unpacking library, which works outside Python's lock, busy.
BUFFER_BYTES: Final = 1 << 20


def corpus_files(paths: Sequence[str | Path | Source], *, any_format: bool = False) -> list[Source]:
    """The sources of a corpus, each once, sorted by path in any order of ``paths``.

    A path is a file, a folder (every file in it and below, without hidden ones), a glob (``**`` for
    any depth), each also as a URL that fsspec reads, or ``-`` for standard input.  A file that you
    name, or a glob finds, is text unless its suffix says otherwise.  In a folder, an unknown suffix
    is an error, so that no other file passes for text.

    Raises DataError for a path without a file, UsageError for a file of another format unless
    ``any_format``.
    """
    if not paths:
        raise UsageError("no corpus is named: give files, folders or globs")
    found: dict[str, Source] = {}
    for path in paths:
        found |= {source.name: source for source in _sources_of(path)}
    for source in found.values() if not any_format else ():
        corpus_format(source)
    return sorted(found.values(), key=lambda source: source.parts)


def _sources_of(path: str | Path | Source) -> Iterator[Source]:
    if isinstance(path, Source):
        yield path
    elif path == STANDARD_INPUT:
        yield spooled(standard_input())
    elif isinstance(path, str) and is_remote(path):
        found = remote_files(path)
        _check_plain(path, [PurePath(file.url) for file in found if file.url.rstrip("/") != path])
        yield from map(source_of, found)
    else:
        yield from map(source_of, _files_of(path))


def corpus_format(source: Source) -> str:
    """text, jsonl or parquet, by the suffix; UsageError for a table or a list.

    Standard input is JSON lines if its first line is a JSON object.
    """
    if source.name == STANDARD_INPUT:
        return "jsonl" if _is_json(source) else "text"
    path = PurePath(source.name)
    packed = path.suffix.lower() in PACKED_SUFFIXES
    suffix = PurePath(path.stem).suffix.lower() if packed else path.suffix.lower()
    known = SUFFIXES.get(suffix, "text")
    if known not in CORPUS_FORMATS:
        raise UsageError(
            f"{path}: {known} is not a format of a corpus; expected text with a blank line between "
            "documents, JSON lines (.jsonl) or Parquet (.parquet)"
        )
    if packed and known == "parquet":
        raise UsageError(f"{path}: Parquet compresses its own data; unpack this file first")
    return known


def _is_json(source: Source) -> bool:
    with open_stored(source) as (unpacked, _), suppress(ValueError):
        return isinstance(json.loads(unpacked.readline(LINE_BYTES.value)), dict)
    return False


@contextmanager
def open_stored(source: Source) -> Iterator[tuple[io.BufferedReader, BinaryIO]]:
    """Open a file: its bytes unpacked from gzip, xz or Zstandard, and the file on the disk.

    Raises DataError for a missing file, a device, and packed data that are damaged or cut short.
    Reading raises LimitError for packed data that unpack to too much.
    """
    try:
        with source.open() as raw:
            yield _unpacked(raw, source), raw
    except (EOFError, zlib.error, lzma.LZMAError, BadGzipFile) as error:
        raise _damaged(source, error) from error
    except OSError as error:
        # Errors of the system have a number; pyarrow's about damaged data have none.
        if error.errno is None:
            raise _damaged(source, error) from error
        raise DataError(f"{source}: cannot be read: {os_reason(error)}") from error


def _files_of(path: str | Path) -> set[Path]:
    named = Path(path)
    if named.is_file():
        return {named}
    if named.is_dir():
        files = {file.relative_to(named) for file in named.rglob("*") if not file.is_dir()}
        inside = {named / file for file in files if not any(part[0] == "." for part in file.parts)}
        for file in inside:
            _check_regular(file)
        if not inside:
            raise DataError(f"{path}: the folder holds no file")
        _check_plain(path, inside)
        return inside
    if has_magic(str(path)):
        # Path.glob takes no pattern that begins at the root.
        matched = {Path(name) for name in glob(str(path), recursive=True)}  # noqa: PTH207
        files = {file for file in matched if not file.is_dir()}
        for file in files:
            _check_regular(file)
        if not files:
            raise DataError(f"{path}: no file matches")
        return files
    if not os.path.lexists(named):
        raise DataError(f"{path}: no such file or folder")
    _check_regular(named)
    return {named}


def _check_plain(folder: str | Path, files: Collection[PurePath]) -> None:
    """Raise UsageError for a file that a folder has and whose suffix is not one of a corpus."""
    odd = sorted(file for file in files if not _is_plain(file))
    if odd:
        raise UsageError(
            f"{folder}: {count_of(len(odd), 'file')} with an unknown suffix, first {odd[0]}; "
            f"name the files to read, for example '{str(folder).rstrip('/')}/*.txt'"
        )


def _check_regular(file: Path) -> None:
    """Raise DataError for a pipe, a device or a link that leads nowhere."""
    if not file.is_file():
        with open_regular(file):
            pass


def _is_plain(file: PurePath) -> bool:
    """Whether the suffix is one of a corpus, or there is none, as in WikiExtractor's wiki_00."""
    stem = PurePath(file.stem) if file.suffix.lower() in PACKED_SUFFIXES else file
    return not stem.suffix or SUFFIXES.get(stem.suffix.lower()) in CORPUS_FORMATS


def _unpacked(raw: io.BufferedReader, path: Source) -> io.BufferedReader:
    head = raw.peek(len(XZ_MAGIC))
    suffix = PurePath(path.name).suffix.lower()
    stream: Any = None
    if head.startswith(XZ_MAGIC) or suffix == ".xz":
        stream = lzma.LZMAFile(raw)  # noqa: SIM115
    elif head.startswith(GZIP_MAGIC) or suffix == ".gz":
        stream = GzipFile(fileobj=raw)
    elif head.startswith(ZSTANDARD_MAGIC) or suffix == ".zst":
        # Python has a reader of its own only from 3.14 on.
        from pyarrow import CompressedInputStream

        stream = CompressedInputStream(raw, "zstd")
    if stream is None:
        return raw
    return io.BufferedReader(LimitedUnpacking(stream, raw.tell, path), BUFFER_BYTES)


def _damaged(path: Source, error: Exception) -> DataError:
    return DataError(
        f"{path}: the packed data are damaged or cut short ({error}); copy the file again"
    )
