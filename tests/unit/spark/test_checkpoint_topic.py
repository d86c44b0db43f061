"""A checkpoint that its topic gives back, whoever had it, and wherever that one died."""

from __future__ import annotations

import json
import shutil
import uuid

import pyarrow as pa
import pytest

import ottla
from ottla import Producer
from ottla.spark import connections, producers
from ottla.spark.checkpoint_topic import (
    PIECE_BYTES,
    CheckpointCopy,
    CheckpointedBatches,
    create_topic,
    versions_of,
)
from ottla.spark.decision_log import DecisionLog
from ottla.spark.exactly_once import (
    BatchCommitter,
    SinkError,
    TakenOverError,
    TaskAttempt,
    is_left_to_another,
    write_prepared,
)
from ottla.spark.sink_options import SinkOptions

QUERY = "0f4c1f0e-8d4f-4f41-9f5e-4be1cf4e7b55"
CHANGELOG = "app-out-changelog"
BEGINNING = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}


class Instance:
    """What Spark does for one query, without Spark: files in a folder, and rows of one task."""

    def __init__(self, servers, folder):
        options = {"kafka.bootstrap.servers": servers, "topic": "out"}
        self.options = SinkOptions.for_stream({**options, "transactionalIdPrefix": "app"})
        self.folder = folder
        self.run_id = uuid.uuid4().hex
        self.open()

    def open(self):
        """Begin with what the topic holds, as an instance does that is started."""
        self.batches = CheckpointedBatches.opened(self.options, CHANGELOG, self.folder)
        if not (self.folder / "metadata").exists():
            self.store("metadata", json.dumps({"id": QUERY}))

    def store(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def files(self):
        return {name: (self.folder / name).read_text() for name in versions_of(self.folder)}

    def run(self, batch_id, *rows, sum_after=""):
        """One micro-batch: its offsets, the task that writes and keeps its state, the commit."""
        self.store(f"offsets/{batch_id}", f"offsets of {batch_id}")
        if not self.batches._committers:
            self.batches._announce()
        values = pa.array([row.encode() for row in rows], pa.binary())
        where = TaskAttempt(QUERY, self.run_id, batch_id, 0, 0)
        prepared = write_prepared(self.options, where, iter([pa.record_batch([values], ["value"])]))
        self.store(f"state/0/0/{batch_id + 1}.delta", sum_after)
        self.batches._commit(batch_id, [prepared])
        self.store(f"commits/{batch_id}", "")


@pytest.fixture
def servers(ottla_fresh_broker):
    """A broker with the topic `out`, whose clients are closed with it."""
    servers = ottla_fresh_broker.bootstrap_servers
    with ottla.Admin(servers) as admin:
        admin.create_topics([ottla.NewTopic("out", 1)])
    yield servers
    for kept in (
        connections._admins,
        producers._completers,
        producers._transactional_producers,
    ):
        for client in kept.values():
            client.close()
        kept.clear()


@pytest.fixture
def start(servers, tmp_path):
    """Starts instances that have a folder of their own each, unless told."""
    return lambda name="one": Instance(servers, tmp_path / name)


def values(servers, topic="out"):
    """What counts in a topic; nothing is open."""
    where = ottla.TopicPartition(topic, 0)
    with ottla.Consumer(servers, enable_auto_commit=False, **BEGINNING) as consumer:
        consumer.assign([where])
        end = consumer.log_end_offsets([where])[where]
        found = []
        while consumer.position(where) < end:
            found += [record.value for record in consumer.poll(10)]
    return found


def test_a_lost_folder_comes_back(servers, start):
    """The query has its id, its offsets and its state again, and writes nothing twice."""
    one = start()
    one.run(0, "a", sum_after="1")
    one.run(1, "b", sum_after="2")
    shutil.rmtree(one.folder)

    again = start()
    assert again.files() == {
        "metadata": json.dumps({"id": QUERY}),
        "offsets/0": "offsets of 0",
        "offsets/1": "offsets of 1",
        "commits/0": "",
        "state/0/0/1.delta": "1",
        "state/0/0/2.delta": "2",
    }
    again.run(1, "b", sum_after="2")  # Spark was not told that it counts
    again.run(2, "c", sum_after="3")

    assert values(servers) == [b"a", b"b", b"c"]


def test_a_batch_that_was_decided_and_not_committed_counts(servers, start, monkeypatch):
    """The driver dies between its decision and the commits: output and state are both there."""
    one = start()
    one.run(0, "a", sum_after="1")
    with monkeypatch.context() as dying:
        dying.setattr(BatchCommitter, "_complete", lambda self, decision: 1 / 0)
        dying.setattr(BatchCommitter, "abort", lambda self, batch_id, messages: None)
        with pytest.raises(ZeroDivisionError):
            one.run(1, "b", sum_after="2")

    other = start("other")

    assert other.files()["state/0/0/2.delta"] == "2"
    assert values(servers) == [b"a", b"b"]


def test_a_batch_that_was_not_decided_does_not_count(servers, start, monkeypatch):
    """Neither output nor state of it is there; another machine begins with the batch before."""
    one = start()
    one.run(0, "a", sum_after="1")
    with monkeypatch.context() as dying:
        dying.setattr(BatchCommitter, "_decide", lambda self, decision, topic: 1 / 0)
        dying.setattr(BatchCommitter, "abort", lambda self, batch_id, messages: None)
        with pytest.raises(ZeroDivisionError):
            one.run(1, "b", sum_after="2")

    other = start("other")
    assert "offsets/1" not in other.files()
    other.run(1, "b and c", sum_after="3")

    assert values(servers) == [b"a", b"b and c"]
    assert other.files()["state/0/0/2.delta"] == "3"


def test_an_instance_that_was_taken_over_decides_no_more(servers, start):
    """One that was cut off and comes back late writes nothing that counts."""
    late = start("late")
    late.run(0, "a", sum_after="1")
    other = start("other")
    with pytest.raises(TakenOverError, match="another instance has taken over"):
        late.run(1, "late", sum_after="9")
    other.run(0, "a", sum_after="1")
    other.run(1, "b", sum_after="2")

    assert values(servers) == [b"a", b"b"]
    assert start("third").files()["state/0/0/2.delta"] == "2"


MOMENTS = {
    "before the task asks which batch counts": (DecisionLog, "newest"),
    "before the task has a producer": (Producer, "init_transactions"),
    "before the first row": (Producer, "begin_transaction"),
    "before the rows are sent": (Producer, "flush"),
    "before the task is complete": (Producer, "prepare_transaction"),
    "before the driver looks": (BatchCommitter, "has_decided"),
    "before the state is written": (CheckpointedBatches, "_prepare"),
    "in the middle of the state": (CheckpointedBatches, "_changes"),
    "before the commit": (BatchCommitter, "commit"),
    "before the driver asks what is open": (BatchCommitter, "_check_open"),
    "before the decision": (BatchCommitter, "_decide"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_instance_that_is_taken_over_at_any_moment_leaves_it_to_the_other(
    servers, start, monkeypatch, moment
):
    """Its error says so, so that it stays as a standby; nothing that it wrote counts."""
    late = start("late")
    late.run(0, "a", sum_after="1")
    others = []
    owner, name = MOMENTS[moment]
    call = getattr(owner, name)

    def overtaken(*arguments):
        if not others:
            others.append(None)
            others[0] = start("other")
        return call(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, overtaken)
        with pytest.raises(Exception) as failure:  # noqa: PT011 - of any kind of these
            late.run(1, "late", sum_after="9")
    assert is_left_to_another(failure.value), failure.value
    others[0].run(1, "b", sum_after="2")

    assert values(servers) == [b"a", b"b"]
    assert start("third").files()["state/0/0/2.delta"] == "2"


def test_of_two_that_begin_at_once_one_goes_on(servers, start):
    """Both find an empty topic; the first batch makes the query's id known to all."""
    one, other = start("one"), start("other")
    one.run(0, "a", sum_after="1")
    with pytest.raises(TakenOverError):
        other.run(0, "a", sum_after="1")
    other.open()
    other.run(0, "a", sum_after="1")
    other.run(1, "b", sum_after="2")

    assert values(servers) == [b"a", b"b"]


def test_a_folder_without_a_topic_is_kept(servers, start):
    """An application that had no changelog gets one with its next batch."""
    one = start()
    one.store("offsets/6", "offsets of 6")
    one.store("state/0/0/7.delta", "big")
    one.open()
    one.run(7, "h", sum_after="bigger")

    assert start("other").files()["state/0/0/7.delta"] == "big"


@pytest.mark.parametrize("is_made_again", [True, False])
def test_a_topic_that_is_deleted_gets_the_whole_checkpoint(servers, start, is_made_again):
    """It got what had changed since, which is the state of nothing."""
    one = start()
    one.run(0, "a", sum_after="1")
    with ottla.Admin(servers) as admin:
        admin.delete_topics([CHANGELOG])
    if is_made_again:
        create_topic(CHANGELOG, one.options.client)
    one.run(1, "b", sum_after="2")
    one.run(2, "c", sum_after="3")

    again = start("again")
    assert again.files() == {n: text for n, text in one.files().items() if n != "commits/2"}
    again.run(3, "d", sum_after="4")
    assert values(servers) == [b"a", b"b", b"c", b"d"]


def test_a_folder_that_is_behind_leaves_an_empty_topic_empty(servers, start, tmp_path):
    """What it would plan for a batch that counts already is not what that has: records were lost.

    The instance that has the newer folder goes on.
    """
    one = start()
    one.run(0, "a", sum_after="1")
    shutil.copytree(one.folder, tmp_path / "behind")
    one.run(1, "b", sum_after="2")
    with ottla.Admin(servers) as admin:
        admin.delete_topics([CHANGELOG])

    with pytest.raises(SinkError, match="batches up to 1 are in the topic already"):
        start("behind")
    one.open()
    one.run(2, "c", sum_after="3")

    assert values(servers) == [b"a", b"b", b"c"]
    assert start("other").files()["state/0/0/2.delta"] == "2"


def test_a_topic_that_is_no_checkpoint_is_refused(servers, start):
    """Without the id of a query nobody can be fenced, and no instance may begin."""
    one = start()
    one.run(0, "a", sum_after="1")
    with ottla.Admin(servers) as admin:
        admin.delete_topics([CHANGELOG])
    create_topic(CHANGELOG, one.options.client)
    with Producer(servers) as producer:
        producer.send(CHANGELOG, b"offsets of 7", key=b"offsets/7")

    with pytest.raises(SinkError, match="has records and no query's id"):
        start("other")


def test_a_decision_that_has_expired_is_made_again(servers, start):
    """Groups are forgotten after a week; what the topic holds counts nevertheless."""
    one = start()
    one.run(0, "a", sum_after="1")
    with ottla.Admin(servers) as admin:
        admin.delete_groups([f"app-{QUERY}"])

    again = start("again")
    again.run(0, "a", sum_after="1")

    assert values(servers) == [b"a"]


def test_files_that_are_gone_or_shorter_leave_nothing_behind(servers, start, tmp_path):
    """A large file is several records, and a file that Spark deleted is deleted everywhere."""
    one = start()
    large = "x" * (PIECE_BYTES + 1)
    one.run(0, "a", sum_after=large)
    assert start("other").files()["state/0/0/1.delta"] == large
    one = start("third")
    one.run(1, "b", sum_after="2")
    one.store("state/0/0/1.delta", "short")
    (one.folder / "offsets/0").unlink()
    one.run(2, "c", sum_after="3")

    found = start("fourth").files()
    assert found["state/0/0/1.delta"] == "short"
    assert "offsets/0" not in found
    newest = {}
    with ottla.Consumer(servers, enable_auto_commit=False, **BEGINNING) as consumer:
        consumer.assign([ottla.TopicPartition(CHANGELOG, 0)])
        for record in consumer.records(500):
            newest[record.key] = record.value
    assert newest[b"state/0/0/1.delta#1"] is None
    assert newest[b"offsets/0"] is None


def test_a_copy_follows(servers, start, tmp_path):
    """A standby has the files of a batch when it is committed, and no sooner."""
    one = start()
    settings = {"bootstrap.servers": servers}
    with CheckpointCopy(CHANGELOG, tmp_path / "warm", settings) as copy:
        one.run(0, "a", sum_after="1")
        copy.read_to(copy.stable_end)
        assert copy.query_id() == QUERY
        assert copy.newest_batch() == 0
        one.run(1, "b", sum_after="2")
        copy.read_to(copy.stable_end)
        assert (tmp_path / "warm/state/0/0/2.delta").read_text() == "2"


def test_what_spark_is_writing_is_left_out(tmp_path):
    """Files appear under their names when they are complete."""
    for name in ("a", ".a.crc", "b.tmp", ".hidden/c", "state/d"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")

    assert set(versions_of(tmp_path)) == {"a", "state/d"}


def test_a_batch_without_files_is_refused(servers, start):
    """Then the folder is not the query's, and nothing would come back."""
    one = start()
    one.run(0, "a", sum_after="1")
    with pytest.raises(SinkError, match="has left no trace"):
        one.batches._prepare("app-x", 1, one.batches._stored)


def test_a_topic_that_forgets_is_refused(servers):
    """State would be deleted with old records."""
    with ottla.Admin(servers) as admin:
        admin.create_topics([ottla.NewTopic("bad", 1)])
    with pytest.raises(ValueError, match=r"topic bad: cleanup\.policy is delete and must be"):
        create_topic("bad", {"bootstrap.servers": servers})


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"..",
        b"../outside",
        b"offsets/../../outside",
        b"/outside",
        b"offsets//0",
        b"./metadata",
        b"a\0b",
        b"offsets/0#x",
        b"offsets/0#" + b"9" * 5000,
        b"offsets/0#-1",
    ],
)
def test_record_that_is_no_file_of_a_checkpoint_is_refused(servers, start, key, tmp_path):
    """Its key may lead to any file of the machine: nothing is written, wherever it leads."""
    one = start()
    one.run(0, "a", sum_after="1")
    absolute = str(tmp_path / "outside").encode() if key == b"/outside" else key
    with Producer(servers) as producer:
        producer.send(CHANGELOG, b"not yours", key=absolute, partition=0).result(10)

    with pytest.raises(SinkError, match="no file of a checkpoint; nothing else may write to"):
        start("other")
    assert not (tmp_path / "outside").exists()
