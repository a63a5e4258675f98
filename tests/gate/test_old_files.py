"""Files of an earlier version open, and its half-finished outputs end as that version's did.

``old/`` has them, see its README.  Figures that depend on the processor are compared to a
tolerance, all else by bytes.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load_file

from tidybert import Embedder, Index, Predictor
from tidybert.cli.main import run as shell
from tidybert.cluster.input_files import begin_manifest, input_files, job_line
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import UsageError
from tidybert.files.reading import ReadOptions
from tidybert.inference.text_jobs import PredictJob

OLD = Path(__file__).parent / "old"
COMMANDS = dict(line.split(": ", 1) for line in (OLD / "commands.txt").read_text().splitlines())
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


@pytest.fixture(autouse=True)
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files in the current folder, where the commands were given that wrote them."""
    shutil.copytree(OLD, tmp_path / "old")
    for path in (tmp_path / "old" / "given" / "parts").iterdir():
        os.utime(path, (10**9, 10**9))
    monkeypatch.chdir(tmp_path / "old")


def resume(name: str, *more: str) -> Path:
    """Repeat the command that was killed."""
    assert shell([*COMMANDS[name].split(), "--out", f"half/{name}", *more]) == 0
    assert not list(Path("half").glob(f".{name}*"))
    return Path("half") / name


def check_close(found: Any, expected: Any) -> None:
    """Equal JSON, but for the last digits of its numbers."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name, value in expected.items():
            check_close(found[name], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check_close(one, other)
    elif isinstance(expected, float):
        np.testing.assert_allclose(found, expected, **CLOSE)
    else:
        assert found == expected


def json_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", ["run", "pretrained"])
def test_a_killed_training_ends_with_the_weights_of_a_whole_one(name: str) -> None:
    assert shell([*COMMANDS[name].split(), "--out", "fresh"]) == 0
    logged = json_lines(Path("half") / name / "metrics.jsonl")

    run = resume(name, "--resume")

    weights = [load_file(path / "model.safetensors") for path in (run, Path("whole") / name)]
    fresh = load_file("fresh/model.safetensors")
    assert list(weights[0]) == list(weights[1]) == list(fresh)
    for parameter, value in weights[0].items():
        np.testing.assert_allclose(value, weights[1][parameter], **CLOSE)
    if all(np.array_equal(value, weights[1][parameter]) for parameter, value in fresh.items()):
        # This processor computes as the one that made the first steps: all bits are equal.
        assert all(
            np.array_equal(value, fresh[parameter]) for parameter, value in weights[0].items()
        )
    rows = json_lines(run / "metrics.jsonl")
    assert [one["step"] for one in rows] == [
        one["step"] for one in json_lines(Path("fresh/metrics.jsonl"))
    ]
    # With their seconds, so they were not done again.
    done = [one for one in logged if one["step"] <= 4]
    assert rows[: len(done)] == done


def test_a_run_answers_as_it_did() -> None:
    texts = Path("given/texts.txt").read_text().splitlines()

    answers = Predictor("whole/run").predict(texts)

    check_close(json.loads(json.dumps(answers)), json_lines(Path("whole/answers.jsonl")))
    assert shell(["evaluate", "whole/run", "given/dev.csv"]) == 0


def test_a_checkpoint_opens() -> None:
    before = Embedder("half/pretrained@4", max_seq_length=16).embed(["the red cat"])
    after = Embedder("whole/pretrained", max_seq_length=16).embed(["the red cat"])

    # Two steps of training are between them.
    assert 0 < np.abs(before - after).max() < 0.1
    for model in ("half/pretrained@4", "half/run@4", "whole/pretrained"):
        assert shell(["info", model]) == 0


def test_a_run_continues_from_its_arguments() -> None:
    assert (
        shell(["finetune", "classify", "--config", "whole/run/arguments.json", "--out", "again"])
        == 0
    )
    fresh, whole = (load_file(f"{path}/model.safetensors") for path in ("again", "whole/run"))
    for parameter, value in whole.items():
        np.testing.assert_allclose(fresh[parameter], value, **CLOSE)


def test_a_stopped_search_goes_on() -> None:
    before = (Path("half/search/trials.json")).read_text()

    run = resume("search", "--resume")

    found, whole = (
        json.loads(path.read_text())["trials"]
        for path in (run / "trials.json", Path("whole/trials.json"))
    )
    kept = json.loads(before)["trials"]
    assert found[: len(kept)] == kept
    assert [one["name"] for one in found] == [one["name"] for one in whole]
    assert [list(one["metrics"]) for one in found] == [list(one["metrics"]) for one in whole]


def test_a_corpus_opens_and_a_half_one_ends_with_its_bytes() -> None:
    corpus = resume("corpus")

    whole = Path("whole/corpus")
    assert {path.name: path.read_bytes() for path in corpus.iterdir()} == {
        path.name: path.read_bytes() for path in whole.iterdir()
    }
    assert (
        TokenCorpus(whole, "train").num_documents + TokenCorpus(whole, "held-out").num_documents
        == 40
    )


def test_an_index_opens_and_a_half_one_ends_as_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    index = resume("index")

    assert "16 were there before" in capsys.readouterr().err
    whole = Path("whole/index")
    texts = [pa.ipc.open_stream(path / "texts.arrow").read_all() for path in (index, whole)]
    assert texts[0].to_pydict() == texts[1].to_pydict()
    vectors = [np.load(path / "vectors.npy") for path in (index, whole)]
    np.testing.assert_allclose(*vectors, **CLOSE)
    text = Path("given/texts.txt").read_text().splitlines()[3]
    for path in (index, whole):
        assert Index.open(path, "given/model").search(text, top_k=1)[0].text == text


@pytest.mark.parametrize("name", ["answers.jsonl", "vectors.npy"])
def test_a_half_written_file_goes_on(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell([*COMMANDS[name].split(), "--out", f"half/{name}"]) == 2
    assert "--resume continues it" in capsys.readouterr().err

    done = resume(name, "--resume")

    if name == "vectors.npy":
        np.testing.assert_allclose(np.load(done), np.load(f"whole/{name}"), **CLOSE)
    else:
        check_close(json_lines(done), json_lines(Path("whole") / name))
        # What was done is not done again.
        kept = done.read_bytes()[:100]
        assert (Path("whole") / name).read_bytes().startswith(kept)


def test_a_job_on_a_cluster_knows_what_is_done() -> None:
    work = PredictJob(
        model="whole/run", options={"device": "cpu", "precision": "auto"}, read=ReadOptions()
    )
    job = job_line(work.name, work.fingerprint(), work.settings())
    manifest = Path("half/job/manifest.jsonl")
    files = input_files("given/parts", (".txt",))

    # Other code may give other answers, so it does not go on with a job: that is all that differs.
    with pytest.raises(UsageError, match=r":\n  the version of tidybert: .* now$"):
        begin_manifest(Path("half/job"), job)
    first, *rest = manifest.read_text().splitlines()
    first = json.dumps({**json.loads(first), "tidybert": job["tidybert"]})
    manifest.write_text("\n".join([first, *rest]) + "\n")
    done = begin_manifest(Path("half/job"), job)

    assert list(done) == [files[0].name]
    (only,) = done.values()
    assert (only.input_bytes, only.input_state) == (files[0].num_bytes, files[0].state)
    assert (Path("half/job") / only.output).stat().st_size == only.output_bytes


def test_vectors_are_what_they_were() -> None:
    texts = Path("given/many.txt").read_text().splitlines()

    vectors = Embedder("given/model", max_seq_length=16, truncate_dim=2).embed(texts)

    np.testing.assert_allclose(vectors, np.load("whole/vectors.npy"), **CLOSE)
