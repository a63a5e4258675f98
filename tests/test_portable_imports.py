"""Windows is not tested; but every module can at least be imported there."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("portable_imports.py")


def test_every_module_is_imported_without_what_only_posix_has() -> None:
    found = subprocess.run(
        [sys.executable, SCRIPT, "server"], capture_output=True, text=True, check=False
    )

    assert found.stdout == ""
    assert found.returncode == 0, found.stderr
