"""Mirrors between brokers of this process, with short intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ottla.mirror.flow import MirrorPlan, parse_plan
from ottla.mirror.mirror import Mirror
from ottla.runtime import SystemClock

SETTINGS = {
    "replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
    "offset.flush.interval.ms": "100",
}


def properties_of(brokers: Mapping[str, object], **settings: str) -> dict[str, str]:
    """mm2.properties for clusters by alias; in names `_` is a dot, and `_to_` an arrow.

    If no flow is named, that from the first cluster to the second is enabled.
    """
    aliases = list(brokers)
    found = {f"{alias}.bootstrap.servers": b.bootstrap_servers for alias, b in brokers.items()}
    found |= {k.replace("_to_", "->").replace("_", "."): v for k, v in settings.items()}
    return {
        "clusters": ",".join(aliases),
        f"{aliases[0]}->{aliases[1]}.enabled": "true",
        **SETTINGS,
        **found,
    }


def plan_of(brokers: Mapping[str, object], **settings: str) -> MirrorPlan:
    return parse_plan(properties_of(brokers, **settings))


@contextmanager
def mirroring(brokers: Mapping[str, object], **settings: str) -> Iterator[Mirror]:
    """A mirror that runs while the block does."""
    with Mirror(plan_of(brokers, **settings), SystemClock()) as mirror:
        mirror.start()
        yield mirror


def values(broker, topic: str, partition: int | None = None) -> list[str]:
    return [record.value.decode() for record in broker.records(topic, partition=partition)]
