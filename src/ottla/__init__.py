"""Ottla: a Kafka-compatible streaming platform in Python.

The clients are imported when they are first used, so that `import ottla` costs nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.version import __version__

if TYPE_CHECKING:
    from ottla.clients.admin.admin import Admin
    from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource, NewTopic
    from ottla.clients.arrow_tables import read_arrow, scan_arrow
    from ottla.clients.consumer.consumer import Consumer
    from ottla.clients.consumer.position_validator import LogTruncationError
    from ottla.clients.consumer.subscription_state import RebalanceListener
    from ottla.clients.processing.processing import HandlerFailedError
    from ottla.clients.producer.producer import Producer
    from ottla.clients.producer.producer_batch import RecordMetadata
    from ottla.clients.producer.topic_handler import TopicHandler
    from ottla.clients.topic_offsets import OffsetAndMetadata, OffsetSpec
    from ottla.errors import KafkaError
    from ottla.record.consumer_record import ConsumerRecord
    from ottla.structs import TopicPartition

__all__ = [
    "Admin",
    "AlterConfigOp",
    "ConfigResource",
    "Consumer",
    "ConsumerRecord",
    "HandlerFailedError",
    "KafkaError",
    "LogTruncationError",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetSpec",
    "Producer",
    "RebalanceListener",
    "RecordMetadata",
    "TopicHandler",
    "TopicPartition",
    "__version__",
    "read_arrow",
    "scan_arrow",
]

_HOMES = {
    "Admin": "ottla.clients.admin.admin",
    "AlterConfigOp": "ottla.clients.admin.descriptions",
    "ConfigResource": "ottla.clients.admin.descriptions",
    "Consumer": "ottla.clients.consumer.consumer",
    "ConsumerRecord": "ottla.record.consumer_record",
    "HandlerFailedError": "ottla.clients.processing.processing",
    "KafkaError": "ottla.errors",
    "LogTruncationError": "ottla.clients.consumer.position_validator",
    "NewTopic": "ottla.clients.admin.descriptions",
    "OffsetAndMetadata": "ottla.clients.topic_offsets",
    "OffsetSpec": "ottla.clients.topic_offsets",
    "Producer": "ottla.clients.producer.producer",
    "RebalanceListener": "ottla.clients.consumer.subscription_state",
    "RecordMetadata": "ottla.clients.producer.producer_batch",
    "TopicHandler": "ottla.clients.producer.topic_handler",
    "TopicPartition": "ottla.structs",
    "read_arrow": "ottla.clients.arrow_tables",
    "scan_arrow": "ottla.clients.arrow_tables",
}

if os.environ.get("OTTLA_PURE", "") not in ("", "0"):
    from ottla.compiled import use_source

    use_source(os.path.dirname(__file__))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
