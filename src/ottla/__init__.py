"""Ottla: a Kafka-compatible streaming platform in Python.

The clients are imported when they are first used, so that `import ottla` costs nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ottla.late_names import late_names
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

__getattr__, __dir__ = late_names(
    __name__,
    {
        "clients.admin.admin": "Admin",
        "clients.admin.descriptions": "AlterConfigOp ConfigResource NewTopic",
        "clients.arrow_tables": "read_arrow scan_arrow",
        "clients.consumer.consumer": "Consumer",
        "clients.consumer.position_validator": "LogTruncationError",
        "clients.consumer.subscription_state": "RebalanceListener",
        "clients.processing.processing": "HandlerFailedError",
        "clients.producer.producer": "Producer",
        "clients.producer.producer_batch": "RecordMetadata",
        "clients.producer.topic_handler": "TopicHandler",
        "clients.topic_offsets": "OffsetAndMetadata OffsetSpec",
        "errors": "KafkaError",
        "record.consumer_record": "ConsumerRecord",
        "structs": "TopicPartition",
    },
)

if os.environ.get("OTTLA_PURE", "") not in ("", "0"):
    from ottla.compiled import use_source

    use_source(os.path.dirname(__file__))
