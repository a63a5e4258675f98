"""mypy --strict on the Python of every guide: python tests/docs/check_guide_types.py.

The blocks of a page are one script.  tasks.md writes a task of one's own without annotations.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNTYPED = {"tasks.md"}


def script(page: Path) -> str:
    """The Python blocks of a page, at their own lines."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        first = text[: found.start(1)].count("\n")
        block = found[1].splitlines()
        lines[first : first + len(block)] = block
    return "\n".join(lines) if any(lines) else ""


def main() -> int:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for page in pages:
            if page.name not in UNTYPED and (code := script(page)):
                paths.append(Path(folder) / f"{page.stem.replace('-', '_')}_page.py")
                paths[-1].write_text(f"{code}\n", encoding="utf-8")
        environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
        command = [sys.executable, "-m", "mypy", "--strict", *map(str, paths)]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
