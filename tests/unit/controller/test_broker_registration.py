"""How a broker joins its cluster."""

from __future__ import annotations

import json
import re

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_registration import (
    broker_end_points,
    ensure_cluster_id,
    ensure_persistent_paths,
    generate_broker_id,
    live_brokers,
    random_uuid,
    register_broker,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import NoNodeError
from ottla.structs import EndPoint, Node

END_POINTS = [
    EndPoint("SECURE", "SSL", "outside", 9091),
    EndPoint("CLIENT", "PLAINTEXT", "outside", 9092),
    EndPoint("INTERNAL", "PLAINTEXT", "::1", 9093),
]


def test_persistent_paths_are_made_in_one_write(world, monkeypatch):
    """A new cluster made 24 writes of them; what others have made meanwhile is as good."""
    registry, writes = world.registry, []
    multi = registry.multi

    async def counted(operations):
        writes.append(len(operations))
        return await multi(operations)

    monkeypatch.setattr(registry, "multi", counted)
    monkeypatch.setattr(paths, "PERSISTENT", ("/new/a", "/new/b/c"))
    world.run(ensure_persistent_paths(registry))
    world.run(ensure_persistent_paths(registry))
    assert writes == [len(["/new", "/new/a", "/new/b", "/new/b/c"])]

    async def not_yet(path):
        return None

    monkeypatch.setattr(paths, "PERSISTENT", ("/new/a", "/new/d"))
    monkeypatch.setattr(registry, "exists", not_yet)
    world.run(ensure_persistent_paths(registry))
    assert world.run(registry.children("/new")) == ["a", "b", "d"]


def test_cluster_id_is_made_once(world):
    """22 characters of URL-safe base64, the same ever after."""
    first = world.run(ensure_cluster_id(world.registry, world.runtime.random.getrandbits))
    world.restart()

    assert re.fullmatch(r"[a-zA-Z0-9_][a-zA-Z0-9_-]{21}", first)
    assert world.run(ensure_cluster_id(world.registry, world.runtime.random.getrandbits)) == first
    assert json.loads(world.data("/cluster/id")) == {"version": "1", "id": first}


def test_brokers_that_start_together_have_one_cluster_id(world, monkeypatch):
    """That of the one whose node is there first."""
    registry, bits = world.registry, world.runtime.random.getrandbits
    get, asked = registry.get, []

    async def nothing_there_yet(path):
        if path == paths.CLUSTER_ID and not asked:
            asked.append(path)
            raise NoNodeError(path)
        return await get(path)

    first = world.run(ensure_cluster_id(registry, bits))
    monkeypatch.setattr(registry, "get", nothing_there_yet)

    assert world.run(ensure_cluster_id(registry, bits)) == first
    assert asked


def test_random_id_does_not_look_like_an_option():
    """Command lines take what begins with a dash for one."""
    numbers = [62 << 122, 62 << 122, 61 << 122]

    assert random_uuid(lambda bits: numbers.pop(0)).int >> 122 == 61
    assert numbers == []


def test_broker_that_goes_while_brokers_are_read_is_none_of_them(world, monkeypatch):
    """The others are read all the same."""
    registry, get = world.registry, world.registry.get
    for broker_id in (5, 6, 7):
        world.run(register_broker(registry, broker_id, END_POINTS, 0))

    async def gone_by_now(path):
        if path == paths.broker(6):
            raise NoNodeError(path)
        return await get(path)

    monkeypatch.setattr(registry, "get", gone_by_now)

    assert {5, 7} == set(world.run(live_brokers(registry))) - {0}


def test_generated_broker_ids_begin_above_the_reserved_ones(world):
    """Each is given out once, also after a restart."""
    config = BrokerConfig()
    first = world.run(generate_broker_id(world.registry, config))
    world.restart()

    assert first == 1001
    assert world.run(generate_broker_id(world.registry, config)) == 1002


def test_registration_shows_all_listeners(world):
    """Each reader finds the one that it uses."""
    world.run(register_broker(world.registry, 7, END_POINTS, 1565, rack="r1"))
    data = world.data("/brokers/ids/7")

    node = json.loads(data)
    assert node["endpoints"] == [
        "SECURE://outside:9091",
        "CLIENT://outside:9092",
        "INTERNAL://[::1]:9093",
    ]
    assert (node["host"], node["port"]) == ("outside", 9092), "clients before 0.9 speak plaintext"
    live = world.run(live_brokers(world.registry))
    assert list(live) == [0, 7]
    assert live[7] == broker_end_points(7, data, live[7].epoch)
    assert live[7].node("INTERNAL") == Node(7, "::1", 9093, "r1")
    assert live[7].node("OTHER") is None


def test_second_broker_of_an_id_is_refused(world):
    """The first one is not disturbed."""
    with pytest.raises(KafkaError, match=r"broker\.id=0") as caught:
        world.run(register_broker(world.registry, 0, END_POINTS, 0))

    assert caught.value.error is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_broker_epoch_grows_with_each_registration(world):
    """What an older life of the broker was told can be told apart (KIP-380)."""
    first = world.run(register_broker(world.registry, 7, END_POINTS, 0))
    world.restart()
    second = world.run(register_broker(world.registry, 7, END_POINTS, 0))

    assert second > first


@pytest.mark.parametrize("text", [b"nowhere", b"CLIENT://host", b"CLIENT://host:http"])
def test_registration_without_end_points_is_unreadable(text):
    """Somebody else wrote it."""
    with pytest.raises(KafkaError, match="broker 3 is not readable"):
        broker_end_points(3, b'{"endpoints":["%s"],"version":4}' % text, 1)
