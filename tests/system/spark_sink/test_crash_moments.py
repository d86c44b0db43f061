"""The exactly-once protocol of the Spark sink: every moment at which a process of it may die."""

from __future__ import annotations

import signal

import pytest
from breadth import some
from sink_crash_driver import MOMENTS, main

import ottla
from ottla.spark.decision_log import DecisionLog
from ottla.spark.exactly_once import SinkError

ROWS = ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize(
    ("way", "moment"),
    [
        *(("sink", moment) for moment in some(MOMENTS)),
        *(("foreachBatch", each) for each in some(MOMENTS) if not each.startswith("task")),
    ],
)
def test_each_record_is_there_once_whatever_dies(sink, way, moment):
    """kill -9 in the second batch; the next run shares its rows out to tasks in another way."""
    status = sink.run("first", moment, "0", "a,b/c", "1", "d/e", way=way)
    assert status == -signal.SIGKILL, sink.drivers.log

    main(way, sink.servers, sink.topic, "second", "nothing", "1", "e,d/", "2", "f")

    assert sink.values() == ROWS


@pytest.mark.wide
def test_dying_again_and_again_changes_nothing(sink):
    """A run may die where the one before it died, or earlier."""
    moments = ["driver is deciding", "driver has decided", "some are committed"]
    for number, moment in enumerate(moments):
        assert sink.run(f"run-{number}", moment, "0", "a,b/c,d") < 0

    assert sink.run("last", "nothing", "0", "d,c,b,a", "1", "e,f") == 0, sink.drivers.log
    assert sink.values() == ROWS


def test_only_the_attempt_that_spark_names_counts(sink):
    """Of two attempts of a task that are both complete, and of one that died, one is committed."""
    slow = sink.write(0, 0, "a", "b", attempt=0)
    fast = sink.write(0, 0, "a", "b", attempt=1)
    other = sink.write(0, 1, "c")
    assert slow.transaction != fast.transaction

    sink.committer().commit(0, [fast, other])

    assert sink.values() == ["a", "b", "c"]


def test_of_two_drivers_one_decides(sink):
    """Whoever comes first; the other one's tasks leave nothing."""
    old, new = sink.committer(), sink.committer()
    old.commit(0, [sink.write(0, 0, "a", run="old")])
    early = sink.write(1, 0, "c", "b", run="new")
    new.commit(1, [sink.write(1, 0, "b", "c", run="old")])

    with pytest.raises(SinkError, match="no longer open"):
        old.commit(1, [early])
    new.commit(2, [sink.write(2, 0, "d", run="new")])
    old.abort(1, [early])
    with pytest.raises(SinkError, match="up to 2 are in the topic already"):
        old.commit(1, [early])

    assert sink.values() == ["a", "b", "c", "d"]


def test_processes_that_take_turns_all_decide(sink):
    """Spark gives the commits of one driver to any of its processes: none of them is fenced."""
    processes = [sink.committer(), sink.committer()]
    for batch_id, value in enumerate("abcdef"):
        processes[batch_id // 2 % 2].commit(batch_id, [sink.write(batch_id, 0, value)])

    assert sink.values() == list("abcdef")


def test_decision_of_another_driver_is_carried_out(sink):
    """By one that thought it knew the newest, when the other one died behind its decision."""
    ours = sink.committer()
    ours.commit(0, [sink.write(0, 0, "a")])
    sink.run("other", "driver has decided", "1", "b,c")

    replayed = sink.write(1, 0, "c", "b", run="again")
    assert replayed.transaction is None
    ours.commit(1, [replayed])

    assert sink.values() == ["a", "b", "c"]


def test_failed_batch_leaves_nothing(sink):
    """Spark calls abort when a task has failed for good; what others prepared is undone."""
    committer = sink.committer()
    committer.abort(0, [sink.write(0, 0, "a"), None])

    committer.commit(0, [sink.write(0, 0, "a", "b", run="next")])

    assert sink.values() == ["a", "b"]


def test_abort_after_the_decision_takes_nothing_back(sink):
    """Spark calls it as well when commit has failed behind the point of no return."""
    committer = sink.committer()
    prepared = sink.write(0, 0, "a")
    committer.commit(0, [prepared])

    committer.abort(0, [prepared])

    assert sink.values() == ["a"]


def test_batch_is_refused_whose_transaction_is_over(sink):
    """Before it is decided, so that a restart writes all of it again."""
    prepared = [sink.write(0, 0, "a"), sink.write(0, 1, "b")]
    with ottla.Admin(sink.servers) as admin:
        admin.fence_producers([prepared[1].transaction.transactional_id])

    with pytest.raises(SinkError, match="and no longer open; nothing of the batch counts"):
        sink.committer().commit(0, prepared)
    sink.committer().commit(0, [sink.write(0, 0, "a", "b", run="next")])

    assert sink.values() == ["a", "b"]


def test_batch_that_counts_is_not_written_again(sink):
    """A replay finds it in the decision log, and a batch before it tells of an old checkpoint."""
    sink.committer().commit(3, [sink.write(3, 0, "a")])

    replayed = sink.write(3, 0, "a", run="next")
    assert replayed.transaction is None
    sink.committer().commit(3, [replayed])
    with pytest.raises(SinkError, match="the checkpoint is older than the topic"):
        sink.write(2, 0, "a", run="next")

    assert sink.values() == ["a"]


def test_empty_batches_decide_nothing(sink):
    """No rows, no transactions, and no trace."""
    sink.committer().commit(0, [sink.write(0, 0), sink.write(0, 1)])

    assert DecisionLog(f"ottla-spark-{sink.topic}", sink.options.client).newest() is None


def test_decision_may_name_more_transactions_than_fit_into_one_offset(sink):
    """It goes on in further groups, and is read as one."""
    from ottla.clients.producer.producer import Producer
    from ottla.clients.producer.transactions import PreparedTransaction
    from ottla.spark.decision_log import PIECE_SIZE, BatchDecision, text_of

    log = DecisionLog(f"ottla-spark-{sink.topic}", sink.options.client)
    many = [PreparedTransaction(f"task-{n * n * 7919}", n * 104729, n % 30000) for n in range(900)]
    assert len(text_of(many)) > PIECE_SIZE
    with Producer(sink.servers, transactional_id=f"ottla-spark-{sink.topic}-driver") as producer:
        producer.init_transactions()
        log.record(producer, BatchDecision(7, many), sink.topic)

    assert log.newest() == BatchDecision(7, many)
