"""Fetch sessions: the table of KIP-227, news only, fairness, and a bounded cache."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.replication.replica_requests import NOTE_AS_CAUGHT_UP_MS, FetchPartitionResult
from ottla.runtime import FileRegion
from ottla.server import fetch_session
from ottla.server.fetch_session import MAX_EPOCH, MIN_EVICTION_MS, FetchSessionCache
from ottla.structs import TopicPartition
from ottla.testing import mock_runtime

ID, NEW_ID = UUID(int=7), UUID(int=8)
OLD, NEW = 12, 13
OTHERS = frozenset([2, 3])


@pytest.fixture
def runtime():
    return mock_runtime()


@pytest.fixture
def cache(runtime):
    return FetchSessionCache(runtime, 2, {ID: "t"}.get, OTHERS.__contains__)


def request(session_id=0, epoch=0, partitions=(0, 1), offset=0, forgotten=(), topic_id=ID):
    """A fetch of some partitions of topic t."""
    wanted = [FetchPartition(partition=index, fetch_offset=offset) for index in partitions]
    topics = [FetchTopic(topic="t", topic_id=topic_id, partitions=wanted)] if wanted else []
    dropped = [ForgottenTopic(topic="t", topic_id=topic_id, partitions=list(forgotten))]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=dropped if forgotten else [],
    )


def results(context, sizes=None):
    """An answer for each partition of the context, with so many bytes."""
    sizes = sizes or {}
    return {
        part.key: FetchPartitionResult(
            ErrorCode.NONE,
            high_watermark=10,
            last_stable_offset=10,
            log_start_offset=0,
            records=FileRegion(None, 0, sizes.get(part.topic_partition.partition, 0)),
        )
        for part in context.partitions
    }


def named(context, sizes=None):
    """The partitions that the answer names."""
    answer = context.answer(results(context, sizes))
    return [part.topic_partition.partition for part, _ in answer]


def test_epoch_minus_one_has_no_session(cache):
    """A sessionless fetch names every partition and leaves nothing behind."""
    context = cache.context_for(request(epoch=-1), OLD)

    assert context.session_id == 0
    assert named(context) == [0, 1]
    assert len(cache) == 0


def test_an_incremental_answer_names_only_what_has_news(cache):
    """After the full answer, a partition is named when it has data or its watermark moved."""
    full = cache.context_for(request(), OLD)
    assert named(full) == [0, 1]

    again = cache.context_for(request(full.session_id, 1, partitions=()), OLD)
    assert named(again) == []
    more = cache.context_for(request(full.session_id, 2, partitions=()), OLD)
    assert named(more, {1: 100}) == [1]


def test_partition_that_is_asked_for_again_from_the_same_offset_is_told_again(cache):
    """A reader with a new leader epoch has dropped the answer to what it asked before."""
    full = cache.context_for(request(), OLD)
    named(full)

    again = cache.context_for(request(full.session_id, 1, partitions=(1,)), OLD)

    assert named(again) == [1]


@pytest.mark.parametrize("epoch", [-1, 0])
def test_partition_that_a_request_names_again_counts_once(cache, epoch):
    """With and without a session; each time it was named cost a look at all of them."""
    body = request(epoch=epoch, partitions=(0, 1, 0))
    body.topics[0].partitions[2].fetch_offset = 5
    context = cache.context_for(body, OLD)

    named_twice = [
        (part.topic_partition.partition, part.fetch_offset) for part in context.partitions
    ]
    assert named_twice == [(0, 5), (1, 0)]


def test_partitions_with_data_go_to_the_end(cache):
    """What was served last is read last, so that a busy partition does not starve the others."""
    full = cache.context_for(request(), OLD)
    named(full, {0: 100})

    following = cache.context_for(request(full.session_id, 1, partitions=()), OLD)

    assert [part.topic_partition.partition for part in following.partitions] == [1, 0]


def test_partitions_are_added_changed_and_forgotten(cache):
    """An incremental request names its changes only."""
    full = cache.context_for(request(), OLD)
    change = request(full.session_id, 1, partitions=(1, 2), offset=5, forgotten=(0,))

    context = cache.context_for(change, OLD)

    assert [(part.topic_partition.partition, part.fetch_offset) for part in context.partitions] == [
        (1, 5),
        (2, 5),
    ]


def test_a_wrong_epoch_or_id_is_refused(cache):
    """The reader is told to start again with a full fetch."""
    full = cache.context_for(request(), OLD)

    assert (
        cache.context_for(request(full.session_id, 5), OLD).error
        is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    )
    assert cache.context_for(request(12345, 1), OLD).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_topic_ids_and_names_do_not_mix(cache):
    """A session that began with names cannot go on with topic ids."""
    full = cache.context_for(request(), OLD)

    context = cache.context_for(request(full.session_id, 1), NEW)

    assert context.error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_topic_ids_are_resolved_to_names(cache):
    """From version 13 on partitions are found by topic id; unknown ids get a name nobody has."""
    known = cache.context_for(request(epoch=-1), NEW)
    assert known.partitions[0].topic_partition == TopicPartition("t", 0)

    unknown = request(epoch=-1)
    unknown.topics[0].topic_id = NEW_ID
    context = cache.context_for(unknown, NEW)

    assert " " in context.partitions[0].topic_partition.topic


def test_a_full_cache_evicts_only_sessions_that_were_idle(cache, runtime):
    """A third session is refused while two are fresh, and replaces the oldest when it is not."""
    first = cache.context_for(request(), OLD)
    cache.context_for(request(), OLD)
    assert cache.context_for(request(), OLD).session_id == 0

    runtime.clock.advance(MIN_EVICTION_MS)

    assert cache.context_for(request(), OLD).session_id != 0
    refused = cache.context_for(request(first.session_id, 1), OLD)
    assert refused.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_final_epoch_closes_the_session(cache):
    """A reader that leaves frees its place."""
    full = cache.context_for(request(), OLD)

    cache.context_for(request(full.session_id, -1), OLD)

    assert len(cache) == 0


def test_topic_that_becomes_known_is_read_under_its_name(runtime):
    """A follower may ask before the leader has heard of the topic; it names it only once."""
    names = {}
    cache = FetchSessionCache(runtime, 2, names.get, OTHERS.__contains__)
    first = cache.context_for(request(partitions=(0,)), NEW)
    assert first.partitions[0].topic_partition.topic == f"(topic id {ID})"
    names[ID] = "t"
    second = cache.context_for(request(first.session_id, 1, partitions=()), NEW)

    assert [part.topic_partition for part in second.partitions] == [("t", 0)]


def test_topic_that_is_no_longer_known_can_be_forgotten(runtime):
    """Its name is gone with it; what is left of it in the session goes by its id."""
    names = {ID: "t"}
    cache = FetchSessionCache(runtime, 2, names.get, OTHERS.__contains__)
    first = cache.context_for(request(), NEW)
    del names[ID]
    second = cache.context_for(request(first.session_id, 1, (), forgotten=(0,)), NEW)

    assert [part.topic_partition for part in second.partitions] == [("t", 1)]


def test_partition_that_is_named_again_when_its_topic_has_gone_is_there_once(runtime):
    """It got a second entry, of which only one could be forgotten; the other failed for ever."""
    names = {ID: "t"}
    cache = FetchSessionCache(runtime, 2, names.get, OTHERS.__contains__)
    session_id = cache.context_for(request(), NEW).session_id
    del names[ID]

    named_again = cache.context_for(request(session_id, 1, partitions=(0,)), NEW)
    assert [part.topic_partition for part in named_again.partitions] == [("t", 0), ("t", 1)]
    forgotten = cache.context_for(request(session_id, 2, (), forgotten=(0,)), NEW)
    assert [part.topic_partition for part in forgotten.partitions] == [("t", 1)]


def test_topic_that_is_made_again_is_another_one_in_the_session(runtime):
    """Each answers for itself, under its own id, until the older one is forgotten."""
    names = {ID: "t"}
    cache = FetchSessionCache(runtime, 2, names.get, OTHERS.__contains__)
    session_id = cache.context_for(request(partitions=(0,)), NEW).session_id
    names.clear()
    names[NEW_ID] = "t"

    both = cache.context_for(request(session_id, 1, (0,), topic_id=NEW_ID), NEW)
    answer = {part.topic_id: result for part, result in both.answer(results(both, {0: 5}))}
    assert answer.keys() == {ID, NEW_ID}
    left = cache.context_for(request(session_id, 2, (), forgotten=(0,)), NEW)
    assert [part.topic_id for part in left.partitions] == [NEW_ID]


def test_session_without_partitions_is_closed(cache):
    """As in Kafka: the answer has session id 0, and the next request is told to begin again."""
    full = cache.context_for(request(), NEW)

    emptied = cache.context_for(request(full.session_id, 1, (), forgotten=(0, 1)), NEW)
    assert (emptied.session_id, list(emptied.partitions)) == (0, [])
    assert emptied.error is ErrorCode.NONE

    following = cache.context_for(request(full.session_id, 2, ()), NEW)
    assert following.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


# What sessions may keep.


def test_connection_has_one_session(cache):
    """The one that it begins later counts; those of other connections stay."""
    first = cache.context_for(request(), OLD, "one").session_id
    other = cache.context_for(request(), OLD, "two").session_id
    second = cache.context_for(request(), OLD, "one").session_id

    assert 0 not in (first, other, second)
    assert len(cache) == 2
    gone = cache.context_for(request(first, 1, ()), OLD, "one")
    assert gone.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.context_for(request(second, 1, ()), OLD, "one").session_id == second


def test_partitions_of_all_sessions_have_a_limit(cache, monkeypatch):
    """A fetch for which there is no room has no session, and is answered all the same."""
    monkeypatch.setattr(fetch_session, "MAX_PARTITIONS", 10)
    one = cache.context_for(request(partitions=range(8)), OLD)
    two = cache.context_for(request(partitions=range(8)), OLD)
    assert (one.session_id > 0, two.session_id, len(two.partitions)) == (True, 0, 8)
    fits = cache.context_for(request(partitions=range(2)), OLD)
    assert fits.session_id > 0
    cache.end(fits)

    grown = cache.context_for(request(one.session_id, 1, range(8, 12)), OLD)
    assert grown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partition_count) == (0, 0)


@pytest.mark.parametrize(("length", "is_kept"), [(249, True), (250, False), (30_000, False)])
def test_no_session_has_a_name_that_no_topic_may_have(cache, length, is_kept):
    """Clients make them up, and a session outlives its connection."""

    def of_long_name(session_id=0, epoch=0):
        wanted = request(session_id, epoch)
        wanted.topics[0].topic = "x" * length
        return cache.context_for(wanted, OLD)

    assert bool(of_long_name().session_id) is is_kept
    known = cache.context_for(request(), OLD)
    again = of_long_name(known.session_id, 1)
    assert again.error is (ErrorCode.NONE if is_kept else ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert len(cache) == 2 * is_kept


def test_session_that_is_ended_is_forgotten(cache):
    """The fetch is answered as one without a session, or its reader has to name all again."""
    full = cache.context_for(request(), OLD)
    cache.end(full)
    assert (full.session_id, full.error, named(full)) == (0, ErrorCode.NONE, [0, 1])

    session_id = cache.context_for(request(), OLD).session_id
    following = cache.context_for(request(session_id, 1), OLD)
    cache.end(following)
    assert following.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


def test_partition_that_is_asked_for_from_another_offset_has_no_news_by_that(cache):
    """Its reader has read on, and knows what it was told."""
    full = cache.context_for(request(), OLD)
    named(full)
    read_on = cache.context_for(request(full.session_id, 1, partitions=(1,), offset=5), OLD)

    assert named(read_on) == []


def test_session_that_is_used_is_not_the_first_to_make_room(cache, runtime):
    """The one that was unused for longest goes; at any hour, none goes that is in use."""
    runtime.clock.advance(2 * MIN_EVICTION_MS)
    first = cache.context_for(request(), OLD).session_id
    second = cache.context_for(request(), OLD).session_id
    assert cache.context_for(request(), OLD).session_id == 0
    runtime.clock.advance(MIN_EVICTION_MS - 1)
    assert cache.context_for(request(first, 1, ()), OLD).session_id == first
    assert cache.context_for(request(), OLD).session_id == 0
    runtime.clock.advance(1)
    assert cache.context_for(request(), OLD).session_id > 0

    assert cache.evicted == 1
    assert cache.context_for(request(first, 2, ()), OLD).error is ErrorCode.NONE
    gone = cache.context_for(request(second, 1, ()), OLD)
    assert gone.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epochs_of_a_session_begin_again_at_one(cache):
    """Behind the largest number that the field can have."""
    context = cache.context_for(request(), OLD)
    context.session.epoch = MAX_EPOCH
    assert MAX_EPOCH == 2**31 - 1
    last = cache.context_for(request(context.session_id, MAX_EPOCH, ()), OLD)
    assert last.error is ErrorCode.NONE

    assert cache.context_for(request(context.session_id, 1, ()), OLD).error is ErrorCode.NONE


def test_number_of_a_closed_session_may_be_used_again(cache, runtime, monkeypatch):
    """By another connection, whose session is not that of the first any longer."""
    numbers = iter([5, 5, 6])
    monkeypatch.setattr(runtime.random, "randrange", lambda *_: next(numbers))
    cache.context_for(request(), OLD, "one")
    cache.context_for(request(5, -1), OLD, "one")
    assert cache.context_for(request(), OLD, "two").session_id == 5
    assert cache.context_for(request(), OLD, "one").session_id == 6

    assert cache.context_for(request(5, 1, ()), OLD, "two").error is ErrorCode.NONE


def test_names_are_looked_up_until_all_are_known(runtime):
    """Not with each fetch: a follower has thousands of partitions."""
    names, asked = {}, []

    def name_of(topic_id):
        asked.append(topic_id)
        return names.get(topic_id)

    cache = FetchSessionCache(runtime, 2, name_of, OTHERS.__contains__)
    session_id = cache.context_for(request(partitions=(0,)), NEW).session_id
    cache.context_for(request(session_id, 1, partitions=()), NEW)
    names[ID] = "t"
    found = cache.context_for(request(session_id, 2, partitions=()), NEW)
    assert [part.topic_partition for part in found.partitions] == [("t", 0)]
    count = len(asked)
    cache.context_for(request(session_id, 3, partitions=()), NEW)

    assert len(asked) == count


# Followers


def follow(session_id=0, epoch=0, **fields):
    """The same fetch of a follower."""
    body = request(session_id, epoch, **fields)
    body.replica_id = 2
    return body


def indexes(context):
    return [part.topic_partition.partition for part in context.partitions]


def test_follower_is_served_what_may_have_news(cache, runtime):
    """Partitions wake its session; every so often all are looked at."""
    runtime.clock.advance(10 * NOTE_AS_CAUGHT_UP_MS)
    full = cache.context_for(follow(), OLD)
    first = cache.context_for(follow(full.session_id, 1, partitions=()), OLD)
    assert indexes(first) == [0, 1]
    awake = full.session.awake
    awake.awake.clear()
    assert indexes(cache.context_for(follow(full.session_id, 2, partitions=()), OLD)) == []
    partition = full.partitions[1]
    partition.session.wake(partition)
    assert indexes(cache.context_for(follow(full.session_id, 3, partitions=()), OLD)) == [1]
    awake.awake.clear()
    runtime.clock.advance(NOTE_AS_CAUGHT_UP_MS)

    assert indexes(cache.context_for(follow(full.session_id, 4, partitions=()), OLD)) == [0, 1]


def test_follower_has_a_session_however_many_consumers_have_one(cache):
    """Without one it names all of its partitions each time; a consumer names few."""
    consumers = [cache.context_for(request(), OLD).session_id for _ in range(2)]
    followers = [cache.context_for(follow(), OLD).session_id for _ in range(3)]

    assert [each > 0 for each in followers] == [True, True, False]
    assert (len(cache), cache.evicted) == (2, 2)
    for gone in consumers:
        answered = cache.context_for(request(gone, 1, ()), OLD)
        assert answered.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.context_for(follow(followers[0], 1, partitions=()), OLD).error is ErrorCode.NONE


def test_partition_that_a_follower_adds_or_forgets_is_looked_at_or_not(cache, runtime):
    """At once, also between the times at which all are."""
    runtime.clock.advance(10 * NOTE_AS_CAUGHT_UP_MS)
    full = cache.context_for(follow(), OLD)
    cache.context_for(follow(full.session_id, 1, partitions=()), OLD)
    added = cache.context_for(follow(full.session_id, 2, partitions=(2,)), OLD)
    assert indexes(added) == [0, 1, 2]
    left = cache.context_for(follow(full.session_id, 3, partitions=(), forgotten=(1,)), OLD)

    assert indexes(left) == [0, 2]


def test_partition_with_records_is_the_last_that_a_follower_reads_again(cache, runtime):
    """A busy one does not starve the others."""
    runtime.clock.advance(10 * NOTE_AS_CAUGHT_UP_MS)
    full = cache.context_for(follow(), OLD)
    cache.context_for(follow(full.session_id, 1, partitions=()), OLD)
    again = cache.context_for(follow(full.session_id, 2, partitions=()), OLD)
    assert named(again, {0: 100})[:1] == [0]

    following = cache.context_for(follow(full.session_id, 3, partitions=()), OLD)
    assert indexes(following) == [1, 0]
