"""Runs one ``tidybert`` command in a process that multiprocessing's fork server began.

conftest.py's ``begin`` runs this file and hands it as globals: ``words`` of the command, ``files``
for its input, output and messages, its ``environment`` and its ``folder``.
A variable TIDYBERT_TEST_MIB in the environment is how much more memory it may take.
"""

import os
import resource
import signal
import sys

from tidybert.__main__ import main


def run(words: list[str], files: list[int], environment: dict[str, str], folder: str) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    # A shell's background processes begin with a SIGINT that is ignored, and hand that on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if more := environment.get("TIDYBERT_TEST_MIB"):
        with open("/proc/self/statm") as file:  # noqa: PTH123
            taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + int(more) * 2**20,) * 2)
    sys.argv = ["tidybert", *words]
    main()


run(**globals()["given"])
