"""The command ``tidybert``, also as ``python -m tidybert``."""

from typing import NoReturn

from tidybert.system.signals import command_signals


def main() -> NoReturn:
    """Entry point of the installed command."""
    # Before the imports, which take a while: Ctrl-C must not show a traceback during them.
    command_signals.install()
    from tidybert.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()
