"""Serving timed: servers in turn, the same texts, and answers that must agree."""

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

from tidybert.errors import TidyBertError, UsageError
from tidybert.timing import serving_speed as serving
from tidybert.timing.http_load import Load, run_load
from tidybert.timing.serving_sides import Running, Side, other_side, our_side
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
def sides(tmp_path: Path, monkeypatch) -> dict[str, Side]:
    """Two servers that compute nothing."""
    made = {"ours": side("ours", tmp_path, 1.0), "transformers": side("theirs", tmp_path, 1.0)}
    monkeypatch.setattr(serving, "our_side", lambda *_given, **_more: made["ours"])
    monkeypatch.setattr(serving, "other_side", lambda name, *_given: made[name])
    monkeypatch.setattr(serving, "_WARM_UP", 3)
    # Such servers may use less than the clock's tick.
    clock = itertools.count()
    monkeypatch.setattr(Running, "cpu_seconds", lambda _server: next(clock))
    monkeypatch.setattr(
        serving, "run_apart", lambda _module, _side, work, _: run_load(Load(**work))
    )
    return made


def test_servers_in_turn(sides: dict[str, Side], tiny_model: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    texts = ["the cat", "a red hen", f"we saw {'the old dog ' * 20}"]

    result = serving.bench_serving(
        str(tiny_model),
        texts,
        against="transformers",
        rounds=1,
        requests=2,
        clients=(1, 2),
        max_seq_length=16,
        report=notes.append,
    )

    quantities = {"seconds_to_first_answer", "peak_mib"} | {
        f"{name}_{number}"
        for name in ("texts_per_second", "p50_ms", "p95_ms", "p99_ms", "cpu_ms_per_text")
        for number in (1, 2)
    }
    assert set(result["medians"]["ours"]) == set(result["ratios"]) == quantities
    assert all(value > 0 for value in result["medians"]["transformers"].values())
    # A second of the clock for the requests of one client, and one for those of two.
    assert result["medians"]["ours"]["cpu_ms_per_text_2"] == 1e3 / 16
    assert (result["num_texts"], result["num_cut"], result["rounds"]) == (3, 1, 1)
    assert result["largest_difference_of_answers"] == 0
    assert 0 < result["generators_share_of_a_core"] < 1
    assert len(notes) == 2
    # The first answer, the warm-up, 8 requests of one client, and 8 of each of two.
    sent = (tmp_path / "ours").read_text().splitlines()
    assert len(sent) == 1 + 3 + 8 + 16
    assert set(sent) == {
        "the cat",
        "a red hen",
        "we saw the old dog the old dog the old dog the old dog",
    }


@pytest.mark.parametrize(
    ("number", "text", "message"),
    [
        (1.5, "a", "answers differ by up to 0.5, more than 0.001"),
        (-1.0, "a", "(?s)the theirs side did not start.*no such number"),
        (1.0, "fail", "the ours side with 4 clients answered with the statuses {'200': 2, '500'"),
    ],
)
def test_servers_that_do_other_work(
    number: float, text: str, message: str, sides: dict[str, Side], tiny_model: Path, tmp_path: Path
) -> None:
    sides["transformers"] = side("theirs", tmp_path, number)

    with pytest.raises(TidyBertError, match=message):
        serving.bench_serving(
            str(tiny_model),
            ["a", text],
            against="transformers",
            rounds=1,
            requests=1,
            clients=(1,),
            max_seq_length=16,
        )


def test_a_text_is_cut_at_a_word(tiny_model: Path) -> None:
    tokenizer = BertTokenizer.from_pretrained(tiny_model)

    assert serving._cut("the cat", tokenizer, 4) == "the cat"
    assert serving._cut("the cat is near", tokenizer, 4) == "the cat"
    # The pieces of the last word do not all fit.
    letters = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b"])
    assert serving._cut("a bbb", letters, 5) == "a"


def test_what_is_sent_and_read() -> None:
    ours, theirs = our_side("RUN", embeds=False), other_side("transformers", "RUN")
    assert ours.body("a") == {"inputs": "a"}
    answer: dict[str, Any] = {"label": "0", "score": 0.75}
    assert ours.read(answer) == theirs.read([answer]) == [0.25]
    assert our_side("RUN", embeds=True).read({"data": [{"embedding": [3.0, 4.0]}]}) == [0.6, 0.8]

    infinity = other_side("infinity", "MODEL", sys.executable)
    assert infinity.command[0] == sys.executable
    with pytest.raises(UsageError, match="no such program; install the package infinity-emb"):
        other_side("infinity", "MODEL", "no-such-command")
    with pytest.raises(UsageError, match="expected transformers, transformers-batching, infinity"):
        other_side("jax", "MODEL")
