"""Fetch sessions (KIP-227) as a client on the wire sees them, while topics come and go."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from ottla import Admin, NewTopic, Producer
from ottla.errors import ErrorCode
from ottla.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from ottla.protocol.header import decode_response, encode_request
from ottla.testing import wait_until

LIMIT_S = 60
LONG_WAIT_MS = 600_000
VERSION = 13


class Session:
    """A consumer's fetch session: each request is the next of the session."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), LIMIT_S)
        self.id = 0
        self.epoch = 0

    def send(self, named=(), forgotten=(), max_wait_ms=0):
        """Name partition 0 of these topics, by id; and forget it of others."""
        wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic_id=each, partitions=wanted) for each in named],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=each, partitions=[0]) for each in forgotten
            ],
        )
        self.epoch += 1
        self.socket.sendall(encode_request(VERSION, 1, "reader", request))

    def receive(self) -> FetchResponse:
        (size,) = struct.unpack(">i", self.socket.recv(4, socket.MSG_WAITALL))
        frame = self.socket.recv(size, socket.MSG_WAITALL)
        return decode_response(FetchRequest, VERSION, frame)[1]

    def ask(self, **wanted) -> FetchResponse:
        self.send(**wanted)
        return self.receive()

    def begin(self, *topic_ids) -> None:
        """Begin with partition 0 of these topics, which exist."""
        response = self.ask(named=topic_ids)
        assert [errors for _, errors in said(response)] == [[ErrorCode.NONE]] * len(topic_ids)
        self.id = response.session_id


def said(response):
    """What the answer names: topic ids and errors."""
    return [
        (topic.topic_id, [partition.error_code for partition in topic.partitions])
        for topic in response.responses
    ]


@pytest.fixture
def session(broker) -> Iterator[Session]:
    session = Session(broker.port)
    yield session
    session.socket.close()


@pytest.fixture
def admin(broker) -> Iterator[Admin]:
    with Admin(broker.bootstrap_servers) as admin:
        yield admin


def topic_id_of(admin, topic):
    """Create a topic; its id."""
    admin.create_topics([NewTopic(topic, 1, 1)])
    return admin.describe_topics([topic])[topic].topic_id


def delete(admin, broker, topic, topic_id):
    """Delete a topic; the broker does not know its id any more."""
    admin.delete_topics([topic])
    gone = [(topic_id, [ErrorCode.UNKNOWN_TOPIC_ID])]

    def is_gone():
        session = Session(broker.port)
        with session.socket:
            return said(session.ask(named=[topic_id])) == gone

    wait_until(is_gone, f"topic {topic} to be gone", LIMIT_S)


def test_partition_of_a_deleted_topic_leaves_the_session_when_it_is_forgotten(
    broker, admin, session, unique
):
    """It got two entries when it was named again; one failed at once for ever (1,700 times a s)."""
    topic = unique("deleted")
    topic_id = topic_id_of(admin, topic)
    session.begin(topic_id)
    assert said(session.ask()) == []
    delete(admin, broker, topic, topic_id)

    named_again = session.ask(named=[topic_id])
    assert said(named_again) == [(topic_id, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])]
    forgotten = session.ask(forgotten=[topic_id], max_wait_ms=LONG_WAIT_MS)
    assert (forgotten.error_code, forgotten.session_id, said(forgotten)) == (0, 0, [])
    following = session.ask(max_wait_ms=LONG_WAIT_MS)
    assert following.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_session_waits_for_what_is_left_when_a_deleted_topic_was_forgotten(
    broker, admin, session, unique
):
    """An incremental fetch that names nothing is answered when there are records."""
    topic, other = unique("deleted"), unique("stays")
    topic_id, other_id = topic_id_of(admin, topic), topic_id_of(admin, other)
    session.begin(topic_id, other_id)
    delete(admin, broker, topic, topic_id)
    session.ask(named=[topic_id])
    assert said(session.ask(forgotten=[topic_id])) == []

    session.send(max_wait_ms=LONG_WAIT_MS)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(other, b"news").result(LIMIT_S)
    response = session.receive()

    assert said(response) == [(other_id, [ErrorCode.NONE])]
    assert b"news" in bytes(response.responses[0].partitions[0].records)
