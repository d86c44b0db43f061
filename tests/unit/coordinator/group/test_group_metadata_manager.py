"""From memory to the log and back: restarts, deletion and expiry."""

from uuid import UUID

import pytest
from group_world import EMPTY, INITIAL_DELAY_MS, SESSION_MS, STABLE, MemoryOffsetsLog, Reply, World

from ottla.coordinator.coordinator_writer import SETTLE_MS
from ottla.coordinator.group import group_coordinator, topic_drops
from ottla.coordinator.group.classic_group import GroupState, group_key
from ottla.coordinator.group.group import NOBODY
from ottla.coordinator.group.group_metadata_manager import WRITE_AGAIN_MS
from ottla.coordinator.group.group_records import offset_key
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.coordinator.group.topic_drops import COST_OF_A_GROUP
from ottla.errors import ErrorCode, KafkaError
from ottla.record.batch_builder import build_end_transaction_marker
from ottla.record.control_record import ControlRecordType, EndTransactionMarker
from ottla.runtime.scheduler import at_once
from ottla.structs import LeaderAndIsr, PartitionState, TopicPartition, TxnProducer

T0 = TopicPartition("t", 0)
MINUTE_MS = 60_000
WEEK_MS = 10_080 * MINUTE_MS
CHECK_MS = 10 * MINUTE_MS
SUBSCRIBED_TO_T = (("range", bytes.fromhex("0000 00000001 000174 ffffffff")),)


@pytest.fixture
def world():
    """A coordinator whose partition is loaded."""
    return World()


def restarted(world):
    """A new coordinator over what the old one wrote."""
    return World(log=world.log)


def test_members_go_on_after_a_restart(world):
    """Heartbeats of the last generation are good, and the assignments are still known."""
    leader, follower = world.stable_group(None, "two")
    world.commit(5, follower, 1)
    after = restarted(world)

    assert after.state is STABLE
    assert after.heartbeat(leader, 1) is ErrorCode.NONE
    assert after.sync(follower, 1).value.assignment == follower.encode()
    assert after.group().static_members == {"two": follower}
    assert after.group().leader_id == leader
    assert after.committed() == 5


def test_members_that_do_not_come_back_after_a_restart_expire(world):
    """Sessions begin when loading has ended."""
    world.stable_group(None, None)
    after = restarted(world)
    after.advance(SESSION_MS - 1)
    assert after.state is STABLE
    after.advance(1)

    assert after.state is EMPTY


def test_empty_group_is_empty_after_a_restart(world):
    """Members that left stay away."""
    (member,) = world.stable_group(None)
    world.leave(member)
    after = restarted(world)

    assert (after.state, after.group().generation_id) == (EMPTY, 2)
    assert after.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_restarted_static_member_is_known_after_a_restart_of_the_broker(world):
    """The new id was written before the member was told it."""
    world.stable_group("one", "two")
    back = world.join(instance="two", version=5).value.member_id
    after = restarted(world)

    assert after.heartbeat(back, 1, group_instance_id="two") is ErrorCode.NONE


def test_group_over_the_limit_rebalances_after_a_restart(world):
    """If group.max.size was lowered, the members may commit, and not all get in again."""
    world.stable_group(None, None)
    after = World(log=world.log, group_max_size=1)

    assert after.state is GroupState.PREPARING_REBALANCE


def test_requests_during_loading_are_refused(world):
    """Until the partition is read nobody knows what was committed."""
    (member,) = world.stable_group(None)
    coordinator = world.coordinator
    coordinator.on_resignation(0)
    coordinator.on_election(0)

    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.join().error is loading
    assert world.commit(5).value is loading
    assert coordinator.fetch_offsets("g", None) == (loading, {})
    assert world.leave(member) == [loading]
    assert at_once(coordinator.describe_groups(["g"]))[0].error_code == loading
    assert world.delete("g") == {"g": loading}
    assert world.heartbeat(member, 1) is ErrorCode.NONE, "the session begins after loading"
    assert world.sync(member, 1).error is ErrorCode.REBALANCE_IN_PROGRESS

    world.advance(0)
    assert world.heartbeat(member, 1) is ErrorCode.NONE
    assert world.commit(5, member, 1).value is ErrorCode.NONE


def test_heartbeats_count_while_other_groups_are_loaded(world, monkeypatch):
    """The session of a group that is read first runs while thousands of others are read."""
    (member,) = world.stable_group(None)
    world.commit(5, group="later")
    monkeypatch.setattr(topic_drops, "OFFSETS_IN_A_STEP", 1)
    world.coordinator.on_resignation(0)
    world.coordinator.on_election(0)
    calls = []
    monkeypatch.setattr(world.runtime.scheduler, "call_soon", calls.append)
    world.advance(0)
    while "g" not in world.coordinator.manager._groups:
        calls.pop()()
    for _ in range(3):
        world.advance(SESSION_MS - 1)
        assert world.coordinator.availability("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert world.heartbeat(member, 1) is ErrorCode.NONE
    while calls:
        calls.pop()()

    assert world.state is STABLE
    assert world.heartbeat(member, 1) is ErrorCode.NONE


PRODUCER = TxnProducer("x", 7, 2)


def in_turns(world, count, act):
    """Do something so many turns of the loop later."""
    if count:
        world.runtime.scheduler.call_soon(lambda: in_turns(world, count - 1, act))
    else:
        act()


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("turns", range(40))
def test_transaction_may_end_in_any_turn_of_loading(world, monkeypatch, turns, is_commit):
    """While the log is read, between its end and the last group, and after that."""
    monkeypatch.setattr(topic_drops, "OFFSETS_IN_A_STEP", 10)
    offsets = {TopicPartition("t", number): CommittedOffset(9) for number in range(300)}
    for group in "abcd":
        world.coordinator.commit_offsets_in_transaction(
            group, NOBODY, PRODUCER, offsets, lambda errors: None
        )
    manager = world.coordinator.manager
    world.coordinator.on_resignation(0)
    world.coordinator.on_election(0)

    def end():
        kind = ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT
        marker = build_end_transaction_marker(EndTransactionMarker(kind, 0), 0, 7, 2)
        world.log.append(
            0, marker, lambda error, place: manager.end_transaction(0, place, 7, is_commit)
        )

    in_turns(world, turns, end)
    world.advance(0)

    assert manager.differences(0) == []
    assert [world.committed(group=each) for each in "abcd"] == [9 if is_commit else None] * 4
    assert len(manager.groups()) == (4 if is_commit else 0)


def test_second_election_changes_nothing(world):
    """A partition that is loaded is not read again."""
    (member,) = world.stable_group(None)
    world.coordinator.on_election(0)

    assert world.heartbeat(member, 1) is ErrorCode.NONE
    assert world.commit(5, member, 1).value is ErrorCode.NONE


def test_partition_that_cannot_be_read_is_not_served_until_it_can(world, caplog):
    """Answering without knowing what was committed would lose offsets; nobody else would answer."""
    world.commit(4)
    read = world.log.read

    def broken(partition):
        raise OSError("too many open files")
        yield

    world.log.read = broken
    world.coordinator.on_resignation(0)
    world.coordinator.on_election(0)
    world.advance(10_000)
    assert world.commit(5).value is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert "cannot be read" in caplog.text

    world.log.read = read
    world.advance(30_000)
    assert world.committed() == 4


def test_groups_of_other_partitions_stay_when_one_moves():
    """A resignation concerns one partition only."""
    world = World(log=MemoryOffsetsLog(partition_count=2))
    world.commit(1, group="a")
    world.commit(2, group="b")
    world.coordinator.on_resignation(world.log.partition_for("a"))

    assert world.listed() == ["b"]
    assert world.commit(1, group="a").value is ErrorCode.NOT_COORDINATOR


def test_deleted_group_is_gone_from_memory_and_log(world):
    """Offsets and group get records without a value."""
    (member,) = world.stable_group(None)
    world.commit(5, member, 1)
    world.leave(member)
    assert world.delete("g") == {"g": ErrorCode.NONE}

    assert world.log.records()[-2:] == [(offset_key("g", T0), None), (group_key("g"), None)]
    assert world.listed() == restarted(world).listed() == []
    assert world.committed() is None


def test_group_with_members_is_not_deleted(world):
    """Only Empty groups can be deleted, each on its own."""
    world.stable_group(None)
    world.commit(5, group="simple")

    assert world.delete("g", "simple", "nobody", "g") == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "simple": ErrorCode.NONE,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def test_deletion_that_cannot_be_stored_is_told(world):
    """The client must know that the group may come back."""
    world.commit(5)
    world.log.error = ErrorCode.NOT_LEADER_OR_FOLLOWER

    assert world.delete("g") == {"g": ErrorCode.NOT_COORDINATOR}


def test_deletion_of_many_offsets_takes_several_batches(world):
    """One batch would be larger than the topic takes."""
    for partition in range(1_001):
        world.commit(1, partition=partition)
    before = len(world.log.partitions[0])
    world.delete("g")

    assert len(world.log.partitions[0]) == before + 2
    assert restarted(world).listed() == []


def test_commit_under_way_does_not_revive_a_deleted_group(world):
    """The tombstones were written after it."""
    world.commit(1)
    world.log.hold = True
    reply = world.commit(2)
    deletion = Reply()
    world.coordinator.manager.delete_group(world.group(), deletion)
    world.log.release()

    assert (reply.value, deletion.value) == (ErrorCode.NONE, ErrorCode.NONE)
    assert world.committed() is None
    assert restarted(world).committed() is None


def test_simple_offsets_expire_by_commit_time(world):
    """Without members only the age of the commit counts (KIP-211)."""
    world.commit(5)
    world.advance(WEEK_MS - CHECK_MS)
    assert world.committed() == 5
    world.advance(2 * CHECK_MS)

    assert world.committed() is None
    assert world.listed() == restarted(world).listed() == []


def test_offsets_of_an_empty_group_expire_by_the_time_it_became_empty(world):
    """A group that worked until yesterday keeps offsets of quiet partitions."""
    (member,) = world.stable_group(None)
    world.commit(CommittedOffset(5, commit_timestamp_ms=0), member, 1)
    world.leave(member)
    world.advance(WEEK_MS - 2 * CHECK_MS)
    assert world.committed() == 5
    world.advance(3 * CHECK_MS)

    assert world.listed() == []
    assert world.log.records()[-1] == (group_key("g"), None)


def test_offsets_of_topics_that_members_read_do_not_expire(world):
    """A stable group of consumers loses only offsets of topics that it left (KIP-211)."""
    world.stabilize(world.join(protocols=SUBSCRIBED_TO_T))
    group = world.group()
    (member,) = group.members
    world.commit(CommittedOffset(5, commit_timestamp_ms=0), member, 1)
    world.commit(CommittedOffset(6, commit_timestamp_ms=0), member, 1, topic="left")
    count = at_once(world.coordinator.expire_offsets())

    assert count == 1
    assert (world.committed(), world.committed(topic="left")) == (5, None)


def test_offsets_of_many_groups_expire_in_slices(world, monkeypatch):
    """Groups may go, and others commit, between two slices; what is left is expired."""
    monkeypatch.setattr(group_coordinator, "OFFSETS_IN_A_SLICE", 2 * COST_OF_A_GROUP)
    for number in range(6):
        world.commit(CommittedOffset(5, commit_timestamp_ms=0), group=f"g{number}")
    manager = world.coordinator.manager
    expiry = world.coordinator.expire_offsets()
    next(expiry)
    left = [group.group_id for group in manager.groups() if not group.is_dying]
    assert len(left) == 4
    world.commit(
        CommittedOffset(6, commit_timestamp_ms=world.runtime.clock.now_ms()), group=left[0]
    )
    manager.delete_group(manager.group(left[1]), lambda error: None)

    assert at_once(expiry) == 4
    assert world.listed() == restarted(world).listed() == [left[0]]


@pytest.mark.parametrize("meanwhile", ["nothing", "commit", "join", "delete"])
def test_offsets_of_a_large_group_expire_in_slices(world, monkeypatch, meanwhile):
    """Each slice goes by the group as it is then; the last one takes the group as well."""
    monkeypatch.setattr(group_coordinator, "OFFSETS_IN_A_SLICE", 2)
    old = CommittedOffset(5, commit_timestamp_ms=0)
    for partition in range(5):
        world.commit(old, partition=partition)
    expiry = world.coordinator.expire_offsets()
    next(expiry)
    if meanwhile == "commit":
        world.commit(6, partition=4)
    elif meanwhile == "join":
        world.join(version=3)
    elif meanwhile == "delete":
        world.delete("g")
    count = at_once(expiry)
    world.advance(0)

    left = {"nothing": [], "commit": [4], "join": [2, 3, 4], "delete": []}[meanwhile]
    assert count == (2 if meanwhile == "delete" else 5 - len(left))
    assert [n for n in range(5) if world.committed(partition=n) is not None] == left
    assert world.coordinator.manager.differences(0) == []
    assert world.listed() == (["g"] if left else [])


def test_offsets_in_open_transactions_do_not_expire(world):
    """Neither those that wait for its end nor older ones of the same partitions."""
    world.commit(CommittedOffset(5, commit_timestamp_ms=0))
    world.commit(CommittedOffset(5, commit_timestamp_ms=0), topic="quiet")
    group, producer = world.group(), TxnProducer("x", 7, 0, 1)
    staged = {T0: CommittedOffset(6, commit_timestamp_ms=0)}
    world.coordinator.manager.store_offsets_in_transaction(
        group, producer, staged, lambda error: None
    )

    assert at_once(world.coordinator.expire_offsets()) == 1
    assert (world.committed(), world.committed(topic="quiet")) == (5, None)


def test_offsets_of_other_protocols_do_not_expire_while_there_are_members(world):
    """Whose subscription cannot be read may be reading anything."""
    world.stabilize(world.join(protocol_type="connect", protocols=(("c", b"?"),)))
    (member,) = world.group().members
    world.commit(CommittedOffset(5, commit_timestamp_ms=0), member, 1)

    assert at_once(world.coordinator.expire_offsets()) == 0


def test_retention_time_of_a_client_is_kept_over_a_restart(world):
    """An expiry time is stored with the offset (value version 1)."""
    expiry_ms = world.runtime.clock.now_ms() + 5 * MINUTE_MS
    world.commit(CommittedOffset(5, commit_timestamp_ms=1, expire_timestamp_ms=expiry_ms))
    after = restarted(world)
    assert after.committed() == 5
    after.advance(CHECK_MS)

    assert after.committed() is None


@pytest.mark.parametrize("is_in_transaction", [False, True])
def test_offset_that_has_no_record_is_not_under_way(is_in_transaction):
    """Its group is forgotten: nothing waits for a write that never begins."""
    world = World(offset_metadata_max_bytes=100_000)
    expiring = CommittedOffset(1, metadata="m" * 40_000, expire_timestamp_ms=2)
    for offsets in ({T0: expiring}, {T0: CommittedOffset(1), TopicPartition("t", 1): expiring}):
        commit, producer = world.coordinator.commit_offsets, ()
        if is_in_transaction:
            commit = world.coordinator.commit_offsets_in_transaction
            producer = (TxnProducer("x", 7, 0),)
        with pytest.raises(KafkaError, match="metadata"):
            commit("g", NOBODY, *producer, offsets, pytest.fail)

        assert world.coordinator.manager.group("g") is None
    assert world.log.records() == []


def test_offset_with_a_commit_under_way_does_not_expire(world):
    """It is about to be younger."""
    world.commit(CommittedOffset(5, commit_timestamp_ms=0))
    world.log.hold = True
    world.commit(6)

    assert at_once(world.coordinator.expire_offsets()) == 0


def test_offsets_of_deleted_topics_are_dropped(world):
    """A topic that is made again under the same name must not be read from the middle."""
    (member,) = world.stable_group(None)
    world.commit(5, member, 1)
    world.commit(6, member, 1, topic="kept")
    world.commit(7, group="simple")
    world.coordinator.manager.drop_topics({"t"})

    assert (world.committed(), world.committed(topic="kept")) == (None, 6)
    assert world.listed() == ["g"], "nothing was left of the other group"
    after = restarted(world)
    assert (after.committed(), after.committed(topic="kept")) == (None, 6)


def test_deletion_of_offsets_of_a_deleted_topic_is_tried_until_it_is_written(world):
    """The next coordinator would find them; this one does not show them meanwhile."""
    world.commit(5)
    world.commit(6, topic="kept")
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.coordinator.manager.drop_topics({"t"})
    world.advance(10 * WRITE_AGAIN_MS)
    assert (world.committed(), world.committed(topic="kept")) == (None, 6)
    assert world.coordinator.manager.differences(0) != []

    world.log.error = ErrorCode.NONE
    world.advance(WRITE_AGAIN_MS)
    assert world.coordinator.manager.differences(0) == []
    assert restarted(world).committed() is None


def test_refused_tombstones_are_tried_once_in_a_while_however_many_topics_go(world):
    """A log that is out of order for an hour must not get more and more writes."""
    for number in range(4):
        world.commit(5, topic=f"t{number}")
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    for number in range(4):
        world.coordinator.manager.drop_topics({f"t{number}"})
    append, tries = world.log.append, []
    world.log.append = lambda *arguments: [tries.append(arguments), append(*arguments)]
    world.advance(10 * WRITE_AGAIN_MS)

    assert len(tries) == 10


def test_offset_of_a_deleted_topic_is_gone_before_one_of_the_new_topic_is_staged(world):
    """A tombstone behind it would delete it, and without one the next coordinator has the old."""
    world.commit(5)
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.coordinator.manager.drop_topics({"t"})
    world.log.error = ErrorCode.NONE
    world.coordinator.commit_offsets_in_transaction(
        "g", NOBODY, TxnProducer("x", 7, 0, 1), {T0: CommittedOffset(1)}, Reply()
    )
    assert restarted(world).committed() is None

    world.advance(10 * WRITE_AGAIN_MS)
    assert world.group().offsets.staged() == {7: {T0: CommittedOffset(1)}}
    assert world.coordinator.manager.differences(0) == []


def test_group_that_was_given_up_writes_nothing_any_longer(world, monkeypatch):
    """Its members are answered in slices; this broker may have the partition again by then."""
    monkeypatch.setattr(group_coordinator, "GROUPS_IN_A_SLICE", 1)
    for group in ("a", "g"):
        world.commit(5, group=group)
    former = world.coordinator.manager.group("g")
    world.coordinator.on_resignation(0)
    world.coordinator.on_election(0)
    answer, end = Reply(), world.log.end_offset(0)
    world.coordinator.manager.store_offsets(former, {T0: CommittedOffset(9)}, answer)
    world.advance(0)

    assert answer.value is ErrorCode.NOT_COORDINATOR
    assert (world.log.end_offset(0), world.committed()) == (end, 5)


def test_topic_that_was_deleted_while_groups_were_being_read_has_no_offsets(world):
    """The deletion is heard once only, and must not be lost because the groups are not there."""
    world.commit(5)
    world.commit(6, topic="kept")
    world.coordinator.on_resignation(0)
    world.coordinator.on_election(0)
    world.coordinator.manager.drop_topics({"t"})
    world.advance(0)

    assert (world.committed(), world.committed(topic="kept")) == (None, 6)
    assert world.coordinator.manager.differences(0) == []


@pytest.mark.parametrize("knows_all", [True, False])
@pytest.mark.parametrize("is_loaded", [True, False])
def test_topic_that_was_deleted_while_nobody_coordinated_has_no_offsets(
    world, knows_all, is_loaded
):
    """A former coordinator died before it wrote tombstones; nothing is done by hearsay."""
    kept = PartitionState(TopicPartition("kept", 0), UUID(int=1), 1, LeaderAndIsr(0, 0, (0,)), (0,))
    world.topics.update([kept], [])
    world.topics.is_complete = knows_all and not is_loaded
    world.commit(5)
    world.commit(6, topic="kept")
    after = World(log=world.log)
    after.coordinator.shutdown()
    after.topics = world.topics
    after.start()
    if is_loaded:
        world.topics.is_complete = knows_all
        after.coordinator.manager.drop_deleted_topics()

    assert (after.committed(), after.committed(topic="kept")) == (None if knows_all else 5, 6)
    assert after.coordinator.manager.differences(0) == []


@pytest.mark.parametrize(
    ("known", "committed_in", "counts"),
    [(7, 7, True), (8, 7, False), (None, 7, True), (0, 7, True), (8, 0, True)],
)
def test_offset_in_a_topic_that_was_made_again_does_not_count(world, known, committed_in, counts):
    """Its tombstone could not be written while there was no topic of the name; 0 is no id."""
    world.commit(CommittedOffset(5, topic_id=UUID(int=committed_in)))
    world.topics.is_complete = known is not None
    if known is not None:
        made_again = LeaderAndIsr(0, 0, (0,))
        world.topics.update([PartitionState(T0, UUID(int=known), 1, made_again, (0,))], [])
    after = World(log=world.log)
    after.coordinator.shutdown()
    after.topics = world.topics
    after.start()

    for each in world, after:
        manager = each.coordinator.manager
        assert each.committed() == (5 if counts else None)
        assert list(each.group().offsets.current(manager.is_deleted)) == [T0] * counts
        assert manager.differences(0) == []
    world.commit(CommittedOffset(6, topic_id=UUID(int=8)))
    assert world.committed() == (6 if known in (8, None, 0) else None)


def test_group_waits_while_its_deletion_is_on_its_way(world):
    """It is neither there nor gone: a member that joined now would be in no record."""
    world.commit(5)
    world.log.hold = True
    manager, answers = world.coordinator.manager, []
    manager.delete_group(world.group(), answers.append)
    assert world.committed_error() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.join().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert answers == []
    world.log.hold = False
    world.log.release()

    assert answers == [ErrorCode.NONE]
    assert manager.group("g") is None
    assert world.commit(1).value is ErrorCode.NONE


def test_group_whose_deletion_is_refused_stays(world):
    """It is in the log, so it would be back after a restart anyway."""
    world.commit(5)
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.delete("g") == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}

    assert world.committed() == 5
    assert world.coordinator.manager.differences(0) == []


def test_group_is_gone_when_its_deletion_is_replicated_in_the_end(world):
    """The client has heard that it failed; the log has it."""
    world.commit(5)
    world.log.error, world.log.is_replicated = ErrorCode.REQUEST_TIMED_OUT, False
    assert world.delete("g") == {"g": ErrorCode.REBALANCE_IN_PROGRESS}
    world.log.error, world.log.is_replicated = ErrorCode.NONE, True
    world.advance(SETTLE_MS)

    assert world.coordinator.manager.group("g") is None
    assert world.coordinator.manager.differences(0) == []


def test_group_that_is_waiting_for_members_is_no_leftover(world):
    """A first rebalance that takes its time is not swept away."""
    reply = world.join()
    at_once(world.coordinator.expire_offsets())
    world.advance(INITIAL_DELAY_MS)

    assert reply.error is ErrorCode.NONE
