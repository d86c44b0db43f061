"""Limits of clients: whose limit counts, and how long they wait beyond it."""

from __future__ import annotations

import logging

import pytest

from ottla.extensions.quotas.budget import ClientQuota
from ottla.network.rate import Rate
from ottla.structs import ClientEntity

APP = ClientEntity(client_id="app")


def new_rate() -> Rate:
    """Kafka's windows: 11 samples of one second."""
    return Rate(11, 1000)


def quota(default: float | None = None, **options: int) -> ClientQuota:
    return ClientQuota("producer_byte_rate", new_rate, default, **options)


LEVELS = [
    ClientEntity("alice", "app"),
    ClientEntity("alice", ""),
    ClientEntity("alice"),
    ClientEntity("", "app"),
    ClientEntity("", ""),
    ClientEntity(""),
    ClientEntity(client_id="app"),
    ClientEntity(client_id=""),
]


def test_most_specific_of_eight_levels_counts():
    """Each level stands behind those before it, whatever its value is."""
    limits = quota()
    for rank, entity in reversed(list(enumerate(LEVELS, 1))):
        limits.update(entity, rank)
        assert limits.budget(("alice", "app")).limit == rank
    for rank, entity in enumerate(LEVELS, 1):
        assert limits.budget(("alice", "app")).limit == rank
        limits.update(entity, None)
    assert limits.budget(("alice", "app")) is None
    assert not limits.is_active


@pytest.mark.parametrize(
    ("level", "owner"),
    [
        (LEVELS[0], ClientEntity("alice", "app")),
        (LEVELS[1], ClientEntity("alice", "app")),
        (LEVELS[2], ClientEntity("alice")),
        (LEVELS[3], ClientEntity("alice", "app")),
        (LEVELS[4], ClientEntity("alice", "app")),
        (LEVELS[5], ClientEntity("alice")),
        (LEVELS[6], ClientEntity(client_id="app")),
        (LEVELS[7], ClientEntity(client_id="app")),
    ],
)
def test_budget_is_shared_by_the_tags_of_the_level(level, owner):
    """A default gives each user, client or pair a budget of its own."""
    limits = quota()
    limits.update(level, 5)
    assert limits.budget(("alice", "app")).entity == owner
    others = {("alice", "app2"), ("bob", "app"), ("bob", "app2")}
    shared = {each for each in others if limits.budget(each) is limits.budget(("alice", "app"))}
    if owner.client_id is None:
        assert shared == {("alice", "app2")}
    elif owner.user is None:
        assert shared == {("bob", "app")}
    else:
        assert not shared


def test_client_without_an_id_is_held_to_the_default():
    """Leaving the id out is no way round a limit."""
    limits = quota()
    limits.update(ClientEntity(client_id=""), 5)
    assert limits.budget(("alice", "")).limit == 5


def test_static_default_stands_behind_all_others():
    """quota.producer.default of Kafka 2.3 is for client ids without a limit of their own."""
    limits = quota(default=100)
    assert limits.is_active
    assert limits.budget(("alice", "app")).limit == 100
    assert limits.budget(("bob", "app")) is limits.budget(("alice", "app"))
    limits.update(ClientEntity(client_id=""), 7)
    assert limits.budget(("alice", "app")).limit == 7


def test_changed_limit_is_in_force_at_once_and_keeps_what_was_used():
    """The same bytes are too many for the new limit."""
    limits = quota()
    limits.update(ClientEntity("alice"), 1000)
    assert limits.charge(limits.budget(("alice", "app")), 5000, 0) == 0
    limits.update(ClientEntity("alice"), 250)
    assert limits.charge(limits.budget(("alice", "app")), 0, 0) == 10_000


def test_delay_can_have_an_end():
    """Request quotas hold a client for one window at most, as in Kafka."""
    limits = quota(max_delay_ms=1000)
    limits.update(ClientEntity("alice"), 1)
    assert limits.charge(limits.budget(("alice", "app")), 5000, 0) == 1000


def test_throttled_client_is_logged_once_a_minute(caplog):
    """Otherwise nobody would see why it is slow."""
    limits = quota()
    limits.update(ClientEntity("alice", "app"), 1)
    budget = limits.budget(("alice", "app"))
    with caplog.at_level(logging.INFO):
        for now_ms in (0, 1000, 60_000):
            limits.charge(budget, 50, now_ms)
    assert [record.getMessage() for record in caplog.records] == [
        "user alice client app is over producer_byte_rate=1, and waits for 40000 ms",
        "user alice client app is over producer_byte_rate=1, and waits for 40000 ms",
    ]
