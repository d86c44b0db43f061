"""Instances share an application's queries as the members of a group; queries are stand-ins."""

from __future__ import annotations

import pytest

import ottla
from ottla import KafkaError
from ottla.clients.producer.transaction_manager import FENCED
from ottla.spark.exactly_once import NotOpenError, TakenOverError
from ottla.streams.instance import StreamsInstance
from ottla.testing.waiting import wait_until

SOON = {"heartbeat.interval.ms": "50", "session.timeout.ms": "30000", "metadata.max.age.ms": "100"}


class Query:
    """A query that runs until it is stopped, or fails once with `error`."""

    def __init__(self):
        self.error = None
        self.is_stopped = False

    def has_ended(self):
        if self.error is not None:
            raise self.error
        return self.is_stopped

    def stop(self):
        self.is_stopped = True


class Copy:
    """A copy of a topic that counts how often it was followed."""

    def __init__(self):
        self.polls = 0
        self.is_closed = False

    def poll(self, timeout_ms):
        self.polls += 1

    def close(self):
        self.is_closed = True


class Member:
    """An instance with what it has begun and followed."""

    def __init__(self, servers, topics, instance_id=None):
        self.begun, self.copies = [], {}
        client = {"bootstrap.servers": servers, **SOON}
        self.instance = StreamsInstance("app", instance_id, client, topics, self.begin, self.follow)
        self.instance.start()

    def begin(self, topic, copy):
        self.begun.append((topic, Query()))
        return self.begun[-1][1]

    def follow(self, topic):
        self.copies[topic] = Copy()
        return self.copies[topic]

    @property
    def runs(self):
        """How many queries run here."""
        return len(self.instance.queries)

    def wait_for_end(self):
        """Wait as an application does."""
        while not self.instance.wait(1):
            pass

    def is_warm(self, count):
        """Whether it follows so many topics."""
        return len([copy for copy in self.copies.values() if copy.polls > 1]) == count


@pytest.fixture
def start(ottla_fresh_broker):
    """Starts members that share the queries of some changelog topics, and stops them."""
    servers = ottla_fresh_broker.bootstrap_servers
    topics = ["app-a-changelog", "app-b-changelog"]
    with ottla.Admin(servers) as admin:
        admin.create_topics([ottla.NewTopic(topic, 1) for topic in topics])
    members = []

    def start(count=1, instance_id=None):
        members.append(Member(servers, topics[:count], instance_id))
        return members[-1]

    yield start
    for member in members:
        member.instance.stop()


def test_one_runs_and_the_other_is_warm(start):
    """When the first stops, the second takes over."""
    first = start()
    wait_until(lambda: first.runs == 1, "the first to run it")
    second = start()
    wait_until(lambda: second.is_warm(1), "the second to follow")
    assert second.runs == 0

    first.instance.stop()
    wait_until(lambda: second.runs == 1, "the second to run it")
    assert first.begun[0][1].is_stopped
    assert not first.instance.is_active


def test_two_share_two_queries(start):
    """More instances, less work for each; one that leaves gives its work back."""
    first = start(2)
    wait_until(lambda: first.runs == 2, "the first to run both")
    second = start(2)
    wait_until(lambda: (first.runs, second.runs) == (1, 1), "one query each")
    assert len(first.begun) == 2, "what stays is not stopped"

    second.instance.stop()
    wait_until(lambda: first.runs == 2, "the first to run both")


def test_restart_of_a_static_member_moves_nothing(start, ottla_fresh_broker):
    """It has an id of its own in the group, numbered as Kafka Streams does it."""
    first = start(instance_id="host-1")
    wait_until(lambda: first.runs == 1, "the first to run it")
    second = start(instance_id="host-2")
    wait_until(lambda: second.is_warm(1), "the second to follow")
    first.instance.stop()
    again = start(instance_id="host-1")
    wait_until(lambda: again.runs == 1, "it to run again")

    assert second.begun == []
    with ottla.Admin(ottla_fresh_broker.bootstrap_servers) as admin:
        members = admin.describe_groups(["app"])["app"].members
    assert {member.instance_id for member in members} == {"host-1-1", "host-2-1"}


def test_query_that_someone_has_stopped_begins_again_where_it_is_assigned(start):
    """Membership decides who runs a query; none is left without one."""
    member = start()
    wait_until(lambda: member.runs == 1, "the query to run")
    member.begun[0][1].stop()
    wait_until(lambda: len(member.begun) == 2, "it to begin again")
    assert member.runs == 1


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(f"{TakenOverError.__name__}: app-x"),
        RuntimeError(f"{NotOpenError.__name__}: batch 7"),
        *(RuntimeError(f"...Traceback: {KafkaError(code, 'x')}") for code in sorted(FENCED)),
    ],
    ids=str,
)
def test_query_that_was_taken_over_begins_again_where_it_is_assigned(start, error):
    """It was too late to write or decide a batch; the topic has the one that counts."""
    member = start()
    wait_until(lambda: member.runs == 1, "the query")
    member.begun[0][1].error = error
    wait_until(lambda: len(member.begun) == 2, "it to begin again")

    assert member.instance.is_active


def test_query_that_is_taken_over_while_it_begins_is_begun_again(start, monkeypatch):
    """The instance stays, and follows the topic or runs the query, as membership says."""
    begin, errors = Member.begin, [TakenOverError("app-x"), KafkaError(min(FENCED), "x")]

    def overtaken(member, topic, copy):
        if errors:
            raise errors.pop()
        return begin(member, topic, copy)

    monkeypatch.setattr(Member, "begin", overtaken)
    member = start()
    wait_until(lambda: member.runs == 1, "it to run")

    assert errors == []
    assert member.instance.is_active


def test_error_of_a_query_ends_the_instance(start):
    """It is raised where the application waits, and the group goes on without it."""
    member = start()
    wait_until(lambda: member.runs == 1, "the query")
    member.begun[0][1].error = ValueError("no number")

    with pytest.raises(ValueError, match="no number"):
        member.wait_for_end()
    second = start()
    wait_until(lambda: second.runs == 1, "the second to run it")
