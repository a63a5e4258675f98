"""Serving timed: servers in turn, the clients' load, answers that must agree, and the serve."""

import asyncio
import itertools
import json
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import datasets
from benchmarks.speed import serve, servers
from benchmarks.speed.servers import (
    HOST,
    Asked,
    Load,
    Running,
    Side,
    cut_text,
    other_side,
    our_side,
    run_in_batches,
    run_load,
    run_singly,
)
from tidybert.errors import TidyBertError, UsageError
from tidybert.tokenization import BertTokenizer

# Answers the length of a text by ``number``, and counts what it is sent in a file.
SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, number, log = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
        open(log, "a").write(text + chr(10))
        content = json.dumps(number * len(text)).encode()
        self.send_response(500 if text == "fail" else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *given):
        pass

if number < 0:
    sys.exit("no such number")
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def side(name: str, folder: Path, number: float) -> Side:
    (folder / "server.py").write_text(SERVER)
    command = [sys.executable, str(folder / "server.py"), "{port}", str(number), str(folder / name)]
    return Side(name, command, "/", lambda text: {"text": text}, lambda found: [float(found)], {})


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: Any) -> dict[str, Side]:
    """Two servers that compute nothing."""
    made = {"ours": side("ours", tmp_path, 1.0), "transformers": side("theirs", tmp_path, 1.0)}
    monkeypatch.setattr(servers, "our_side", lambda *_given, **_more: made["ours"])
    monkeypatch.setattr(servers, "other_side", lambda name, *_given: made[name])
    monkeypatch.setattr(serve, "_WARM_UP", 3)
    # Such servers may use less than the clock's tick.
    clock = itertools.count()
    monkeypatch.setattr(Running, "cpu_seconds", lambda _server: next(clock))
    return made


def given_of(model: Path, *precisions: str) -> Namespace:
    """The flags of a small measurement."""
    kinds = list(precisions or ["float32"])
    same: dict[str, Any] = {"rounds": 1, "requests": 2, "threads": None, "max_seq_length": 16}
    return Namespace(model=str(model), against="transformers", infinity="", precision=kinds, **same)


def test_servers_in_turn(
    sides: dict[str, Side], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["the cat", "a red hen", f"we saw {'the old dog ' * 20}"]
    monkeypatch.setattr(serve, "CLIENTS", (1, 2))

    result = serve.bench_serving(texts, given_of(tiny_model))

    quantities = {"seconds_to_first_answer", "peak_mib"} | {
        f"{name}_{number}" for name in serve._SHOWN.values() for number in (1, 2)
    }
    assert set(result["medians"]["ours"]) == set(result["ratios"]) == quantities
    assert all(value > 0 for value in result["medians"]["transformers"].values())
    # A second of the clock for the requests of one client, and one for those of two.
    assert result["medians"]["ours"]["cpu_ms_per_text_2"] == 1e3 / 16
    assert (result["num_texts"], result["num_cut"], result["rounds"]) == (3, 1, 1)
    assert result["largest_difference_of_answers"] == 0
    assert 0 < result["generators_share_of_a_core"] < 1
    # The first answer, the warm-up, 8 requests of one client, and 8 of each of two.
    sent = (tmp_path / "ours").read_text().splitlines()
    assert len(sent) == 1 + 3 + 8 + 16
    assert set(sent) == {*texts[:2], "we saw the old dog the old dog the old dog the old dog"}


def test_each_precision_is_a_side(
    sides: dict[str, Side], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: list[str] = []

    def our_side(_directory: str, *given: str, **_more: Any) -> Side:
        flags.extend(given)
        return side("ours", tmp_path, 1.2 if "int8" in given else 1.0)

    monkeypatch.setattr(servers, "our_side", our_side)
    monkeypatch.setattr(serve, "CLIENTS", (1,))

    result = serve.bench_serving(["the cat"], given_of(tiny_model, "float32", "int8"))

    assert flags == ["--precision", "float32", "--precision", "int8"]
    assert list(result["medians"]) == ["ours", "ours int8", "transformers"]
    assert (result["ratios"], result["largest_difference_of_answers"]) == ({}, 0)


@pytest.mark.parametrize(
    ("number", "text", "message"),
    [
        (1.5, "a", "answers differ by up to 0.5, more than 0.001"),
        (-1.0, "a", "(?s)the theirs side did not start.*no such number"),
        (1.0, "fail", "the ours side with 4 clients answered with the statuses {'200': 2, '500'"),
    ],
)
def test_servers_that_do_other_work(
    number: float,
    text: str,
    message: str,
    sides: dict[str, Side],
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sides["transformers"] = side("theirs", tmp_path, number)
    monkeypatch.setattr(serve, "CLIENTS", (1,))

    with pytest.raises(TidyBertError, match=message):
        serve.bench_serving(["a", text], given_of(tiny_model))


def test_a_text_is_cut_at_a_word(tiny_model: Path) -> None:
    tokenizer = BertTokenizer.from_pretrained(tiny_model)

    assert cut_text("the cat", tokenizer, 4) == "the cat"
    assert cut_text("the cat is near", tokenizer, 4) == "the cat"
    # The pieces of the last word do not all fit.
    letters = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b"])
    assert cut_text("a bbb", letters, 5) == "a"


def test_what_is_sent_and_read() -> None:
    ours, theirs = our_side("RUN"), other_side("transformers", "RUN")
    assert ours.body("a") == {"inputs": "a"}
    answer: dict[str, Any] = {"label": "0", "score": 0.75}
    assert ours.read(answer) == theirs.read([answer]) == [0.25]
    assert our_side("RUN", embeds=True).read({"data": [{"embedding": [3.0, 4.0]}]}) == [0.6, 0.8]

    infinity = other_side("infinity", "MODEL", sys.executable)
    assert infinity.command[0] == sys.executable
    with pytest.raises(UsageError, match="no such program; install the package infinity-emb"):
        other_side("infinity", "MODEL", "no-such-command")


class Pipe:
    """Answers like a pipeline, and records its calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, given: Any, batch_size: int = 1) -> list[dict[str, str]]:
        self.calls.append((given, batch_size))
        return [{"label": text} for text in ([given] if isinstance(given, str) else given)]


async def ask(run: Any, pipe: Pipe) -> list[Any]:
    asked: Asked = asyncio.Queue()
    task = asyncio.create_task(run(pipe, asked))
    loop = asyncio.get_running_loop()
    answers: list[asyncio.Future[Any]] = [loop.create_future() for _ in range(3)]
    for text, answer in zip("abc", answers, strict=True):
        asked.put_nowait((text, answer))
    found = await asyncio.gather(*answers)
    task.cancel()
    return found


def test_the_other_handler_answers_a_text_at_a_time_or_together() -> None:
    single, batching = Pipe(), Pipe()

    expected = [[{"label": text}] for text in "abc"]
    assert asyncio.run(ask(run_singly, single)) == expected
    assert asyncio.run(ask(run_in_batches, batching)) == expected
    assert single.calls == [("a", 1), ("b", 1), ("c", 1)]
    assert batching.calls == [(["a", "b", "c"], 3)]


# --- the load


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


def load(port: int, folder: Path, bodies: list[str], **given: Any) -> dict[str, Any]:
    path = folder / "bodies"
    path.write_text("".join(f"{json.dumps(body)}\n" for body in bodies))
    return run_load("", vars(Load(port, "/ask", str(path), **given)))


def test_each_request_is_sent_once_by_clients_that_wait(
    server: tuple[Server, int], tmp_path: Path
) -> None:
    made, port = server

    found = load(port, tmp_path, ["a", "b", "full"], requests=12, clients=4, kept=2)

    assert sorted(made.got) == ["a"] * 4 + ["b"] * 4 + ["full"] * 4
    assert made.connections == 4
    assert found["statuses"] == {"200": 8, "429": 4}
    assert found["answers"] == [{"got": "a"}, {"got": "b"}]
    # Three turns of a hundredth of a second.
    assert found["seconds"] >= 0.03
    assert found["requests_per_second"] == pytest.approx(12 / found["seconds"])
    times = found["times"]["200"]
    assert 10 <= times["p50_ms"] <= times["p95_ms"] <= times["p99_ms"] <= times["max_ms"]


def test_requests_at_a_rate_count_from_when_they_were_due(
    server: tuple[Server, int], tmp_path: Path
) -> None:
    _, port = server
    spread = load(port, tmp_path, ["a"], requests=5, clients=5, rate=50.0)
    late = load(port, tmp_path, ["a"], requests=10, clients=1, rate=1000.0)

    assert spread["seconds"] >= 4 / 50
    # One client sends the last request after nine answers, and it was due at once.
    assert late["times"]["200"]["max_ms"] >= 90


@pytest.mark.parametrize(
    ("bodies", "requests", "rate", "statuses", "connections"),
    [
        (["a", "lost"], 4, None, {"0": 2, "200": 2}, 2),
        # The server closes each connection while it is idle.
        (["last"], 3, 4.0, {"200": 3}, 3),
    ],
)
def test_a_lost_connection_is_opened_again(
    bodies: list[str],
    requests: int,
    rate: float | None,
    statuses: dict[str, int],
    connections: int,
    server: tuple[Server, int],
    tmp_path: Path,
) -> None:
    made, port = server
    found = load(port, tmp_path, bodies, requests=requests, clients=1, rate=rate)

    assert (found["statuses"], made.connections) == (statuses, connections)


def test_it_ends_in_time(server: tuple[Server, int], tmp_path: Path) -> None:
    with pytest.raises(TidyBertError, match=r"0 of 3 requests were answered within 0\.1 sec"):
        load(server[1], tmp_path, ["silent"], requests=3, clients=1, limit_s=0.1)


# --- the soak


def part(statuses: dict[str, int], mib: float, ms: float = 10.0) -> dict[str, Any]:
    times = {status: {"p50_ms": ms / 2, "p99_ms": ms} for status in statuses}
    return {
        "statuses": statuses, "times": times, "requests_per_second": 80.0, "mib": mib, "again": {}
    }  # fmt: skip


def found(*parts: dict[str, Any], overload: dict[str, Any]) -> dict[str, Any]:
    return {"data": "texts", "capacity": 100.0, "parts": parts, "overload": overload}


def test_what_fails_in_a_soak() -> None:
    fine = part({"200": 50, "429": 100}, 210.0, 400.0)
    good = found(part({"200": 10}, 200.0), part({"200": 10}, 209.0), overload=fine)
    assert serve.soak_failures(good) == []
    assert [" | ".join(row) for row in serve.rows_of(good)[1:]] == [
        "last tenth | 80 | 10 | 0 | 5 | 10 |  | 0 | 209",
        "3 times capacity | 80 | 50 | 100 | 200 | 400 | 400 | 0 | 210",
    ]

    bad = found(
        part({"200": 10}, 200.0),
        part({"0": 1, "200": 9}, 211.0),
        overload=part({"200": 50, "429": 100}, 210.0, 4000.0),
    )
    assert serve.soak_failures(bad) == [
        "part 2 has the statuses {'0': 1, '200': 9}",
        "memory grew from 200 to 211 MiB",
        "p99 of what was taken is 4,000 ms, more than 3,840 ms",
        "p99 of the refusals is 4,000 ms, more than 500",
    ]
    lost = found(part({"200": 10}, 200.0), overload=part({"0": 1, "200": 9}, 200.0))
    assert serve.soak_failures(lost) == [
        "the overload has the statuses {'0': 1, '200': 9}, not 200 and 429"
    ]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.usefixtures("in_process")
def test_a_short_soak(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert serve.sent is servers.sent
    monkeypatch.setattr(serve, "PARTS", 2)
    monkeypatch.setattr(serve, "CONNECTIONS", 20)
    monkeypatch.setattr(datasets, "mixed_texts", lambda: ("texts", ["the cat", "a red hen"]))

    result = serve.soak(str(tiny_model), 20, 0.1, 40)

    assert [each["statuses"] for each in result["parts"]] == [{"200": 10}] * 2
    assert set(result["overload"]["statuses"]) <= {"200", "429"}
    assert result["capacity"] > 0
    assert all(each["mib"] > 10 for each in result["parts"])
    assert len(serve.rows_of(result)) == 3


def test_answer_times_are_drawn_against_the_load(
    sides: dict[str, Side],
    tiny_model: Path,
    tmp_path: Path,
    run_script: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    monkeypatch.setattr(serve, "sides_of", lambda *_given: {"tidybert, int8": sides["ours"]})
    monkeypatch.setattr(datasets, "mixed_texts", lambda: ("toys", ["the cat", "a red hen"]))
    monkeypatch.setattr(serve, "SHARES", (0.1, 0.9))
    out = tmp_path / "times.svg"

    flags = ["--model", tiny_model, "--requests", "5", "--out", out]
    assert run_script("answer_times", *flags) == 0

    drawn = out.read_text()
    rows = capsys.readouterr().out.splitlines()[4:6]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| tidybert, int8", share] for share in ("10%", "90%")
    ]
    assert drawn.count("<polyline") == 2
    assert drawn.count('class="dot"') == 2
    assert "requests a second" in drawn


def test_both_precisions_are_served_and_drawn() -> None:
    found = serve.sides_of("RUN", "transformers")

    assert list(found) == ["tidybert, float32", "tidybert, int8", "transformers"]
    assert found["tidybert, int8"].command[-2:] == ["--precision", "int8"]
