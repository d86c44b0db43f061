"""Fills the streams of a connector from the leaders of their partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby

from ottla.clients.consumer.completed_fetch import Decoding
from ottla.clients.consumer.fetcher import Fetcher
from ottla.clients.consumer.positions import Positions
from ottla.clients.consumer.subscription_state import SubscriptionState
from ottla.clients.legacy.assignment import ConsumerThreadId
from ottla.clients.legacy.kafka_stream import KafkaStream, OwnedPartition, OwnedPartitions, StreamOf
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.config.client_config import ConsumerConfig
from ottla.config.legacy_config import ZooKeeperConsumerConfig
from ottla.errors import KafkaError
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime import Runtime
from ottla.runtime.timing import Deadline
from ottla.structs import Node, TopicPartition

logger = logging.getLogger(__name__)

RECORDS_AT_ONCE = 500
RESETS = {"smallest": "earliest", "largest": "latest", "none": "none"}
RECONNECT_BACKOFF_MS = 50


def fetch_settings(config: ZooKeeperConsumerConfig, brokers: Iterable[Node]) -> ConsumerConfig:
    """The connector's settings in the form of the modern consumer's, for its fetcher."""
    return ConsumerConfig(
        bootstrap_servers=tuple(map(address, brokers)),
        client_id=config.client_id,
        request_timeout_ms=config.socket_timeout_ms,
        receive_buffer_bytes=config.socket_buffersize,
        max_partition_fetch_bytes=config.fetch_size,
        fetch_min_bytes=config.min_fetch_bytes,
        fetch_max_wait_ms=config.max_fetch_wait_ms,
        retry_backoff_ms=config.backoff_increment_ms,
        retry_backoff_max_ms=config.backoff_increment_ms,
        reconnect_backoff_ms=min(RECONNECT_BACKOFF_MS, config.backoff_increment_ms),
        auto_offset_reset=RESETS[config.autooffset_reset],
        allow_auto_create_topics=False,
    )


def address(node: Node) -> str:
    host = f"[{node.host}]" if ":" in node.host else node.host
    return f"{host}:{node.port}"


class StreamFetcher:
    """Keeps one fetch in flight to each broker that leads an owned partition."""

    def __init__(
        self,
        runtime: Runtime,
        config: ZooKeeperConsumerConfig,
        brokers: Mapping[int, Node],
        stream_of: StreamOf,
    ) -> None:
        self.owned = OwnedPartitions()
        self._runtime = runtime
        self._stream_of = stream_of
        settings = fetch_settings(config, brokers.values())
        self._client = NetworkClient(runtime, settings)
        self._metadata = Metadata(
            self._client, allow_auto_topic_creation=False, on_update=self._on_metadata
        )
        self._subscriptions = SubscriptionState()
        self._fetcher = Fetcher(
            self._client, self._metadata, self._subscriptions, settings, Decoding(check_crcs=True)
        )
        self._fetcher.on_arrival = self._on_arrival
        self._positions = Positions(
            self._client, self._metadata, self._subscriptions, settings, None
        )
        self._finding: asyncio.Task[None] | None = None
        self._is_closed = False

    def on_brokers(self, brokers: Mapping[int, Node]) -> None:
        """Set the bootstrap addresses, used when no known broker can be reached."""
        if brokers:
            self._client.update_bootstrap([address(node) for node in brokers.values()])

    def take(
        self,
        owners: Mapping[TopicPartition, ConsumerThreadId],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        """Fetch these as well."""
        for partition, thread in owners.items():
            stream = self._stream_of(partition.topic, thread.number)
            self.owned[partition] = OwnedPartition(stream, offsets.get(partition))
        self._subscriptions.replace(self.owned)
        for partition in owners:
            if partition in offsets:
                self._subscriptions.state(partition).seek(offsets[partition])
        self._metadata.set_topics({partition.topic for partition in self.owned})
        self._fetch_on()

    def drop(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Stop fetching these; returns how far they were consumed, where that is known."""
        offsets = self.owned.drop(partitions)
        self._subscriptions.replace(self.owned)
        self._metadata.set_topics({partition.topic for partition in self.owned})
        return offsets

    def on_room(self, stream: KafkaStream) -> None:
        """A stream that was full has been read: fetch for it again."""
        for partition, owned in self.owned.items():
            if owned.stream is stream:
                self._subscriptions.state(partition).is_paused = False
        self._on_arrival()

    def close(self) -> None:
        self._is_closed = True
        if self._finding is not None:
            self._finding.cancel()
        self._fetcher.close()
        self._metadata.close()
        self._client.close()

    def _on_metadata(self, _: object) -> None:
        self._fetch_on()

    def _fetch_on(self) -> None:
        """Look up missing positions, and fetch the partitions that have one."""
        if self._is_closed:
            return
        if self._finding is None and not self._subscriptions.has_all_positions:
            self._finding = self._runtime.scheduler.spawn(self._find_positions(), "find positions")
        self._fetcher.send_fetches()

    async def _find_positions(self) -> None:
        try:
            await self._learn_topics()
            await self._positions.find()
        except KafkaError as error:
            self._fail(error)
            return
        finally:
            self._finding = None
        for partition, owned in self.owned.items():
            if owned.consumed_offset is None:
                owned.consumed_offset = self._subscriptions.state(partition).position
        self._fetch_on()

    async def _learn_topics(self) -> None:
        """Load the topics' metadata first, so that no fetch fails for lack of a leader."""
        for topic in {partition.topic for partition in self.owned}:
            deadline = Deadline(self._runtime.clock, self._client.config.request_timeout_ms)
            try:
                await self._metadata.topic(topic, deadline)
            except KafkaError as error:
                logger.debug("topic %s cannot be looked up: %s", topic, error)

    def _on_arrival(self) -> None:
        try:
            while not self._is_closed:
                records, _ = self._fetcher.collect(RECORDS_AT_ONCE)
                if not records:
                    break
                self._hand_over(records)
        except KafkaError as error:
            self._fail(error)
        self._fetch_on()

    def _hand_over(self, records: list[ConsumerRecord]) -> None:
        for (topic, number), run in groupby(records, key=lambda r: (r.topic, r.partition)):
            owned = self.owned[TopicPartition(topic, number)]
            owned.stream.put(owned, list(run))
            if owned.stream.is_full:
                self._pause(owned.stream)

    def _pause(self, stream: KafkaStream) -> None:
        for partition, owned in self.owned.items():
            if owned.stream is stream:
                self._subscriptions.state(partition).is_paused = True

    def _fail(self, error: KafkaError) -> None:
        logger.error("the streams cannot be filled: %s", error)
        for stream in {id(owned.stream): owned.stream for owned in self.owned.values()}.values():
            stream.fail(error)
