"""A warning shows the line of the program that called tidybert, through the libraries between."""

import warnings

import pytest

from tidybert.system.terminal import warn_user


def test_the_line_is_the_first_outside_the_libraries() -> None:
    inside = {"warn_user": warn_user, "__name__": "tidybert.inner"}
    exec("def work():\n    warn_user('look', UserWarning)", inside)
    between = {"inner": inside["work"], "__name__": "sklearn.pipeline"}
    exec("def fit():\n    inner()", between)

    with pytest.warns(UserWarning, match="look") as warned:
        between["fit"]()

    assert warned[0].filename == __file__


def test_a_line_warns_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            warn_user("again", UserWarning)

    assert len(caught) == 1
