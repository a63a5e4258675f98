"""A --format that the task does not read is refused before a model or a file is read."""

from pathlib import Path

import pytest

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.cli.main import run as shell


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (["predict", "{run}", "a.csv"], "did you mean 'csv'?"),
        (["evaluate", "{run}", "a.csv"], "did you mean 'csv'?"),
        (["embed", "{run}", "a.csv"], "did you mean 'csv'?"),
        (["next-sentence", "{run}", "--file", "a.csv"], "did you mean 'csv'?"),
        (
            ["finetune", "classify", "{run}", "--train", "a.csv", "--out", "new"],
            "did you mean 'csv'",
        ),
        (["finetune", "choose", "{run}", "--train", "a.csv", "--out", "new"], "swag, codah, jsonl"),
    ],
)
def test_a_misspelt_format_is_refused_first(
    command: list[str],
    advice: str,
    tiny_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(ModelDirectory, "build", fail)
    monkeypatch.setattr(ModelDirectory, "load_into", fail)
    monkeypatch.chdir(tmp_path)  # No a.csv is there.

    assert shell([*(each.format(run=tiny_run) for each in command), "--format", "cvs"]) == 2

    err = capsys.readouterr().err
    assert "a.csv: --format cvs: " in err
    assert advice in err


@pytest.mark.parametrize(
    "words",
    [
        "evaluate {run} {data}",
        "predict {run} {data}",
        "check {data} --model {run} --max-seq-length 16",
        "embed {run} {data} --out {out}.npy",
        "index {run} {data} --out {out}",
        "duplicates {data}",
        "finetune classify {run} --train {data} --out {out} --max-steps 1 --max-seq-length 16",
    ],
)
def test_every_command_reads_a_folder_of_classes(
    words: str, tiny_run: Path, tmp_path: Path, capsys
) -> None:
    for number, (label, text) in enumerate([("animal", "a cat"), ("colour", "a red")] * 3):
        (tmp_path / "texts" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / label / f"{number}.txt").write_text(f"{text} {number}\n")
    given = {"run": tiny_run, "data": tmp_path / "texts", "out": tmp_path / "out"}

    assert shell([word.format(**given) for word in words.split()]) == 0, capsys.readouterr().err

    assert f"{tmp_path / 'texts'}: read as folder, --text text" in capsys.readouterr().err
