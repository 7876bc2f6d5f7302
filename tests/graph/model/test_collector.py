"""The collector goes on after a pause, also after an error, and stays off where it was off."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from dmlprep.graph.model.collector import paused_collector


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    ran = gc.isenabled()
    yield
    (gc.enable if ran else gc.disable)()


@pytest.mark.parametrize("ran", [True, False])
def test_it_is_as_it_was_before(ran: bool) -> None:
    (gc.enable if ran else gc.disable)()
    with paused_collector():
        assert not gc.isenabled()
    assert gc.isenabled() == ran


def test_an_error_ends_the_pause_as_well() -> None:
    gc.enable()
    with pytest.raises(KeyError), paused_collector():
        raise KeyError
    assert gc.isenabled()
