"""How far groups lag: from the marks of ends, at one broker, and across brokers."""

from __future__ import annotations

import random

import pytest
from http_pages import metrics_of, scrape

import ottla
from ottla.cli.main import main
from ottla.extensions.measures.consumer_lag import MAX_MARKS, EndHistory
from ottla.testing import InProcessBroker, InProcessCluster, wait_until


def history(*marks):
    """One of (seconds, end) pairs."""
    found = EndHistory()
    for seconds, end in marks:
        found.note(end, seconds * 1000)
    return found


@pytest.mark.parametrize(
    ("offset", "age_s"),
    [(300, 0), (299, 0.1), (100, 20), (150, 15), (250, 5), (50, 25), (0, 30), (301, 0)],
)
def test_age_of_a_record_follows_from_when_the_end_passed_it(offset, age_s):
    """Between two marks records came evenly; before the first one, they are at least as old."""
    found = history((0, 0), (10, 100), (20, 200), (30, 300))
    # Offset 100 came right after the second mark, 20 s before the last one.
    assert found.age_ms(offset, 30_000) == pytest.approx(age_s * 1000)


def test_record_from_before_the_first_mark_is_at_least_so_old():
    """A broker that has just become coordinator does not know when the record came."""
    assert history((100, 500), (110, 600)).age_ms(400, 110_000) == 10_000


def test_quiet_time_is_not_spread_over_the_records_after_it():
    """Nothing came for an hour, then a record: it is seconds old, not half an hour."""
    found = history((0, 10), *((t, 10) for t in range(5, 3_600, 5)), (3_605, 11))

    assert found.age_ms(10, 3_605_000) <= 10_000
    assert len(found.marks) < 5


def test_marks_are_bounded_and_dense_lately():
    """After a day of records the last minute is still exact, and the first hour roughly."""
    found = EndHistory()
    for seconds in range(0, 86_400, 5):
        found.note(seconds, seconds * 1000)
    now_ms = 86_395_000

    assert len(found.marks) <= MAX_MARKS
    for age_s in (10, 60, 3_600, 40_000):
        assert found.age_ms(86_395 - age_s, now_ms) == pytest.approx(age_s * 1000, rel=0.01)


def test_log_that_was_cut_back_begins_again():
    """A topic of the same name, or an unclean election."""
    found = history((0, 1_000), (10, 5))

    assert found.end == 5
    assert found.age_ms(5, 10_000) == 0


def test_age_never_rises_with_the_offset():
    """A later record is not older, whatever the marks are."""
    chance, found, end = random.Random(7), EndHistory(), 0
    for seconds in range(0, 3_000, 5):
        end += chance.choice((0, 0, 1, 50, 1_000))
        found.note(end, seconds * 1000)
    ages = [found.age_ms(offset, 3_000_000) for offset in range(0, end + 1, 7)]

    assert ages == sorted(ages, reverse=True)


def commit(bootstrap_servers, group, offsets):
    """Commit as a consumer that assigns its partitions itself."""
    with ottla.Consumer(bootstrap_servers, group_id=group) as consumer:
        consumer.assign(list(offsets))
        consumer.commit(offsets)


def lags_of(url, group, topic, partitions, name="lag"):
    """What one page says of each partition."""
    page = scrape(url, only="kafka_consumergroup_")
    found = []
    for partition in partitions:
        labels = (("consumergroup", group), ("partition", str(partition)), ("topic", topic))
        found.append(page.get((f"kafka_consumergroup_{name}", labels)))
    return found


def lag_of(url, group, topic, partition=0, name="lag"):
    return lags_of(url, group, topic, [partition], name)[0]


def test_lag_is_what_is_not_committed():
    """Ten records, four committed: six are left; without a commit there is no series."""
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as broker:
        url = str(metrics_of(broker.broker).end_point)
        broker.create_topic("t", partitions=2)
        with ottla.Producer(broker.bootstrap_servers) as producer:
            for _ in range(10):
                producer.send("t", b"x", partition=0)
        commit(broker.bootstrap_servers, "g", {ottla.TopicPartition("t", 0): 4})

        assert lag_of(url, "g", "t") == 6
        assert lag_of(url, "g", "t", name="current_offset") == 4
        assert lag_of(url, "g", "t", name="lag_seconds") >= 0
        assert lag_of(url, "g", "t", partition=1) is None
        sums = (("consumergroup", "g"), ("topic", "t"))
        assert scrape(url)["kafka_consumergroup_lag_sum", sums] == 6
        assert scrape(url)["kafka_consumergroup_members", (("consumergroup", "g"),)] == 0

        commit(broker.bootstrap_servers, "g", {ottla.TopicPartition("t", 0): 10})
        assert lag_of(url, "g", "t") == lag_of(url, "g", "t", name="lag_seconds") == 0


def test_command_and_metric_agree(capsys):
    """`ottla consumer-groups --describe` shows the lag that the broker serves."""
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as broker:
        url, servers = str(metrics_of(broker.broker).end_point), broker.bootstrap_servers
        broker.create_topic("t", partitions=3)
        with ottla.Producer(servers) as producer:
            for number in range(30):
                producer.send("t", b"x", partition=number % 3)
        done = {ottla.TopicPartition("t", index): 3 * index for index in range(3)}
        commit(servers, "g", done)
        words = ["consumer-groups", "--bootstrap-server", servers, "--describe", "--group", "g"]
        assert main(words) == 0

        header, *rows = [line.split() for line in capsys.readouterr().out.splitlines() if line]
        column = {name: header.index(name) for name in ("PARTITION", "LAG")}
        shown = {int(row[column["PARTITION"]]): float(row[column["LAG"]]) for row in rows}
        assert shown == {0: 10, 1: 7, 2: 4}
        assert {index: lag_of(url, "g", "t", partition=index) for index in shown} == shown


def test_coordinator_asks_other_leaders_for_their_ends():
    """Whichever broker leads the partition, the coordinator of the group knows the lag."""
    with InProcessCluster(2, metrics_listener="http://127.0.0.1:0") as cluster:
        cluster.create_topic("t", partitions=4, replication_factor=1, min_insync_replicas=1)
        with ottla.Producer(cluster.bootstrap_servers) as producer:
            for index in range(4):
                for _ in range(5):
                    producer.send("t", b"x", partition=index)
        partitions = [ottla.TopicPartition("t", index) for index in range(4)]
        commit(cluster.bootstrap_servers, "g", dict.fromkeys(partitions, 2))
        urls = [str(metrics_of(each).end_point) for each in cluster._brokers()]

        def lags():
            return [lags_of(url, "g", "t", range(4)) for url in urls]

        wait_until(lambda: [3.0] * 4 in lags(), "the lag of all partitions", seen=lags)
        assert [None] * 4 in lags(), "only the coordinator has it"
