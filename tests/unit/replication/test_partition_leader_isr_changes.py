"""What a leader believes of its in-sync replicas when the controller's words cross on their way."""

from __future__ import annotations

from replica_world import LAG_MS, T0, ReplicaWorld

from ottla.errors import ErrorCode
from ottla.log.log_dir import FlushJob
from ottla.replication.replica_requests import ACKS_LEADER
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
