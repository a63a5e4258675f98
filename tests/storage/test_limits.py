"""A limit's message names the limit and the value found."""

import pytest

from tidybert.errors import LimitError
from tidybert.storage import limits
from tidybert.storage.limits import Limit


def test_the_message_names_the_limit_and_the_value() -> None:
    limit = Limit("columns", 1000, "columns")

    limit.check(1000, "a.csv")
    with pytest.raises(LimitError) as caught:
        limit.check(2500, "a.csv")
    assert str(caught.value) == "a.csv: 2,500 columns; the limit for columns is 1,000"


def test_no_two_limits_have_one_name() -> None:
    table = [each for each in vars(limits).values() if isinstance(each, Limit)]

    assert len({(each.name, each.unit) for each in table}) == len(table)
