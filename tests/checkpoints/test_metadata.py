"""tidybert.json round trips, and its hashes tell which file is not the one that was saved."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidybert.checkpoints.example_kinds import PAIR
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.errors import ConfigError, WeightsError

FILES = {"config.json": "{}", "model.safetensors": "w", "vocab.txt": "[PAD]\n", "extra.json": "{}"}


def seal(directory: Path, metadata: ModelMetadata) -> ModelMetadata:
    """Put FILES and their tidybert.json into ``directory``."""
    for name, content in FILES.items():
        (directory / name).write_text(content)
    return metadata.write(directory)


def test_round_trip(tmp_path: Path) -> None:
    sealed = seal(
        tmp_path,
        ModelMetadata(
            task="classify",
            label_names=("ärger", "joy"),
            max_seq_length=64,
            settings={"temperature": 1.5},
            inputs=PAIR,
            reading={"format": "csv", "columns": {"text": "message", "label": "0"}},
            metrics={"accuracy": 0.5, "per_class": {"joy": 1.0}},
        ),
    )
    assert ModelMetadata.read(tmp_path) == sealed
    assert sorted(sealed.files) == sorted(FILES)
    assert len(sealed.sha256) == 64
    assert sealed.tidybert_version
    ModelDirectory(tmp_path).verify()


def test_the_file_has_the_keys_of_the_format(tmp_path: Path) -> None:
    seal(tmp_path, ModelMetadata(task="regress"))
    values = json.loads((tmp_path / "tidybert.json").read_text())
    assert list(values)[:2] == ["format_version", "tidybert_version"]
    assert values["format_version"] == 1
    assert values["task"] == "regress"
    assert values["label_names"] is None
    assert values["inputs"] is values["reading"] is None
    assert values["settings"] == {}


def test_numpy_numbers_become_plain_and_nan_becomes_null(tmp_path: Path) -> None:
    seal(
        tmp_path,
        ModelMetadata(
            task="regress",
            max_seq_length=np.int64(32),  # type: ignore[arg-type]
            settings={"temperature": np.float32(0.5)},
            metrics={"pearson": float("nan"), "table": np.eye(2), "f1": np.float32(0.25)},
        ),
    )
    found = ModelMetadata.read(tmp_path)
    assert found is not None
    assert found.metrics == {"pearson": None, "table": [[1.0, 0.0], [0.0, 1.0]], "f1": 0.25}
    assert (found.max_seq_length, found.settings) == (32, {"temperature": 0.5})


def test_a_directory_of_another_origin_has_none_and_passes(tmp_path: Path) -> None:
    assert ModelMetadata.read(tmp_path) is None
    ModelDirectory(tmp_path).verify()


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_swapped_file_is_named(tmp_path: Path, name: str) -> None:
    seal(tmp_path, ModelMetadata(task="classify"))
    (tmp_path / name).write_text("other")
    with pytest.raises(WeightsError, match=f"changed since the model was saved: {name};"):
        ModelDirectory(tmp_path).verify()
    (tmp_path / name).unlink()
    with pytest.raises(WeightsError, match=f"incomplete: no {name}"):
        ModelDirectory(tmp_path).verify()


def test_an_edited_hash_is_noticed(tmp_path: Path) -> None:
    seal(tmp_path, ModelMetadata(task="classify"))
    path = tmp_path / "tidybert.json"
    values = json.loads(path.read_text())
    del values["files"]["vocab.txt"]
    path.write_text(json.dumps(values))
    with pytest.raises(WeightsError, match="the file was edited"):
        ModelDirectory(tmp_path).verify()


def test_files_that_were_not_saved_are_no_concern(tmp_path: Path) -> None:
    seal(tmp_path, ModelMetadata(task="classify"))
    (tmp_path / "metrics.jsonl").write_text("{}")
    ModelDirectory(tmp_path).verify()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("task", ""),
        ("task", 3),
        ("label_names", "ab"),
        ("label_names", ["a", "a"]),
        ("label_names", ["a", 1]),
        ("label_names", 5),
        ("max_seq_length", 0),
        ("max_seq_length", True),
        ("max_seq_length", 1.5),
        ("settings", [1]),
        *(
            ("settings", {"temperature": each})
            for each in (0, -1.0, 1e-300, 10**400, True, "1", None)
        ),
        *(
            ("settings", {"thresholds": each})
            for each in ([0.5], {"a": 2}, {"a": "0.5"}, {"a": True})
        ),
        ("settings", {"max_query_length": -1}),
        ("settings", {"doc_stride": 1.5}),
        ("settings", {"long": ["windows"]}),
        ("settings", {"no_answers": 1}),
        ("settings", {"n_best_size": 10**30}),
        ("settings", {"null_score_diff_threshold": "0"}),
        ("reading", ["text"]),
        ("inputs", "texts"),
        ("metrics", None),
        ("files", {"../config.json": "0"}),
        ("files", {"/config.json": "0"}),
        ("files", {"a/b/config.json": "0"}),
        ("files", {"config.json": 0}),
        ("files", {"a" * 300: "0"}),
        ("sha256", 0),
        ("tidybert_version", None),
        ("format_version", 2),
        ("format_version", "1"),
    ],
)
def test_a_wrong_value_names_file_and_key(tmp_path: Path, key: str, value: Any) -> None:
    seal(tmp_path, ModelMetadata(task="classify"))
    path = tmp_path / "tidybert.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ConfigError, match=key) as caught:
        ModelMetadata.read(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", ["dangling", "pipe", "nan"])
def test_a_file_that_is_none_does_not_count_as_absent(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "tidybert.json"
    if kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text('{"metrics": {"f1": NaN}}')

    said = {"dangling": "a link to nowhere", "pipe": "a named pipe", "nan": "NaN is not a finite"}
    with pytest.raises(ConfigError, match=f"tidybert.json: .*{said[kind]}"):
        ModelMetadata.read(tmp_path)


def test_unknown_and_missing_keys(tmp_path: Path) -> None:
    seal(tmp_path, ModelMetadata(task="classify"))
    path = tmp_path / "tidybert.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "tresholds": 1, "setings": 2}))
    with pytest.raises(ConfigError, match="unknown key 'tresholds'"):
        ModelMetadata.read(tmp_path)
    path.write_text(json.dumps({**values, "setings": 2}))
    with pytest.raises(ConfigError, match="did you mean 'settings'"):
        ModelMetadata.read(tmp_path)
    del values["task"]
    path.write_text(json.dumps(values))
    with pytest.raises(ConfigError, match="missing key 'task'"):
        ModelMetadata.read(tmp_path)
