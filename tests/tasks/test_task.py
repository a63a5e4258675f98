"""Labels that a model does not know are listed, with their counts and first lines."""

import pytest

from tidybert.errors import DataError
from tidybert.tasks.task import refuse_unknown


def test_all_that_is_unknown_is_listed_the_most_frequent_first() -> None:
    labels = [("cat", 2), ("x", 3), ("y y", 5), ("dog", 6), ("z", 7), ("y y", 1200)]

    with pytest.raises(DataError) as caught:
        refuse_unknown("label", labels, ["dog", "cat"])

    assert str(caught.value).splitlines() == [
        "3 labels that the model does not know:",
        "  'y y', 2 times, the first on line 5",
        "  'x', on line 3",
        "  'z', on line 7",
        "It knows 2: dog, cat",
        "Spell the labels as it does, or leave these examples out",
    ]


def test_long_lists_end_with_how_many_more_there_are() -> None:
    labels = [(f"u{number}", number) for number in range(1022)]

    with pytest.raises(DataError) as caught:
        refuse_unknown("tag", labels, [f"k{number}" for number in range(23)])

    first, *listed, more, known, advice = str(caught.value).splitlines()
    assert first == "1,022 tags that the model does not know:"
    assert [each.split("'")[1] for each in listed] == [f"u{number}" for number in range(20)]
    assert more == "  and 1,002 more"
    assert known.startswith("It knows 23: k0, k1, ")
    assert known.endswith(", k19 and 3 more")
    assert advice.startswith("Spell the tags as it does")


def test_what_is_known_passes() -> None:
    refuse_unknown("label", [("a", 1), ("b", 2)], {"a": 0, "b": 1})
    refuse_unknown("label", [], [])
