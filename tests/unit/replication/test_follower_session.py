"""The follower's side of fetch sessions."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.fetch import FetchRequest, FetchResponse
from ottla.replication.follower_session import FollowerSession, Wanted
from ottla.structs import TopicPartition

ID = UUID(int=1)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def wanted(offset=0):
    return Wanted(ID, offset, 1, 1, 0, 100)


def ask(session, partitions):
    """Session id and epoch, the partitions that are named, and those that are forgotten."""
    request = FetchRequest(topics=[], forgotten_topics_data=[])
    session.fill(request, partitions, (T0, T1))
    named = [p.partition for topic in request.topics for p in topic.partitions]
    forgotten = [index for topic in request.forgotten_topics_data for index in topic.partitions]
    return request.session_id, request.session_epoch, named, forgotten


def test_session_names_only_what_has_changed():
    """The first request names everything; later ones what moved, and what is not wanted."""
    session = FollowerSession()
    assert ask(session, {T0: wanted(), T1: wanted()}) == (0, 0, [0, 1], [])
    session.accept(FetchResponse(session_id=7))
    assert ask(session, {T0: wanted(), T1: wanted(5)}) == (7, 1, [1], [])
    session.accept(FetchResponse(session_id=7))
    assert ask(session, {T1: wanted(5)}) == (7, 2, [], [0])


def test_session_that_was_not_granted_names_everything_again():
    """The leader's cache may be full; each request is then a full one."""
    session = FollowerSession()
    ask(session, {T0: wanted()})
    session.accept(FetchResponse(session_id=0))

    assert ask(session, {T0: wanted()}) == (0, 0, [0], [])


def test_session_begins_anew_after_an_error():
    """What the leader knows is not known then."""
    session = FollowerSession()
    ask(session, {T0: wanted()})
    session.accept(FetchResponse(session_id=7))
    session.reset()

    assert ask(session, {T0: wanted()}) == (0, 0, [0], [])
