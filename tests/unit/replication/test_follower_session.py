"""The follower's side of fetch sessions."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import (
    LAST_VERSION_WITH_NAMES,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.replication import follower_session
from ottla.replication.follower_session import FollowerSession, PartitionFetchState
from ottla.structs import TopicPartition

ID, NEW_ID = UUID(int=1), UUID(int=2)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def wanted(offset=0, topic_id=ID):
    return PartitionFetchState(topic_id, offset, 1, 1, 0, 100)


def ask(session, partitions, version=FetchRequest.max_version):
    """Session id and epoch, the partitions that are named, and those that are forgotten."""
    request = FetchRequest(topics=[], forgotten_topics_data=[])
    session.fill(request, partitions, (T0, T1), version)
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


def test_session_keeps_no_names_without_end(monkeypatch):
    """It lives for months, while topics come and go; those that it has are known by their ids."""
    monkeypatch.setattr(follower_session, "NAMED_AT_ONCE", 3)
    session = FollowerSession()
    for number in range(100):
        topic_id, one = UUID(int=100 + number), TopicPartition(f"t{number}", 0)
        request = FetchRequest(topics=[], forgotten_topics_data=[])
        known = {T0: wanted(), one: wanted(topic_id=topic_id)}
        session.fill(request, known, (*session.known, *known), FetchRequest.max_version)
        answered = session.accept(
            FetchResponse(
                session_id=7,
                responses=[
                    FetchableTopicResponse(topic_id=each, partitions=[PartitionData()])
                    for each in (ID, topic_id)
                ],
            )
        )
        assert [tp for tp, _, _ in answered] == [T0, one]
        assert len(session.names) <= 2 * len(known) + 3


def test_session_of_very_many_partitions_is_told_of_some_at_a_time(monkeypatch):
    """A leader takes no request of any size; what is left comes with the next one."""
    monkeypatch.setattr(follower_session, "NAMED_AT_ONCE", 2)
    partitions = {TopicPartition("t", number): wanted() for number in range(5)}
    session, left, named = FollowerSession(), (), []
    for _ in range(3):
        request = FetchRequest(topics=[], forgotten_topics_data=[])
        left = session.fill(request, partitions, left, FetchRequest.max_version)
        session.accept(FetchResponse(session_id=7))
        named.append([p.partition for topic in request.topics for p in topic.partitions])

    assert (named, left) == ([[0, 1], [2, 3], [4]], [])


def test_session_that_was_not_granted_names_everything_again():
    """The leader's cache may be full; each request is then a full one."""
    session = FollowerSession()
    ask(session, {T0: wanted()})
    session.accept(FetchResponse(session_id=0))

    assert ask(session, {T0: wanted()}) == (0, 0, [0], [])


@pytest.mark.parametrize("count", range(1, 12))
def test_partitions_have_their_turns_where_no_session_is_granted(monkeypatch, count):
    """None is named a second time before all others were named once."""
    monkeypatch.setattr(follower_session, "NAMED_AT_ONCE", 3)
    partitions = {TopicPartition("t", number): wanted() for number in range(count)}
    session, named = FollowerSession(), []
    for _ in range(count):
        request = FetchRequest(topics=[], forgotten_topics_data=[])
        session.fill(request, partitions, partitions, FetchRequest.max_version)
        session.accept(FetchResponse(session_id=0))
        named += [p.partition for topic in request.topics for p in topic.partitions]

    assert named == (list(range(count)) * len(named))[: len(named)]


def answer(session_id, *partitions, topic_id=ID, error=0):
    """What the leader answers for these partitions; their topic goes by its id."""
    data = [PartitionData(partition_index=index, error_code=error) for index in partitions]
    topics = [FetchableTopicResponse(topic_id=topic_id, partitions=data)] if data else []
    return FetchResponse(session_id=session_id, responses=topics)


def test_new_session_after_an_error_takes_the_place_of_the_old_one():
    """What the leader knows is not certain then; the old session is not left in its cache."""
    session = FollowerSession()
    ask(session, {T0: wanted()})
    session.accept(FetchResponse(session_id=7))
    session.reset()

    assert ask(session, {T0: wanted()}) == (7, 0, [0], [])


def test_session_that_the_leader_does_not_know_is_not_named_again():
    """After a restart of the leader its id may be that of another reader's session."""
    session = FollowerSession()
    ask(session, {T0: wanted()})
    session.accept(FetchResponse(session_id=7))
    with pytest.raises(KafkaError) as refused:
        session.accept(FetchResponse(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)))
    session.reset()

    assert refused.value.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert ask(session, {T0: wanted()}) == (0, 0, [0], [])


def test_answer_without_a_session_is_taken():
    """The names of the topics were lost with the session, and nothing was copied."""
    session = FollowerSession()
    ask(session, {T0: wanted(), T1: wanted()})

    answered = session.accept(answer(0, 0, 1))

    assert [topic_partition for topic_partition, _, _ in answered] == [T0, T1]


def test_answer_comes_with_what_was_last_asked(monkeypatch):
    """Not with what is wanted, where a request had no room for that."""
    monkeypatch.setattr(follower_session, "NAMED_AT_ONCE", 2)
    session = FollowerSession()
    ask(session, {T0: wanted(), T1: wanted()})
    session.accept(answer(7, 0, 1))
    monkeypatch.setattr(follower_session, "NAMED_AT_ONCE", 1)
    ask(session, {T0: wanted(5), T1: wanted(5)})

    asked = [each for _, each, _ in session.accept(answer(7, 0, 1))]

    assert asked == [wanted(5), wanted()]


@pytest.mark.parametrize("stray", [{"topic_id": NEW_ID}, {"partition": 1}])
def test_answer_for_what_was_not_asked_for_ends_the_session(stray):
    """A leader that kept a deleted topic answered with its error at once, 1,700 times a second."""
    session = FollowerSession()
    ask(session, {T0: wanted(), T1: wanted()})
    session.accept(answer(7, 0, 1))
    ask(session, {T0: wanted()})  # T1 is forgotten

    index, topic_id = stray.get("partition", 0), stray.get("topic_id", ID)
    topic = "t" if topic_id == ID else NEW_ID
    asked_for = f"partition {index} of topic {topic}, which it was not asked for"
    with pytest.raises(KafkaError, match=asked_for):
        session.accept(answer(7, index, topic_id=topic_id, error=3))


def test_older_topic_of_the_same_name_is_forgotten():
    """By topic id it is another partition, which would stay in the leader's session."""
    session = FollowerSession()
    ask(session, {T0: wanted(), T1: wanted()})
    session.accept(answer(7, 0, 1))
    request = FetchRequest(topics=[], forgotten_topics_data=[])

    changed = {T0: wanted(topic_id=NEW_ID)}
    session.fill(request, changed, (T0, T1), FetchRequest.max_version)

    assert [(topic.topic_id, topic.partitions[0].partition) for topic in request.topics] == [
        (NEW_ID, 0)
    ]
    forgotten = request.forgotten_topics_data
    assert [(topic.topic_id, sorted(topic.partitions)) for topic in forgotten] == [(ID, [0, 1])]


def test_older_topic_is_replaced_where_topics_go_by_name():
    """To forget the older one by name would take the new one out of the session."""
    session = FollowerSession()
    ask(session, {T0: wanted()})
    session.accept(FetchResponse(session_id=7))

    renewed = ask(session, {T0: wanted(topic_id=NEW_ID)}, LAST_VERSION_WITH_NAMES)

    assert renewed == (7, 1, [0], [])


def test_session_that_lives_long_begins_to_count_anew():
    """An epoch has 32 bits, and 0 would ask for another session."""
    session = FollowerSession()
    ask(session, {T0: wanted()})
    session.accept(FetchResponse(session_id=7))
    session._epoch = 2**31 - 1
    assert ask(session, {T0: wanted()}) == (7, 2**31 - 1, [], [])
    session.accept(FetchResponse(session_id=7))

    assert ask(session, {T0: wanted()}) == (7, 1, [], [])
