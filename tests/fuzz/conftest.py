"""Mutated files for readers: each case is an answer or a TidyBertError, soon and in little memory.

``make fuzz CASES=10000`` or ``make fuzz SECONDS=60`` runs each target for longer than ``make test``
does.  A case is known by its number: TIDYBERT_FUZZ_CASE=17 runs it alone.
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tidybert.errors import TidyBertError

SEEDS: Final = Path(__file__).parent / "seeds"
NUM_CASES: Final = 60
MOST_SECONDS: Final = 10
MOST_MIB: Final = 1024
# Bytes and values that have a meaning to some reader.
BYTES: Final = (
    b"\0", b"\xff", b"\r", b"\n", b"\n\n", b'"', b"'", b"\\", b"{", b"[", b"}", b"]", b",", b"\t",
    b":", b"NaN", b"1e999", b"-1", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"\xed\xa0\x80",
    b"\xe2\x80\xa8", b"\\ud800", b"9" * 400, b"a" * 5000, b"[" * 2000, b"PAR1", b"##", b"[CLS]",
)  # fmt: skip
VALUES: Final = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 10**400, 0.5, 1e-300, 1e308, -0.0, "", "a",
    "\ud800", "../x", "x" * 3000, "\x1b[31m", [], {}, [[]], [0] * 1000, {"a": 1}, "0", "NaN",
    float("nan"), float("inf"),
)  # fmt: skip


def mutated_bytes(content: bytes, chance: random.Random) -> bytes:
    """The bytes with one to four of them flipped, cut, doubled, moved or added to."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        begin, end = sorted(chance.randint(0, len(content)) for _ in range(2))
        end = min(end, begin + chance.choice((1, 4, 30, 1000)))
        match chance.randrange(6):
            case 0 if begin < len(content):
                flipped = content[begin] ^ (1 << chance.randrange(8))
                content = content[:begin] + bytes([flipped]) + content[begin + 1 :]
            case 1:
                content = content[:begin] + content[end:]
            case 2:
                content = content[:end] + content[begin:]
            case 3:
                content = content[:begin]
            case 4:
                content = content[:begin] + content[begin:end] * 200 + content[end:]
            case _:
                content = content[:begin] + chance.choice(BYTES) + content[end:]
    return content


def mutated_value(value: Any, chance: random.Random) -> Any:
    """JSON with one of its values changed, left out, doubled or renamed."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return chance.choice(VALUES)
    key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
    changed = value.copy()
    match chance.randrange(6):
        case 0:
            del changed[key]
        case 1 if isinstance(changed, dict):
            changed[chance.choice((f"{key}x", "0", "", "__metadata__"))] = changed.pop(key)
        case 1:
            changed.insert(key, value[key])
        case 2:
            changed[key] = chance.choice(VALUES)
        case _:
            changed[key] = mutated_value(value[key], chance)
    return changed


def mutated_json(content: bytes, chance: random.Random) -> bytes:
    value = mutated_value(json.loads(content), chance)
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5)
    if chance.random() < 0.05:
        text = re.sub(r'("[a-z_]+": [^,{}\[\]]+)', r"\1, \1", text, count=1)
    return text.encode(errors="surrogatepass")


def mutated_header(content: bytes, chance: random.Random) -> bytes:
    """Weights with another header, of the length that they state."""
    length = int.from_bytes(content[:8], "little")
    header = mutated_json(content[8 : 8 + length], chance)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def mutated_line(content: bytes, chance: random.Random) -> bytes:
    lines = content.split(b"\n")
    place = chance.randrange(len(lines))
    try:
        lines[place] = mutated_json(lines[place], chance)
    except ValueError:
        return mutated_bytes(content, chance)
    return b"\n".join(lines)


STRUCTURES: Final[Mapping[str, Callable[[bytes, random.Random], bytes]]] = {
    ".json": mutated_json,
    ".jsonl": mutated_line,
    ".safetensors": mutated_header,
}


def spoil(path: Path, chance: random.Random, *, is_data: bool) -> None:
    """Change the file, or put something else in its place."""
    content = path.read_bytes()
    if chance.random() < 0.03:
        path.unlink()
        kinds = ["nowhere", "/dev/zero", "folder"] + ([] if is_data else ["pipe"])
        match chance.choice(kinds):
            case "folder":
                path.mkdir()
            case "pipe":
                os.mkfifo(path)
            case target:
                path.symlink_to(target)
    elif path.suffix in STRUCTURES and chance.random() < 0.6:
        path.write_bytes(STRUCTURES[path.suffix](content, chance))
    else:
        path.write_bytes(mutated_bytes(content, chance))


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the block after a time; calls without an end are stopped by it too."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def little_memory(most_mib: int = MOST_MIB) -> Iterator[None]:
    """Within the block this process gets so much more memory, and no machine is brought down."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + most_mib * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def fuzz(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> Callable[..., None]:
    """Reads mutated copies of a folder.

    Call it with the folder (or the name of a seed), the function that reads it, and the names of
    the files to change, all by default.  ``mend`` may repair the folder after a change.
    """

    def run(
        seeds: Path | str,
        read: Callable[[Path], object],
        *names: str,
        is_data: bool = False,
        mend: Callable[[Path, random.Random], None] | None = None,
    ) -> None:
        origin, folder = tmp_path / "seeds", tmp_path / "case"
        if isinstance(seeds, str):
            origin.mkdir()
            shutil.copy(SEEDS / seeds, origin)
        else:
            shutil.copytree(seeds, origin)
        chosen = names or tuple(
            str(each.relative_to(origin)) for each in sorted(origin.rglob("*")) if each.is_file()
        )
        alone = os.environ.get("TIDYBERT_FUZZ_CASE")
        num_cases = int(os.environ.get("TIDYBERT_FUZZ_CASES") or NUM_CASES)
        seconds = float(os.environ.get("TIDYBERT_FUZZ_SECONDS") or 3600)
        read(shutil.copytree(origin, folder))  # the seeds themselves can be read
        begin, memory = time.monotonic(), peak_mib()
        failures: dict[str, list[int]] = {}
        slowest, cases, errors = (0.0, 0), 0, 0
        for case in range(num_cases) if alone is None else [int(alone)]:
            if time.monotonic() - begin > seconds:
                break
            shutil.rmtree(folder)
            shutil.copytree(origin, folder)
            chance = random.Random(f"{request.node.name} {case}")
            spoil(folder / chance.choice(chosen), chance, is_data=is_data)
            if mend is not None:
                mend(folder, chance)
            started = time.monotonic()
            try:
                with at_most(MOST_SECONDS), little_memory():
                    read(folder)
            except TidyBertError:
                errors += 1
            except Exception as error:
                frame = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{type(error).__name__}: {error!s:.200} ({frame.filename}:{frame.lineno})"
                failures.setdefault(what if alone is None else traceback.format_exc(), []).append(
                    case
                )
            slowest = max(slowest, (time.monotonic() - started, case))
            cases += 1
        grown = peak_mib() - memory
        if num_cases != NUM_CASES:
            with capsys.disabled():
                print(
                    f"\n{request.node.name}: {cases:,} cases, {errors:,} errors told, "
                    f"{sum(map(len, failures.values())):,} failures, slowest {slowest[0]:.2f} s "
                    f"(case {slowest[1]}), {grown:.0f} MiB more"
                )
        assert not failures, "".join(
            f"\n{what}: {len(found)} cases, as {found[:5]}" for what, found in failures.items()
        )
        assert grown < MOST_MIB

    return run


MOST_SECONDS_TO_REFUSE: Final = 1
MOST_MIB_TO_REFUSE: Final = 200


@pytest.fixture(scope="session")
def refused() -> Callable[[Callable[[], object]], TidyBertError]:
    """The error that a call ends with, within a second of the processor and 200 MiB."""

    def error_of(read: Callable[[], object]) -> TidyBertError:
        begin = time.process_time()
        with (
            at_most(10 * MOST_SECONDS_TO_REFUSE),
            little_memory(MOST_MIB_TO_REFUSE),
            pytest.raises(TidyBertError) as caught,
        ):
            read()
        # A slow machine gets three times as many; a read that is not refused takes far more.
        assert time.process_time() - begin < 3 * MOST_SECONDS_TO_REFUSE
        assert len(str(caught.value)) < 1500
        return caught.value

    return error_of


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
