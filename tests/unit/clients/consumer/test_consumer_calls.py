"""`ottla.Consumer` in virtual time: its calls, and what becomes of records that wait in it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from itertools import islice
from uuid import UUID

import pytest
from consumer_world import ConsumerWorld, Journal
from virtual_thread import VirtualThread

from ottla import Consumer, KafkaError, OffsetAndMetadata, TopicPartition
from ottla.clients.consumer.consumer import WakeupError
from ottla.errors import ErrorCode
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.group import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
)
from ottla.protocol.list_offsets import ListOffsetsRequest
from ottla.protocol.metadata import MetadataRequest, MetadataResponseTopic
from ottla.protocol.offsets import OffsetCommitRequest, OffsetFetchRequest
from ottla.structs import NO_UUID

FIRST, SECOND = TopicPartition("pages", 0), TopicPartition("pages", 1)
HOUR_MS = 3_600_000


class PatientThread(VirtualThread):
    """Notices a call that takes longer than its thread would wait for it."""

    def run(self, call, limit_ms=None):
        began_ms = self.runtime.clock.monotonic_ms()
        try:
            return super().run(call, limit_ms)
        finally:
            taken_ms = self.runtime.clock.monotonic_ms() - began_ms
            assert limit_ms is None or taken_ms < limit_ms, "nobody waited for the answer"


@pytest.fixture
def world(runtime, cluster) -> ConsumerWorld:
    """The brokers: three records in each partition of `pages`."""
    world = ConsumerWorld(runtime, cluster)
    world.write("a0", "a1", "a2")
    world.write("b0", "b1", "b2", partition=1)
    return world


@pytest.fixture
def threads() -> list[VirtualThread]:
    return []


@pytest.fixture
def new_consumer(runtime, cluster, world, threads, monkeypatch) -> Callable[..., Consumer]:
    """Makes consumers whose calls run in virtual time."""

    def new_thread(name: str) -> VirtualThread:
        threads.append(PatientThread(runtime))
        return threads[-1]

    monkeypatch.setattr("ottla.clients.consumer.consumer.IoThread", new_thread)
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    return lambda **settings: Consumer(cluster.bootstrap_servers, **{**defaults, **settings})


@pytest.fixture
def consumer(new_consumer) -> Consumer:
    """One that reads both partitions."""
    consumer = new_consumer()
    consumer.assign([FIRST, SECOND])
    return consumer


def values(records) -> list[str]:
    return [record.value.decode() for record in records]


def polled(consumer: Consumer, polls: int = 4) -> list[str]:
    return [value for _ in range(polls) for value in values(consumer.poll(1000))]


A, B = ["a0", "a1", "a2"], ["b0", "b1", "b2"]


@pytest.mark.parametrize(
    ("call", "rest"),
    [
        (lambda consumer: None, [*A[1:], *B]),
        (lambda consumer: consumer.seek(FIRST, 2), [*B, "a2"]),
        (lambda consumer: consumer.seek(FIRST, 0), [*B, *A]),
        (lambda consumer: consumer.seek(FIRST, OffsetAndMetadata(1)), [*B, *A[1:]]),
        (lambda consumer: consumer.seek_to_beginning([FIRST]), [*B, *A]),
        (lambda consumer: consumer.seek_to_beginning(), [*A, *B]),
        (lambda consumer: consumer.seek_to_end([FIRST]), B),
        (lambda consumer: consumer.seek_to_end(), []),
        (lambda consumer: consumer.pause([FIRST]), B),
        (lambda consumer: (consumer.pause([FIRST]), consumer.resume([FIRST])), [*B, *A[1:]]),
        (lambda consumer: consumer.assign([SECOND]), B),
        (lambda consumer: consumer.assign([FIRST, SECOND]), [*A[1:], *B]),
        (lambda consumer: consumer.unsubscribe(), []),
    ],
    ids=[
        "nothing",
        "seek",
        "seek to the first",
        "seek with metadata",
        "beginning",
        "all to the beginning",
        "end",
        "all to the end",
        "pause",
        "pause and resume",
        "assign one",
        "assign the same",
        "unsubscribe",
    ],
)
def test_records_that_an_iteration_has_not_taken_follow_each_call(consumer, call, rest):
    """Those of partitions that go elsewhere are dropped; none of the others is lost or doubled."""
    assert values(islice(consumer, 1)) == ["a0"]
    call(consumer)

    assert polled(consumer) == rest


def test_iteration_waits_for_records_unless_it_is_to_end(consumer, world, runtime):
    """However long none come; what has come in time is given even if the time is over then."""
    assert values(consumer.records(idle_timeout_ms=1500)) == [*A, *B]
    runtime.scheduler.call_later(5000, lambda: world.write("late"))
    began_ms = runtime.clock.monotonic_ms()
    assert values(consumer.records(idle_timeout_ms=1500)) == []
    assert 1500 <= runtime.clock.monotonic_ms() - began_ms < 3000
    assert values(islice(consumer, 1)) == ["late"]
    world.write("in time")
    runtime.advance(1000)
    assert values(consumer.records(idle_timeout_ms=0)) == ["in time"]


def test_iteration_ends_where_its_consumer_is_closed(consumer, threads):
    """Nothing comes of what it still holds, and the thread has ended."""
    iteration = iter(consumer)
    assert next(iteration).value == b"a0"
    consumer.close()
    with pytest.raises(RuntimeError, match="the consumer is closed"):
        next(iteration)

    assert [thread.is_alive for thread in threads] == [False]


def test_consumer_that_cannot_be_made_leaves_no_thread(new_consumer, threads):
    """A consumer without a group cannot subscribe, and its thread ends."""
    with pytest.raises(KafkaError, match=r"group\.id"):
        new_consumer(topics=["pages"])

    assert [thread.is_alive for thread in threads] == [False]


def test_consumer_without_partitions_returns_nothing(new_consumer, runtime):
    """It waits for the time that it was given, and its metrics have the poll."""
    consumer = new_consumer()
    runtime.advance(3000)
    assert consumer.poll(100) == []

    assert consumer.metrics()["consumer-metrics"]["last-poll-seconds-ago"] == 0.1


def test_consumer_may_go_from_thread_to_thread(consumer):
    """One at a time: a call that has ended holds up nobody."""
    assert consumer.poll(1000)
    found: list[object] = []

    def use() -> None:
        consumer.pause([FIRST])
        found.extend(consumer.paused())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()

    assert found == [FIRST]


def test_wakeup_comes_before_records_that_wait(consumer, world, runtime):
    """The next poll raises, the one after it returns them."""
    consumer.poll(1000)
    world.write("a3")
    runtime.advance(1000)
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(1000)

    assert polled(consumer, 1) == ["a3"]


def test_records_that_wait_are_taken_and_more_is_fetched_at_once(new_consumer, world, runtime):
    """No other poll is needed: two fetches wait again, and the metrics have counted the poll."""
    consumer = new_consumer()
    consumer.assign([FIRST])
    assert polled(consumer, 1) == A
    for number in range(3, 6):
        world.write(f"a{number}")
        runtime.advance(1000)
    fetches = world.cluster[0].sent(FetchRequest)
    before = len(fetches)
    assert polled(consumer, 1)[:1] == ["a3"]
    runtime.advance(0)

    assert len(world.cluster[0].sent(FetchRequest)) > before
    assert consumer.metrics()["consumer-metrics"]["last-poll-seconds-ago"] == 0


def test_member_that_polls_what_waits_is_not_thrown_out(new_consumer, world, runtime, cluster):
    """Each poll counts, also one that has nothing to ask the brokers for."""
    consumer = new_consumer(
        group_id="g",
        topics=["pages"],
        max_poll_interval_ms=10_000,
        max_poll_records=1,
        auto_commit_interval_ms=HOUR_MS,
    )
    assert [len(consumer.poll(1000)) for _ in range(2)] == [1, 1]
    for _ in range(4):
        runtime.advance(4000)
        assert len(consumer.poll(0)) == 1

    assert cluster[0].sent(LeaveGroupRequest) == []


@pytest.mark.parametrize("end", ["unsubscribe", "close"])
@pytest.mark.parametrize("is_lost", [False, True])
def test_listener_hears_at_the_end_what_has_become_of_the_partitions(
    new_consumer, runtime, cluster, end, is_lost
):
    """They are revoked, or were lost before."""
    consumer, journal = new_consumer(group_id="g"), Journal()
    consumer.subscribe(["pages"], listener=journal)
    consumer.poll(1000)
    code = ErrorCode.UNKNOWN_MEMBER_ID if is_lost else ErrorCode.NONE
    cluster[0].on(HeartbeatRequest, HeartbeatResponse(error_code=code))
    runtime.advance(3_000)
    getattr(consumer, end)()

    assert journal.events == [("assigned", [0, 1]), ("lost" if is_lost else "revoked", [0, 1])]
    assert len(cluster[0].sent(LeaveGroupRequest)) == (0 if is_lost else 1)
    if end == "unsubscribe":
        assert consumer.assignment() == consumer.subscription() == set()


@pytest.mark.parametrize("end", ["unsubscribe", "close"])
def test_listener_hears_nothing_of_a_group_that_was_not_joined(new_consumer, end):
    """There is nothing to give up."""
    consumer, journal = new_consumer(group_id="g"), Journal()
    consumer.subscribe(["pages"], listener=journal)
    getattr(consumer, end)()

    assert journal.events == []


def test_interceptors_see_each_commit(new_consumer, runtime):
    """Commits are seen whether the application waits or not; records are seen once."""
    seen: list[object] = []

    class Watcher:
        def on_commit(self, offsets):
            seen.append({p.partition: each.offset for p, each in offsets.items()})

        def on_consume(self, records):
            seen.append(values(records))
            return records

    consumer = new_consumer(group_id="g", interceptor_classes=[Watcher()])
    consumer.assign([SECOND])
    assert values(islice(consumer, 2)) == B[:2]
    consumer.commit()
    told: list[object] = []
    consumer.commit_async({FIRST: 7}, lambda *outcome: told.append(outcome))
    consumer.commit_async()
    runtime.advance(100)

    assert consumer.committed([FIRST]) == {FIRST: OffsetAndMetadata(7)}
    assert seen == [B, {1: 2}, {0: 7}, {1: 2}]
    assert told == [({FIRST: OffsetAndMetadata(7)}, None)]


def test_answer_that_does_not_come_is_an_error_of_the_call(new_consumer, cluster):
    """That of its own limit, for which its thread waits long enough."""
    consumer = new_consumer(group_id="g")
    cluster[0].on(OffsetFetchRequest, None)
    with pytest.raises(KafkaError) as caught:
        consumer.committed([FIRST], timeout_ms=1000)

    assert caught.value.message == "no broker has answered within 1000 ms"


def test_topic_id_is_that_of_the_last_metadata(new_consumer, cluster, runtime):
    """None where no topic is known, or none any more."""
    consumer = new_consumer(metadata_max_age_ms=1000)
    consumer.assign([FIRST])
    consumer.poll(1000)
    found = [consumer.topic_id("pages"), consumer.topic_id("orders")]
    cluster.topic_ids["pages"] = UUID(int=5)
    runtime.advance(2000)
    found.append(consumer.topic_id("pages"))
    cluster.topics.pop("pages")
    runtime.advance(2000)

    assert [*found, consumer.topic_id("pages")] == [NO_UUID, None, UUID(int=5), None]


def test_topics_are_listed_without_those_that_have_an_error(consumer, cluster):
    """All others are, whether they are read or not."""
    cluster.topics["orders"] = 1

    def with_another(request, version):
        response = cluster.metadata(request)
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.topics.append(MetadataResponseTopic(name="secret", error_code=code))
        return response

    cluster[0].on(MetadataRequest, with_another)
    found = consumer.list_topics()

    assert {name: len(partitions) for name, partitions in found.items()} == {
        "pages": 2,
        "orders": 1,
    }


def test_unknown_topic_is_an_error_and_is_not_asked_for_again(consumer, cluster, runtime):
    """The partitions of others are found, subscribed to or not."""
    cluster.topics["orders"] = 3
    assert [each.partition for each in consumer.partitions_for("orders")] == [0, 1, 2]
    with pytest.raises(KafkaError, match="topic missing: ") as caught:
        consumer.partitions_for("missing")
    assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    before = len(cluster[0].sent(MetadataRequest))
    runtime.advance(HOUR_MS)
    asked = cluster[0].sent(MetadataRequest)[before:]

    assert {topic.name for each in asked for topic in each.topics} == {"pages", "orders"}


def test_arguments_that_make_no_sense_are_refused(new_consumer):
    """Topics or a pattern, one of them; and no offset before the first one."""
    consumer = new_consumer(group_id="g")
    with pytest.raises(ValueError, match="either topics or a pattern"):
        consumer.subscribe()
    with pytest.raises(ValueError, match="either topics or a pattern"):
        consumer.subscribe(["pages"], pattern="p.*")
    with pytest.raises(ValueError, match="offset=-1: must not be negative"):
        consumer.seek(FIRST, -1)
    consumer.subscribe(pattern="p.*")

    assert consumer.subscription() == {"pages"}


class Raising(Journal):
    """Has its partitions revoked with an error."""

    def on_partitions_revoked(self, partitions):
        super().on_partitions_revoked(partitions)
        raise ValueError("the listener's own")


@pytest.mark.parametrize("call", ["close", "unsubscribe"])
def test_listener_that_raises_holds_up_no_end(new_consumer, world, cluster, call):
    """The group is left, and what was read is committed on close; then its error is raised."""
    journal = Raising()
    consumer = new_consumer(group_id="g", enable_auto_commit=True)
    consumer.subscribe(["pages"], listener=journal)
    assert polled(consumer) == [*A, *B]
    with pytest.raises(ValueError, match="the listener's own"):
        getattr(consumer, call)()

    assert journal.events == [("assigned", [0, 1]), ("revoked", [0, 1])]
    assert len(cluster[0].sent(LeaveGroupRequest)) == 1
    assert world.committed == ({FIRST: 3, SECOND: 3} if call == "close" else {})


@pytest.mark.parametrize("call", ["poll", "close", "unsubscribe", "iterate", "process"])
@pytest.mark.parametrize("event", ["assigned", "revoked"])
def test_listener_may_not_end_or_begin_what_it_is_told_in(new_consumer, world, call, event):
    """It would be told of the same again and again; the consumer stays as it was."""
    calls = {
        "poll": lambda: consumer.poll(0),
        "close": lambda: consumer.close(),  # noqa: PLW0108 - it is made below
        "unsubscribe": lambda: consumer.unsubscribe(),  # noqa: PLW0108
        "iterate": lambda: next(iter(consumer)),
        "process": lambda: consumer.process(print),
    }

    class Caller(Journal):
        def on_partitions_assigned(self, partitions):
            if event == "assigned":
                calls[call]()

        def on_partitions_revoked(self, partitions):
            if event == "revoked":
                calls[call]()

    consumer = new_consumer(group_id="g")
    consumer.subscribe(["pages"], listener=Caller())
    if event == "revoked":
        assert polled(consumer) == [*A, *B]
    with pytest.raises(RuntimeError, match="a listener must not poll, unsubscribe or close"):
        consumer.close() if event == "revoked" else polled(consumer)
    if event == "assigned":
        assert polled(consumer) == [*A, *B]


class InterruptedByTest(BaseException):
    """In the place of KeyboardInterrupt, which would end the test's loop too."""


class Interrupting:
    """Raises once, after so many calls."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed

    def __call__(self, data):
        self.allowed -= 1
        if self.allowed == -1:
            raise InterruptedByTest
        return data

    def on_consume(self, records):
        self(records)


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        ("interceptor_classes", 0),
        ("value_deserializer", 0),
        ("value_deserializer", 2),
        ("value_deserializer", 4),
    ],
    ids=["behind the poll", "at the first", "in a batch", "in the next partition"],
)
@pytest.mark.parametrize("take", ["poll", "iterate"])
@pytest.mark.parametrize("then", ["read on", "close"])
def test_records_of_a_poll_that_was_interrupted_are_not_read(
    new_consumer, world, setting, allowed, take, then
):
    """The next poll returns them; a close in its place does not commit them."""
    interrupting = Interrupting(allowed)
    settings = {setting: [interrupting] if setting == "interceptor_classes" else interrupting}
    consumer = new_consumer(group_id="g", enable_auto_commit=True, **settings)
    consumer.subscribe(["pages"])
    with pytest.raises(InterruptedByTest):
        consumer.poll(10_000) if take == "poll" else next(consumer.records())
    if then == "read on":
        assert sorted(polled(consumer, 6)) == [*A, *B]
    consumer.close()

    assert set(world.committed.values()) == ({3} if then == "read on" else {0})


@pytest.mark.parametrize(
    ("offset", "error", "why"),
    [
        (-1, ValueError, "must not be negative"),
        (-5, ValueError, "must not be negative"),
        (2**63, ValueError, "must be at most 9223372036854775807"),
        ("5", TypeError, "='5': must be a whole number, or OffsetAndMetadata"),
        (5.0, TypeError, "=5.0: must be a whole number, or OffsetAndMetadata"),
        (None, TypeError, "=None: must be a whole number, or OffsetAndMetadata"),
        (OffsetAndMetadata(-2), ValueError, "must not be negative"),
    ],
    ids=str,
)
@pytest.mark.parametrize("call", ["commit", "commit_async", "seek"])
def test_what_is_no_offset_is_refused(new_consumer, world, cluster, call, offset, error, why):
    """Brokers keep any number, and the group would begin there, or at an end."""
    consumer = new_consumer(group_id="g")
    consumer.assign([FIRST])
    with pytest.raises(error, match=re.escape(why)):
        consumer.seek(FIRST, offset) if call == "seek" else getattr(consumer, call)({FIRST: offset})

    assert cluster[0].sent(OffsetCommitRequest) == []
    assert polled(consumer, 2) == A


@pytest.mark.parametrize("time_ms", [-1, -2, -9, 2**63])
def test_time_that_is_a_name_of_another_place_is_refused(consumer, time_ms):
    """-1 is the end and -2 the beginning, for brokers."""
    with pytest.raises(ValueError, match=r"the time of pages-0=.*: must be ms since 1970"):
        consumer.offsets_for_times({FIRST: time_ms})


def test_pattern_that_is_none_is_named(new_consumer):
    """With the reason."""
    with pytest.raises(ValueError, match=r"pattern='\(': is no regular expression: missing \)"):
        new_consumer(group_id="g").subscribe(pattern="(")


HANGING = {
    "committed": lambda consumer: consumer.committed([FIRST], timeout_ms=1000),
    "commit": lambda consumer: consumer.commit({FIRST: 1}, timeout_ms=1000),
    "end_offsets": lambda consumer: consumer.end_offsets([FIRST], timeout_ms=1000),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({FIRST: 1}, timeout_ms=1000),
    "list_topics": lambda consumer: consumer.list_topics(timeout_ms=1000),
    "partitions_for": lambda consumer: consumer.partitions_for("new", timeout_ms=1000),
    "position": lambda consumer: consumer.position(SECOND, timeout_ms=1000),
}


@pytest.mark.parametrize("call", HANGING)
def test_limit_of_a_call_holds_where_a_broker_hangs(new_consumer, world, cluster, runtime, call):
    """It has connections and does not answer, as after SIGSTOP: request.timeout.ms is longer."""
    consumer = new_consumer(group_id="g")
    consumer.assign([FIRST])
    assert polled(consumer, 1) == A
    consumer.assign([FIRST, SECOND])
    for kind in (MetadataRequest, OffsetFetchRequest, OffsetCommitRequest, ListOffsetsRequest):
        cluster[0].on(kind, None)
    began_ms = runtime.clock.monotonic_ms()
    with pytest.raises(KafkaError) as caught:
        HANGING[call](consumer)

    assert caught.value.error is ErrorCode.REQUEST_TIMED_OUT
    assert runtime.clock.monotonic_ms() - began_ms <= 1200


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_close_keeps_its_limit_where_the_coordinator_hangs(
    new_consumer, world, cluster, runtime, protocol
):
    """Neither the last commit nor the goodbye holds it."""
    consumer = new_consumer(group_id="g", enable_auto_commit=True, group_protocol=protocol)
    consumer.assign([FIRST])
    assert polled(consumer, 1) == A
    for kind in (OffsetCommitRequest, LeaveGroupRequest, FindCoordinatorRequest):
        cluster[0].on(kind, None)
    began_ms = runtime.clock.monotonic_ms()
    consumer.close(timeout_ms=1000)

    assert runtime.clock.monotonic_ms() - began_ms <= 1200


def test_topic_that_there_is_not_is_named_once(new_consumer, world, cluster, caplog):
    """A name that was typed wrong looked like a topic without records."""
    consumer = new_consumer(group_id="g", allow_auto_create_topics=False)
    consumer.subscribe(["paegs", "pages"])
    assert sorted(polled(consumer, 10)) == [*A, *B]
    told = [each.getMessage() for each in caplog.records if "paegs" in each.getMessage()]

    assert told == ["topic paegs does not exist; it is waited for"]
