"""A hub on this machine: the routes of the Hugging Face hub that ``tidybert download`` uses.

It serves folders as models, with ranges, redirects of large files, and faults that a test asks for.
"""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 2048
"""Files of so many bytes are in the large-file store, which a redirect leads to."""


class Hub:
    """Models by their names, and the faults to show.

    requests: the method, path and range of each one.  cut: the connection ends after so many bytes
    of a large file, once for each entry.  wrong: names of files whose bytes are not the stated
    ones, and how often they are sent.  stall: a large file stops coming after so many bytes, once,
    until the client goes; ``stalled`` is set then.  gated: names of models that need a token.
    lie: changes what the hub says of a model.  endless: a file's body, or "about", goes on so.
    moved: the branch is at another commit when a file is asked for by its name.
    """

    def __init__(self) -> None:
        self.models: dict[str, Path] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.cut: list[int] = []
        self.wrong: dict[str, int] = {}
        self.stall: int | None = None
        self.stalled = threading.Event()
        self.gated: set[str] = set()
        self.tags = ["license:apache-2.0"]
        self.lie: Callable[[dict[str, Any]], object] = lambda _about: None
        self.endless: dict[str, int] = {}
        self.sent_bytes = 0
        self.moved = False
        self.endpoint = ""

    def files(self, name: str) -> dict[str, bytes]:
        folder = self.models[name]
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    def sent(self, method: str, ending: str) -> list[str | None]:
        """The ranges of all requests of a file."""
        return [each[2] for each in self.requests if each[0] == method and each[1].endswith(ending)]


@lru_cache(8)
def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@lru_cache(8)
def blob_id(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def described(name: str, content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": blob_id(content)}
    if len(content) >= LARGE:
        sha256 = sha256_of(content)
        found["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
    return found


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.hub, self.path.partition("?")[0]
        hub.requests.append((self.command, path, self.headers.get("Range")))
        if found := re.fullmatch(r"/api/models/(.+?)(?:/revision/(.+))?", path):
            self.about(found[1], found[2])
        elif found := re.fullmatch(r"/(.+)/resolve/([^/]+)/(.+)", path):
            self.file(found[1], found[2], found[3])
        elif found := re.fullmatch(r"/store/(.+?)//(.+)", path):
            self.bytes_of(found[1], found[2])
        else:
            self.refused(404, "EntryNotFound")

    def model(self, name: str, revision: str | None) -> dict[str, bytes] | None:
        if name in self.hub.gated and self.headers.get("Authorization") != "Bearer hf_right":
            self.refused(403, "GatedRepo")
        elif name not in self.hub.models:
            # Private and absent models look alike.
            self.refused(401, "RepoNotFound")
        elif revision not in (None, "main", "v1", COMMIT):
            self.refused(404, "RevisionNotFound")
        else:
            return self.hub.files(name)
        return None

    def about(self, name: str, revision: str | None) -> None:
        files = self.model(name, revision)
        if files is None:
            return
        siblings = [described(path, content) for path, content in files.items()]
        about = {
            "id": name,
            "modelId": name,
            "sha": COMMIT,
            "tags": self.hub.tags,
            "siblings": siblings,
        }
        self.hub.lie(about)
        if "about" in self.hub.endless:
            self.go_on("about")
            return
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(about).encode())

    def go_on(self, what: str) -> None:
        """A body of so many MiB, whatever was stated."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        try:
            for _ in range(self.hub.endless[what]):
                self.wfile.write(b"100000\r\n" + b" " * 0x100000 + b"\r\n")
                self.hub.sent_bytes += 0x100000
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass

    def file(self, name: str, revision: str, path: str) -> None:
        files = self.model(name, revision)
        if files is None:
            return
        if path not in files:
            self.refused(404, "EntryNotFound")
            return
        if path in self.hub.endless and self.command == "GET":
            self.go_on(path)
            return
        has_moved = self.hub.moved and revision == "main"
        content, headers = files[path], {"X-Repo-Commit": "b" * 40 if has_moved else COMMIT}
        if len(content) < LARGE:
            self.ranged(path, content, {**headers, "ETag": f'"{blob_id(content)}"'})
            return
        # As on the hub, large files are on another host.
        store = self.hub.endpoint.replace("127.0.0.1", "localhost")
        headers |= {
            "X-Linked-ETag": f'"{sha256_of(content)}"',
            "X-Linked-Size": str(len(content)),
            "Location": f"{store}/store/{name}//{path}",
        }
        self.answer(302, headers, b"")

    def bytes_of(self, name: str, path: str) -> None:
        content = self.hub.files(name)[path]
        self.ranged(path, content, {"ETag": f'"{sha256_of(content)}"'})

    def ranged(self, path: str, content: bytes, headers: dict[str, str]) -> None:
        if self.command == "GET" and self.hub.wrong.get(path, 0):
            self.hub.wrong[path] -= 1
            content = bytes([content[0] ^ 1]) + content[1:]
        headers = {**headers, "Accept-Ranges": "bytes"}
        asked, status = self.headers.get("Range"), 200
        if asked is not None:
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            content, status = content[start:], 206
        is_large = self.command == "GET" and len(content) >= LARGE
        if is_large and 0 < (self.hub.stall or 0) < len(content):
            stall, self.hub.stall = self.hub.stall, None
            self.answer(status, headers, content, stall)
            self.hub.stalled.set()
            self.rfile.read(1)
            return
        self.answer(
            status, headers, content, self.hub.cut.pop(0) if is_large and self.hub.cut else None
        )

    def refused(self, status: int, code: str) -> None:
        self.answer(status, {"X-Error-Code": code, "X-Error-Message": code}, b"{}")

    def answer(
        self, status: int, headers: dict[str, str], content: bytes, cut: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[:cut])
            if cut is not None:
                self.wfile.flush()
                self.close_connection = True


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub that listens on this machine until the block ends."""
    hub = Hub()
    handler = type("HandlerOfHub", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    # By default a server looks twice a second whether it shall end.
    thread = threading.Thread(target=server.serve_forever, args=[0.02], daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
