"""Scripted faults: what a client meets, and that nothing else is struck."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ottla import Admin, Consumer, KafkaError, Producer
from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.message import encode, request_class
from ottla.protocol.types import Array
from ottla.testing import InProcessBroker, InProcessCluster, wait_until
from ottla.testing.faults import key_of, refusal

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "linger_ms": 0}
READER = {"auto_offset_reset": "earliest", "group_id": "g", "topics": ["t"]}


@pytest.fixture
def broker(ottla_fresh_broker) -> InProcessBroker:
    """A broker with an empty topic t."""
    ottla_fresh_broker.create_topic("t")
    return ottla_fresh_broker


def values(broker: InProcessBroker | InProcessCluster) -> list[bytes]:
    """The values in the topic t."""
    return [record.value for record in broker.records("t")]


def read(consumer: Consumer, count: int) -> list[bytes]:
    """Poll until there are so many records."""
    found: list[bytes] = []
    while len(found) < count:
        found += [record.value for record in consumer.poll(timeout_ms=100)]
    return found


def polling(consumer: Consumer) -> Callable[[], object]:
    """Lets the consumer do its part while something is waited for."""
    return lambda: consumer.poll(timeout_ms=20)


def test_failed_answers_are_retried(broker):
    """The next two fail for every partition that was asked for; the third is a real one."""
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    with Producer(broker.bootstrap_servers, **QUICK) as producer:
        producer.send("t", b"1").result()

    assert (fault.hits, fault.left) == (2, 0)
    assert values(broker) == [b"1"]


def test_an_error_that_is_final_reaches_the_application(broker):
    """Nothing was stored, and the next request is none of the fault's."""
    broker.faults.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with Producer(broker.bootstrap_servers, **QUICK) as producer:
        with pytest.raises(KafkaError) as refused:
            producer.send("t", b"1").result()
        producer.send("t", b"2").result()

    assert refused.value.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert values(broker) == [b"2"]


@pytest.mark.parametrize("idempotent", [True, False])
def test_what_was_done_but_not_answered_is_sent_again(broker, idempotent):
    """An idempotent producer stores it once, another one twice."""
    cut = broker.faults.cut_off("Produce", performed=True)
    with Producer(
        broker.bootstrap_servers, enable_idempotence=idempotent, acks="all", **QUICK
    ) as producer:
        producer.send("t", b"1").result()

    assert cut.hits == 1
    assert values(broker) == [b"1"] * (1 if idempotent else 2)


def test_an_error_may_hide_that_it_was_done(broker):
    """The record is there, and the client gets an error, as after a timeout."""
    broker.faults.fail("Produce", "REQUEST_TIMED_OUT", performed=True)
    with (
        Producer(
            broker.bootstrap_servers, retries=0, enable_idempotence=False, **QUICK
        ) as producer,
        pytest.raises(KafkaError) as refused,
    ):
        producer.send("t", b"1").result()

    assert refused.value.error is ErrorCode.REQUEST_TIMED_OUT
    assert values(broker) == [b"1"]


def test_a_held_answer_is_late_for_one_client_only(broker):
    """It was done at once; others are answered meanwhile, and the client waits for its own."""
    fault = broker.faults.hold("Produce", client_id="slow")
    with (
        Producer(broker.bootstrap_servers, client_id="slow", **QUICK) as slow,
        Producer(broker.bootstrap_servers, client_id="quick", **QUICK) as quick,
    ):
        late = slow.send("t", b"slow")
        broker.wait_for_records("t", 1)
        quick.send("t", b"quick").result()
        was_done = late.done()
        fault.release()
        late.result()

    assert not was_done
    assert fault.hits == 1
    assert values(broker) == [b"slow", b"quick"]


def test_what_is_held_is_answered_when_the_fault_is_cleared(broker):
    """Later requests are answered as well; a broker that has ended answers nothing."""
    fault = broker.faults.hold("Produce", times=2)
    with Producer(broker.bootstrap_servers, **QUICK) as producer:
        first = producer.send("t", b"1")
        broker.wait_for_records("t", 1)
        broker.faults.clear()
        first.result()
        producer.send("t", b"2").result()
    assert fault.hits == 1

    with Producer(broker.bootstrap_servers, delivery_timeout_ms=60_000, **QUICK) as producer:
        last = broker.faults.hold("Produce")
        sent = producer.send("t", b"3")
        last.wait()
        broker.kill()
        last.release()
        broker.start()
        sent.result()
    assert values(broker)[:3] == [b"1", b"2", b"3"]


def test_a_late_answer_comes(broker):
    """After its time, and no test has to release it."""
    fault = broker.faults.delay("Produce", 0.01)
    with Producer(broker.bootstrap_servers, **QUICK) as producer:
        producer.send("t", b"1").result()
    assert fault.hits == 1


def test_a_connection_that_is_cut_before_anything_is_done(broker):
    """The client connects again, and nothing is there twice."""
    cut = broker.faults.cut_off("Produce", times=2)
    with Producer(
        broker.bootstrap_servers, enable_idempotence=False, reconnect_backoff_ms=1, **QUICK
    ) as producer:
        producer.send("t", b"1").result()

    assert cut.hits == 2
    assert values(broker) == [b"1"]


def test_failed_fetches_are_met_within_a_session(broker):
    """A fetch of a session names nothing: it is made to, and then each partition fails."""
    with (
        Producer(broker.bootstrap_servers, **QUICK) as producer,
        Consumer(broker.bootstrap_servers, **READER, **_backoff()) as consumer,
    ):
        producer.send("t", b"1").result()
        assert read(consumer, 1) == [b"1"]
        fault = broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
        wait_until(lambda: fault.hits == 2, "two fetches to fail", meanwhile=polling(consumer))
        producer.send("t", b"2").result()

        assert read(consumer, 1) == [b"2"]


def _backoff() -> dict[str, int]:
    return {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "fetch_max_wait_ms": 20}


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "NOT_COORDINATOR"),
        ("SyncGroup", "REBALANCE_IN_PROGRESS"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("OffsetCommit", "NOT_COORDINATOR"),
        ("Metadata", "LEADER_NOT_AVAILABLE"),
        ("ListOffsets", "NOT_LEADER_OR_FOLLOWER"),
    ],
)
def test_a_reader_gets_over_passing_errors(broker, api, error):
    """Wherever it is struck, it joins, reads and commits in the end."""
    with Producer(broker.bootstrap_servers, **QUICK) as producer:
        producer.send("t", b"1").result()
    fault = broker.faults.fail(api, error)
    with Consumer(broker.bootstrap_servers, **READER, **_backoff()) as consumer:
        assert read(consumer, 1) == [b"1"]
        consumer.commit()
        broker.wait_until_consumed("g", "t")

    assert fault.hits == 1


def test_faults_strike_after_a_restart_and_can_be_cleared(broker):
    """They are the test's, not the broker's; `clear` ends them all."""
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    broker.stop()
    broker.start()
    with Producer(broker.bootstrap_servers, **QUICK) as producer:
        producer.send("t", b"1").result()
        fault.wait()
        broker.faults.delay("Produce", 600)
        broker.faults.clear()
        producer.send("t", b"2").result()

    assert values(broker) == [b"1", b"2"]


def test_a_fault_is_waited_for(broker):
    """The wait ends when the fault has struck; in vain it says how often it did."""
    fault = broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE")
    with pytest.raises(AssertionError, match=r"1 requests of METADATA to be struck; .*'0 were'"):
        fault.wait(0.01)
    asking = threading.Thread(target=ask_for_topics, args=(broker.bootstrap_servers,))
    asking.start()
    fault.wait()
    asking.join()


def ask_for_topics(servers: str) -> None:
    """One question by an admin client."""
    with Admin(servers) as admin:
        admin.describe_topics(["t"])


def test_an_unknown_api_is_refused(broker):
    """The names are Kafka's."""
    assert key_of("ListOffsets") is key_of("LIST_OFFSETS")
    with pytest.raises(ValueError, match="api='Produced'"):
        broker.faults.fail("Produced", "UNKNOWN_SERVER_ERROR")
    with pytest.raises(ValueError, match="error='NO_SUCH_ERROR': no error of Kafka has this name"):
        broker.faults.fail("Produce", "NO_SUCH_ERROR")


@pytest.mark.ottla_settings(
    group_consumer_heartbeat_interval_ms=50, group_consumer_min_heartbeat_interval_ms=50
)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_expelled_member_joins_again(broker, protocol):
    """The member has another id or epoch, and goes on where its group had committed."""
    reading = {**READER, **_backoff(), "group_protocol": protocol}
    if protocol == "classic":
        reading["heartbeat_interval_ms"] = 50
    with (
        Producer(broker.bootstrap_servers, **QUICK) as producer,
        Consumer(broker.bootstrap_servers, **reading) as consumer,
    ):
        producer.send("t", b"1").result()
        assert read(consumer, 1) == [b"1"]
        consumer.commit()
        before = broker.wait_for_group("g", members=1)
        expelled = broker.expel_member("g")
        assert [member.member_id for member in before.members] == [expelled]
        assert broker.group("g").members == ()
        wait_until(
            lambda: broker.group("g").members, "the member is back", meanwhile=polling(consumer)
        )
        producer.send("t", b"2").result()
        assert read(consumer, 1) == [b"2"]
        with pytest.raises(ValueError, match="group g has no member x"):
            broker.expel_member("g", "x")
        with pytest.raises(ValueError, match="group unknown has no members"):
            broker.expel_member("unknown")


def test_a_coordinator_that_moves_is_found_again(broker):
    """Members, offsets and transactions go on."""
    with (
        Producer(broker.bootstrap_servers, **QUICK) as producer,
        Consumer(broker.bootstrap_servers, **READER, **_backoff()) as consumer,
    ):
        producer.send("t", b"1").result()
        assert read(consumer, 1) == [b"1"]
        consumer.commit()
        broker.move_coordinator("g")
        producer.send("t", b"2").result()
        assert read(consumer, 1) == [b"2"]
        consumer.commit()
        broker.wait_until_consumed("g", "t")


def test_a_leader_that_moves_is_found_again():
    """Clients are refused by the old one, which lives, and find the new one."""
    with InProcessCluster() as cluster:
        cluster.create_topic("t")
        with Producer(cluster.bootstrap_servers, acks="all", **QUICK) as producer:
            producer.send("t", b"1").result()
            old = cluster.leader("t")
            new = cluster.move_leader("t")
            producer.send("t", b"2").result()

            assert new != old
            assert cluster.leader("t") == new
            assert cluster.move_leader("t", to=old) == old
            producer.send("t", b"3").result()
        with pytest.raises(ValueError, match=r"t-0 cannot be led by broker 9"):
            cluster.move_leader("t", to=9)

        assert values(cluster) == [b"1", b"2", b"3"]
        coordinator = cluster.coordinator("g")
        assert cluster.move_coordinator("g") == cluster.coordinator("g") != coordinator


def test_a_fault_can_be_of_one_broker(ottla_fresh_cluster):
    """Only what that one is asked is struck; replicas fetch all the same."""
    cluster = ottla_fresh_cluster
    cluster.create_topic("t")
    leader = cluster.leader("t")
    other = next(each for each in cluster.live_brokers if each != leader)
    spared = cluster.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", broker_id=other)
    struck = cluster.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", broker_id=leader)
    fetches = cluster.faults.cut_off("Fetch", times=100)
    with Producer(cluster.bootstrap_servers, acks="all", **QUICK) as producer:
        producer.send("t", b"1").result()

    assert (struck.hits, spared.hits, fetches.hits) == (1, 0, 0)


def test_a_full_disk_refuses_records_until_there_is_room(broker):
    """Nothing of them is stored; a producer that tries again succeeds as soon as it can."""
    with Producer(broker.bootstrap_servers, **QUICK) as producer:
        producer.send("t", b"1").result()
        broker.fill_disk()
        waiting = producer.send("t", b"2")
        refused = broker.faults.delay("Produce", 0)
        refused.wait()
        stored = values(broker)
        broker.free_disk()
        waiting.result()

    with pytest.raises(ValueError, match="the disk of /tmp/x is the machine's own"):
        InProcessBroker("/tmp/x").fill_disk()

    assert stored == [b"1"]
    assert values(broker) == [b"1", b"2"]


def filled(struct_class, version):
    """A request with an item in each of its lists."""
    made = struct_class()
    for field in struct_class.fields:
        if isinstance(field.type, Array) and version in field.versions:
            element = field.type.element
            item = filled(element, version) if isinstance(element, type) else element.default
            setattr(made, field.name, [item])
    return made


def test_every_api_can_be_refused_in_every_version(ottla_fresh_broker):
    """The answer can be encoded, and has the error in some place."""
    error = ErrorCode.UNKNOWN_TOPIC_ID
    for key, lowest, highest in ottla_fresh_broker.broker.apis.supported():
        for version in range(lowest, highest + 1):
            answer = refusal(filled(request_class(key), version), version, error)
            assert encode(answer, version)
            assert f"error_code={int(error)}" in repr(answer), (ApiKey(key), version)
