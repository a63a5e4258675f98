"""Jobs on a local Ray: killed workers, killed jobs, and the same bytes."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidybert import Index, Predictor
from tidybert.cli.main import run as shell
from tidybert.cluster import BatchModel
from tidybert.cluster.file_job import run_job
from tidybert.cluster.input_files import InputFile, input_files
from tidybert.cluster.ray_engine import ray_cluster
from tidybert.errors import DataError, UsageError
from tidybert.files.text_files import SUFFIXES
from tidybert.inference.answer_files import write_answers
from tidybert.inference.text_jobs import PredictJob

pytest.importorskip("ray")

# make test-kills tries more of them, at random moments.
KILLS = int(os.environ.get("TIDYBERT_KILLS", "1"))
NUM_FILES = 5
NUM_ROWS = 3000


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """One Ray for all tests of this file: each job stays in it."""
    with ray_cluster("local"):
        yield "local"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, toy_examples: Callable[..., Any]) -> Path:
    folder = tmp_path_factory.mktemp("many")
    for number in range(NUM_FILES):
        rows = [json.dumps({"text": one.text}) for one in toy_examples(NUM_ROWS, seed=number)]
        (folder / f"{number}.jsonl").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, folder: Path, tiny_run: Path) -> Path:
    """What one process writes."""
    out = tmp_path_factory.mktemp("alone")
    predictor = Predictor(tiny_run)
    for file in files(folder):
        examples = predictor.task.read(file.path, need_label=False)
        write_answers(predictor, examples, out / f"{file.name}.jsonl")
    return out


def files(folder: Path) -> list[InputFile]:
    return input_files(str(folder), SUFFIXES)


def outputs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0].isdigit()}


def workers() -> list[int]:
    """The processes of Ray that work on files."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"_RayWorker" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("trial", range(KILLS))
def test_a_killed_worker_changes_no_byte(
    cluster: str, folder: Path, alone: Path, tiny_run: Path, tmp_path: Path, trial: int
) -> None:
    out, killed = tmp_path / "out", []
    delay = Random(trial).uniform(0, 0.5) if trial else 0

    def kill_one() -> None:
        while not killed:
            # In the middle: the first part or file is there.
            if out.is_dir() and any(".jsonl" in path.name for path in out.iterdir()):
                time.sleep(delay)
                killed.extend(workers()[:1])
                for process in killed:
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.005)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    report = run_job(PredictJob(model=str(tiny_run)), files(folder), out, cluster=cluster)
    killer.join(10)

    assert killed
    assert (len(report.done), report.num_rows) == (NUM_FILES, NUM_FILES * NUM_ROWS)
    assert outputs(out) == outputs(alone)
    again = run_job(PredictJob(model=str(tiny_run)), files(folder), out, cluster=cluster)
    assert (len(again.before), again.done) == (NUM_FILES, [])


def test_a_bad_file_is_left_for_the_end(
    cluster: str, folder: Path, tiny_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.jsonl").write_bytes((folder / "0.jsonl").read_bytes())
    (tmp_path / "in" / "1.jsonl").write_text("{}\n")
    work = PredictJob(model=str(tiny_run))

    with pytest.raises(DataError, match=r"1 file failed, and 1 are done(.|\n)*1\.jsonl:1"):
        run_job(
            work,
            files(tmp_path / "in"),
            tmp_path / "out",
            cluster=cluster,
            num_workers=1,
            on_error="continue",
        )
    assert (tmp_path / "out" / "0.jsonl.jsonl").is_file()


def test_another_word_for_on_error_is_refused_before_ray_is_asked(
    folder: Path, tiny_run: Path, tmp_path: Path
) -> None:
    go: Any = "go"
    with pytest.raises(UsageError, match="expected one of stop, continue"):
        run_job(
            PredictJob(model=str(tiny_run)),
            files(folder),
            tmp_path / "out",
            cluster="nowhere",
            on_error=go,
        )
    assert not (tmp_path / "out").exists()


def test_too_many_workers_are_refused(
    cluster: str, folder: Path, tiny_run: Path, tmp_path: Path
) -> None:
    work = PredictJob(model=str(tiny_run))
    with pytest.raises(UsageError, match="CPUs"):
        run_job(work, files(folder), tmp_path / "out", cluster=cluster, num_workers=10_000)


def test_the_commands_of_the_guide(
    cluster: str, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("\n\n".join(f"the red fox {n}" for n in range(40)))
    model, texts, job = str(tiny_model), str(tmp_path / "texts"), ["--cluster", cluster]
    job += ["--cluster-workers", "1"]

    assert shell(["index", model, texts, *job, "--out", str(tmp_path / "index")]) == 0
    shards = ["build-corpus", texts, "--vocab", model, "--out", str(tmp_path / "shards")]
    assert shell([*shards, *job, "--held-out", "0.3"]) == 0

    assert "rows of 1 file" in capsys.readouterr().err
    assert Index(tmp_path / "index").vectors.shape[1] == 16
    assert (tmp_path / "shards" / "corpus.json").is_file()


def test_ray_data_takes_the_model_as_the_guide_says(cluster: str, tiny_run: Path) -> None:
    import ray.data
    from ray.data import ActorPoolStrategy

    texts = ["the red fox", "a blue bird"]
    dataset = ray.data.from_items([{"number": n, "text": text} for n, text in enumerate(texts)])

    rows = dataset.map_batches(
        BatchModel,
        fn_constructor_args=(str(tiny_run),),
        batch_format="pyarrow",
        compute=ActorPoolStrategy(size=1),
    ).take_all()

    found = {row["text"]: row["label"] for row in rows}
    assert found == {text: Predictor(tiny_run).predict(text)["label"] for text in texts}
