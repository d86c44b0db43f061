"""Fills the streams of a connector from brokers of Kafka 0.7, where `broker.version=0.7`.

Each broker has a task that fetches all owned partitions of its own at once, again and again: such
brokers do not wait for messages. A message that is larger than a fetch has the next one ask for
twice as much, until it fits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final

from ottla.clients.legacy.assignment import ConsumerThreadId
from ottla.clients.legacy.broker_clients import LinkSettings
from ottla.clients.legacy.cluster_nodes import PlacedPartition
from ottla.clients.legacy.first_design_link import (
    POLL_PAUSE_MS,
    FirstDesignLink,
    PositionalMessageSet,
)
from ottla.clients.legacy.kafka_stream import KafkaStream, OwnedPartition, OwnedPartitions, StreamOf
from ottla.config.legacy_config import ZooKeeperConsumerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import PartitionData
from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.runtime import Runtime
from ottla.runtime.scheduler import pause
from ottla.structs import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_TIMESTAMP, Node, TopicPartition

logger = logging.getLogger(__name__)

RESET_TIMES: Final = {"smallest": EARLIEST_TIMESTAMP, "largest": LATEST_TIMESTAMP}
MAX_FETCH_BYTES: Final = 2**31 - 1


class NextFetch:
    """Where a partition is fetched next, and how many bytes; None before that is known."""

    def __init__(self, position: int | None, size: int) -> None:
        self.position = position
        self.size = size


class FirstDesignFetcher:
    """Fetches the partitions of each broker by a task, and hands their messages to streams."""

    def __init__(
        self,
        runtime: Runtime,
        config: ZooKeeperConsumerConfig,
        brokers: Mapping[int, Node],
        stream_of: StreamOf,
    ) -> None:
        self.owned = OwnedPartitions()
        self._runtime = runtime
        self._config = config
        self._stream_of = stream_of
        self._settings = LinkSettings(
            config.client_id,
            config.socket_timeout_ms,
            config.socket_timeout_ms,
            receive_buffer_bytes=config.socket_buffersize,
        )
        self._places: dict[TopicPartition, NextFetch] = {}
        self._brokers = dict(brokers)
        self._links: dict[int, FirstDesignLink] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def on_brokers(self, brokers: Mapping[int, Node]) -> None:
        """Take over the current addresses."""
        self._brokers = dict(brokers)

    def take(
        self,
        owners: Mapping[TopicPartition, ConsumerThreadId],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        """Fetch these as well."""
        for partition, thread in owners.items():
            stream = self._stream_of(partition.topic, thread.number)
            position = offsets.get(partition)
            self.owned[partition] = OwnedPartition(stream, position)
            self._places[partition] = NextFetch(position, self._config.fetch_size)
        self._changed.set()
        for broker_id in {broker_of(partition) for partition in owners} - self._tasks.keys():
            self._tasks[broker_id] = self._runtime.scheduler.spawn(
                self._fetch_from(broker_id), f"fetch from broker {broker_id}"
            )

    def drop(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Stop fetching these; returns how far they were consumed, where that is known."""
        for partition in partitions:
            self._places.pop(partition, None)
        return self.owned.drop(partitions)

    def on_room(self, stream: KafkaStream) -> None:
        """A stream that was full has been read: fetch for it again."""
        self._changed.set()

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        for link in self._links.values():
            link.close()

    # One broker

    async def _fetch_from(self, broker_id: int) -> None:
        while True:
            wanted = self._wanted(broker_id)
            if not wanted:
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                link = self._link_to(broker_id)
                for partition in wanted:
                    await self._find_position(link, partition)
                await self._fetch(link, wanted)
            except KafkaError as error:
                logger.info("broker %d cannot be read from: %s", broker_id, error)
                await pause(self._runtime.scheduler, self._config.backoff_increment_ms)

    def _wanted(self, broker_id: int) -> list[TopicPartition]:
        return [
            partition
            for partition, owned in self.owned.items()
            if broker_of(partition) == broker_id and not owned.stream.is_full
        ]

    def _link_to(self, broker_id: int) -> FirstDesignLink:
        node = self._brokers.get(broker_id)
        if node is None:
            raise KafkaError.of(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id}")
        link = self._links.get(broker_id)
        if link is None or link.node != node:
            if link is not None:
                link.close()
            link = self._links[broker_id] = FirstDesignLink(self._runtime, node, self._settings)
        return link

    async def _find_position(self, link: FirstDesignLink, partition: TopicPartition) -> None:
        """Begin where autooffset.reset says, unless it is known."""
        place, owned = self._places.get(partition), self.owned.get(partition)
        if place is None or owned is None or place.position is not None:
            return
        time_ms = RESET_TIMES.get(self._config.autooffset_reset)
        if time_ms is None:
            error = KafkaError.of(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has no offset to begin at"
            )
            owned.stream.fail(error)
            raise error
        offsets = await link.offsets_before(partition, time_ms, 1)
        if not offsets:
            raise KafkaError.of(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has no offsets")
        place.position = owned.consumed_offset = offsets[0]

    async def _fetch(self, link: FirstDesignLink, partitions: Collection[TopicPartition]) -> None:
        wanted = {
            partition: (place.position, place.size)
            for partition in partitions
            if (place := self._places.get(partition)) is not None and place.position is not None
        }
        wait_ms = max(POLL_PAUSE_MS, self._config.max_fetch_wait_ms)
        answers = await link.fetch(wanted, wait_ms, max(1, self._config.min_fetch_bytes))
        for partition, data in answers.items():
            place, owned = self._places.get(partition), self.owned.get(partition)
            if place is not None and owned is not None and place.position == wanted[partition][0]:
                self._hand_over(partition, place, owned, data)

    def _hand_over(
        self,
        partition: TopicPartition,
        place: NextFetch,
        owned: OwnedPartition,
        data: PartitionData,
    ) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            logger.warning("%s: offset %s is out of range", partition, place.position)
            place.position = None
            return
        assert place.position is not None, "it was fetched"
        if data.error_code:
            error = ErrorCode.of(data.error_code)
            raise KafkaError.of(error, f"{partition}: {error.sentence}")
        found = PositionalMessageSet(data.records, place.position)
        if found.needed_bytes:
            self._grow(place, found, owned)
            return
        try:
            messages = list(found)
        except KafkaError as error:
            owned.stream.fail(error)
            raise
        place.size = self._config.fetch_size
        place.position = found.next_offset
        if messages:
            records = [record_of(partition, each.message.payload, each.offset) for each in messages]
            owned.stream.put(owned, records, [each.next_offset for each in messages])

    def _grow(self, place: NextFetch, found: PositionalMessageSet, owned: OwnedPartition) -> None:
        """Ask for twice as many bytes next time, until the message fits."""
        if found.size_in_bytes < place.size or place.size == MAX_FETCH_BYTES:
            error = KafkaError.of(
                ErrorCode.CORRUPT_MESSAGE, f"there is no whole message at {place.position}"
            )
            owned.stream.fail(error)
            raise error
        place.size = min(MAX_FETCH_BYTES, 2 * place.size)


def broker_of(partition: TopicPartition) -> int:
    """The broker that a partition of the first design belongs to."""
    assert isinstance(partition.partition, PlacedPartition), "its nodes name the broker"
    return partition.partition.broker_id


def record_of(partition: TopicPartition, payload: bytes | None, offset: int) -> ConsumerRecord:
    """A message as the streams hand it out: it has no key, and no time."""
    return ConsumerRecord(
        *partition, offset, NO_TIMESTAMP, TimestampType.CREATE_TIME, None, payload
    )
