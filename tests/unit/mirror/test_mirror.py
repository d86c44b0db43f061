"""`ottla mirror`'s engine, between brokers of this process: see docs/use/mirror.md."""

from __future__ import annotations

import json
import math
import re
import socket
import urllib.request
from concurrent.futures import wait
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest
from mirrors import mirroring, plan_of, values

from ottla import Admin, Consumer, Producer
from ottla.clients.admin.descriptions import ConfigResource
from ottla.clients.consumer.position_validator import LogTruncationError
from ottla.clients.mirror_records import Checkpoint, Heartbeat, OffsetSync
from ottla.errors import ConfigError
from ottla.mirror import mirror as mirror_module
from ottla.mirror import offset_sync, source_task
from ottla.mirror.copied_offsets import CopiedTo, key_of
from ottla.mirror.mirror import Mirror
from ottla.mirror.source_task import SourceTask
from ottla.runtime import SystemClock
from ottla.structs import TopicPartition
from ottla.testing import InProcessBroker, wait_until

PAGES = TopicPartition("pages", 0)
FORMER = UUID(int=1)
"""The id of a topic that there is no longer."""
PAGE = Path(__file__).parents[3] / "docs" / "use" / "mirror.md"
ROW = re.compile(r"^\| `(Mirror[A-Za-z]+)` \| (.+) \|$", re.MULTILINE)


def test_topic_is_copied_with_its_partitions_and_settings(two, produce):
    """What was there and what comes, under the name that tells where it is from."""
    two["a"].create_topic("pages", partitions=3, retention_ms=1234567)
    produce(two["a"], "pages", range(50), partition=2)

    with mirroring(two):
        two["b"].wait_for_records("a.pages", 50)
        produce(two["a"], "pages", range(50, 60), partition=2)
        two["b"].wait_for_records("a.pages", 60)

    assert values(two["b"], "a.pages", 2) == [str(number) for number in range(60)]
    with Admin(two["b"].bootstrap_servers) as admin:
        described = admin.describe_topics(["a.pages"])["a.pages"]
        configs = admin.describe_configs([ConfigResource.topic("a.pages")])
    assert len(described.partitions) == 3
    assert configs[ConfigResource.topic("a.pages")]["retention.ms"].value == "1234567"


def test_partitions_and_settings_that_change_are_followed(two, produce):
    """Partitions are added, settings are set and taken away; a new topic is found."""
    two["a"].create_topic("pages", retention_ms=1000000)
    resource = ConfigResource.topic("a.pages")

    def retention():
        entry = admin_b.describe_configs([resource])[resource]["retention.ms"]
        return None if entry.is_default else entry.value

    with (
        mirroring(two),
        Admin(two["a"].bootstrap_servers) as admin_a,
        Admin(two["b"].bootstrap_servers) as admin_b,
    ):
        wait_until(lambda: "a.pages" in two["b"].topics(), "the copy")
        wait_until(lambda: retention() == "1000000", "the setting")
        admin_a.create_partitions({"pages": 2})
        admin_a.alter_configs({ConfigResource.topic("pages"): {}})
        produce(two["a"], "pages", ["x"], partition=1)
        produce(two["a"], "late", ["y"])
        two["b"].wait_for_records("a.pages", 1)
        two["b"].wait_for_records("a.late", 1)
        wait_until(lambda: retention() is None, "the setting to go")

    assert values(two["b"], "a.pages", 1) == ["x"]


def test_internal_topics_have_kafkas_records(two, produce):
    """Syncs at the source; checkpoints, heartbeats and offsets at the target."""
    produce(two["a"], "pages", range(10))
    with Consumer(two["a"].bootstrap_servers, group_id="g", enable_auto_commit=False) as reader:
        reader.assign([PAGES])
        reader.commit({PAGES: 4})

    with mirroring(two):
        two["b"].wait_for_records("a.checkpoints.internal", 1)
        two["b"].wait_for_records("heartbeats", 1)
        two["b"].wait_for_records("mm2-offsets.a.internal", 1)
        two["b"].wait_for_records("a.heartbeats", 1)

    syncs = [OffsetSync.of(r.key, r.value) for r in two["a"].records("mm2-offset-syncs.b.internal")]
    assert OffsetSync(PAGES, 0, 0) in syncs
    assert OffsetSync(PAGES, 9, 9) in syncs
    points = [Checkpoint.of(r.key, r.value) for r in two["b"].records("a.checkpoints.internal")]
    assert {(each.group, each.upstream) for each in points} == {("g", 4)}
    assert all(each.partition == TopicPartition("a.pages", 0) for each in points)
    assert all(1 <= each.downstream <= 4 for each in points)
    beats = [Heartbeat.of(r.key, r.value) for r in two["b"].records("heartbeats")]
    assert {(each.source, each.target) for each in beats} == {("a", "b")}
    copied = [Heartbeat.of(r.key, r.value) for r in two["b"].records("a.heartbeats")]
    assert {(each.source, each.target) for each in copied} == {("b", "a")}
    offsets = {r.key: json.loads(r.value) for r in two["b"].records("mm2-offsets.a.internal")}
    assert offsets[key_of("a", PAGES)]["offset"] == 9


def test_restart_goes_on_and_repeats_nothing(two, produce):
    """A mirror that was stopped has written how far it was."""
    produce(two["a"], "pages", range(10))
    for end in (10, 20):
        with mirroring(two):
            two["b"].wait_for_records("a.pages", end)
        produce(two["a"], "pages", range(end, end + 10))

    assert values(two["b"], "a.pages") == [str(number) for number in range(20)]


def test_batches_that_are_not_whole_are_decoded(two, produce):
    """Aborted and compacted records, log-append time: what arrives is what a consumer reads."""
    two["a"].create_topic("stamped", message_timestamp_type="LogAppendTime")
    produce(two["a"], "stamped", range(5))
    with Producer(two["a"].bootstrap_servers, transactional_id="t") as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send("pages", str(number), headers={"h": b"1"}, key=b"k")
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()

    with mirroring(two, consumer_isolation_level="read_committed"):
        copied = two["b"].wait_for_records("a.pages", 2)
        stamped = two["b"].wait_for_records("a.stamped", 5)

    assert [(r.value, r.key, tuple(r.headers)) for r in copied] == [
        (b"0", b"k", (("h", b"1"),)),
        (b"2", b"k", (("h", b"1"),)),
    ]
    times = [record.timestamp_ms for record in two["a"].records("stamped")]
    assert [record.timestamp_ms for record in stamped] == times


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_codec_stays_unless_the_target_has_one(two, produce, codec):
    """Batches pass as they are; compression.type of the target's producer makes them anew."""
    produce(two["a"], "pages", range(100), compression_type=codec, linger_ms=1000)
    with mirroring(two, topics="pages"):
        two["b"].wait_for_records("a.pages", 100)
    with Consumer(two["b"].bootstrap_servers, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition("a.pages", 0)])
        found = wait_until(lambda: reader.poll_batches(1000), "batches")

    assert {batch.compression.name.lower() for batch in found[0].batches} == {codec}


def test_codec_of_the_target_is_used(two, produce):
    """`b.producer.compression.type` compresses what came without."""
    produce(two["a"], "pages", range(100), linger_ms=1000)
    with mirroring(two, b_producer_compression_type="lz4"):
        two["b"].wait_for_records("a.pages", 100)
    with Consumer(two["b"].bootstrap_servers, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition("a.pages", 0)])
        found = wait_until(lambda: reader.poll_batches(1000), "batches")

    assert {batch.compression.name for batch in found[0].batches} == {"LZ4"}
    assert values(two["b"], "a.pages") == [str(number) for number in range(100)]


def test_deleted_records_are_reported(two, produce):
    """What retention took before it was copied is said and counted, and the rest is copied."""
    produce(two["a"], "pages", range(10))
    with mirroring(two):
        two["b"].wait_for_records("a.pages", 10)
    produce(two["a"], "pages", range(10, 30))
    with Admin(two["a"].bootstrap_servers) as admin:
        admin.delete_records({PAGES: 25})

    with mirroring(two) as mirror:
        two["b"].wait_for_records("a.pages", 15)
        wait_until(lambda: mirror.statuses()[0].lost == 15, "the gap")
        ((name, gap),) = mirror.gaps()

    assert (name, gap.partition, gap.first, gap.last) == ("a->b", PAGES, 10, 24)
    assert values(two["b"], "a.pages")[10:] == [str(number) for number in range(25, 30)]


def test_gap_stops_a_flow_that_shall_fail(two, produce):
    """on.gap=fail: the flow says why, and copies nothing behind the gap."""
    produce(two["a"], "pages", range(10))
    with mirroring(two):
        two["b"].wait_for_records("a.pages", 10)
    produce(two["a"], "pages", range(10, 30))
    with Admin(two["a"].bootstrap_servers) as admin:
        admin.delete_records({PAGES: 25})

    with mirroring(two, on_gap="fail", topics="pages") as mirror:
        status = wait_until(lambda: (s := mirror.statuses()[0]).error and s, "the error")

    assert "on.gap=fail: pages-0 offsets 10-24: deleted before they were copied" in status.error
    assert len(values(two["b"], "a.pages")) == 10


def test_source_topic_that_was_made_anew_is_copied_from_its_beginning(two, produce):
    """Its offsets begin at 0 again: without its id all of it would be passed over."""
    produce(two["a"], "pages", range(10))
    with mirroring(two):
        two["b"].wait_for_records("a.pages", 10)
    with Admin(two["a"].bootstrap_servers) as admin:
        admin.delete_topics(["pages"])
    produce(two["a"], "pages", ["new"])

    with mirroring(two) as mirror:
        two["b"].wait_for_records("a.pages", 11)
        ((_, gap),) = mirror.gaps()

    assert values(two["b"], "a.pages")[10:] == ["new"]
    assert "made again" in gap.why


def test_source_that_has_lost_its_end_is_reported(two, produce):
    """As after a restore of an older state: what is missing is said, and what comes is copied."""
    produce(two["a"], "pages", range(10))
    with mirroring(two, topics="pages"):
        two["b"].wait_for_records("a.pages", 10)
    with Producer(two["b"].bootstrap_servers) as producer:  # as if 30 had been copied
        producer.send("mm2-offsets.a.internal", CopiedTo(29).value(), key=key_of("a", PAGES))

    with mirroring(two, topics="pages") as mirror:
        wait_until(lambda: mirror.statuses()[0].lost == 20, "the gap", seen=mirror.statuses)
        produce(two["a"], "pages", ["x", "y"])
        two["b"].wait_for_records("a.pages", 12)
        ((_, gap),) = mirror.gaps()

    assert (gap.partition, gap.first, gap.last) == (PAGES, 10, 29)
    assert "the source's log was cut" in gap.why
    assert values(two["b"], "a.pages")[10:] == ["x", "y"]


def test_log_that_differs_from_what_was_copied_is_reported(two, produce, monkeypatch):
    """A leader without the end that was copied: what it has there now is copied as well."""
    found = [LogTruncationError(PAGES, 10, 7)]
    poll_batches = Consumer.poll_batches

    def poll(self, *arguments):
        if found and PAGES in self.assignment() and self.position(PAGES) == 10:
            raise found.pop()
        return poll_batches(self, *arguments)

    monkeypatch.setattr(Consumer, "poll_batches", poll)
    produce(two["a"], "pages", range(10))

    with mirroring(two, topics="pages") as mirror:
        two["b"].wait_for_records("a.pages", 13)
        ((_, gap),) = mirror.gaps()
        assert mirror.statuses()[0].lost == 3

    assert (gap.partition, gap.first, gap.last) == (PAGES, 7, 9)
    assert "the source's log was cut" in gap.why
    assert values(two["b"], "a.pages")[10:] == ["7", "8", "9"]


def test_copy_that_was_made_anew_is_filled_again(two, produce):
    """What is written about a former copy does not count for this one."""
    produce(two["a"], "pages", range(10))
    with mirroring(two):
        two["b"].wait_for_records("a.pages", 10)
    with Admin(two["b"].bootstrap_servers) as admin:
        admin.delete_topics(["a.pages"])

    with mirroring(two):
        wait_until(lambda: len(values(two["b"], "a.pages")) == 10, "the copy to be filled")


@pytest.mark.parametrize("support", ["disabled", "enabled"])
def test_flow_whose_offsets_are_deleted_writes_them_again(two, produce, monkeypatch, support):
    """The topic that a broker makes has fewer partitions, and what was on its way to the others
    never arrives: exactly-once flows stood still without a word, others stored no offset again."""
    monkeypatch.setattr(source_task, "STANDING_S", 1.0)
    settings = {
        "exactly_once_source_support": support,
        "consumer_isolation_level": "read_committed",
    }
    read = {"isolation_level": "read_committed"}
    produce(two["a"], "pages", range(3))
    with mirroring(two, **settings):
        two["b"].wait_for_records("a.pages", 3, **read)
        with Admin(two["b"].bootstrap_servers) as admin:
            admin.delete_topics(["mm2-offsets.a.internal"])
        for number in range(3, 6):
            produce(two["a"], "pages", [number])
            two["b"].wait_for_records("a.pages", number + 1, **read)
        last = b'"offset":5,'
        wait_until(
            lambda: any(
                last in (each.value or b"") for each in two["b"].records("mm2-offsets.a.internal")
            ),
            "the offsets to be stored",
        )


@pytest.mark.parametrize("support", ["disabled", "enabled"])
@pytest.mark.parametrize("is_old", [False, True])
def test_topic_that_is_assigned_before_the_consumer_knows_it_is_copied(
    two, produce, monkeypatch, support, is_old
):
    """Its place was taken for one in the former topic: the partition stood still for good."""
    assign = SourceTask.assign
    known = []

    def assign_late(task, partitions):
        assign(task, partitions)
        states = task.consumer._core.subscriptions.assigned
        if PAGES in states and states[PAGES].topic_id not in known:
            states[PAGES].topic_id = FORMER
            known.append(FORMER)

    monkeypatch.setattr(SourceTask, "assign", assign_late)
    settings = {
        "exactly_once_source_support": support,
        "consumer_isolation_level": "read_committed",
    }
    produce(two["a"], "pages", range(9))
    if is_old:
        with mirroring(two, **settings):
            two["b"].wait_for_records("a.pages", 9, isolation_level="read_committed")
        known.clear()
        produce(two["a"], "pages", range(9, 12))
    with mirroring(two, **settings):
        last = 12 if is_old else 9
        two["b"].wait_for_records("a.pages", last, isolation_level="read_committed")

    assert FORMER in known
    assert values(two["b"], "a.pages") == [str(number) for number in range(last)]


@pytest.mark.parametrize("support", ["disabled", "enabled"])
@pytest.mark.parametrize("gone", ["mm2-offsets.a.internal", "mm2-offset-syncs.b.internal"])
def test_own_topic_that_is_deleted_is_made_again(produce, monkeypatch, support, gone):
    """Brokers that make none by themselves left a flow without it: nothing was stored there any
    longer, and a flow that began again stood still."""
    monkeypatch.setattr(source_task, "STANDING_S", 2.0)
    for module in (source_task, offset_sync):
        monkeypatch.setattr(module, "LACKING_MS", 100)
    settings = {
        "exactly_once_source_support": support,
        "consumer_isolation_level": "read_committed",
    }
    with (
        InProcessBroker(auto_create_topics_enable="false") as a,
        InProcessBroker(auto_create_topics_enable="false") as b,
    ):
        two, of = {"a": a, "b": b}, a if "syncs" in gone else b
        a.create_topic("pages")
        produce(a, "pages", range(3))
        with mirroring(two, **settings):
            b.wait_for_records("a.pages", 3, isolation_level="read_committed")
            of.wait_for_records(gone, 1)
            with Admin(of.bootstrap_servers) as admin:
                admin.delete_topics([gone])
                wait_until(lambda: gone not in admin.list_topics(), "its end")
            produce(a, "pages", range(3, 6))
            of.wait_for_records(gone, 1)
            with Admin(of.bootstrap_servers) as admin:
                resource = ConfigResource.topic(gone)
                policy = admin.describe_configs([resource])[resource]["cleanup.policy"].value
        with mirroring(two, **settings):
            produce(a, "pages", range(6, 9))
            b.wait_for_records("a.pages", 9, isolation_level="read_committed")

    assert policy == "compact"


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("at", [100, 95, 92])
def test_group_of_a_copy_that_was_made_anew_skips_nothing(two, produce, is_running, at):
    """It was moved to its place in the former copy, in the middle of the new one or behind it."""
    settings = {"sync_group_offsets_enabled": "true", "offset_lag_max": "0"}
    a, b = (two[alias].bootstrap_servers for alias in "ab")
    produce(two["a"], "pages", range(100))
    with Admin(a) as admin:
        admin.alter_group_offsets("readers", {PAGES: at})

    def place():
        return [each.offset for each in there.list_group_offsets("readers").values()]

    def is_at(offset):
        return any(0 < each <= offset for each in place())

    def make_copy_anew():
        with Admin(a) as admin:
            admin.delete_records({PAGES: 90})
        there.delete_topics(["a.pages"])

    with Admin(b) as there:
        with mirroring(two, **settings):
            wait_until(lambda: is_at(at), "the group in the copy", seen=place)
            produce(two["a"], "pages", range(100, 300))
            two["b"].wait_for_records("a.pages", 300)
            if is_running:
                make_copy_anew()
                wait_until(lambda: is_at(at - 90), "the group in the new copy", seen=place)
        if not is_running:
            make_copy_anew()
            with mirroring(two, **settings):
                wait_until(lambda: is_at(at - 90), "the group in the new copy", seen=place)


def test_exactly_once_repeats_nothing_after_a_crash(two, produce):
    """A mirror that ends in the middle leaves a transaction that is aborted, not a second copy."""
    produce(two["a"], "pages", range(2000), linger_ms=5)
    settings = {"exactly_once_source_support": "enabled"}
    settings |= {"consumer_isolation_level": "read_committed", "offset_flush_interval_ms": "50"}
    with mirroring(two, topics="pages", **settings):
        two["b"].wait_for_records("a.pages", 1)
        produce(two["a"], "pages", range(2000, 4000), linger_ms=5)
        two["b"].kill()
        two["b"].start()

        def read():
            return [
                record.value.decode()
                for record in two["b"].records("a.pages", isolation_level="read_committed")
            ]

        wait_until(lambda: len(read()) >= 4000, "all records", seen=lambda: len(read()))

    assert read() == [str(number) for number in range(4000)]


def test_flow_into_the_same_cluster_is_refused(two, produce):
    """Two aliases of one cluster: by its id, whatever the addresses."""
    again = two["a"].bootstrap_servers.replace("127.0.0.1", "localhost")
    plan = plan_of({"a": two["a"], "b": two["b"]}, b_bootstrap_servers=again)

    with Mirror(plan, SystemClock()) as mirror:
        mirror.start()
        with pytest.raises(ConfigError, match="same cluster"):
            wait_until(mirror.check, "the refusal")


def test_circle_of_names_that_do_not_change_is_left_out(two, produce):
    """Identity both ways: the topic would go round for ever; others are copied."""
    produce(two["a"], "round", ["x"])
    produce(two["a"], "there", ["y"])
    settings = {
        "replication_policy_class": "IdentityReplicationPolicy",
        "b_to_a_enabled": "true",
        "b_to_a_topics": "round",
    }

    with mirroring(two, **settings):
        two["b"].wait_for_records("there", 1)

    assert "round" not in two["b"].topics()


def test_topics_that_are_left_out_for_their_names_are_told_once(two, produce, caplog):
    """`a.own` at `a` is left out as in Kafka, with a word; new ones are told of when they come."""
    two["a"].create_topic("a.own")
    produce(two["a"], "pages", range(3))
    with mirroring(two) as mirror:
        two["b"].wait_for_records("a.pages", 3)
        wait_until(mirror.notices, "the first")
        two["a"].create_topic("b.own")
        wait_until(lambda: len(mirror.notices()) == 2, "the second")

    told = [each.getMessage() for each in caplog.records if "left out" in each.getMessage()]
    start = "a->b: left out, as their names say that they came by this way"
    assert told == [f"{start}: a.own", f"{start}: b.own"]


def test_mirror_ends_though_its_clusters_hang(monkeypatch):
    """It took as long as its calls: up to a minute, after which supervisors have killed it."""
    monkeypatch.setattr(mirror_module, "END_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
        hung = {
            alias: SimpleNamespace(bootstrap_servers=f"127.0.0.1:{each.getsockname()[1]}")
            for alias, each in (("a", a), ("b", b))
        }
        limits = {"request_timeout_ms": "5000", "default_api_timeout_ms": "5000"}
        mirror = Mirror(plan_of(hung, **limits), SystemClock())
        mirror.start()
        come = [each.accept()[0] for each in (a, b)]
        mirror.close()
        left = [each for each in mirror._running if not each.done()]
        ended = wait(mirror._running, 30)
        for each in come:
            each.close()

    assert left
    assert not ended.not_done


def test_mirror_without_flows_is_refused(two):
    """Nothing to do is a mistake in the file."""
    with pytest.raises(ConfigError, match=r"no flow is enabled: set one of a->b, b->a"):
        Mirror(plan_of(two, a_to_b_enabled="false"), SystemClock()).start()


def beans(mirror):
    """The attributes of all MBeans that a mirror serves, by their names."""
    with urllib.request.urlopen(f"{mirror.metrics.url}/jolokia/read/kafka.connect.mirror:*") as a:
        return json.load(a).get("value", {})


def test_what_a_mirror_measures_is_served(two, produce):
    """By Kafka's names: partitions that are copied, and those of groups with checkpoints."""
    produce(two["a"], "pages", range(100))
    with Consumer(two["a"].bootstrap_servers, group_id="g", enable_auto_commit=False) as reader:
        reader.assign([PAGES])
        reader.commit({PAGES: 100})
    tags = "source=a,target=b"
    source = f"kafka.connect.mirror:type=MirrorSourceConnector,{tags},topic=a.pages,partition=0"
    group = "kafka.connect.mirror:type=MirrorCheckpointConnector,"
    group += f"{tags},group=g,topic=a.pages,partition=0"
    settings = {"metrics_listener": "http://127.0.0.1:0", "emit_heartbeats_enabled": "false"}
    with mirroring(two, topics="pages", **settings) as mirror:
        wait_until(
            lambda: beans(mirror).get(source, {}).get("record-count") == 100 and beans(mirror),
            "all records in the metrics",
            seen=lambda: beans(mirror),
        )
        found = wait_until(
            lambda: group in (now := beans(mirror)) and now,
            "a checkpoint in the metrics",
            seen=lambda: beans(mirror),
        )
        (status,) = mirror.statuses()
    copied = found[source]

    assert copied["byte-count"] == status.bytes > 0
    assert copied["record-rate"] > 0
    for name in ("record-age-ms", "replication-latency-ms"):
        assert 0 <= copied[f"{name}-min"] <= copied[name] <= copied[f"{name}-max"]
        assert copied[f"{name}-min"] <= copied[f"{name}-avg"] <= copied[f"{name}-max"]
    assert copied["replication-latency-ms-max"] >= copied["record-age-ms-min"]
    assert math.isfinite(found[group]["checkpoint-latency-ms-max"])
    there = {re.search(r"type=(\w+)", bean)[1]: set(each) for bean, each in found.items()}
    written = {
        kind: set(re.findall(r"`([a-z-]+)`", names))
        for kind, names in ROW.findall(PAGE.read_text(encoding="utf-8"))
    }
    assert written == there


def test_decoded_records_count_as_well(two):
    """Batches that compaction has made holes in go record by record, and count once each."""
    two["a"].create_topic("stamped", message_timestamp_type="LogAppendTime")
    with Producer(two["a"].bootstrap_servers) as producer:
        for number in range(30):
            producer.send("stamped", str(number))
    settings = {"metrics_listener": "http://127.0.0.1:0", "emit_heartbeats_enabled": "false"}
    with mirroring(two, topics="stamped", **settings) as mirror:
        wait_until(
            lambda: [each["record-count"] for each in beans(mirror).values()] == [30],
            "all records in the metrics",
            seen=lambda: beans(mirror),
        )


def test_partition_that_is_copied_no_longer_is_not_shown(two, produce):
    """A topic that is gone at the source leaves the metrics."""
    produce(two["a"], "pages", range(3))
    produce(two["a"], "gone", range(3))
    with mirroring(two, metrics_listener="http://127.0.0.1:0") as mirror:

        def topics():
            return {re.search(r"topic=([^,]+)", each)[1] for each in beans(mirror)}

        wait_until(lambda: topics() >= {"a.pages", "a.gone"}, "both topics", seen=topics)
        with Admin(two["a"].bootstrap_servers) as admin:
            admin.delete_topics(["gone"])
        wait_until(lambda: "a.gone" not in topics(), "the end of one of them", seen=topics)
        assert "a.pages" in topics()


def test_metrics_listener_that_is_taken_is_named(two):
    """The error has the setting; nothing has begun."""
    with mirroring(two, metrics_listener="http://127.0.0.1:0") as mirror:
        plan = plan_of(two, metrics_listener=mirror.metrics.url)
        with Mirror(plan, SystemClock()) as other:
            with pytest.raises(ConfigError, match=r"metrics\.listener=.*cannot be listened at"):
                other.start()
            assert other.metrics is None
