"""The settings of the clients of the 0.7 design, under that design's names.

Where 0.8 has renamed a setting, its name is taken as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

from ottla.config.config_def import HIGH, LOW, ConfigTable, config_key, dotted
from ottla.config.config_type import CLASS, LONG
from ottla.config.rule import at_least, name_in_requests, one_of
from ottla.config.whole_number import number_of
from ottla.config.zookeeper_config import parse_connect
from ottla.errors import ConfigError
from ottla.structs import Node

COMPRESSION_CODECS = {"0": "none", "1": "gzip", "2": "snappy", "3": "lz4", "4": "zstd"}
FIRST_DESIGN = "0.7"
GROUP_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def is_first_design(version: str) -> bool:
    """Whether brokers of a version speak the protocol of 0.7; ConfigError for no version."""
    if version not in ("", FIRST_DESIGN):
        raise ConfigError(f"broker.version={version}: must be {FIRST_DESIGN}, or unset")
    return version == FIRST_DESIGN


class LegacyConfig(ConfigTable, group=True):
    """The settings that the clients of the 0.7 design have in common: ZooKeeper, and sockets."""

    renamed: ClassVar[Mapping[str, str]] = {
        "zookeeper.connect": "zk.connect",
        "zookeeper.session.timeout.ms": "zk.sessiontimeout.ms",
        "zookeeper.connection.timeout.ms": "zk.connectiontimeout.ms",
    }
    """The names of 0.8 and their names here."""

    zk_connect: str | None = config_key(
        default=None,
        importance=HIGH,
        doc="The ZooKeeper servers of the cluster, as host1:2181,host2:2181/chroot.",
    )
    zk_sessiontimeout_ms: int = config_key(
        default=6000,
        rule=at_least(1),
        doc="How long ZooKeeper may hear nothing of the client before it takes it for dead.",
    )
    zk_connectiontimeout_ms: int = config_key(
        default=6000,
        rule=at_least(1),
        doc="How long the client waits for a ZooKeeper server when it starts.",
    )
    socket_timeout_ms: int = config_key(
        default=30000,
        rule=at_least(1),
        doc="How long a request to a broker may wait for its response.",
    )
    client_id: str = config_key(
        default="ottla",
        rule=name_in_requests(),
        importance=LOW,
        doc="The name under which the client appears in logs and quotas of the broker.",
    )
    broker_version: str = config_key(
        default="",
        rule=one_of("", FIRST_DESIGN),
        importance=LOW,
        doc="0.7: the brokers, and their nodes in ZooKeeper, are those of the first design, and "
        "offsets are positions of bytes. Unset: the brokers are of 1.0 or later. Ottla's own.",
    )

    @classmethod
    def parse(cls, settings: Mapping[str, Any] | None = None, **keywords: Any) -> Self:
        """Read the table; a setting may also be given under the name that 0.8 has for it."""
        renamed: dict[str, Any] = {}
        for name, value in dotted(settings, keywords).items():
            here = cls.renamed.get(name, name)
            if renamed.get(here, value) != value:
                raise ConfigError(f"{name}={value}: must not differ from {here}={renamed[here]}")
            renamed[here] = value
        return super().parse(renamed)

    @classmethod
    def known_names(cls) -> set[str]:
        return super().known_names() | set(cls.renamed)

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        values["zk_connect"] = values["zk_connect"] or None
        if values["zk_connect"] is not None:
            parse_connect("zk.connect", values["zk_connect"])


class ZooKeeperConsumerConfig(LegacyConfig):
    """Everything that a ConsumerConnector is set up with."""

    renamed: ClassVar[Mapping[str, str]] = {
        **LegacyConfig.renamed,
        "group.id": "groupid",
        "consumer.id": "consumerid",
        "socket.receive.buffer.bytes": "socket.buffersize",
        "fetch.message.max.bytes": "fetch.size",
        "fetch.min.bytes": "min.fetch.bytes",
        "fetch.wait.max.ms": "max.fetch.wait.ms",
        "refresh.leader.backoff.ms": "backoff.increment.ms",
        "queued.max.message.chunks": "queuedchunks.max",
        "auto.commit.enable": "autocommit.enable",
        "auto.commit.interval.ms": "autocommit.interval.ms",
        "auto.offset.reset": "autooffset.reset",
        "rebalance.max.retries": "rebalance.retries.max",
    }
    unused: ClassVar[Mapping[str, str]] = {
        "zk.synctime.ms": "each read of ZooKeeper is followed by its watch",
        "zookeeper.sync.time.ms": "each read of ZooKeeper is followed by its watch",
        "partition.assignment.strategy": "the consumers of the 0.7 design take ranges",
    }

    groupid: str | None = config_key(
        default=None,
        importance=HIGH,
        doc="The group: each message goes to one of its consumers. Required.",
    )
    consumerid: str | None = config_key(
        default=None,
        importance=LOW,
        doc="The consumer's name in its group; without it host, time and chance make one.",
    )
    socket_buffersize: int = config_key(
        default=65536, rule=at_least(-1), doc="SO_RCVBUF of connections to brokers."
    )
    fetch_size: int = config_key(
        default=1048576,
        rule=at_least(1),
        doc="How many bytes of a partition a fetch asks for; a larger message comes all the same.",
    )
    min_fetch_bytes: int = config_key(
        default=1,
        rule=at_least(0),
        doc="A broker waits with its answer until there are so many bytes.",
    )
    max_fetch_wait_ms: int = config_key(
        default=100,
        rule=at_least(0),
        doc="A broker waits no longer than this for min.fetch.bytes.",
    )
    backoff_increment_ms: int = config_key(
        default=1000,
        type=LONG,
        rule=at_least(0),
        doc="The wait before a fetch that failed is tried again.",
    )
    queuedchunks_max: int = config_key(
        default=10,
        rule=at_least(1),
        doc="How many chunks of messages may wait in a stream before no more are fetched for it.",
    )
    autocommit_enable: bool = config_key(
        default=True,
        doc="Whether the offsets of what the streams have handed out are committed by themselves.",
    )
    autocommit_interval_ms: int = config_key(
        default=60000,
        rule=at_least(1),
        doc="How often they are.",
    )
    autooffset_reset: str = config_key(
        default="smallest",
        rule=one_of("smallest", "largest", "none"),
        doc="Where reading begins without a committed offset that is in the log: at the smallest "
        "or the largest offset; with none the streams raise an error instead.",
    )
    consumer_timeout_ms: int = config_key(
        default=-1,
        rule=at_least(-1),
        doc="A stream raises ConsumerTimeoutError when no message came for so long; -1: never.",
    )
    rebalance_retries_max: int = config_key(
        default=4,
        rule=at_least(0),
        doc="How often a consumer tries again to take its partitions before it reports failure.",
    )
    rebalance_backoff_ms: int = config_key(
        default=2000,
        rule=at_least(1),
        doc="The longest wait between these tries.",
    )
    exclude_internal_topics: bool = config_key(
        default=True,
        doc="Whether topic filters pass over Kafka's own topics.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        if values["zk_connect"] is None:
            raise ConfigError("zk.connect=: must name the ZooKeeper servers")
        for key in ("groupid", "consumerid"):
            name = values[key]
            if name is not None and (not name or set(name) - GROUP_CHARACTERS):
                raise ConfigError(
                    f"{key}={name}: must be made of ASCII letters, digits, '.', '_' and '-'"
                )
        if values["groupid"] is None:
            raise ConfigError("groupid=: must name a group")


class LegacyProducerConfig(LegacyConfig):
    """Everything that a producer of the 0.7 design is set up with."""

    renamed: ClassVar[Mapping[str, str]] = {
        **LegacyConfig.renamed,
        "queue.buffering.max.ms": "queue.time",
        "queue.buffering.max.messages": "queue.size",
        "queue.enqueue.timeout.ms": "queue.enqueueTimeout.ms",
        "batch.num.messages": "batch.size",
        "zk.read.num.retries": "num.retries",
        "message.send.max.retries": "num.retries",
        "send.buffer.bytes": "buffer.size",
    }
    unused: ClassVar[Mapping[str, str]] = {
        "reconnect.interval": "a connection is kept while it works",
        "reconnect.time.interval.ms": "a connection is kept while it works",
        "zk.synctime.ms": "each read of ZooKeeper is followed by its watch",
    }

    broker_list: tuple[str, ...] = config_key(
        default=(),
        importance=HIGH,
        doc="The brokers to send to, as brokerid:host:port with commas between; no others are "
        "used. Either this or zk.connect.",
    )
    producer_type: str = config_key(
        default="sync",
        rule=one_of("sync", "async"),
        importance=HIGH,
        doc="Whether send waits for the brokers (sync) or leaves the data in a queue (async).",
    )
    serializer_class: Any = config_key(
        default=None,
        type=CLASS,
        importance=HIGH,
        doc="The Encoder that makes messages of the data; without it the data are messages, or "
        "bytes.",
    )
    partitioner_class: Any = config_key(
        default=None,
        type=CLASS,
        doc="The Partitioner that chooses among the partitions by the key; only with zk.connect.",
    )
    compression_codec: str = config_key(
        default="0",
        rule=one_of(*COMPRESSION_CODECS, *COMPRESSION_CODECS.values()),
        doc="How messages are compressed: 0 or none, 1 or gzip, 2 or snappy, 3 or lz4, 4 or zstd.",
    )
    compressed_topics: tuple[str, ...] = config_key(
        default=(),
        doc="The topics whose messages are compressed; if empty, all.",
    )
    queue_time: int = config_key(
        default=5000,
        rule=at_least(1),
        doc="How many milliseconds data may wait in the queue of an async producer.",
    )
    queue_size: int = config_key(
        default=10000, rule=at_least(1), doc="How many events that queue holds."
    )
    batch_size: int = config_key(
        default=200,
        rule=at_least(1),
        doc="How many events are sent together; they do not wait when there are so many.",
    )
    queue_enqueueTimeout_ms: int = config_key(  # noqa: N815 - the 0.7 design writes it so
        default=0,
        doc="What send does while the queue is full: 0 raises QueueFullError at once, a negative "
        "number waits for room, any other waits so many milliseconds before it raises.",
    )
    event_handler: Any = config_key(
        default=None,
        type=CLASS,
        doc="The EventHandler that sends a batch; without it each partition gets its messages.",
    )
    callback_handler: Any = config_key(
        default=None,
        type=CLASS,
        doc="The CallbackHandler that sees, and may change, events on their way through the queue.",
    )
    num_retries: int = config_key(
        default=3,
        rule=at_least(0),
        doc="How often messages are sent again after the partitions have been looked up anew.",
    )
    retry_backoff_ms: int = config_key(
        default=100, rule=at_least(0), doc="The wait before each of these retries."
    )
    max_message_size: int = config_key(
        default=1000000,
        rule=at_least(1),
        doc="A larger message is refused; so much is sent to a partition at once.",
    )
    request_required_acks: int = config_key(
        default=1,
        doc="Who must have the messages before send returns: the leader (1), all replicas in "
        "sync (-1), or nobody (0, as in 0.7: failures are not noticed).",
    )
    connect_timeout_ms: int = config_key(
        default=5000,
        rule=at_least(1),
        doc="How long a connection to a broker may take.",
    )
    buffer_size: int = config_key(
        default=102400, rule=at_least(-1), doc="SO_SNDBUF of connections to brokers."
    )

    @property
    def codec_name(self) -> str:
        """The codec as today's `compression.type` calls it."""
        return COMPRESSION_CODECS.get(self.compression_codec, self.compression_codec)

    @property
    def brokers(self) -> dict[int, Node]:
        """The brokers of broker.list by their ids."""
        return {node.id: node for node in map(parse_broker, self.broker_list)}

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        servers = ",".join(values["broker_list"])
        if bool(servers) == (values["zk_connect"] is not None):
            raise ConfigError(f"broker.list={servers}: must be given, or else zk.connect, not both")
        for broker in values["broker_list"]:
            parse_broker(broker)
        if servers and values["partitioner_class"] is not None:
            raise ConfigError(
                "partitioner.class: must come with zk.connect; broker.list sends at random"
            )
        if values["request_required_acks"] not in (-1, 0, 1):
            acks = values["request_required_acks"]
            raise ConfigError(f"request.required.acks={acks}: must be -1, 0 or 1")


def parse_broker(text: str) -> Node:
    """One entry of broker.list: brokerid:host:port."""
    id, _, address = text.partition(":")
    host, _, port = address.rpartition(":")
    if number_of(id, 0) is None or not host or number_of(port, 1, 65535) is None:
        raise ConfigError(f"broker.list={text}: must be brokerid:host:port")
    return Node(int(id), host.strip("[]"), int(port))
