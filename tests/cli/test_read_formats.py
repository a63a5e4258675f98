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
