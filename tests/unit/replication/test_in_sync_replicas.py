"""What a leader believes of its in-sync replicas when the controller's words cross on their way."""

from __future__ import annotations

import pytest
from replica_world import LAG_MS, T0, ReplicaWorld

from ottla.errors import ErrorCode
from ottla.log.flush_job import FlushJob
from ottla.replication.append_results import ACKS_LEADER
from ottla.replication.in_sync_replicas import InSyncReplicas
from ottla.structs import LeaderAndIsr


def leading(world):
    return world.brokers[1].manager.partition(T0).leadership


def test_answer_counts_although_the_controller_spoke_of_an_older_state_meanwhile(world):
    """A new controller repeats what it has read; the answer to the change is newer than that."""
    world.answers_isr_changes = False
    world.cut_off(3)
    world.append(1, b"a", timeout_ms=60_000)
    world.advance(2 * LAG_MS)
    ((_, proposed, _, on_done),) = world.isr_changes
    known = world.states[T0].leader_and_isr._replace(version=1)
    world.states[T0] = world.states[T0]._replace(leader_and_isr=known)
    world.tell(only=1)

    on_done(LeaderAndIsr(1, 0, proposed.isr, 2))

    assert leading(world).in_sync.committed == (1, 2)
    assert leading(world).in_sync.version == 2


def test_older_state_from_the_controller_does_not_undo_its_answer(world):
    """LeaderAndIsr and the answer to AlterPartition come over different connections."""
    world.cut_off(3)
    world.append(1, b"a", timeout_ms=60_000)
    before = world.states[T0]
    world.advance(2 * LAG_MS)
    assert leading(world).in_sync.committed == (1, 2)
    known = before.leader_and_isr
    late = before._replace(leader_and_isr=known, replicas=(1, 2, 3))

    leading(world).update(late)

    assert leading(world).in_sync.committed == (1, 2)


def test_batch_that_the_followers_have_not_flushed_is_not_committed(monkeypatch):
    """With flush.messages=1 a follower asks for what comes next when it cannot lose the rest."""
    world = ReplicaWorld(topic_settings={"flush.messages": "1"})
    world.create()
    background, held = world.runtime.background, []
    submit = background.submit

    def hold(job, on_done=None, on_error=None):
        if isinstance(job, FlushJob) and job.disk is not world.disks[1]:
            held.append((job, on_done, on_error))
        else:
            submit(job, on_done, on_error)

    monkeypatch.setattr(background, "submit", hold)
    answers = world.append(1, b"a", timeout_ms=60_000)
    world.advance(2_000)
    assert world.values(2) == world.values(3) == [(0, b"a")]
    assert answers == []
    assert world.brokers[1].log().high_watermark == 0

    monkeypatch.undo()
    for flush in held:
        submit(*flush)
    world.advance(3_000)

    assert [answer.error for answer in answers] == [ErrorCode.NONE]
    assert world.brokers[1].log().high_watermark == 1
    world.close()


def test_change_of_unknown_outcome_is_asked_about_until_it_is_known(world):
    """A dead broker that may be in sync would else be waited for for ever."""
    world.answers_isr_changes = False
    world.cut_off(3)
    world.append(1, b"missed", acks=ACKS_LEADER)
    world.advance(2 * LAG_MS)
    world.answer_isr_changes()
    world.run()
    world.heal()
    world.advance(2_000)
    ((_, proposed, _, on_done),) = world.isr_changes
    assert proposed.isr == (1, 2, 3)
    world.cut_off(3)
    world.isr_changes = []
    on_done(ErrorCode.UNKNOWN_TOPIC_ID)
    answers = world.append(1, b"a", timeout_ms=60_000)
    world.advance(100)
    assert answers == []
    assert leading(world).in_sync.maximal == {1, 2, 3}

    world.advance(2_000)
    ((_, proposed, _, on_done),) = world.isr_changes
    assert proposed.isr == (1, 2)
    on_done(proposed)
    world.advance(2 * LAG_MS)  # until then the follower might still come to be in sync

    assert leading(world).in_sync.maximal == {1, 2}
    assert world.brokers[1].log().high_watermark == 2
    assert len(answers) == 1


def tell_the_leader(world, **changes):
    """The controller speaks of another state in the same epoch."""
    state = world.states[T0]
    replicas = changes.pop("replicas", state.replicas)
    known = state.leader_and_isr._replace(**changes)
    world.states[T0] = state._replace(leader_and_isr=known, replicas=replicas)
    return world.tell(only=1)


def test_in_sync_replicas_that_the_controller_names_count_in_the_same_epoch(world):
    """What waited for one that is not among them is committed at once, and answered."""
    world.kill(3)
    answers = world.append(1, b"a", timeout_ms=60_000)
    assert answers == []

    tell_the_leader(world, version=5, isr=(1, 2))

    assert leading(world).in_sync.committed == (1, 2)
    assert leading(world).in_sync.maximal == {1, 2}
    assert leading(world).in_sync.version == 5
    assert [answer.error for answer in answers] == [ErrorCode.NONE]


def test_replicas_that_the_controller_names_count_in_the_same_epoch(world):
    """What is known of those that stay is kept; one that is removed is refused."""
    world.append(1, b"a")
    world.advance(1_200)
    second = leading(world).followers[2]
    tell_the_leader(world, version=5, isr=(1, 2), replicas=(1, 2, 4))

    assert leading(world).followers == {2: second, 4: leading(world).followers[4]}
    assert leading(world).followers[4].log_end_offset == -1


def test_state_that_is_repeated_does_not_undo_what_is_asked_for(world):
    """The controller may carry the change out after it has said how the partition was before."""
    world.cut_off(3)
    world.append(1, b"missed", acks=ACKS_LEADER)
    world.advance(2 * LAG_MS)
    world.heal()
    world.answers_isr_changes = False
    world.advance(2_000)
    assert leading(world).in_sync.maximal == {1, 2, 3}

    leading(world).update(world.states[T0])

    assert leading(world).in_sync.maximal == {1, 2, 3}
    assert leading(world).in_sync.is_in_flight


def test_answers_that_come_after_a_newer_state_change_nothing(world):
    """Neither an older state, nor a refusal."""
    world.answers_isr_changes = False
    world.cut_off(3)
    world.append(1, b"a", timeout_ms=60_000)
    world.advance(2 * LAG_MS)
    ((_, proposed, _, on_done),) = world.isr_changes
    tell_the_leader(world, version=5, isr=(1, 2, 3))

    on_done(LeaderAndIsr(1, 0, proposed.isr, 4))
    on_done(ErrorCode.INELIGIBLE_REPLICA)

    assert leading(world).in_sync.committed == (1, 2, 3)
    assert leading(world).in_sync.version == 5
    world.isr_changes = []
    world.advance(LAG_MS)
    assert [proposed.isr for _, proposed, _, _ in world.isr_changes] == [(1, 2)]


@pytest.mark.parametrize(("epoch", "version"), [(1, 5), (0, -1)])
def test_answer_of_another_epoch_or_an_older_version_commits_nothing(world, epoch, version):
    """Who is in sync there says nothing of who has this leader's records."""
    world.answers_isr_changes = False
    world.cut_off(3)
    answers = world.append(1, b"a", timeout_ms=60_000)
    world.advance(2 * LAG_MS)
    ((_, proposed, _, on_done),) = world.isr_changes
    before = leading(world).in_sync.version
    on_done(LeaderAndIsr(1, epoch, proposed.isr, version))
    world.run()

    assert answers == []
    assert leading(world).in_sync.committed == (1, 2, 3)
    assert leading(world).in_sync.version == before
    assert not leading(world).in_sync.is_in_flight


def test_follower_that_comes_up_to_where_the_epoch_begins_is_in_sync(world):
    """Though nothing is written in the new epoch that it could copy."""
    world.cut_off(3)
    world.append(1, b"missed", acks=ACKS_LEADER)
    world.advance(2 * LAG_MS)
    world.elect(1, isr=(1, 2))
    world.heal()
    world.tell(only=3)
    world.advance(3_000)

    assert set(leading(world).in_sync.committed) == {1, 2, 3}


def test_change_of_unknown_outcome_is_asked_about_where_nobody_fetches():
    """The leader is the only one in sync, and the follower that it may wait for is dead."""
    world = ReplicaWorld(count=2)
    world.create(replicas=(1, 2))
    world.cut_off(2)
    world.append(1, b"missed", acks=ACKS_LEADER)
    world.advance(2 * LAG_MS)
    world.heal()
    world.answers_isr_changes = False
    world.advance(2_000)
    ((_, proposed, _, on_done),) = world.isr_changes
    world.isr_changes = []
    world.cut_off(2)
    on_done(ErrorCode.UNKNOWN_TOPIC_ID)
    world.advance(LAG_MS)

    assert proposed.isr == (1, 2)
    assert [proposed.isr for _, proposed, _, _ in world.isr_changes] == [(1,)]
    world.close()


def test_changes_are_counted_by_what_became_of_them(world):
    """An answer that changes nothing is none of them."""
    stats = world.brokers[1].manager.stats

    def counts():
        return stats.isr_shrinks, stats.isr_expands, stats.failed_isr_updates

    world.cut_off(3)
    world.append(1, b"missed", acks=ACKS_LEADER)
    world.advance(2 * LAG_MS)
    after_shrinking = counts()
    world.heal()
    world.answers_isr_changes = False
    world.advance(2_000)
    ((_, _, _, on_done),) = world.isr_changes
    world.isr_changes = []
    on_done(ErrorCode.UNKNOWN_TOPIC_ID)
    after_failing = counts()
    world.advance(2_000)
    ((_, proposed, _, on_done),) = world.isr_changes
    on_done(proposed)
    after_asking = counts()
    world.isr_changes = []
    world.answers_isr_changes = True
    world.advance(2_000)

    assert after_shrinking == (1, 0, 0)
    assert after_failing == (1, 0, 1)
    assert (proposed.isr, after_asking) == ((1, 2), (1, 0, 1))
    assert counts() == (1, 1, 1)


@pytest.mark.parametrize(("version", "is_taken"), [(3, False), (4, True), (5, True)])
def test_change_that_is_accepted_is_not_taken_back_by_an_older_one(version, is_taken):
    """The version of the state in the registry tells which is older."""
    in_sync = InSyncReplicas(LeaderAndIsr(1, 0, (1, 2), 4))
    in_sync.propose((1, 2, 3))
    accepted = in_sync.accept(LeaderAndIsr(1, 0, (1, 2, 3), version))

    assert accepted is is_taken
    assert in_sync.committed == ((1, 2, 3) if is_taken else (1, 2))
    assert not in_sync.is_in_flight


def test_change_of_in_sync_replicas_is_logged(world, caplog):
    """An operator reads there when a replica was lost, and when it was back."""
    caplog.set_level("INFO", "ottla.replication.partition_leader")
    world.cut_off(3)
    world.append(1, b"missed", acks=ACKS_LEADER)
    world.advance(2 * LAG_MS)

    assert "t-0: shrinking its in-sync replicas from (1, 2, 3) to (1, 2)" in caplog.text
    assert "t-0: its in-sync replicas are (1, 2)" in caplog.text
