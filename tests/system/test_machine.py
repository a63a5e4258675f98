"""The machine and what is installed on it."""

from tidybert.system.cores import machine, versions


def test_the_machine_and_what_is_installed_on_it() -> None:
    assert machine()["cpu"]
    assert machine()["cores"] >= 1
    found = versions("tidybert", "no-such-package")
    assert list(found) == ["python", "tidybert", "no-such-package"]
    assert found["no-such-package"] is None
