"""What the authorizer logs, counts, and lets pass."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rights_world import acl

from ottla.config.broker_config import BrokerConfig
from ottla.extensions.rights.authorizer import REPEAT_MS, SUM_MS, Authorizer
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.header import RequestHeader
from ottla.registry.acl_store import AclStore
from ottla.registry.embedded import EmbeddedRegistry
from ottla.security.acls import (
    CLUSTER,
    AclBindingFilter,
    AclOperation,
    AclTable,
    Resource,
    ResourceType,
)
from ottla.security.principal import KafkaPrincipal
from ottla.testing import mock_runtime

ORDERS = Resource(ResourceType.TOPIC, "orders")
READ = AclOperation.READ


class World:
    """An authorizer with a mode, and a client of it."""

    def __init__(self, mode: str = "enforce") -> None:
        self.runtime = mock_runtime()
        self.registry = EmbeddedRegistry(self.runtime, "/data/registry")
        self.runtime.scheduler.run(self.registry.start())
        config = BrokerConfig(
            authorizer_class_name="kafka.security.auth.SimpleAclAuthorizer", authorizer_mode=mode
        )
        self.authorizer = Authorizer(self.runtime, self.registry, config)
        self.runtime.scheduler.run(self.authorizer.start())
        self.eve = SimpleNamespace(
            principal=KafkaPrincipal.user("eve"),
            client_host="127.0.0.1",
            header=RequestHeader(int(ApiKey.LIST_OFFSETS), 0, 1, "eve"),
        )

    def may_read(self, *names: str) -> bool:
        """One request that names these topics; "orders" unless named."""
        self.eve.header = RequestHeader(int(ApiKey.LIST_OFFSETS), 0, 1, "eve")
        topics = [Resource(ResourceType.TOPIC, name) for name in names] or [ORDERS]
        allowed = [self.authorizer.authorize(self.eve, READ, topic) for topic in topics]
        return all(allowed)


def denials(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.message for line in caplog.records if " is Denied " in line.message]


def test_denial_is_logged_as_kafka_does_once_a_minute(caplog):
    """Clients that were denied ask again and again; each is counted."""
    caplog.set_level("INFO")
    world = World()
    assert [world.may_read() for _ in range(3)] == [False] * 3
    assert denials(caplog) == [
        "Principal = User:eve is Denied Operation = Read from host = 127.0.0.1 on resource = "
        "Topic:LITERAL:orders for request = ListOffsets"
    ]
    world.runtime.advance(REPEAT_MS)
    world.may_read()
    world.may_read()

    assert len(denials(caplog)) == 2
    assert world.authorizer.denied_count == 5


def test_memory_of_what_was_logged_is_bounded(caplog, monkeypatch):
    """Beyond its bound all is forgotten, and logged once more."""
    monkeypatch.setattr("ottla.extensions.rights.authorizer.MAX_REMEMBERED", 3)
    caplog.set_level("INFO")
    world = World()
    for name in ("a", "b", "c", "a", "d", "a", "d"):
        world.may_read(name)

    found = [line.partition("LITERAL:")[2][0] for line in denials(caplog)]
    assert found == ["a", "b", "c", "d", "a"]


def test_each_second_has_its_own_sum_of_denied_names(caplog):
    """The first one was the last for as long as its names were kept."""
    caplog.set_level("INFO")
    world = World()
    for names in ("abc", "def"):
        world.may_read(*names)
        world.runtime.advance(SUM_MS)

    assert ["2 more of Topic" in line for line in denials(caplog)] == [False, True] * 2


def test_changes_of_acls_are_followed_until_the_authorizer_stops():
    """Whoever is allowed something later is served later, on every broker."""
    world = World()
    other = AclStore(world.runtime, world.registry, AclTable())
    run = world.runtime.scheduler.run
    run(other.start())
    run(other.add([acl(READ, *ORDERS, "User:eve")]))
    world.runtime.advance(10)
    assert world.may_read()
    world.authorizer.stop()
    run(other.remove([AclBindingFilter()]))
    world.runtime.advance(10)

    assert world.may_read()


def test_names_that_are_denied_in_a_request_have_two_lines(caplog):
    """The first of them, and how many more there were: a log does not grow with a request."""
    caplog.set_level("INFO")
    world = World()
    world.may_read(*(f"{number}-{'x' * 300}" for number in range(5_000)))
    world.may_read("a", "b", "c")
    world.runtime.advance(SUM_MS)
    world.may_read("d")

    lines = denials(caplog)
    assert [line.partition(" on ")[2][:40] for line in lines] == [
        "resource = Topic:LITERAL:0-" + "x" * 13,
        "resource = Topic:LITERAL:a for request =",
        "4999 more of Topic for request = ListOff",
        "2 more of Topic for request = ListOffset",
        "resource = Topic:LITERAL:d for request =",
    ]
    assert max(map(len, lines)) < 400
    assert world.authorizer.denied_count == 5_004


def test_mode_log_says_what_it_would_deny_and_serves(caplog):
    """Mode log serves, and says so at the start, or somebody would believe that ACLs hold."""
    caplog.set_level("INFO")
    world = World("log")

    assert "authorizer.mode=log: requests that ACLs deny are SERVED" in caplog.text
    assert world.may_read()
    assert world.authorizer.shows(world.eve, ORDERS, READ)
    assert denials(caplog)[0].endswith("and served (authorizer.mode=log)")
    assert world.authorizer.denied_count == 1


def test_refused_broker_is_told_of_with_what_to_do(caplog):
    """Its cluster stands still until it is a super user."""
    world = World()

    assert not world.authorizer.authorize_broker(world.eve)
    assert not world.authorizer.authorize_broker(world.eve)
    (error,) = (line.message for line in caplog.records if line.levelname == "ERROR")
    assert "User:eve" in error
    assert "super.users" in error
    allowed = acl(AclOperation.CLUSTER_ACTION, *CLUSTER, "User:eve")
    world.authorizer.table.add([allowed])
    assert world.authorizer.authorize_broker(world.eve)


def test_list_that_leaves_something_out_logs_nothing(caplog):
    """A client with a pattern of topics would fill the log."""
    caplog.set_level("INFO")
    world = World()

    assert not world.authorizer.shows(world.eve, ORDERS, READ)
    assert world.authorizer.operations(world.eve, ORDERS) == 0
    assert not denials(caplog)


def test_denials_of_long_names_that_look_the_same_are_one(caplog):
    """The log has their beginnings, and no more of them is remembered."""
    caplog.set_level("INFO")
    world = World()
    for name in ("x" * 30_000, "x" * 30_000 + "y", "y" * 200, "y" * 201):
        world.may_read(name)

    assert [len(line.partition("LITERAL:")[2].split()[0]) for line in denials(caplog)] == [200] * 2
    assert all(len(resource.name) <= 200 for _, _, resource in world.authorizer._logged)


def test_clients_that_are_no_brokers_are_remembered_up_to_a_bound(caplog, monkeypatch):
    """Beyond it all are forgotten, and told once more."""
    monkeypatch.setattr("ottla.extensions.rights.authorizer.MAX_REMEMBERED", 2)
    world = World()
    for name in ("a", "b", "a", "c", "a"):
        world.eve.principal = KafkaPrincipal.user(name)
        assert not world.authorizer.authorize_broker(world.eve)

    told = [line.message for line in caplog.records if "only brokers may ask" in line.message]
    assert [line[len("User:")] for line in told] == ["a", "b", "c", "a"]
