"""Help, the OpenAPI document and the public names are what the snapshots say."""

import pytest

pytest.importorskip("fastapi")

from tests.gate.snapshots import SNAPSHOTS, difference, other_libraries


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_what_users_see_is_what_it_was(name: str) -> None:
    if found := other_libraries():
        pytest.skip(f"the snapshots are written with {found}")

    found = difference(name)
    meant = "if this is meant, say why in CHANGELOG.md and: python tests/gate/snapshots.py --write"
    assert not found, f"{meant}\n{found}"
