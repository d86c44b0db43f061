"""ACLs in the registry, as Kafka has them there."""

from __future__ import annotations

import asyncio
import json

import pytest

from ottla.registry.acl_store import (
    SLICE_BINDINGS,
    AclStore,
    acl_path,
    decode_acl_change,
    decode_acls,
    encode_acl_change,
    encode_acls,
)
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import (
    RegistryFailedError,
    SessionEndedError,
    SessionState,
    create_or_set,
)
from ottla.runtime.scheduler import at_once
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclTable,
    PatternType,
    Resource,
    ResourcePattern,
    ResourceType,
)
from ottla.security.principal import KafkaPrincipal
from ottla.testing import mock_runtime

BOB = KafkaPrincipal.user("bob")
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
LOGS = ResourcePattern(ResourceType.TOPIC, "logs-", PatternType.PREFIXED)
SEEN = (
    b'{"acls":[{"principal":"User:bob","permissionType":"Allow","host":"*","operation":"Read"}],'
    b'"version":1}'
)
"""What Kafka 3.9.1 wrote."""


def acl(pattern: ResourcePattern, operation: AclOperation = AclOperation.READ) -> AclBinding:
    entry = AccessControlEntry("User:bob", "*", operation, AclPermissionType.ALLOW)
    return AclBinding(pattern, entry)


class World:
    """A registry, and the ACLs of two brokers that share it."""

    def __init__(self) -> None:
        self.runtime = mock_runtime()
        self.run = self.runtime.scheduler.run
        self.registry = EmbeddedRegistry(self.runtime, "/data/registry")
        self.run(self.registry.start())
        self.store, self.other = (
            AclStore(self.runtime, self.registry, AclTable()) for _ in range(2)
        )
        self.run(self.store.start())
        self.run(self.other.start())

    def add(self, *bindings: AclBinding) -> None:
        assert set(self.run(self.store.add(bindings)).values()) == {None}
        self.runtime.scheduler.run_ready()

    def notify(self, path: str, data: bytes) -> None:
        self.run(self.registry.create(f"{path}/acl_changes_", data, sequential=True))
        self.runtime.scheduler.run_ready()

    def may_read(self, store: AclStore, topic: str = "orders") -> bool:
        resource = Resource(ResourceType.TOPIC, topic)
        return store.table.is_allowed(BOB, "10.0.0.1", AclOperation.READ, resource)


@pytest.fixture
def world() -> World:
    """No ACLs yet."""
    return World()


def test_nodes_are_those_of_kafka(world):
    """Paths, JSON, and the notifications of both kinds."""
    world.add(acl(ORDERS), acl(LOGS))
    get = world.registry.get

    assert world.run(get("/kafka-acl/Topic/orders"))[0] == SEEN
    assert world.run(get("/kafka-acl-extended/prefixed/Topic/logs-"))[0] == SEEN
    assert world.run(get("/kafka-acl-changes/acl_changes_0000000000"))[0] == b"TOPIC:orders"
    changed, _ = world.run(get("/kafka-acl-extended-changes/acl_changes_0000000000"))
    assert json.loads(changed) == {
        "version": 1,
        "resourceType": "TOPIC",
        "name": "logs-",
        "patternType": "PREFIXED",
    }


def test_other_broker_follows(world):
    """What one broker adds and removes counts on the other."""
    world.add(acl(ORDERS), acl(LOGS))
    assert world.may_read(world.other)
    assert world.may_read(world.other, "logs-web")

    (removed,) = world.run(world.store.remove([AclBindingFilter(principal="User:bob")]))
    world.runtime.scheduler.run_ready()

    assert removed == {acl(ORDERS): None, acl(LOGS): None}
    assert not world.may_read(world.other)
    assert not world.may_read(world.other, "logs-web")
    assert world.run(world.registry.exists("/kafka-acl/Topic/orders")) is None


def test_acls_that_kafka_wrote_count_from_the_start(world):
    """Words in any case; the types of resource that a later Kafka may add are passed over."""
    lower = SEEN.replace(b'"Read"', b'"read"').replace(b'"Allow"', b'"ALLOW"')
    world.run(world.registry.create("/kafka-acl/Topic/orders", lower))
    world.run(world.registry.create("/kafka-acl/Planet", b""))
    fresh = AclStore(world.runtime, world.registry, AclTable())
    world.run(fresh.start())

    assert list(fresh.table) == [acl(ORDERS)]


def test_notification_of_kafka_2_3_is_followed(world):
    """It writes the type as Topic, later ones as TOPIC."""
    world.run(create_or_set(world.registry, "/kafka-acl/Topic/orders", SEEN))
    assert not world.may_read(world.other)
    world.notify("/kafka-acl-changes", b"Topic:orders")

    assert world.may_read(world.other)
    assert decode_acl_change("x", b"TRANSACTIONAL_ID:a:b") == ResourcePattern(
        ResourceType.TRANSACTIONAL_ID, "a:b"
    )


def test_acl_that_is_there_already_is_not_written_again(world):
    """An ACL that is there already is not written again, and no change is announced."""
    world.add(acl(ORDERS))
    world.add(acl(ORDERS))

    assert world.run(world.registry.exists(acl_path(ORDERS))).version == 0
    assert len(world.run(world.registry.children("/kafka-acl-changes"))) == 1


def test_change_of_another_broker_is_not_overwritten(world, monkeypatch):
    """The node was written between the read and the write: it is read once more."""
    world.add(acl(ORDERS))
    registry, get = world.registry, world.registry.get
    written = acl(ORDERS, AclOperation.WRITE)

    async def get_then_lose(path: str) -> object:
        found = await get(path)
        monkeypatch.setattr(registry, "get", get)
        await world.other.add([written])
        return found

    monkeypatch.setattr(registry, "get", get_then_lose)
    world.add(acl(ORDERS, AclOperation.DELETE))

    assert set(world.store.table) == {
        acl(ORDERS),
        acl(ORDERS, AclOperation.DELETE),
        written,
    }


def test_unreadable_node_denies_everybody(world, caplog):
    """It may have held a denial; on a broker that knows the ACLs of before they stay."""
    world.add(acl(ORDERS))
    world.run(world.registry.set(acl_path(ORDERS), b"nonsense"))
    world.notify("/kafka-acl-changes", b"TOPIC:orders")
    fresh = AclStore(world.runtime, world.registry, AclTable(allow_everyone_if_no_acl_found=True))
    world.run(fresh.start())

    assert world.may_read(world.store)
    assert not world.may_read(fresh)
    assert "everybody is denied" in caplog.text


def test_acls_stay_in_force_while_the_registry_is_away(world, monkeypatch):
    """Nothing is newly denied and nothing newly open; they are read again with a new session."""
    world.add(acl(ORDERS), acl(LOGS))
    read_names = world.registry.children

    async def fail(path: str) -> list[str]:
        raise SessionEndedError(f"{path}: no server answers")

    world.run(world.registry.delete(acl_path(ORDERS)))
    monkeypatch.setattr(world.registry, "children", fail)
    for changes in world.store._changes:
        changes._on_session(SessionState.RENEWED)
    world.runtime.scheduler.run_ready()
    assert world.may_read(world.store)
    assert world.may_read(world.store, "logs-web")

    monkeypatch.setattr(world.registry, "children", read_names)
    world.runtime.advance(2_000)

    assert not world.may_read(world.store)
    assert world.may_read(world.store, "logs-web")


def test_failed_write_is_told_and_changes_nothing(world, monkeypatch):
    """The ACL does not count where it was not written."""

    async def fail(path: str, data: bytes, **options: object) -> str:
        raise RegistryFailedError("no server answers")

    monkeypatch.setattr(world.registry, "create", fail)
    outcomes = world.run(world.store.add([acl(ORDERS)]))

    assert isinstance(outcomes[acl(ORDERS)], RegistryFailedError)
    assert not world.may_read(world.store)


def test_empty_node_has_no_acls():
    """Kafka's tools of old left such."""
    assert at_once(decode_acls("/kafka-acl/Topic/t", b"")) == frozenset()


def many(pattern: ResourcePattern) -> list[AclBinding]:
    """So many principals that the node is read and written in slices."""
    read = (AclOperation.READ, AclPermissionType.ALLOW)
    return [
        AclBinding(pattern, AccessControlEntry(f"User:u{number}", "*", *read))
        for number in range(2 * SLICE_BINDINGS + 1)
    ]


def test_node_of_very_many_principals_is_read_and_written_in_slices():
    """Each change of the ACLs of one resource took 0.1 s where it had ten thousand."""
    entries = frozenset(entry for _, entry in many(ORDERS))
    data = at_once(encode_acls(entries))

    assert at_once(decode_acls("/kafka-acl/Topic/orders", data)) == entries
    assert len(list(encode_acls(entries))) == 2
    assert len(list(decode_acls("/kafka-acl/Topic/orders", data))) == 2


def test_no_acl_is_forgotten_while_an_older_node_is_read_in_slices(world):
    """A notification is followed at any moment of a change: it counts from its answer on."""
    world.run(world.store.add(many(ORDERS)))
    change = encode_acl_change(ORDERS)

    async def play(turns: int) -> None:
        entry = AccessControlEntry(
            "User:bob", f"10.0.0.{turns}", AclOperation.READ, AclPermissionType.ALLOW
        )
        adding = asyncio.ensure_future(world.store.add([AclBinding(ORDERS, entry)]))
        for _ in range(turns):
            await asyncio.sleep(0)
        reading = asyncio.ensure_future(world.store._read_change("/kafka-acl-changes/x", change))
        await adding
        await reading
        assert entry in world.store.table.entries(ORDERS)

    for turns in range(20):
        world.run(play(turns))
    world.runtime.advance(1_000)
    assert world.other.table.entries(ORDERS) == world.store.table.entries(ORDERS)
    assert len(world.store.table.entries(ORDERS)) == len(many(ORDERS)) + 20
