"""What tools and brokers ask of the controller by writing a node, as Kafka's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.registry.znodes import unreadable
from ottla.structs import TopicPartition


def encode_reassignments(targets: Mapping[TopicPartition, Iterable[int]]) -> bytes:
    """/admin/reassign_partitions, version 1: the replicas that partitions are to have."""
    return _encode(
        [
            {"topic": topic, "partition": partition, "replicas": list(replicas)}
            for (topic, partition), replicas in targets.items()
        ]
    )


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    what = "the reassignment of partitions"
    try:
        return {
            partition: tuple(map(int, entry["replicas"]))
            for partition, entry in _entries(data).items()
        }
    except (TypeError, ValueError, KeyError, AttributeError):
        raise unreadable(what, data) from None


def encode_preferred_elections(partitions: Iterable[TopicPartition]) -> bytes:
    """/admin/preferred_replica_election, version 1."""
    return _encode([{"topic": topic, "partition": partition} for topic, partition in partitions])


def decode_preferred_elections(data: bytes) -> list[TopicPartition]:
    try:
        return list(_entries(data))
    except (TypeError, ValueError, KeyError, AttributeError):
        raise unreadable("the preferred leader election", data) from None


def encode_log_dir_event(broker_id: int) -> bytes:
    """/log_dir_event_notification/log_dir_event_N, version 1; the event 1 is a failure."""
    return json.dumps(
        {"version": 1, "broker": broker_id, "event": 1}, separators=(",", ":")
    ).encode()


def decode_log_dir_event(data: bytes) -> int:
    """The broker whose log directory has failed."""
    try:
        return int(json.loads(data)["broker"])
    except (TypeError, ValueError, KeyError):
        raise unreadable("a log directory's failure", data) from None


def _encode(entries: list[dict[str, Any]]) -> bytes:
    values = {"version": 1, "partitions": entries}
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def _entries(data: bytes) -> dict[TopicPartition, dict[str, Any]]:
    return {
        TopicPartition(str(entry["topic"]), int(entry["partition"])): entry
        for entry in json.loads(data)["partitions"]
    }
