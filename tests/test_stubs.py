"""The .pyi files that tests/stubs.py writes are those of the options of today."""

import subprocess
import sys
from pathlib import Path


def test_the_stubs_are_current() -> None:
    script = Path(__file__).parent / "stubs.py"

    done = subprocess.run(
        [sys.executable, script], check=False, capture_output=True, text=True, timeout=120
    )

    assert done.returncode == 0, f"python tests/stubs.py --write\n{done.stdout}{done.stderr}"
