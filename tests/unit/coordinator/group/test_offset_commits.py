"""Commits through the coordinator: who may, what is kept, and what the log says to it."""

import pytest
from group_world import World

from ottla.coordinator.coordinator_writer import SETTLE_MS
from ottla.coordinator.group.group import NOBODY, Committer
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.errors import ErrorCode
from ottla.structs import TopicPartition, TxnProducer

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world():
    """A coordinator whose partition is loaded."""
    return World()


def test_simple_consumer_keeps_offsets_without_members(world):
    """A commit with generation -1 makes a group that is Empty and has offsets."""
    assert world.commit(5).value is ErrorCode.NONE
    assert world.committed() == 5
    assert world.group().protocol_type is None


def test_offsets_may_be_kept_under_the_empty_name(world):
    """Old clients without a group id commit to the group "" (it never has members)."""
    assert world.commit(5, group="").value is ErrorCode.NONE
    assert world.committed(group="") == 5


def test_metadata_and_leader_epoch_are_kept(world):
    """What comes with an offset comes back with it."""
    value = CommittedOffset(5, leader_epoch=3, metadata="note", commit_timestamp_ms=7)
    world.commit(value)

    assert world.coordinator.fetch_offsets("g", [T0]) == (ErrorCode.NONE, {T0: value})


def test_too_long_metadata_fails_alone(world):
    """The other partitions of the commit are stored."""
    too_long = CommittedOffset(1, metadata="é" * 2_049)
    just_fits = CommittedOffset(2, metadata="é" * 2_048)
    results = []
    world.coordinator.commit_offsets(
        "g", Committer(), {T0: too_long, T1: just_fits}, results.append
    )

    assert results == [{T0: ErrorCode.OFFSET_METADATA_TOO_LARGE, T1: ErrorCode.NONE}]
    assert (world.committed(), world.committed(partition=1)) == (None, 2)


def test_commit_of_which_nothing_is_kept_leaves_no_group(world):
    """Neither a refused one nor one that does not fit; in a transaction as well."""
    too_long = {T0: CommittedOffset(1, metadata="x" * 5_000)}
    ignored = []
    world.coordinator.commit_offsets("g", Committer(), too_long, ignored.append)
    assert world.coordinator.manager.group("g") is None
    producer = TxnProducer("x", 7, 0, 1)
    world.coordinator.commit_offsets_in_transaction(
        "g", Committer(), producer, too_long, ignored.append
    )

    assert world.coordinator.manager.group("g") is None
    assert ignored == [{T0: ErrorCode.OFFSET_METADATA_TOO_LARGE}] * 2


def test_commit_is_seen_only_when_replicas_have_it(world):
    """Until the log acknowledges, readers get the offset before."""
    world.commit(5)
    world.log.hold = True
    reply = world.commit(6)
    assert reply.is_open
    assert world.committed() == 5
    world.log.release()

    assert reply.value is ErrorCode.NONE
    assert world.committed() == 6


@pytest.mark.parametrize(
    ("log_error", "answer"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_failed_write_is_told_in_the_words_of_coordinators(world, log_error, answer):
    """Clients of a group know nothing of the offsets topic and its replicas."""
    world.log.error = log_error

    assert world.commit(5).value is answer
    assert world.committed() is None


def test_commit_that_too_few_replicas_have_is_an_error_and_in_the_log(world):
    """The next coordinator will read it, so this one counts it as well."""
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    assert world.commit(5).value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.committed() == 5


def test_commit_that_was_not_replicated_in_time_counts_when_it_is(world):
    """The client is told that it failed, but the log has it, and the next coordinator reads it."""
    world.commit(5)
    world.log.is_replicated = False
    world.log.error = ErrorCode.REQUEST_TIMED_OUT
    assert world.commit(6).value is ErrorCode.REQUEST_TIMED_OUT
    world.advance(60_000)
    assert world.committed() == 5

    world.log.is_replicated = True
    world.advance(SETTLE_MS)
    assert world.committed() == 6


def test_nothing_committed_is_no_error(world):
    """An unknown group, and an unknown partition, have no offset."""
    assert world.committed(group="nobody") is None
    assert world.coordinator.fetch_offsets("nobody", None) == (ErrorCode.NONE, {})
    world.commit(5)
    assert world.committed(partition=9) is None


def test_all_offsets_of_a_group_are_found_without_naming_them(world):
    """Administrators ask for everything."""
    world.commit(5)
    world.commit(6, partition=1)

    _, offsets = world.coordinator.fetch_offsets("g", None)
    assert {key: value.offset for key, value in offsets.items()} == {T0: 5, T1: 6}


def test_offset_may_be_set_back(world):
    """Rewinding is a commit like any other."""
    world.commit(50)
    world.commit(5)

    assert world.committed() == 5


def test_member_without_generation_is_refused_by_a_group_with_members(world):
    """A member must name its generation."""
    (member,) = world.stable_group(None)

    assert world.commit(5, member, -1).value is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("committer", "answer"),
    [
        (Committer("m", 0), ErrorCode.GROUP_ID_NOT_FOUND),
        (Committer("m", 0, knows_epochs=False), ErrorCode.ILLEGAL_GENERATION),
        (Committer("m", 3, knows_epochs=False), ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_member_of_a_group_that_is_not_there_is_refused(world, committer, answer):
    """With an error that its version knows; and nothing is left of the group."""
    results = []
    world.coordinator.commit_offsets("g", committer, {T0: CommittedOffset(1)}, results.append)

    assert results == [{T0: answer}]
    assert world.coordinator.manager.group("g") is None


PRODUCER = TxnProducer("x", 7, 2, session=5)


def commit_in_transaction(world, offset, committer=NOBODY, producer=PRODUCER, **others):
    """The errors of the partitions; None where there is no answer yet."""
    results = []
    offsets = {T0: CommittedOffset(offset), **others.get("offsets", {})}
    world.coordinator.commit_offsets_in_transaction(
        "g", committer, producer, offsets, results.append
    )
    return {p: ErrorCode(error) for p, error in results[0].items()} if results else None


def end(world, commit, place=1_000):
    """The marker of the producer's transaction is in the log."""
    world.coordinator.manager.end_transaction(0, place, PRODUCER.producer_id, commit)


def unstable(world):
    return world.coordinator.unstable_offsets("g", [T0, T1])


@pytest.mark.parametrize(("commit", "left"), [(True, 9), (False, 5)])
def test_offset_in_a_transaction_counts_when_that_is_committed(world, commit, left):
    """Until then readers see the one before, and may ask whether it is going to change."""
    assert unstable(world) == frozenset()
    world.commit(5)
    assert unstable(world) == frozenset()
    assert commit_in_transaction(world, 9) == {T0: ErrorCode.NONE}
    assert world.committed() == 5
    assert unstable(world) == {T0}
    end(world, commit)

    assert world.committed() == left
    assert unstable(world) == frozenset()


def test_group_that_only_an_aborted_transaction_knew_is_gone(world):
    """Nothing of it is left that anybody could ask for."""
    commit_in_transaction(world, 9)
    end(world, commit=False)

    assert world.coordinator.manager.group("g") is None


def test_member_commits_in_a_transaction_in_its_generation(world):
    """Whoever names no member is a producer of old, which its epoch alone fences (KIP-447)."""
    (member,) = world.stable_group(None)
    answers = [
        commit_in_transaction(world, number, committer)
        for number, committer in enumerate(
            [
                Committer(member, 1),
                Committer(),
                Committer(member, 0),
                Committer(member, 2),
                Committer(member, -1),
                Committer("other", 1),
                Committer(group_instance_id="other"),
            ]
        )
    ]

    assert [answer[T0] for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    end(world, commit=True)
    assert world.committed() == 1


def test_generation_of_a_group_that_is_not_there_is_refused_in_a_transaction(world):
    """Generation 0 as well as any other; without one the group is made."""
    for generation in (0, 4):
        old, new = (Committer("m", generation, knows_epochs=knows) for knows in (False, True))
        assert commit_in_transaction(world, 1, old) == {T0: ErrorCode.ILLEGAL_GENERATION}
        assert commit_in_transaction(world, 1, new) == {T0: ErrorCode.GROUP_ID_NOT_FOUND}
    assert world.coordinator.manager.group("g") is None

    assert commit_in_transaction(world, 1, Committer("m", -1)) == {T0: ErrorCode.NONE}


def test_member_of_an_empty_group_may_commit_without_a_generation_only(world):
    """As a consumer that assigns its partitions itself; a generation has ended with its members."""
    (member,) = world.stable_group(None)
    world.leave(member)

    assert commit_in_transaction(world, 1, Committer(member, -1)) == {T0: ErrorCode.NONE}
    assert commit_in_transaction(world, 2, Committer(member, 0)) == {
        T0: ErrorCode.UNKNOWN_MEMBER_ID
    }
    assert world.commit(3, member, 0).value is ErrorCode.UNKNOWN_MEMBER_ID


def test_request_of_a_connection_that_the_producer_has_replaced_is_late(world):
    """It could take an offset back that was sent again by the newer one."""
    assert commit_in_transaction(world, 9) == {T0: ErrorCode.NONE}
    late = PRODUCER._replace(session=4)
    assert commit_in_transaction(world, 1, producer=late) == {T0: ErrorCode.NOT_COORDINATOR}
    end(world, commit=True)

    assert world.committed() == 9


def test_too_long_metadata_fails_alone_in_a_transaction(world):
    """As without one."""
    too_long = {T1: CommittedOffset(1, metadata="x" * 4_097)}

    assert commit_in_transaction(world, 9, offsets=too_long) == {
        T0: ErrorCode.NONE,
        T1: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
    end(world, commit=True)
    assert (world.committed(), world.committed(partition=1)) == (9, None)


def test_commits_wait_for_their_coordinator(world):
    """Who asks a broker that no longer is it looks for the next one."""
    world.commit(5)
    world.coordinator.on_resignation(0)

    assert world.commit(6).value is ErrorCode.NOT_COORDINATOR
    assert commit_in_transaction(world, 9) == {T0: ErrorCode.NOT_COORDINATOR}
    assert delete_offsets(world, T0) == (ErrorCode.NOT_COORDINATOR, {})
    assert unstable(world) == frozenset()


def delete_offsets(world, *partitions):
    """The answer as a whole, and that for each partition."""
    answers = []
    world.coordinator.delete_offsets(
        "g", partitions, lambda error, errors: answers.append((ErrorCode(error), dict(errors)))
    )
    return answers[0]


def test_offsets_of_a_group_without_members_can_be_deleted(world):
    """One that was never committed is no error; with the last one the group is gone."""
    world.commit(5)
    world.commit(6, partition=1)
    assert delete_offsets(world, T0, TopicPartition("u", 3)) == (
        ErrorCode.NONE,
        {T0: ErrorCode.NONE, TopicPartition("u", 3): ErrorCode.NONE},
    )
    assert (world.committed(), world.committed(partition=1)) == (None, 6)
    assert delete_offsets(world, T1) == (ErrorCode.NONE, {T1: ErrorCode.NONE})

    assert world.coordinator.manager.group("g") is None
    assert delete_offsets(world, T1) == (ErrorCode.GROUP_ID_NOT_FOUND, {})


def test_offsets_of_topics_that_members_read_stay(world):
    """Those of the others are deleted."""
    subscription = bytes.fromhex("0000 00000001 000174 ffffffff")  # the topic "t"
    join = world.join(protocols=(("range", subscription),))
    world.stabilize(join)
    other = TopicPartition("u", 0)
    for topic in ("t", "u"):
        world.commit(5, join.value.member_id, 1, topic=topic)

    assert delete_offsets(world, T0, other) == (
        ErrorCode.NONE,
        {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, other: ErrorCode.NONE},
    )
    assert (world.committed(), world.committed("u")) == (5, None)


def test_no_offset_is_deleted_where_nobody_knows_what_members_read(world):
    """Their subscriptions are those of another program."""
    (member,) = world.stable_group(None)
    world.commit(5, member, 1)

    assert delete_offsets(world, T0) == (ErrorCode.NON_EMPTY_GROUP, {})
    assert world.committed() == 5


def test_deletion_that_the_log_refuses_is_told_for_each_partition(world):
    """The offset stays, and can be deleted later."""
    world.commit(5)
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert delete_offsets(world, T0) == (
        ErrorCode.NONE,
        {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE},
    )
    assert world.committed() == 5
