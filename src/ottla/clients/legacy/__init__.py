"""The clients of the 0.7 design, over today's protocol: see docs/use/legacy.md."""

from ottla.clients.legacy.broker_clients import (
    FetchRequest,
    MultiFetchResponse,
    OffsetRequest,
    ProducerRequest,
    SimpleConsumer,
    SyncProducer,
)
from ottla.clients.legacy.consumer_connector import (
    Consumer,
    ConsumerConnector,
    ConsumerRebalanceFailedError,
)
from ottla.clients.legacy.kafka_stream import ConsumerTimeoutError, KafkaStream
from ottla.clients.legacy.message import (
    Decoder,
    DefaultDecoder,
    DefaultEncoder,
    DefaultPartitioner,
    Encoder,
    Message,
    MessageAndMetadata,
    MessageAndOffset,
    MessageSet,
    Partitioner,
    StringDecoder,
    StringEncoder,
)
from ottla.clients.legacy.producer import (
    CallbackHandler,
    DefaultEventHandler,
    EventHandler,
    Producer,
    ProducerData,
    QueueClosedError,
    QueueFullError,
    QueueItem,
)
from ottla.clients.legacy.topic_filter import Blacklist, TopicFilter, Whitelist
from ottla.config.legacy_config import LegacyProducerConfig as ProducerConfig
from ottla.config.legacy_config import ZooKeeperConsumerConfig as ConsumerConfig

__all__ = [
    "Blacklist",
    "CallbackHandler",
    "Consumer",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerRebalanceFailedError",
    "ConsumerTimeoutError",
    "Decoder",
    "DefaultDecoder",
    "DefaultEncoder",
    "DefaultEventHandler",
    "DefaultPartitioner",
    "Encoder",
    "EventHandler",
    "FetchRequest",
    "KafkaStream",
    "Message",
    "MessageAndMetadata",
    "MessageAndOffset",
    "MessageSet",
    "MultiFetchResponse",
    "OffsetRequest",
    "Partitioner",
    "Producer",
    "ProducerConfig",
    "ProducerData",
    "ProducerRequest",
    "QueueClosedError",
    "QueueFullError",
    "QueueItem",
    "SimpleConsumer",
    "StringDecoder",
    "StringEncoder",
    "SyncProducer",
    "TopicFilter",
    "Whitelist",
]
