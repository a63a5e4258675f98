"""Who writes an output: the text of a lock, and whether that process has ended."""

import json
import os
import platform
import re
import secrets
import shlex
import sys
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from tidybert.storage.leftovers import is_part_name


@dataclass
class Owner:
    """The text of a lock.

    pid: 0 where nobody writes and parts wait.  boot: names the running kernel, which all containers
    of a machine share.  token: is in the names of the owner's temporary files.  parts: from outputs
    that are not finished to the names of their parts; paths from the folder of the lock's target.
    """

    pid: int
    host: str
    boot: str
    started: str
    command: str
    token: str
    parts: dict[str, str]

    @classmethod
    def this_process(cls, parts: dict[str, str]) -> Self:
        """This process, with a new token."""
        name = Path(sys.argv[0]).name
        return cls(
            pid=os.getpid(),
            host=platform.node(),
            boot=_boot(),
            started=datetime.now().astimezone().isoformat(sep=" ", timespec="seconds"),
            command=shlex.join(["tidybert" if name == "__main__.py" else name, *sys.argv[1:]])[
                :200
            ],
            token=secrets.token_hex(6),
            parts=parts,
        )

    @classmethod
    def from_line(cls, line: bytes) -> Self | None:
        """The owner that ``line`` gave; None for the text of something else."""
        try:
            owner = cls(**json.loads(line))
            is_ours = re.fullmatch("[0-9a-f]{12}", owner.token) and _are_parts(owner.parts)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None
        return owner if is_ours else None

    def line(self) -> bytes:
        """The text of the lock's file."""
        return (json.dumps(asdict(self)) + "\n").encode()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.started} ({self.command})"

    def has_ended(self, is_free: bool | None) -> bool:
        """Whether nobody writes any more.

        ``is_free``: whether the kernel gives us the lock; None where it cannot say.  It knows who
        is alive on this machine; a lock of another machine may not reach it.
        """
        if not self.pid:
            return True
        if self.boot != _boot():
            # The same machine has started since then.
            return self.host == platform.node()
        return is_free or not _is_alive(self.pid)


def _are_parts(parts: dict[str, str]) -> bool:
    """Whether these are names that we give: a lock must not make us remove other files."""
    return all(
        not Path(key).is_absolute() and os.pardir not in Path(key).parts and is_part_name(name)
        for key, name in parts.items()
    )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()
