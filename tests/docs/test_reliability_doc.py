"""The table of limits in docs/reliability.md is that of the code."""

from pathlib import Path

from tidybert.storage import limits
from tidybert.storage.limits import Limit

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def test_the_limits_are_those_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.split("| limit for | most |\n|---|---|\n")[1].split("\n\n")[0]
    known = [each for each in vars(limits).values() if isinstance(each, Limit)]

    assert table.splitlines() == [f"| {each.name} | {each.value:,} {each.unit} |" for each in known]
    assert f"{limits.UNPACKED_RATIO_FROM // 2**20} MiB" in text
