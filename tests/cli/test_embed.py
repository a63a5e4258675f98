"""``tidybert embed``: files of vectors, lines on standard output, and runs that are stopped."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tidybert.cli import progress
from tidybert.cli.main import run as shell
from tidybert.inference.embedding import Embedder

TEXTS = ["we saw a red hen", "the dog", "old and new and blue and white", "a"]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return str(path)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_file_of_texts_becomes_an_array(
    tiny_model: Path, file: str, tmp_path: Path, capsys
) -> None:
    out = tmp_path / "out.npy"

    assert shell(["embed", str(tiny_model), file, "--out", str(out)]) == 0

    np.testing.assert_array_equal(np.load(out), Embedder(tiny_model).embed(TEXTS))
    stdout, err = capsys.readouterr()
    assert stdout == ""
    assert f"{out}: 4 texts in 0:0" in err
    assert err.endswith(" texts/s), 0 truncated; 16 numbers a vector\n")


def test_the_last_layers_side_by_side_are_one_flag(
    tiny_model: Path, file: str, tmp_path: Path
) -> None:
    out = tmp_path / "out.npy"

    assert shell(["embed", str(tiny_model), file, "--layers", "last2", "--out", str(out)]) == 0

    states = [Embedder(tiny_model, layers=layer).embed(TEXTS) for layer in (-2, -1)]
    np.testing.assert_allclose(np.load(out), np.concatenate(states, axis=1), atol=1e-6)


def test_every_flag_reaches_the_vectors(tiny_model: Path, tmp_path: Path, capsys) -> None:
    file, out = tmp_path / "pairs.csv", tmp_path / "out.parquet"
    file.write_text("question,answer\nthe dog,a red hen and a cow\nwe,saw\n")
    flags = "--pooling max --layers -1,0 --combine sum --normalize --max-seq-length 8 --dtype"
    columns = ["--text", "question", "--text-pair", "answer", "--device", "cpu"]

    command = ["embed", str(tiny_model), str(file), *flags.split(), "float16", *columns]
    assert shell([*command, "--out", str(out)]) == 0

    embedder = Embedder(
        tiny_model, pooling="max", layers=(-1, 0), combine="sum", normalize=True, max_seq_length=8
    )
    with pytest.warns(UserWarning, match="cut"):
        expected = embedder.embed(["the dog", "we"], ["a red hen and a cow", "saw"])
    table = pq.read_table(out)
    found = np.array(table["vector"].to_pylist(), dtype=np.float16)
    np.testing.assert_array_equal(found, expected.astype(np.float16))
    assert table["row"].to_pylist() == [2, 3]
    assert "1 of 2 texts were cut to 8 tokens" in capsys.readouterr().err


def test_without_out_there_are_lines(tiny_model: Path, file: str, capsys) -> None:
    assert shell(["embed", str(tiny_model), file, "--pooling", "token"]) == 0

    answers = lines_of(capsys.readouterr().out)
    expected = Embedder(tiny_model).embed_tokens(TEXTS)
    assert [one["row"] for one in answers] == [1, 2, 3, 4]
    for one, theirs in zip(answers, expected, strict=True):
        assert one["tokens"] == theirs.tokens
        np.testing.assert_allclose(one["vectors"], theirs.vectors, atol=1e-6)


def test_each_line_of_a_stream_is_answered_before_the_next(
    tiny_model: Path, conversation: Callable[..., Any]
) -> None:
    process, ask = conversation("embed", str(tiny_model))
    for text in ("a red", "a hen", "a cat", "a dog"):
        assert len(ask(text)["vector"]) == 16
    rest, _ = process.communicate("a cat\na dog\n", timeout=60)

    assert len(rest.splitlines()) == 2
    assert process.returncode == 0


def test_bad_rows_are_told_before_the_work(
    tiny_model: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = tmp_path / "texts.jsonl", tmp_path / "out.npy"
    file.write_text('{"text": "a red"}\n{"text": 7}\n{"text": "a cat"}\n')
    command = ["embed", str(tiny_model), str(file), "--out", str(out)]

    with monkeypatch.context() as patch:
        patch.setattr("tidybert.inference.text_jobs.write_vectors", None)
        assert shell(command) == 1
    assert f"{file}: 1 row cannot be read" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [file]
    assert shell([*command, "--skip-bad-rows"]) == 0
    assert np.load(out).shape == (2, 16)
    err = capsys.readouterr().err
    assert err.count("1 row skipped") == 1
    assert f"{file}:2: 'text' is the number 7" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--out", "texts.txt"], "--out texts.txt is there already"),
        (["--out", "absent/out.npy"], "the folder absent does not exist"),
        (["--out", "out.bin"], r"a name that ends in \.npy"),
        (["--out", "out.npy", "--pooling", "token"], "--pooling token .*npy"),
        (["--resume"], "--resume needs --out"),
        (["--pooling", "sum"], "--pooling is sum; expected mean, cls, max or token"),
        (["--dtype", "int8"], "--dtype is int8; expected float32 or float16"),
        (["--layers", "7"], "the model has no layer 7"),
        (["--max-seq-length", "2", "--out", "out.npy"], "--max-seq-length 2 leaves no room"),
    ],
)
def test_wrong_usage(
    tiny_model: Path,
    file: str,
    flags: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    monkeypatch.chdir(Path(file).parent)

    assert shell(["embed", str(tiny_model), "texts.txt", *flags]) == 2

    assert re.search(message, capsys.readouterr().err)
    assert list(Path().iterdir()) == [Path("texts.txt")]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
def test_a_run_that_was_killed_goes_on(
    begin: Callable[..., Any], tiny_model: Path, tmp_path: Path, capsys
) -> None:
    lines = [TEXTS[number % 4] + "\n" for number in range(2500)]
    file, whole, out = tmp_path / "texts.txt", tmp_path / "whole.npy", tmp_path / "out.npy"
    file.write_text("".join(lines))
    assert shell(["embed", str(tiny_model), str(file), "--out", str(whole)]) == 0
    command = ["embed", str(tiny_model), "-", "--out", str(out)]
    process = begin(*command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    wait_for(tmp_path, ".out.npy.*.part")
    # By then the first chunk is saved when it ends; the third never does.
    time.sleep(1.1)
    process.stdin.write("".join(lines[:2300]))
    process.stdin.flush()
    wait_for(tmp_path, ".out.npy.*.part.json")
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    assert not out.exists()
    capsys.readouterr()

    command[2] = str(file)
    assert shell(command) == 2
    assert "--resume continues" in capsys.readouterr().err
    assert shell([*command, "--resume"]) == 0

    assert out.read_bytes() == whole.read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted([file, whole, out])


def wait_for(folder: Path, name: str) -> None:
    deadline = time.monotonic() + 60
    while not any(folder.glob(name)):
        assert time.monotonic() < deadline, name
        time.sleep(0.02)


def test_an_interrupted_run_says_how_to_go_on(
    tiny_model: Path, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    from tidybert.inference import answer_files as vector_files

    out = tmp_path / "out.jsonl"
    command = ["embed", str(tiny_model), file, "--out", str(out)]
    monkeypatch.setattr(vector_files, "LARGEST_CHUNK", 2)

    def interrupted(embedder: Any, examples: Any, *rest: Any, **options: Any) -> Any:
        yield next(chunks(embedder, examples, *rest, **options))
        raise KeyboardInterrupt

    chunks = vector_files.embedded_chunks
    with monkeypatch.context() as patch:
        patch.setattr(vector_files, "embedded_chunks", interrupted)
        assert shell(command) == 130
    err = capsys.readouterr().err
    assert f"the finished part of {out} is kept; the same command with --resume continues" in err
    assert "interrupted" in err

    assert shell([*command, "--resume"]) == 0
    assert len(lines_of(out.read_text())) == 4
    out.unlink()
    assert shell([*command, "--resume"]) == 0
    assert f"no part of {out} to resume from" in capsys.readouterr().err


def test_progress_is_told_where_there_is_no_terminal(
    tiny_model: Path, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.001)

    assert shell(["embed", str(tiny_model), file, "--out", str(tmp_path / "out.npy")]) == 0

    assert re.search(
        r"^embedding: 100%, 4 of 4 texts, [\d.]+/s, 0:00 left$",
        capsys.readouterr().err,
        re.MULTILINE,
    )
