"""Import every module as on Windows: without the modules and names that only POSIX has.

Prints the modules that cannot be imported, a line each.
"""

import os
import pkgutil
import signal
import sys
from importlib import import_module

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "uvloop")
OS_NAMES = (
    *("fork", "forkpty", "register_at_fork", "getuid", "geteuid", "getgid", "killpg", "setsid"),
    *("getpgid", "setpgid", "mkfifo", "sched_getaffinity", "uname", "O_NOFOLLOW", "O_CLOEXEC"),
    *("O_NONBLOCK", "posix_fallocate", "sysconf", "statvfs", "getloadavg"),
)
SIGNALS = (
    *("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGKILL", "SIGQUIT", "SIGALRM", "SIGPIPE"),
    *("pthread_sigmask", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK", "set_wakeup_fd", "alarm"),
)


def main() -> None:
    # What tidybert stands on is imported first: it has its own ways on each system.
    for name in ("torch", "pyarrow.parquet", "sklearn.metrics", "typer", "rich.progress"):
        import_module(name)
    if len(sys.argv) > 1:
        for name in ("fastapi", "uvicorn", "prometheus_client", "multiprocessing.forkserver"):
            import_module(name)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for holder, names in ((os, OS_NAMES), (signal, SIGNALS)):
        for name in names:
            if hasattr(holder, name):
                delattr(holder, name)
    sys.platform = "win32"
    import tidybert

    for found in pkgutil.walk_packages(tidybert.__path__, "tidybert."):
        if found.name.endswith("__main__"):
            continue
        try:
            import_module(found.name)
        except BaseException as error:
            print(f"{found.name}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
