import json
import pickle
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidybert import Predictor
from tidybert.cluster.input_files import FileDone, InputFile, input_files, this_version
from tidybert.cluster.ray_engine import FileWorker, Outcome
from tidybert.files.reading import ReadOptions
from tidybert.files.text_files import SUFFIXES
from tidybert.inference.answer_files import write_answers
from tidybert.inference.text_jobs import EmbedJob, PredictJob
from tidybert.storage.output_lock import output_lock


@pytest.fixture
def folder(tmp_path: Path, toy_examples: Any) -> Path:
    (tmp_path / "texts").mkdir()
    rows = [json.dumps({"text": one.text}) + "\n" for one in toy_examples(40)]
    (tmp_path / "texts" / "a.jsonl").write_text("".join(rows))
    return tmp_path / "texts"


def the_file(folder: Path) -> InputFile:
    (file,) = input_files(str(folder / "a.jsonl"), SUFFIXES)
    return file


def worker(work: Any, out: Path, **expected: str) -> FileWorker:
    known = {"tidybert": this_version(), "model": work.fingerprint(), **expected}
    out.mkdir(exist_ok=True)
    return FileWorker(work, known, out)


def done_of(outcome: Outcome) -> FileDone:
    assert outcome.error is None, outcome.error
    assert outcome.done is not None
    return outcome.done


def test_a_file_has_the_bytes_of_the_single_process(
    folder: Path, tiny_run: Path, tmp_path: Path
) -> None:
    predictor = Predictor(tiny_run)
    examples = predictor.task.read(folder / "a.jsonl", need_label=False)
    write_answers(predictor, examples, tmp_path / "alone.jsonl")

    outcome = worker(PredictJob(model=str(tiny_run)), tmp_path / "out")(the_file(folder))

    done = done_of(outcome)
    assert (done.output, done.num_rows, done.num_skipped) == ("a.jsonl.jsonl", 40, 0)
    written = (tmp_path / "out" / done.output).read_bytes()
    assert written == (tmp_path / "alone.jsonl").read_bytes()
    assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_bad_rows_fail_the_file_with_its_line_or_are_counted(
    folder: Path, tiny_run: Path, tmp_path: Path
) -> None:
    with (folder / "a.jsonl").open("a") as file:
        file.write("{}\n")
    work = PredictJob(model=str(tiny_run))

    failed = worker(work, tmp_path / "out")(the_file(folder))
    assert failed.error is not None
    assert "a.jsonl:41" in failed.error
    assert not failed.is_general
    assert not (tmp_path / "out" / "a.jsonl.jsonl").exists()

    skipping = worker(replace(work, skip_bad_rows=True), tmp_path / "other")
    done = done_of(skipping(the_file(folder)))
    assert (done.num_rows, done.num_skipped) == (40, 1)


@pytest.mark.parametrize(
    ("expected", "message"),
    [({"tidybert": "9.9"}, "was begun by 9.9"), ({"model": "other"}, "other weights")],
)
def test_a_worker_that_differs_stops_the_job(
    folder: Path, tiny_run: Path, tmp_path: Path, expected: dict[str, str], message: str
) -> None:
    work = PredictJob(model=str(tiny_run))

    outcome = worker(work, tmp_path / "out", **expected)(the_file(folder))

    assert outcome.is_general
    assert outcome.error is not None
    assert "the worker on " in outcome.error
    assert message in outcome.error


def test_a_worker_without_the_weights_stops_the_job(folder: Path, tmp_path: Path) -> None:
    work = PredictJob(model=str(tmp_path / "nowhere"))
    without = FileWorker(work, {"tidybert": this_version(), "model": "x"}, tmp_path)

    outcome = without(the_file(folder))

    assert outcome.is_general
    assert outcome.error is not None
    assert "nowhere" in outcome.error


def test_what_is_whole_stays_and_what_is_damaged_or_half_noted_is_made_again(
    folder: Path, tiny_run: Path, tmp_path: Path
) -> None:
    does = worker(PredictJob(model=str(tiny_run)), tmp_path / "out")
    done = done_of(does(the_file(folder)))
    output = tmp_path / "out" / done.output
    content, made = output.read_bytes(), output.stat().st_ino

    assert done_of(does(the_file(folder), done)) == done
    assert output.stat().st_ino == made

    output.write_bytes(content[:-5])
    assert done_of(does(the_file(folder), done)) == done
    assert output.read_bytes() == content

    # A kill came between the file and its line in the manifest.
    assert done_of(does(the_file(folder))) == done
    assert output.read_bytes() == content


def test_a_file_that_changed_since_is_an_error(
    folder: Path, tiny_run: Path, tmp_path: Path
) -> None:
    does = worker(PredictJob(model=str(tiny_run)), tmp_path / "out")
    done = done_of(does(the_file(folder)))
    (folder / "a.jsonl").write_text('{"text": "another"}\n')

    outcome = does(the_file(folder), done)

    assert outcome.error is not None
    assert "has changed since" in outcome.error


def test_a_worker_waits_for_one_that_is_being_killed(
    folder: Path, tiny_run: Path, tmp_path: Path
) -> None:
    does = worker(PredictJob(model=str(tiny_run)), tmp_path / "out")
    does._open()
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        import subprocess
        import sys

        code = (
            "import sys, tidybert.storage.output_lock as lock\n"
            "with lock.output_lock(sys.argv[1]):\n    print(flush=True)\n    sys.stdin.readline()"
        )
        target = str(tmp_path / "out" / "a.jsonl.jsonl")
        command = [sys.executable, "-c", code, target]
        with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
            assert other.stdout is not None
            assert other.stdin is not None
            other.stdout.readline()
            held.set()
            free.wait(20)
            other.stdin.write("\n")

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(20)
    threading.Timer(0.2, free.set).start()
    begun = time.monotonic()
    done_of(does(the_file(folder)))
    thread.join()

    assert time.monotonic() - begun > 0.2
    with output_lock(tmp_path / "out" / "a.jsonl.jsonl"):
        pass


def test_vectors_of_texts_and_of_tokens(folder: Path, tiny_model: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    work = EmbedJob(model=str(tiny_model), read=ReadOptions(text="text"))
    texts = done_of(worker(work, tmp_path / "texts out")(the_file(folder)))
    tokens = done_of(worker(replace(work, per_token=True), tmp_path / "tokens")(the_file(folder)))

    assert pq.read_table(tmp_path / "texts out" / texts.output).num_rows == 40
    assert "tokens" in pq.read_schema(tmp_path / "tokens" / tokens.output).names
