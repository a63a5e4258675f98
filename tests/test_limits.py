"""A limit's message names the limit, the value found and the flag that raises it."""

import pytest

from tidybert import limits
from tidybert.errors import LimitError, in_shell
from tidybert.limits import Limit


def test_the_message_names_limit_value_and_flag() -> None:
    limit = Limit("columns", 1000, "columns", flag="max_columns")

    limit.check(1000, "a.csv")
    with pytest.raises(LimitError) as caught:
        limit.check(2500, "a.csv")
    assert in_shell(caught.value.message) == (
        "a.csv: 2,500 columns; the limit for columns is 1,000; "
        "give a higher --max-columns to read it"
    )


def test_a_flag_replaces_the_value() -> None:
    limit = Limit("columns", 1000, "columns", flag="max_columns")

    limit.replaced(2500).check(2500, "a.csv")
    assert limit.replaced(None) is limit


def test_no_two_limits_have_one_name() -> None:
    table = [each for each in vars(limits).values() if isinstance(each, Limit)]

    assert len({(each.name, each.unit) for each in table}) == len(table)
