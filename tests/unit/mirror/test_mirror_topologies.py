"""One topology for each row of mirrors: what docs/use/mirror.md draws is run here."""

from __future__ import annotations

import random
import re
import socket
from pathlib import Path

import pytest
from cut_network import CLIENT, CutNetwork, Road
from mirrors import mirroring, values

from ottla import Consumer, Producer, TopicPartition
from ottla.testing import InProcessBroker, wait_until

PAGE = Path(__file__).parents[3] / "docs" / "use" / "mirror.md"
COUNT = 1000


@pytest.fixture
def three():
    """The clusters lisbon, porto and centre."""
    with InProcessBroker() as lisbon, InProcessBroker() as porto, InProcessBroker() as centre:
        yield {"lisbon": lisbon, "porto": porto, "centre": centre}


@pytest.fixture
def network():
    """Proxies whose links can be cut."""
    found = CutNetwork()
    yield found
    found.close()


def test_each_topology_of_the_page_is_run():
    """Each row of the table names a test that is here, or has the one above."""
    text = PAGE.read_text(encoding="utf-8")
    sources = [Path(__file__), Path(__file__).parent / "test_mirror_maker.py"]
    tests = "".join(source.read_text(encoding="utf-8") for source in sources)

    table = text.partition("| topology | shown by |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = table.splitlines()
    assert len(rows) == 10
    assert all("`test_" in row or row.endswith("| the same |") for row in rows)
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in tests, name


def test_sites_are_apart_and_an_aggregate_has_all(three, produce):
    """Applications write to their own site; mirrors carry it to the centre."""
    three["lisbon"].create_topic("pages", partitions=1)
    three["porto"].create_topic("pages", partitions=3)
    flows = {"lisbon_to_porto_enabled": "false", "lisbon_to_centre_enabled": "true"}
    flows |= {"porto_to_centre_enabled": "true", "topics": "pages"}

    with mirroring(three, **flows):
        produce(three["lisbon"], "pages", range(COUNT))
        produce(three["porto"], "pages", range(COUNT), partition=2)
        three["centre"].wait_for_records("lisbon.pages", COUNT)
        three["centre"].wait_for_records("porto.pages", COUNT)

    expected = [str(number) for number in range(COUNT)]
    assert values(three["centre"], "lisbon.pages") == expected
    assert values(three["centre"], "porto.pages", 2) == expected
    assert values(three["lisbon"], "pages") == values(three["porto"], "pages") == expected
    assert "lisbon.pages" not in three["porto"].topics()


def test_offline_cluster_feeds_batch_loads(three, produce):
    """Live sites to an offline one, from which loads read by group."""
    flows = {"lisbon_to_porto_enabled": "false", "lisbon_to_centre_enabled": "true"}
    flows |= {"porto_to_centre_enabled": "true", "topics": "pages"}
    produce(three["lisbon"], "pages", range(COUNT))
    produce(three["porto"], "pages", range(COUNT))
    settings = {"group_id": "warehouse", "auto_offset_reset": "earliest"}

    with mirroring(three, **flows):
        three["centre"].wait_for_records("lisbon.pages", COUNT)
        three["centre"].wait_for_records("porto.pages", COUNT)
    with Consumer(three["centre"].bootstrap_servers, **settings) as load:
        load.subscribe(pattern=r"\w+\.pages")
        loaded = []
        wait_until(
            lambda: len(loaded) >= 2 * COUNT,
            "the load",
            meanwhile=lambda: loaded.extend(load.poll(200)),
        )

    assert {record.topic for record in loaded} == {"lisbon.pages", "porto.pages"}
    assert len(loaded) == 2 * COUNT


def behind_proxy(network, name):
    """A broker that all clients reach by a proxy of its own."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    proxy = network.proxy(name, lambda: port)
    return InProcessBroker(
        listeners=f"PLAINTEXT://127.0.0.1:{port}",
        advertised_listeners=f"PLAINTEXT://127.0.0.1:{proxy}",
    )


def test_cut_link_is_caught_up(network, produce):
    """The link is cut under load: the lag grows, and is 0 again later; nothing is lost."""
    with InProcessBroker() as a, behind_proxy(network, "b") as b:
        produce(a, "pages", range(COUNT))
        with mirroring({"a": a, "b": b}, topics="pages") as mirror:
            b.wait_for_records("a.pages", COUNT)
            network.isolate(CLIENT, "b")
            produce(a, "pages", range(COUNT, 3 * COUNT))
            wait_until(
                lambda: (mirror.statuses()[0].lag or 0) >= 2 * COUNT, "lag", seen=mirror.statuses
            )
            assert len(b.records("a.pages")) == COUNT
            network.heal()
            b.wait_for_records("a.pages", 3 * COUNT)
            wait_until(lambda: mirror.statuses()[0].lag == 0, "no lag", seen=mirror.statuses)
        copied = values(b, "a.pages")

    assert copied == [str(number) for number in range(3 * COUNT)]


def test_link_that_was_reset_is_caught_up(network, produce):
    """Connections that end under load repeat nothing: the producer's sequence numbers see to it."""
    with (
        InProcessBroker() as a,
        behind_proxy(network, "b") as b,
        mirroring({"a": a, "b": b}, topics="pages"),
    ):
        for round_number in range(5):
            first = round_number * COUNT
            produce(a, "pages", range(first, first + COUNT))
            network.reset(CLIENT, "b")
        b.wait_for_records("a.pages", 5 * COUNT)
        copied = values(b, "a.pages")

    assert copied == [str(number) for number in range(5 * COUNT)]


def test_group_continues_at_the_passive_cluster(two, produce):
    """The active cluster dies: its group reads on at the passive one, and loses nothing."""
    settings = {"group_id": "reports", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    produce(two["a"], "pages", range(COUNT))
    with mirroring(two, topics="pages", sync_group_offsets_enabled="true"):
        with Consumer(two["a"].bootstrap_servers, topics=["pages"], **settings) as reader:
            read = []
            wait_until(
                lambda: len(read) >= COUNT // 2,
                "half of the records",
                meanwhile=lambda: read.extend(reader.poll(200)),
            )
            reader.commit()
        seen = {int(record.value) for record in read}
        two["b"].wait_for_records("a.pages", COUNT)
        wait_until(lambda: two["b"].committed("reports"), "the group at the passive cluster")
    two["a"].kill()

    with Consumer(two["b"].bootstrap_servers, topics=["a.pages"], **settings) as reader:
        rest = []
        (start,) = two["b"].committed("reports").values()
        wait_until(
            lambda: len(rest) >= COUNT - start,
            "the rest",
            meanwhile=lambda: rest.extend(reader.poll(200)),
        )

    assert seen | {int(record.value) for record in rest} == set(range(COUNT))
    assert start <= len(seen)


def test_both_clusters_are_active(two, produce):
    """Each site has its own records and a copy of the other's, and names do not grow."""
    flows = {"b_to_a_enabled": "true", "topics": "pages"}

    with mirroring(two, **flows):
        produce(two["a"], "pages", ["lisbon"])
        produce(two["b"], "pages", ["porto"])
        two["b"].wait_for_records("a.pages", 1)
        two["a"].wait_for_records("b.pages", 1)
        for broker, copy in ((two["a"], "b.heartbeats"), (two["b"], "a.heartbeats")):
            broker.wait_for_records(copy, 2)

    mine = [name for name in two["a"].topics() if "pages" in name]
    theirs = [name for name in two["b"].topics() if "pages" in name]
    assert (sorted(mine), sorted(theirs)) == (["b.pages", "pages"], ["a.pages", "pages"])
    beats = [name for name in two["a"].topics() if name.endswith("heartbeats")]
    assert sorted(beats) == ["b.heartbeats", "heartbeats"]


def test_remote_clients_work_over_a_slow_link(network):
    """Producing and consuming from far away, with buffers for the distance."""
    road = Road(0.05, 20e6, 0.0, random.Random(7))
    with behind_proxy(network, "far") as far:
        network.slow(road, (CLIENT, "far"), ("far", CLIENT))
        servers = far.bootstrap_servers
        with Producer(servers, send_buffer_bytes=2 << 20, linger_ms=20) as producer:
            for number in range(COUNT):
                producer.send("pages", str(number), partition=0)
        settings = {"receive_buffer_bytes": 2 << 20, "auto_offset_reset": "earliest"}
        with Consumer(servers, **settings) as consumer:
            consumer.assign([TopicPartition("pages", 0)])
            read = []
            wait_until(
                lambda: len(read) >= COUNT,
                "all records",
                meanwhile=lambda: read.extend(consumer.poll(200)),
            )

    assert [int(record.value) for record in read] == list(range(COUNT))


def test_identity_mirror_keeps_names(two, produce):
    """Active/passive with equal names: applications move without a change."""
    produce(two["a"], "pages", range(10))
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"

    with mirroring(two, topics="pages", replication_policy_class=policy):
        two["b"].wait_for_records("pages", 10)

    assert values(two["b"], "pages") == [str(number) for number in range(10)]
