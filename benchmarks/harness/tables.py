"""Names of ``script`` for scripts that come next."""

from benchmarks.harness.script import markdown as markdown
from benchmarks.harness.script import show as show
