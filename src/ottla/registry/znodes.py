"""The content of nodes: typed values, written and read as Kafka's JSON.

Keys are written in Kafka's order. Readers take the older versions as well and ignore keys that
they do not know, as Kafka's own do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.structs import (
    NO_UUID,
    LeaderAndIsr,
    TopicPartition,
    Value,
    decode_uuid,
    encode_uuid,
    field,
)


def _encode(**values: Any) -> bytes:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def _decode(what: str, data: bytes) -> dict[str, Any]:
    """The JSON object of a node; it is checked, because other programs may write the registry."""
    try:
        values = json.loads(data)
        if b"\\u" in data:
            _encode(values=values)  # half of a surrogate pair: no order to a broker could have it
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise unreadable(what, data)
    return values


def unreadable(what: str, data: bytes) -> KafkaError:
    """The error for a node whose content does not fit its path."""
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"the registry node of {what} is not readable: {data!r}"
    )


class BrokerNode(Value, frozen=True):
    """A live broker: /brokers/ids/[id], written as version 4; 1 to 5 are read."""

    endpoints: tuple[str, ...]
    protocols: Mapping[str, str]
    """The security protocol of each listener name."""
    host: str | None
    port: int
    timestamp_ms: int
    jmx_port: int = -1
    rack: str | None = None
    features: Mapping[str, Any] = field(default_factory=dict)
    """Only version 5 (2.7) has them; they are read and not written."""

    def encode(self) -> bytes:
        values: dict[str, Any] = {
            "listener_security_protocol_map": dict(self.protocols),
            "endpoints": list(self.endpoints),
            "jmx_port": self.jmx_port,
            "host": self.host,
            "timestamp": str(self.timestamp_ms),
            "port": self.port,
            "version": 4,
        }
        if self.rack is not None:
            values["rack"] = self.rack
        return _encode(**values)

    @classmethod
    def decode(cls, broker_id: int, data: bytes) -> BrokerNode:
        """Versions 1 to 5; before version 2 the only end point is host and port."""
        what = f"broker {broker_id}"
        values = _decode(what, data)
        try:
            host, port = values.get("host"), int(values.get("port", -1))
            endpoints = tuple(values.get("endpoints") or (f"PLAINTEXT://{host}:{port}",))
            names = [endpoint.partition("://")[0] for endpoint in endpoints]
            return cls(
                endpoints,
                dict(
                    values.get("listener_security_protocol_map") or {name: name for name in names}
                ),
                host,
                port,
                int(values.get("timestamp", -1)),
                int(values.get("jmx_port", -1)),
                values.get("rack"),
                dict(values.get("features") or {}),
            )
        except (TypeError, ValueError, AttributeError):
            raise unreadable(what, data) from None


class TopicNode(Value, frozen=True):
    """A topic's replicas by partition: /brokers/topics/[t], version 3; 1 and 2 are read."""

    assignment: Mapping[int, tuple[int, ...]]
    topic_id: UUID = NO_UUID
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def encode(self) -> bytes:
        return _encode(
            removing_replicas=_replicas_to_json(self.removing),
            partitions=_replicas_to_json(self.assignment),
            topic_id=encode_uuid(self.topic_id),
            adding_replicas=_replicas_to_json(self.adding),
            version=3,
        )

    @classmethod
    def decode(cls, name: str, data: bytes) -> TopicNode:
        what = f"topic {name}"
        values = _decode(what, data)
        try:
            topic_id = values.get("topic_id")
            return cls(
                _replicas_from_json(values["partitions"]),
                decode_uuid(topic_id) if topic_id else NO_UUID,
                _replicas_from_json(values.get("adding_replicas") or {}),
                _replicas_from_json(values.get("removing_replicas") or {}),
            )
        except (TypeError, ValueError, AttributeError, KeyError):
            raise unreadable(what, data) from None


def _replicas_to_json(assignment: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(index): list(replicas) for index, replicas in sorted(assignment.items())}


def _replicas_from_json(values: Mapping[str, Sequence[int]]) -> dict[int, tuple[int, ...]]:
    return {int(index): tuple(map(int, replicas)) for index, replicas in values.items()}


def encode_partition_state(state: LeaderAndIsr, controller_epoch: int) -> bytes:
    """/brokers/topics/[t]/partitions/[p]/state, version 1; the node is persistent."""
    return _encode(
        controller_epoch=controller_epoch,
        leader=state.leader,
        version=1,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
    )


def decode_partition_state(path: str, data: bytes, version: int) -> tuple[LeaderAndIsr, int]:
    """Leader and ISR, with the version of the node, and the controller epoch that wrote them."""
    values = _decode(path, data)
    try:
        isr = tuple(map(int, values["isr"]))
        state = LeaderAndIsr(int(values["leader"]), int(values["leader_epoch"]), isr, version)
        return state, int(values["controller_epoch"])
    except (TypeError, ValueError, KeyError):
        raise unreadable(path, data) from None


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """/controller, version 1."""
    return _encode(version=1, brokerid=broker_id, timestamp=str(timestamp_ms))


def decode_controller(data: bytes) -> int:
    """The id of the broker that is the controller."""
    try:
        return int(_decode("the controller", data)["brokerid"])
    except (TypeError, ValueError, KeyError):
        raise unreadable("the controller", data) from None


def encode_epoch(epoch: int) -> bytes:
    """/controller_epoch: decimal text."""
    return str(epoch).encode()


def decode_epoch(data: bytes) -> int:
    try:
        return int(data)
    except ValueError:
        raise unreadable("the controller epoch", data) from None


def encode_cluster_id(cluster_id: str) -> bytes:
    """/cluster/id; the version is a text in this node, for reasons of Kafka's own."""
    return _encode(version="1", id=cluster_id)


def decode_cluster_id(data: bytes) -> str:
    cluster_id = _decode("the cluster id", data).get("id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise unreadable("the cluster id", data)
    return cluster_id


def encode_config(config: Mapping[str, str]) -> bytes:
    """/config/[type]/[name], version 1."""
    return _encode(version=1, config=dict(config))


def decode_config(path: str, data: bytes) -> dict[str, str]:
    if not data:
        return {}
    config = _decode(path, data).get("config")
    if not isinstance(config, dict):
        raise unreadable(path, data)
    return {str(name): str(value) for name, value in config.items()}


def encode_config_change(entity_path: str) -> bytes:
    """/config/changes/config_change_N, version 2; the path is as `topics/orders`."""
    return _encode(version=2, entity_path=entity_path)


def decode_config_change(path: str, data: bytes) -> str:
    """The entity path; version 1 names type and name apart."""
    values = _decode(path, data)
    if values.get("version") == 1:
        return f"{values.get('entity_type')}/{values.get('entity_name')}"
    entity_path = values.get("entity_path")
    if not isinstance(entity_path, str):
        raise unreadable(path, data)
    return entity_path


class ProducerIdBlock(Value, frozen=True):
    """The producer ids handed to a broker, both ends included: /latest_producer_id_block."""

    broker_id: int
    first_id: int
    last_id: int

    def encode(self) -> bytes:
        """Version 1; the ids are texts, because JSON readers may lose the end of a long."""
        return _encode(
            version=1,
            broker=self.broker_id,
            block_start=str(self.first_id),
            block_end=str(self.last_id),
        )

    @classmethod
    def decode(cls, data: bytes) -> ProducerIdBlock:
        what = "the producer id block"
        values = _decode(what, data)
        try:
            return cls(int(values["broker"]), int(values["block_start"]), int(values["block_end"]))
        except (TypeError, ValueError, KeyError):
            raise unreadable(what, data) from None


STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"
"""What the keys of a subscription are: topics, or a pattern of those wanted or not wanted."""

_PATTERNS_OF_0_7 = {"*": WHITE_LIST, "!": BLACK_LIST}


class ConsumerRegistration(Value, frozen=True):
    """A live consumer of the old kind: /consumers/[g]/ids/[c], version 1; 0.7's is read."""

    subscription: Mapping[str, int]
    """How many streams each topic, or the pattern, has."""
    pattern: str = STATIC
    timestamp_ms: int = -1

    def encode(self) -> bytes:
        return _encode(
            version=1,
            subscription=dict(self.subscription),
            pattern=self.pattern,
            timestamp=str(self.timestamp_ms),
        )

    @classmethod
    def decode(cls, consumer: str, data: bytes) -> ConsumerRegistration:
        """0.7 wrote the topics alone, or as `*2*regex` and `!2!regex` streams and pattern."""
        what = f"consumer {consumer}"
        try:
            if data[:1].decode() in _PATTERNS_OF_0_7:
                _, count, expression = data.decode().split(data[:1].decode(), 2)
                return cls({expression: int(count)}, _PATTERNS_OF_0_7[data[:1].decode()])
            values = _decode(what, data)
            subscription = values.get("subscription", values)
            return cls(
                {str(name): int(count) for name, count in subscription.items()},
                # A few versions of 0.8 wrote a hyphen.
                str(values.get("pattern", STATIC)).replace("-", "_"),
                int(values.get("timestamp", -1)),
            )
        except (TypeError, ValueError, AttributeError):
            raise unreadable(what, data) from None


def encode_offset(offset: int) -> bytes:
    """/consumers/[g]/offsets/[t]/[p]: decimal text."""
    return str(offset).encode()


def decode_offset(path: str, data: bytes) -> int:
    try:
        return int(data)
    except ValueError:
        raise unreadable(path, data) from None


FEATURE: Final = "/feature"
VERSION: Final = 2
ENABLED: Final = 1


def encode_features(levels: Mapping[str, int]) -> bytes:
    """Version 2: a level for each feature."""
    content = {"version": VERSION, "status": ENABLED, "features": dict(levels)}
    return json.dumps(content, separators=(",", ":")).encode()


def decode_features(data: bytes) -> dict[str, int]:
    """The levels of either version; version 1 has a lowest one beside each, which is not used."""
    try:
        features = json.loads(data)["features"]
        return {
            str(name): int(level["max_version_level"] if isinstance(level, dict) else level)
            for name, level in features.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise KafkaError(
            ErrorCode.FEATURE_UPDATE_FAILED, f"{FEATURE} cannot be read: {data[:200]!r}"
        ) from error


def encode_reassignments(targets: Mapping[TopicPartition, Iterable[int]]) -> bytes:
    """/admin/reassign_partitions, version 1: the replicas that partitions are to have."""
    return _encode_list(
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
    return _encode_list(
        [{"topic": topic, "partition": partition} for topic, partition in partitions]
    )


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


def _encode_list(entries: list[dict[str, Any]]) -> bytes:
    values = {"version": 1, "partitions": entries}
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def _entries(data: bytes) -> dict[TopicPartition, dict[str, Any]]:
    return {
        TopicPartition(str(entry["topic"]), int(entry["partition"])): entry
        for entry in json.loads(data)["partitions"]
    }
