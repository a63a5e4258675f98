"""Types: python tests/check_types.py.

mypy checks src and benchmarks, and side by side with basedpyright (pyright, packaged for pip)
all that ``typed_script.py`` and the Python of the guides say.  The blocks of a page are one script.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]


def script(page: Path) -> str:
    """The Python blocks of a page, at their own lines."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        first = text[: found.start(1)].count("\n")
        block = found[1].splitlines()
        lines[first : first + len(block)] = block
    return "\n".join(lines) if any(lines) else ""


def run(*arguments: str) -> bool:
    """Whether a checker that runs as a module finds nothing; prints its lines."""
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )
    print(f"{arguments[0]}: {done.stdout}{done.stderr}", end="")
    return done.returncode == 0


def main() -> int:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as threads:
        paths = [str(ROOT / "tests/typed_script.py")]
        for page in pages:
            if code := script(page):
                path = Path(folder) / f"{page.stem.replace('-', '_')}_page.py"
                path.write_text(f"{code}\n", encoding="utf-8")
                paths.append(str(path))
        settings = {
            "include": paths,
            "extraPaths": [str(ROOT / "src")],
            "typeCheckingMode": "standard",
            "reportUnnecessaryTypeIgnoreComment": True,
            # Some guides use packages that no extra installs.
            "reportMissingImports": False,
        }
        project = Path(folder) / "pyrightconfig.json"
        project.write_text(json.dumps(settings), encoding="utf-8")
        by_pyright = threads.submit(
            run, "basedpyright", "-p", str(project), "--pythonpath", sys.executable
        )
        ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
        found = [run("mypy", *ours, *paths), by_pyright.result()]
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
