"""A broker in the test's own process: its life, what it is asked, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading

import pytest

from ottla import Consumer, KafkaError, Producer
from ottla.errors import ConfigError
from ottla.extensions.measures.measures import Measures
from ottla.structs import TopicPartition
from ottla.testing import InProcessBroker, InProcessCluster, NeverHappenedError, wait_until
from ottla.testing.live_brokers import CollectorPause


def send(broker: InProcessBroker, topic: str, *values: bytes, **settings: str) -> None:
    """Send values and wait until they are stored."""
    with Producer(broker.bootstrap_servers, **settings) as producer:
        for future in [producer.send(topic, value) for value in values]:
            future.result()


def values(broker: InProcessBroker, topic: str, **how: str) -> list[bytes]:
    """The values of the topic's records."""
    return [record.value for record in broker.records(topic, **how)]


def descriptors() -> set[str]:
    """What the process has open."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:
            pass  # the descriptor of the listing itself
    return found


def collect_garbage() -> None:
    """What is left is not looked at again: in the middle of a suite it is a million objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["memory", "disk"])
def data_dir(request, tmp_path):
    """Where a broker has its data: None is in memory."""
    return tmp_path / "data" if request.param == "disk" else None


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_nothing_is_left_behind(data_dir, end):
    """No thread, descriptor or listener is left, however it ends, also with a client connected."""
    collect_garbage()
    threads, before = set(threading.enumerate()), descriptors()
    broker = InProcessBroker(data_dir).start()
    address = ("127.0.0.1", broker.port)
    with socket.create_connection(address) as client:
        send(broker, "t", b"1")
        getattr(broker, end)()
        assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    collect_garbage()

    assert set(threading.enumerate()) <= threads  # of earlier tests some may have ended
    # Threads of earlier tests may have connections that come and go.
    wait_until(lambda: descriptors() <= before, "no descriptor of the broker's", seen=descriptors)


def test_end_right_after_the_start():
    """A broker that ends while it still makes the coordinators' topics leaves nothing, either."""
    threads = set(threading.enumerate())
    for end in (InProcessBroker.stop, InProcessBroker.kill) * 5:
        end(InProcessBroker().start())

    assert set(threading.enumerate()) <= threads  # of earlier tests some may have ended


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_records_are_there_after_a_restart(data_dir, end):
    """What was stored, and the port, outlive a clean stop and a kill."""
    with InProcessBroker(data_dir) as broker:
        send(broker, "t", b"1", b"2")
        servers = broker.bootstrap_servers
        getattr(broker, end)()
        assert not broker.is_running
        broker.start()

        assert broker.bootstrap_servers == servers
        assert values(broker, "t") == [b"1", b"2"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InProcessBroker({"num.partitions": 3}), r"data_dir=\{'num.partitions': 3\}: must"),
        (lambda: InProcessBroker(config={}), r"config=\{\}: a broker has no setting config;"),
        (lambda: InProcessBroker(num_partition_s=3), "a broker has no setting num.partition.s;"),
        (lambda: InProcessCluster({"num.partitions": 3}), r"brokers=\{'num.partitions': 3\}: must"),
        (lambda: InProcessCluster(config={}), r"config=\{\}: a broker has no setting config;"),
    ],
)
def test_what_is_no_setting_is_refused(make, message):
    """A mapping in the place of a directory, and a keyword that no broker knows, at once."""
    with pytest.raises(TypeError, match=message):
        make()


def test_settings_of_listeners_and_plug_ins_are_taken():
    """A listener's as keywords, and one that only a plug-in knows under its name with dots."""
    broker = InProcessBroker(
        listener_name_plaintext_ssl_client_auth="none", **{"audit.sink.url": "http://audit"}
    )
    assert broker.settings["listener.name.plaintext.ssl.client.auth"] == "none"
    assert broker.settings["audit.sink.url"] == "http://audit"


def test_broker_that_cannot_start_leaves_nothing(tmp_path):
    """The error is the broker's own; no thread stays, and the directory can be used."""
    threads = set(threading.enumerate())
    with pytest.raises(ConfigError, match=r"log\.retention\.bytes"):
        InProcessBroker(tmp_path, log_retention_bytes="much").start()
    with InProcessBroker(tmp_path) as first, pytest.raises(ConfigError, match="has locked it"):
        InProcessBroker(tmp_path).start()
    with InProcessBroker(tmp_path):
        pass

    assert not first.is_running
    wait_until(lambda: set(threading.enumerate()) <= threads, "its threads have ended")


def test_broker_stops_when_its_disk_fails():
    """Like its process it ends with the last log directory, and can be started again."""
    with InProcessBroker() as broker:
        broker.create_topic("t")
        broker.disk.fail("pwrite", "*/t-0/*")
        servers = broker.bootstrap_servers
        with Producer(servers, retries=0) as producer, pytest.raises(KafkaError):
            producer.send("t", b"1").result()
        with pytest.raises(RuntimeError, match="not running"):
            broker.wait_for_records("t", 1)
        broker.start()
        send(broker, "t", b"2")

        assert values(broker, "t") == [b"2"]


def test_a_broker_that_does_not_run_says_so():
    """Before the start and after the end there is nothing to ask."""
    broker = InProcessBroker()
    broker.stop()
    for ask in (broker.topics, lambda: broker.bootstrap_servers, lambda: broker.broker):
        with pytest.raises(RuntimeError, match="the broker is not running"):
            ask()


def test_settings_are_the_brokers():
    """Names have underscores for dots; the defaults of the kit can be replaced."""
    with InProcessBroker(num_partitions=3, broker_id=7) as broker:
        broker.create_topic("t", cleanup_policy="compact")

        assert broker.broker.broker_id == 7
        assert broker.broker.dynamic_config.topic_config("t").cleanup_policy == ("compact",)
        assert broker.topics() == ["t"]
        assert len(broker.broker.cache.topic("t").partitions) == 3
        with pytest.raises(KafkaError, match="t"):
            broker.create_topic("t")


def test_records_are_what_a_consumer_would_read():
    """Keys, headers and partitions are there; aborted records only for who reads uncommitted."""
    with InProcessBroker() as broker:
        broker.create_topic("t", partitions=2)
        with Producer(broker.bootstrap_servers, transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"aborted", partition=1)
            producer.flush()
            producer.abort_transaction()
            producer.begin_transaction()
            producer.send("t", b"1", key=b"k", partition=0, headers=[("h", b"v")])
            producer.send("t", b"2", partition=1)
            producer.commit_transaction()
        first = broker.records("t", 0)[0]

        assert (first.key, first.value, first.headers) == (b"k", b"1", (("h", b"v"),))
        assert values(broker, "t") == [b"1", b"aborted", b"2"]
        assert values(broker, "t", isolation_level="read_committed") == [b"1", b"2"]
        assert values(broker, "t", partition=1) == [b"aborted", b"2"]
        assert broker.records("nothing") == []
        with pytest.raises(ValueError, match="isolation_level='committed'"):
            broker.records("t", isolation_level="committed")


def test_waiting_for_records_ends_with_the_last_one():
    """They may be sent by another thread meanwhile; a wait in vain says how many there were."""
    with InProcessBroker() as broker:
        broker.create_topic("t")
        sender = threading.Thread(target=send, args=(broker, "t", b"1", b"2"))
        sender.start()
        found = broker.wait_for_records("t", 2)
        sender.join()

        assert [record.value for record in found] == [b"1", b"2"]
        with pytest.raises(NeverHappenedError, match=r"3 records in t; .* '2 records'"):
            broker.wait_for_records("t", 3, limit=0.01)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_waiting_for_a_group(protocol):
    """Its members, what they read, and that they have committed all of it."""
    with InProcessBroker() as broker:
        broker.create_topic("t", partitions=2)
        send(broker, "t", b"1", b"2", b"3")
        settings = {"group_id": "g", "topics": ["t"], "group_protocol": protocol}
        with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest", **settings) as one:
            count = 0
            while count < 3:
                count += len(one.poll(timeout_ms=1_000))
            group = broker.wait_for_group("g", members=1)
            assert [sorted(member.partitions) for member in group.members] == [
                [TopicPartition("t", 0), TopicPartition("t", 1)]
            ]
            with pytest.raises(NeverHappenedError, match=r"group g with 2 members; .*'Stable'"):
                broker.wait_for_group("g", members=2, limit=0.01)
            with pytest.raises(NeverHappenedError, match=r"commit the end of t; .*lag"):
                broker.wait_until_consumed("g", "t", limit=0.01)
            one.commit()
            broker.wait_until_consumed("g", "t")

        assert sum(broker.committed("g").values()) == 3
        assert broker.wait_for_group("g", members=0).members == ()
        assert broker.group("unknown").state == "Dead"


def test_a_coroutine_waits_in_a_thread():
    """A test on a loop of its own goes on while it waits."""

    async def scene(broker: InProcessBroker) -> int:
        waiting = asyncio.create_task(asyncio.to_thread(broker.wait_for_records, "t", 1))
        await asyncio.to_thread(send, broker, "t", b"1")
        return len(await waiting)

    with InProcessBroker() as broker:
        assert asyncio.run(scene(broker)) == 1


def test_all_replicas_of_one_broker_are_in_sync():
    """There is one of each partition; a second one is waited for in vain."""
    with InProcessBroker() as broker:
        broker.create_topic("t", partitions=2)
        broker.wait_until_in_sync("t")
        with pytest.raises(
            NeverHappenedError, match=r"2 replicas of t .* \{0: \(0,\), 1: \(0,\)\}"
        ):
            broker.wait_until_in_sync("t", replicas=2, limit=0.01)


@pytest.mark.parametrize("is_running", [True, False])
def test_state_is_saved_to_a_file_and_loaded(data_dir, tmp_path, is_running):
    """Records, groups and settings: as often as wanted, in memory or in a directory."""
    path = tmp_path / "state.tar.gz"
    with InProcessBroker(data_dir, broker_id=7, num_partitions=2) as broker:
        send(broker, "t", b"1", b"2")
        with Consumer(
            broker.bootstrap_servers, group_id="g", topics=["t"], auto_offset_reset="earliest"
        ) as consumer:
            while not consumer.poll(timeout_ms=100):
                pass
            consumer.commit()
        if not is_running:
            broker.stop()
        broker.save(path)
    for place in (None, None, tmp_path / "copy"):
        with InProcessBroker.load(path, place) as copy:
            assert sorted(values(copy, "t")) == [b"1", b"2"]
            assert sum(copy.committed("g").values()) >= 1
            assert copy.broker.broker_id == 7
            send(copy, "t", b"3")
    with pytest.raises(ValueError, match="it must be empty"):
        InProcessBroker.load(path, tmp_path / "copy")


def test_start_pauses_the_collector_and_leaves_it_as_it_was():
    """It collects nothing while a broker starts, and then again; off by the user, it stays off."""
    seen: list[bool] = []
    for was_enabled in (True, False):
        if not was_enabled:
            gc.disable()
        try:
            with CollectorPause(), CollectorPause():
                seen.append(gc.isenabled())
            with InProcessBroker():
                seen.append(gc.isenabled())
        finally:
            gc.enable()

    assert seen == [False, True, False, False]


def test_listener_of_metrics_ends_where_the_broker_is_killed():
    """As that of a process would; one that is started again may have its port."""
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as broker:
        listener = broker.broker.find(Measures).listener
        broker.kill()
        with socket.socket() as endpoint, pytest.raises(ConnectionRefusedError):
            endpoint.connect(("127.0.0.1", listener.end_point.port))


def test_topics_are_all_but_those_of_kafka_itself():
    """A name that begins like theirs may be one of the test's own."""
    with InProcessBroker() as broker:
        for name in ("orders", "__orders", "_orders"):
            broker.create_topic(name)
        servers = broker.bootstrap_servers
        with Consumer(servers, group_id="g", topics=["orders"]) as consumer:
            wait_until(lambda: broker.group("g").members, "a member", meanwhile=consumer.poll)

        assert broker.topics() == ["__orders", "_orders", "orders"]
