"""tidybert info, and what commands say of a RUN whose training has not ended."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from tests.sentence_directories import write_sentence_transformers

from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.cli.main import run as shell
from tidybert.inference.loading import load


def test_a_finished_run(tiny_run: Path, capsys: Any) -> None:
    assert shell(["info", str(tiny_run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["task"], found["inputs"]) == ("classify", "text")
    assert found["labels"] == ["animal", "colour"]
    assert found["sizes"]["hidden_size"] == 16
    assert found["metrics"]["accuracy"] > 0.9
    assert (found["num_train"], found["num_dev"], found["steps"]) == (192, 64, 48)

    assert shell(["info", str(tiny_run)]) == 0
    out = capsys.readouterr().out
    assert "inputs: single texts\nlabels: animal, colour\n" in out


def test_a_size_and_a_model_of_another_program(tiny_model: Path, capsys: Any) -> None:
    assert shell(["info", "mini"]) == 0
    assert "a size with random weights" in capsys.readouterr().out
    assert shell(["info", str(tiny_model)]) == 0
    out = capsys.readouterr().out
    assert "state: a MODEL" in out
    # No version of tidybert, which wrote no file of it.
    assert "None" not in out


def test_an_unfinished_run_says_where_it_is_and_how_to_go_on(
    tiny_run: Path, tmp_path: Path, capsys: Any
) -> None:
    run = tmp_path / "my run"
    (run / "checkpoints" / "step-12").mkdir(parents=True)
    (run / "checkpoints" / ".step-16.partial").mkdir()
    arguments = json.loads((tiny_run / "arguments.json").read_text())
    (run / "arguments.json").write_text(json.dumps({**arguments, "train": "train.csv"}))
    config = f"'{run}/arguments.json'"
    command = f"tidybert finetune --config {config} --out '{run}' --resume"

    assert shell(["info", str(run)]) == 0
    out = capsys.readouterr().out
    assert "state: unfinished: its last checkpoint is step 12 of 48" in out
    assert f"go on: {command}" in out
    (tmp_path / "texts.txt").write_text("red\n")
    for words in (["predict", str(run), str(tmp_path / "texts.txt")], ["evaluate", str(run), "x"]):
        assert shell(words) == 1
        said = capsys.readouterr().err
        assert "training has not ended: its last checkpoint is step 12 of 48" in said
        assert f"Go on with: {command}" in said

    (run / "trials").mkdir()
    shutil.rmtree(run / "checkpoints")
    assert shell(["info", str(run)]) == 0
    assert "go on: the command that began it, with --resume" in capsys.readouterr().out


def test_verify_names_a_file_that_was_swapped_or_edited(
    tiny_run: Path, tmp_path: Path, capsys: Any
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    assert shell(["info", str(run), "--verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verified"] == "tidybert.json"
    expected = hashlib.sha256((run / "vocab.txt").read_bytes()).hexdigest()
    assert found["sha256"]["vocab.txt"] == expected
    assert shell(["info", str(run), "--verify"]) == 0
    assert f"{expected}  vocab.txt\n" in capsys.readouterr().out

    for name in ("vocab.txt", "config.json", "model.safetensors"):
        content = (run / name).read_bytes()
        (run / name).write_bytes(content[:-1] + b" ")
        assert shell(["info", str(run), "--verify"]) == 1
        assert f"changed since the model was saved: {name};" in capsys.readouterr().err
        (run / name).write_bytes(content)
    (run / "config.json").unlink()
    assert shell(["info", str(run), "--verify"]) == 1


def test_verify_without_hashes_says_so(tiny_model: Path, capsys: Any) -> None:
    assert shell(["info", str(tiny_model), "--verify"]) == 0
    out = capsys.readouterr().out
    assert "verified: nothing to compare with: no tidybert.json\n" in out
    assert "  model.safetensors\n" in out


def test_how_a_directory_of_sentence_transformers_makes_vectors(
    tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    form = SentenceForm("cls", normalize=True, prompts={"query": "a"}, truncate_dim=4)
    write_sentence_transformers(tmp_path / "out", *load(tiny_model), form)
    assert shell(["info", str(tmp_path / "out")]) == 0
    expected = (
        "vectors: pooling cls, normalize yes, max seq length 32, truncate dim 4, prompts query\n"
    )
    assert expected in capsys.readouterr().out

    assert shell(["info", str(tmp_path / "out"), "--json"]) == 0
    # The files of a folder in it count too: 1_Pooling, and onnx in a directory of ONNX.
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert any(path.parent != tmp_path / "out" for path in files)
    needs = json.loads(capsys.readouterr().out)["needs"]
    assert needs["bytes_on_disk"] == sum(path.stat().st_size for path in files)
