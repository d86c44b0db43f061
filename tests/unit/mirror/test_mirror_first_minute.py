"""A mirror's first minute between single brokers, by the lines of docs/use/mirror.md alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mirrors import properties_of

from ottla import Consumer
from ottla.config.properties import parse_properties
from ottla.mirror import mirror as mirror_module
from ottla.mirror.flow import parse_plan
from ottla.mirror.mirror import Mirror
from ottla.runtime import SystemClock
from ottla.structs import TopicPartition
from ottla.testing import wait_until

PAGE = Path(__file__).parents[3] / "docs" / "use" / "mirror.md"
LINES = re.compile(r"```text\n(clusters = lisbon, porto\n.*?)```", re.DOTALL)


def page_properties(brokers) -> dict[str, str]:
    """The lines of the page for these clusters, called lisbon and porto there."""
    found = parse_properties(LINES.search(PAGE.read_text())[1])
    for alias, broker in brokers.items():
        found[f"{alias}.bootstrap.servers"] = broker.bootstrap_servers
    return found


def test_lines_of_the_page_mirror_between_two_single_brokers(two, produce):
    """A default of more copies than a cluster has brokers is no obstacle, and a person is told."""
    lisbon, porto = two.values()
    lisbon.create_topic("pages")
    produce(lisbon, "pages", range(100))
    plan = parse_plan(page_properties({"lisbon": lisbon, "porto": porto}))
    with Mirror(plan, SystemClock()) as mirror:
        mirror.start()
        porto.wait_for_records("lisbon.pages", 100)
        wait_until(lambda: len(mirror.notices()) == 3, "what a person is told")

    assert mirror.statuses()[0].error is None
    assert sorted(mirror.notices()) == [
        ("lisbon->porto", "topics get one copy at lisbon, which has no more brokers"),
        ("lisbon->porto", "topics get one copy at porto, which has no more brokers"),
        ("porto->lisbon", "topics get one copy at lisbon, which has no more brokers"),
    ]


@pytest.mark.parametrize(
    "key",
    [
        "offset.storage.replication.factor",
        "offset-syncs.topic.replication.factor",
        "checkpoints.topic.replication.factor",
        "heartbeats.topic.replication.factor",
    ],
)
def test_setting_that_a_cluster_cannot_follow_is_named(two, key):
    """What somebody has typed is not made smaller; the line says which setting it was."""
    plan = parse_plan(properties_of(two) | {key: "3"})
    with Mirror(plan, SystemClock()) as mirror:
        mirror.start()
        wait_until(lambda: mirror.statuses()[0].error, "an error")

        assert f"{key}: " in mirror.statuses()[0].error
        assert "must be 1: one broker lives" in mirror.statuses()[0].error


@pytest.mark.parametrize("is_early", [True, False])
def test_group_can_move_before_the_first_interval_is_over(two, produce, is_early, monkeypatch):
    """Its first checkpoint does not wait; the group may come before the mirror or after it."""
    monkeypatch.setattr(mirror_module, "SYNC_MS", 100)
    lisbon, porto = two.values()
    lisbon.create_topic("pages")
    produce(lisbon, "pages", range(100))

    def commit() -> None:
        with Consumer(lisbon.bootstrap_servers, group_id="g", enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition("pages", 0)])
            consumer.commit({TopicPartition("pages", 0): 100})

    if is_early:
        commit()
    plan = parse_plan(page_properties({"lisbon": lisbon, "porto": porto}))
    with Mirror(plan, SystemClock()) as mirror:
        mirror.start()
        porto.wait_for_records("lisbon.pages", 100)
        assert is_early or mirror.statuses()[0].groups == 0
        if not is_early:
            commit()
        wait_until(lambda: mirror.statuses()[0].groups == 1, "a group with a checkpoint", 30)
        end = {TopicPartition("lisbon.pages", 0): 100}
        wait_until(lambda: porto.committed("g") == end, "its offset at the target", 30)


def test_heartbeats_are_not_among_the_records_of_the_line(two, produce):
    """They are copied, as the flow in the other direction writes them; nobody has produced them."""
    a, b = two.values()
    a.create_topic("t")
    produce(a, "t", range(10))
    beats = {"a.emit.heartbeats.interval.seconds": "1", "b->a.emit.heartbeats.enabled": "true"}
    beats["b->a.emit.heartbeats.interval.seconds"] = "1"
    with Mirror(parse_plan(properties_of(two) | beats), SystemClock()) as mirror:
        mirror.start()
        b.wait_for_records("a.heartbeats", 1)
        b.wait_for_records("a.t", 10)
        wait_until(lambda: mirror.statuses()[0].records, "records in the line")
        b.wait_for_records("a.heartbeats", 3)

        assert mirror.statuses()[0].records == 10
