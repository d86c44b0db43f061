"""What a mirror does with records that its target refuses."""

from __future__ import annotations

import pytest
from mirrors import mirroring, values

from ottla import Admin, Producer
from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource
from ottla.testing import InProcessBroker, wait_until

EXACTLY_ONCE = {
    "exactly_once_source_support": "enabled",
    "consumer_isolation_level": "read_committed",
}
SETTINGS = {"sync_topic_configs_enabled": "false", "topics": "pages,other"}
SMALL = 20_000
BIG = "x" * (2 * SMALL)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr("ottla.mirror.source_task.FIRST_RETRY_MS", 50)
    monkeypatch.setattr("ottla.mirror.source_task.LONGEST_RETRY_MS", 200)


def committed(broker, topic):
    found = broker.records(topic, isolation_level="read_committed")
    return [record.value.decode() for record in found]


def fill(two, *parts, **settings):
    """Records of `pages`, each part in batches of its own, and of `other`; the target refuses
    what is large."""
    two["b"].create_topic("a.pages", partitions=1, max_message_bytes=SMALL)
    two["a"].create_topic("pages", partitions=1)
    with Producer(two["a"].bootstrap_servers, linger_ms=50, **settings) as producer:
        for part in parts:
            for value in part:
                producer.send("pages", value)
            producer.flush()
        for number in range(100):
            producer.send("other", str(number))


def wait_for_count(mirror, records):
    """Each record counts once, whatever was sent in vain."""
    wait_until(lambda: mirror.statuses()[0].records == records, "all records", seen=mirror.statuses)


def make_room(two):
    resource = ConfigResource.topic("a.pages")
    with Admin(two["b"].bootstrap_servers) as admin:
        admin.incremental_alter_configs({resource: [AlterConfigOp("max.message.bytes", "1000000")]})


SMALLS = [f"s{number}" for number in range(60)]
SHAPES = {
    "alone": [SMALLS[:30], [BIG], SMALLS[30:]],
    "first": [[BIG, *SMALLS]],
    "in a batch": [[*SMALLS[:30], BIG, *SMALLS[30:]]],
    "several": [[BIG, *SMALLS[:30]], [BIG], [*SMALLS[30:], BIG, BIG]],
}


@pytest.mark.parametrize(
    ("shape", "more"),
    [("alone", {}), ("in a batch", {}), ("in a batch", EXACTLY_ONCE)],
    ids=str,
)
def test_refused_record_stops_its_partition_alone(two, shape, more, caplog):
    """All before it is copied, other partitions are, and nothing twice; once the target has room
    the rest follows.
    """
    fill(two, *SHAPES[shape])
    given = [value for part in SHAPES[shape] for value in part]
    before = given[: given.index(BIG)]
    with mirroring(two, **SETTINGS, **more) as mirror:
        wait_until(lambda: len(mirror.statuses()[0].stopped) == 1, "the partition to stop")
        (stopped,) = mirror.statuses()[0].stopped
        assert stopped.startswith(f"pages-0 offset {len(before)}: ")
        two["a"].wait_for_records("other", 100)
        with Producer(two["a"].bootstrap_servers) as producer:
            producer.send("other", b"later")
        wait_until(lambda: "later" in committed(two["b"], "a.other"), "the other partition")
        assert committed(two["b"], "a.pages")[: len(before)] == before
        assert mirror.statuses()[0].error is None
        warnings = [each.getMessage() for each in caplog.records if "stands still" in each.message]
        assert len(warnings) == 1
        assert f"not copied: pages-0 offset {len(before)}: " in warnings[0]
        assert "errors.tolerance=all leaves such records out" in warnings[0]

        make_room(two)
        wait_until(
            lambda: len(committed(two["b"], "a.pages")) >= len(given),
            "all records",
            seen=lambda: (len(committed(two["b"], "a.pages")), mirror.statuses()),
        )
        wait_until(lambda: not mirror.statuses()[0].stopped, "the partition to be copied")
        wait_for_count(mirror, len(given) + 101)

    assert sorted(committed(two["b"], "a.pages")) == sorted(given)
    assert committed(two["b"], "a.other") == [*map(str, range(100)), "later"]
    if more:
        assert committed(two["b"], "a.pages") == given
    else:
        assert sorted(values(two["b"], "a.other")) == sorted(values(two["a"], "other"))


@pytest.mark.parametrize(
    ("shape", "more"), [("first", {}), ("several", {}), ("several", EXACTLY_ONCE)], ids=str
)
def test_refused_record_is_left_out_if_it_may_be(two, shape, more):
    """It is in the dead letters with its place, once, and each other record in the copy, once."""
    fill(two, *SHAPES[shape])
    letters = {
        "errors_tolerance": "all",
        "errors_deadletterqueue_topic_name": "dead",
        "errors_deadletterqueue_topic_replication_factor": "1",
        "errors_deadletterqueue_context_headers_enable": "true",
    }
    given = [value for part in SHAPES[shape] for value in part]
    places = [str(n).encode() for n, value in enumerate(given) if value == BIG]
    with mirroring(two, **SETTINGS, **more, **letters) as mirror:
        wait_until(
            lambda: (
                mirror.statuses()[0].left_out == len(places)
                and len(committed(two["b"], "a.pages")) >= len(SMALLS)
                and len(committed(two["b"], "a.other")) >= 100
            ),
            "all that can be copied",
            seen=mirror.statuses,
        )
        wait_until(lambda: mirror.statuses()[0].lag == 0, "nothing to be left")
        wait_for_count(mirror, len(SMALLS) + 100)

    assert sorted(committed(two["b"], "a.pages")) == sorted(SMALLS)
    assert committed(two["b"], "a.other") == [str(number) for number in range(100)]
    found = two["b"].records("dead", isolation_level="read_committed")
    assert [each.value.decode() for each in found] == [BIG] * len(places)
    headers = [dict(each.headers) for each in found]
    assert [each["__connect.errors.offset"] for each in headers] == places
    assert {each["__connect.errors.topic"] for each in headers} == {b"pages"}


@pytest.mark.parametrize("more", [{}, EXACTLY_ONCE], ids=["at least once", "exactly once"])
def test_dead_letters_whose_topic_was_deleted_make_it_again(more):
    """Nothing of the task stands still for a letter that has no topic any longer."""
    letters = {
        "errors_tolerance": "all",
        "errors_deadletterqueue_topic_name": "dead",
        "errors_deadletterqueue_topic_replication_factor": "1",
    }
    with InProcessBroker() as a, InProcessBroker(auto_create_topics_enable=False) as b:
        two = {"a": a, "b": b}
        fill(two, ["s1", BIG])
        with (
            mirroring(two, **SETTINGS, **more, **letters) as mirror,
            Admin(b.bootstrap_servers) as admin,
            Producer(a.bootstrap_servers) as producer,
        ):
            wait_until(lambda: mirror.statuses()[0].left_out == 1, "the first letter")
            admin.delete_topics(["dead"])
            producer.send("pages", BIG)
            producer.send("pages", "s2")
            producer.flush()
            wait_until(
                lambda: committed(b, "a.pages") == ["s1", "s2"],
                "the rest of the topic",
                seen=mirror.statuses,
            )
            wait_until(lambda: mirror.statuses()[0].left_out == 2, "the second letter")
        assert len(committed(b, "dead")) == 1


def test_record_that_the_dead_letters_refuse_is_not_lost(two):
    """Its partition stands still, and the reason is that of the letter."""
    fill(two, ["a", BIG, "b"])
    two["b"].create_topic("dead", partitions=1, max_message_bytes=SMALL)
    letters = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "dead"}
    with mirroring(two, **SETTINGS, **letters) as mirror:
        wait_until(lambda: mirror.statuses()[0].stopped, "the partition to stop")
        assert (
            "the dead letter of pages-0 at offset 1 was not written to dead"
            in (mirror.statuses()[0].stopped[0])
        )
        assert mirror.statuses()[0].left_out == 0


@pytest.mark.parametrize("more", [{}, EXACTLY_ONCE], ids=["at least once", "exactly once"])
def test_timestamp_that_the_target_refuses_is_told_by_its_record(two, more):
    """A broker refuses the whole batch for it; the others of the batch are copied."""
    fill(two, SMALLS[:5])
    with Admin(two["b"].bootstrap_servers) as admin:
        changes = [AlterConfigOp("message.timestamp.after.max.ms", "3600000")]
        admin.incremental_alter_configs({ConfigResource.topic("a.pages"): changes})
    with Producer(two["a"].bootstrap_servers, linger_ms=50) as producer:
        for number in range(5, 40):
            time_ms = 1_700_000_000_000_000 if number == 20 else None
            producer.send("pages", f"s{number}", timestamp_ms=time_ms)
    with mirroring(two, **SETTINGS, **more, errors_tolerance="all") as mirror:
        wait_until(
            lambda: len(committed(two["b"], "a.pages")) >= 39 and mirror.statuses()[0].lag == 0,
            "all that can be copied",
            seen=mirror.statuses,
        )
        assert mirror.statuses()[0].left_out == 1

    assert sorted(committed(two["b"], "a.pages")) == sorted(s for s in SMALLS[:40] if s != "s20")
