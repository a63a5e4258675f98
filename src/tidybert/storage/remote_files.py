"""Files on other machines by their URL, as fsspec reads them: s3://, gs://, hf://, memory:// …

Errors of any store become DataErrors.  Reading that fails is tried again at the same place, because
a connection that breaks once in an hour must not end a build of a day.
"""

import io
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import has_magic
from typing import Any, Final, TypeVar

from tidybert.errors import DataError, UsageError

_SEPARATOR: Final = "://"
# Stores name a hash of the content so; without one the content itself is read and hashed.
_CONTENT_KEYS: Final = ("ETag", "etag", "md5Hash", "md5", "crc32c", "blob_id")
_READ_AHEAD: Final = 1 << 23
PAUSES: Final = (1.0, 4.0, 16.0)
"""Seconds to wait before reading is tried again."""

Answer = TypeVar("Answer")


def is_remote(path: object) -> bool:
    return isinstance(path, str) and _SEPARATOR in path


@dataclass(frozen=True)
class RemoteFile:
    """A file of a store; content: a hash that the store knows, or None; when it was written."""

    url: str
    num_bytes: int
    content: str | None
    when: str

    def __str__(self) -> str:
        return self.url

    def open(self) -> io.BufferedReader:
        """Its bytes, from any place on; reading raises DataError."""
        return io.BufferedReader(_RemoteBytes(self), _READ_AHEAD)

    def again(self) -> "RemoteFile":
        """The file as the store has it now; DataError where it is gone."""
        return _described(*_store(self.url))


def remote_files(url: str) -> list[RemoteFile]:
    """The files of a URL: itself, all below a folder without hidden ones, or those of a glob."""
    store, path = _store(url)
    with _reading(url):
        store.invalidate_cache()
        if has_magic(path):
            found = [each for each in store.glob(path) if not store.isdir(each)]
        elif store.isfile(path):
            found = [path]
        else:
            found = [each for each in store.find(path) if not _is_hidden(each, path)]
    if not found:
        raise DataError(f"{url}: no such file or folder, or nothing in it")
    with _reading(url):
        return [_described(store, each) for each in sorted(found)]


def fetch(url: str, take: Callable[[bytes], None]) -> None:
    """Hand over a file's bytes in parts; DataError as reading does."""
    with _described(*_store(url)).open() as file:
        while part := file.read(_READ_AHEAD):
            take(part)


def _is_hidden(path: str, folder: str) -> bool:
    return any(part.startswith(".") for part in path.removeprefix(folder).split("/"))


def _store(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise UsageError(
            f"{url} needs the package fsspec: pip install 'tidybert[remote]'"
        ) from error
    try:
        store, path = url_to_fs(url)
    except ImportError as error:
        raise UsageError(f"{url}: {error}") from error
    except ValueError as error:
        raise UsageError(f"{url}: {error}; fsspec knows no such kind of store") from error
    return store, path


def _described(store: Any, path: str) -> RemoteFile:
    url = store.unstrip_protocol(path)
    with _reading(url):
        about: Mapping[str, Any] = store.info(path)
    if about.get("type") == "directory":
        raise DataError(f"{url}: it is a folder; a file is expected")
    content = next((f"{key}:{about[key]}" for key in _CONTENT_KEYS if about.get(key)), None)
    when = about.get("LastModified") or about.get("mtime") or about.get("created")
    return RemoteFile(url, int(about.get("size") or 0), content, str(when))


@contextmanager
def _reading(url: str) -> Iterator[None]:
    """Within the block every error of a store is a DataError about ``url``."""
    try:
        yield
    except (DataError, UsageError):
        raise
    except FileNotFoundError as error:
        raise DataError(f"{url}: no such file, folder or bucket") from error
    # Each store has classes of its own.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{url}: cannot be read: {reason}; look at the connection and at your permissions"
        ) from error


class _RemoteBytes(io.RawIOBase):
    """The bytes of a file, which is opened again where reading fails."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._place = 0
        self._open: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        before = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._file.num_bytes}
        self._place = before[whence] + offset
        if self._open is not None:
            self._open.seek(self._place)
        return self._place

    def readinto(self, buffer: Any) -> int:
        for pause in (*PAUSES, None):
            try:
                part = self._read(len(buffer))
                break
            except FileNotFoundError as error:
                raise DataError(f"{self._file}: no such file any more") from error
            except Exception:
                self._end()
                if pause is None:
                    with _reading(self._file.url):
                        raise
                time.sleep(pause)
        buffer[: len(part)] = part
        self._place += len(part)
        return len(part)

    def close(self) -> None:
        self._end()
        super().close()

    def _read(self, size: int) -> bytes:
        if self._open is None:
            store, path = _store(self._file.url)
            self._open = store.open(path, "rb", block_size=_READ_AHEAD, cache_type="readahead")
            self._open.seek(self._place)
        found: bytes = self._open.read(size)
        return found

    def _end(self) -> None:
        if self._open is not None:
            # A broken connection cannot be closed.
            with suppress(Exception):
                self._open.close()
            self._open = None
