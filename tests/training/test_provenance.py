"""What a RUN says of its data, whatever its arguments.json holds."""

from pathlib import Path

import pytest

from tidybert.training.runs.provenance import trained_on


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"record": {"files": {"train": {"file": "a.csv"}}, "num_train": 1200}}', "1,200"),
        ('{"record": {"files": {"train": {"file": "a.csv"}}}}', "a.csv"),
        ('{"record": {"files": [1]}}', None),
        ('{"record": 7}', None),
        ("{", None),
        (None, None),
    ],
)
def test_the_data_that_trained_it(tmp_path: Path, content: str | None, words: str | None) -> None:
    if content is not None:
        (tmp_path / "arguments.json").write_text(content)
    expected = {None: None, "a.csv": "a.csv", "1,200": "a.csv, 1,200 examples"}[words]
    assert trained_on(tmp_path) == expected
