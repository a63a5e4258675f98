"""How far a build of a corpus is: a file that somebody may have damaged."""

import json
from pathlib import Path
from typing import Any

import pytest

from tidybert.corpus.build_progress import PROGRESS_FILE, begin
from tidybert.errors import DataError
from tidybert.storage.json_objects import json_checksum

SETTINGS: dict[str, Any] = {"files": [["a.txt", 9]], "held_out": 0.1}


@pytest.mark.parametrize("files", [[[]], [""], None, [3]])
def test_files_of_another_form_are_a_damaged_file(tmp_path: Path, files: Any) -> None:
    begin(tmp_path, SETTINGS)
    path = tmp_path / PROGRESS_FILE
    content = json.loads(path.read_text())
    del content["checksum"]
    content["settings"]["files"] = files
    path.write_text(json.dumps({**content, "checksum": json_checksum(content)}))

    with pytest.raises(DataError, match=r"progress\.json: damaged .* build the corpus again"):
        begin(tmp_path, SETTINGS)
