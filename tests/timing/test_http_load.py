"""The load: every request is sent once, times and statuses are counted, and it ends in time."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidybert.errors import TidyBertError
from tidybert.timing.http_load import HOST, Load, run_load


class Server:
    """Answers {"got": …} after a hundredth of a second; 429 for "full", an end for "lost"."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while head := await reader.read(1000):
            assert head.startswith(b"POST /ask HTTP/1.1\r\n")
            body = json.loads(head.partition(b"\r\n\r\n")[2])
            self.got.append(body)
            if body == "lost":
                break
            if body == "silent":
                continue
            if body == "last":
                asyncio.get_running_loop().call_later(0.03, writer.close)
            await asyncio.sleep(0.01)
            content = json.dumps({"got": body}).encode()
            status = b"429 Too Many" if body == "full" else b"200 OK"
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(content)))
            writer.write(content)
        writer.close()


@pytest.fixture
def server() -> Iterator[tuple[Server, int]]:
    made, loop = Server(), asyncio.new_event_loop()
    listening = loop.run_until_complete(asyncio.start_server(made.serve, HOST, 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield made, listening.sockets[0].getsockname()[1]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def file_of(path: Path, bodies: list[str]) -> str:
    path.write_text("".join(f"{json.dumps(body)}\n" for body in bodies))
    return str(path)


def test_each_request_is_sent_once_by_clients_that_wait(
    server: tuple[Server, int], tmp_path: Path
) -> None:
    made, port = server
    bodies = file_of(tmp_path / "bodies", ["a", "b", "full"])

    found = run_load(Load(port, "/ask", bodies, requests=12, clients=4, kept=2))

    assert sorted(made.got) == ["a"] * 4 + ["b"] * 4 + ["full"] * 4
    assert made.connections == 4
    assert found["statuses"] == {"200": 8, "429": 4}
    assert found["answers"] == [{"got": "a"}, {"got": "b"}]
    # Three turns of a hundredth of a second.
    assert 0.03 <= found["seconds"] < 1
    assert found["requests_per_second"] == pytest.approx(12 / found["seconds"])
    times = found["times"]["200"]
    assert 10 <= times["p50_ms"] <= times["p95_ms"] <= times["p99_ms"] <= times["max_ms"]
    assert 0 < found["share_of_a_core"] < 1


def test_requests_at_a_rate_count_from_when_they_were_due(
    server: tuple[Server, int], tmp_path: Path
) -> None:
    _, port = server
    bodies = file_of(tmp_path / "bodies", ["a"])

    spread = run_load(Load(port, "/ask", bodies, requests=5, clients=5, rate=50.0))
    late = run_load(Load(port, "/ask", bodies, requests=10, clients=1, rate=1000.0))

    assert spread["seconds"] >= 4 / 50
    # One client sends the last request after nine answers, and it was due at once.
    assert late["times"]["200"]["max_ms"] >= 90


def test_a_lost_connection_is_counted_and_opened_again(
    server: tuple[Server, int], tmp_path: Path
) -> None:
    made, port = server
    bodies = file_of(tmp_path / "bodies", ["a", "lost"])

    found = run_load(Load(port, "/ask", bodies, requests=4, clients=1))

    assert found["statuses"] == {"0": 2, "200": 2}
    assert made.connections == 2


def test_a_connection_that_was_closed_while_idle_is_opened_again(
    server: tuple[Server, int], tmp_path: Path
) -> None:
    made, port = server
    bodies = file_of(tmp_path / "bodies", ["last"])

    found = run_load(Load(port, "/ask", bodies, requests=3, clients=1, rate=10.0))

    assert found["statuses"] == {"200": 3}
    assert made.connections == 3


def test_it_ends_in_time(server: tuple[Server, int], tmp_path: Path) -> None:
    bodies = file_of(tmp_path / "bodies", ["silent"])

    with pytest.raises(TidyBertError, match=r"0 of 3 requests were answered within 0\.1 sec"):
        run_load(Load(server[1], "/ask", bodies, requests=3, clients=1, limit_s=0.1))
