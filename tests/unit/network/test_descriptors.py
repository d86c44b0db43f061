"""How many descriptors there are, and which of them are left to files."""

from __future__ import annotations

import resource

import pytest

from ottla.network.descriptors import UNKNOWN_LIMIT, is_of_reserve, max_open_files, reserve_of


@pytest.mark.parametrize(
    ("soft", "most", "reserve"),
    [
        pytest.param(400, 400, 100, id="few"),
        pytest.param(65_536, 65_536, 1_024, id="many"),
        pytest.param(resource.RLIM_INFINITY, UNKNOWN_LIMIT, 1_024, id="unlimited"),
    ],
)
def test_limit_is_the_systems_and_a_part_of_it_is_for_files(
    monkeypatch: pytest.MonkeyPatch, soft: int, most: int, reserve: int
) -> None:
    """A quarter where there are few."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, soft))
    assert max_open_files() == most
    assert reserve_of(most) == reserve


@pytest.mark.parametrize(
    ("fd", "clients", "refused"),
    [
        pytest.param(299, 280, False, id="below-the-reserve"),
        pytest.param(300, 280, True, id="in-the-reserve"),
        pytest.param(300, 99, False, id="few-clients-and-many-files"),
        pytest.param(399, 100, True, id="as-many-clients-as-are-reserved"),
    ],
)
def test_clients_take_no_part_of_the_reserve_once_they_are_many(
    fd: int, clients: int, refused: bool
) -> None:
    """Where files have nearly all, a few clients are still let in."""
    assert is_of_reserve(fd, 400, clients) is refused
