"""Names of ``script`` for scripts that come next."""

import argparse

from benchmarks.harness.script import at_least as at_least
from benchmarks.harness.script import record as record


def script_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is a module's docstring as it stands."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
