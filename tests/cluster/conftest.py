"""Jobs without an engine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidybert.cluster.file_job import JobReport
from tidybert.cluster.input_files import InputFile, this_version
from tidybert.cluster.ray_engine import FileWorker
from tidybert.inference.text_jobs import FileJob


@pytest.fixture
def run_here() -> Callable[..., JobReport]:
    """In the place of ``run_job``: a worker in this process, from the last file to the first."""

    def run(work: FileJob, files: Sequence[InputFile], out: Path, **_: Any) -> JobReport:
        known = {"tidybert": this_version(), "model": work.fingerprint()}
        out.mkdir(exist_ok=True)
        outcomes = [FileWorker(work, known, out)(file) for file in reversed(files)]
        assert all(each.error is None for each in outcomes), outcomes
        return JobReport([each.done for each in outcomes if each.done])

    return run
