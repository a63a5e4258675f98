"""A model's origin is read from its RUN, as far as the RUN says it."""

import json
from pathlib import Path

from tidybert.reporting.model_origin import ModelOrigin, read_model_origin


def test_a_run_says_where_its_model_comes_from(tmp_path: Path) -> None:
    given = {"model": "minilm", "train": "a.csv", "seed": 7}
    (tmp_path / "arguments.json").write_text(json.dumps(given))
    metadata = {"format_version": 1, "task": "classify", "sha256": "ab", "files": {}}
    (tmp_path / "tidybert.json").write_text(json.dumps(metadata))

    assert read_model_origin(tmp_path) == ModelOrigin("minilm", "a.csv", 7, "ab")


def test_missing_and_damaged_files_say_nothing(tmp_path: Path) -> None:
    assert read_model_origin(tmp_path) == ModelOrigin()
    (tmp_path / "arguments.json").write_text('{"model": ["a"], "seed": true}')
    (tmp_path / "tidybert.json").write_text("{")
    assert read_model_origin(tmp_path) == ModelOrigin()
