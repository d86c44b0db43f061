"""Asks the brokers, in the driver: which partitions there are, and which offsets bounds mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeVar

from ottla.clients.admin.admin_client import BulkError, checked
from ottla.clients.admin.descriptions import TopicDescription
from ottla.clients.topic_offsets import ListOffsetsResult, OffsetSpec
from ottla.errors import ErrorCode, KafkaError
from ottla.spark import connections
from ottla.spark.offsets import (
    EARLIEST,
    LATEST,
    Bound,
    ByOffset,
    ByTimestamp,
    Earliest,
    GlobalTimestamp,
    Latest,
    Offsets,
    Reach,
    TopicIds,
    parse_assignment,
    to_json_object,
)
from ottla.spark.options import OptionError, SourceOptions
from ottla.structs import NO_EPOCH, NO_OFFSET, NO_UUID, TopicPartition

Key = TypeVar("Key")
Found = TypeVar("Found")

GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""The errors of a topic that was deleted, once they have stayed over a retry."""


def without_deleted(call: Callable[[], dict[Key, Found]]) -> dict[Key, Found]:
    """The results of a call, without those of topics that were deleted since one has heard of them.

    Raises BulkError for any other error.
    """
    try:
        return call()
    except BulkError as error:
        return checked({each: found for each, found in error.results.items() if not is_gone(found)})


def is_gone(found: object) -> bool:
    """Whether this is the error of a topic that was deleted."""
    return isinstance(found, KafkaError) and found.error in GONE


class OffsetLookup:
    """Partitions and offsets as they are when asked for; nothing is remembered.

    A topic may be deleted between any two questions. A stream continues without it, and unread
    records are missed when the next micro-batch is planned; a batch fails.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin = connections.admin(options.client)

    def partitions(self, *, must_exist: bool) -> list[TopicPartition]:
        """The partitions that the options name, sorted. With `must_exist` one that does not
        exist is an error, else it is left out."""
        return self.partitions_and_ids(must_exist=must_exist)[0]

    def partitions_and_ids(self, *, must_exist: bool) -> tuple[list[TopicPartition], TopicIds]:
        """As above, and the ids of their topics, by which one is known that was created again."""
        existing = self._admin.list_topics()
        strategy, text = self._options.strategy, self._options.topics
        wanted = _wanted_topics(strategy, text, existing)
        described = without_deleted(partial(self._admin.describe_topics, sorted(wanted & existing)))
        if strategy == "subscribePattern":
            # As in Spark's source, a pattern never takes the topics of Kafka itself.
            described = {n: topic for n, topic in described.items() if not topic.is_internal}
        elif must_exist and (missing := sorted(wanted - described.keys())):
            raise OptionError(f"{strategy}={text}: there is no topic {', '.join(missing)}")
        return self._named(described, must_exist), _ids_of(described)

    def _named(
        self, described: Mapping[str, TopicDescription], must_exist: bool
    ) -> list[TopicPartition]:
        found = sorted(
            TopicPartition(topic.name, info.partition)
            for topic in described.values()
            for info in topic.partitions
        )
        if self._options.strategy != "assign":
            return found
        wanted = parse_assignment(self._options.topics)
        missing = sorted(set(wanted) - set(found))
        if missing and must_exist:
            names = ", ".join(map(str, missing))
            raise OptionError(f"assign={self._options.topics}: there is no partition {names}")
        return [partition for partition in wanted if partition in set(found)]

    def topic_ids(self, topics: Collection[str]) -> TopicIds:
        """The ids of topics; older brokers have none."""
        return _ids_of(self._admin.describe_topics(sorted(topics)))

    def offsets(self, bound: Bound, partitions: Collection[TopicPartition]) -> Offsets:
        """The offset that `bound` means for each of the partitions."""
        if isinstance(bound, Earliest):
            return self.earliest(partitions)
        if isinstance(bound, Latest):
            return self.latest(partitions)
        if isinstance(bound, ByOffset):
            _check_complete(bound.option, bound.offsets, partitions)
            return self._specified(bound.offsets)
        if isinstance(bound, GlobalTimestamp):
            timestamps = dict.fromkeys(partitions, bound.timestamp_ms)
            return self._at_timestamps(timestamps, bound.when_none)
        assert isinstance(bound, ByTimestamp), f"bound {bound}"
        _check_complete(bound.option, bound.timestamps_ms, partitions)
        return self._at_timestamps(bound.timestamps_ms, bound.when_none)

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return self._list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return self.ends(partitions).offsets

    def ends(self, partitions: Collection[TopicPartition]) -> Reach:
        """The latest offsets, and the epochs of the leaders that returned them."""
        results = self._ask(dict.fromkeys(partitions, OffsetSpec.LATEST))
        return Reach(
            {each: result.offset for each, result in results.items()},
            {
                each: result.leader_epoch
                for each, result in results.items()
                if result.leader_epoch != NO_EPOCH
            },
            {},
        )

    def _list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        return {partition: result.offset for partition, result in self._ask(timestamps).items()}

    def _ask(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ListOffsetsResult]:
        if not timestamps:
            return {}
        ask = partial(self._admin.list_offsets, timestamps, self._options.isolation)
        return without_deleted(ask) if self._options.is_stream else ask()

    def _specified(self, offsets: Mapping[TopicPartition, int]) -> Offsets:
        earliest = self.earliest([each for each, offset in offsets.items() if offset == EARLIEST])
        latest = self.latest([each for each, offset in offsets.items() if offset == LATEST])
        return {**offsets, **earliest, **latest}

    def _at_timestamps(self, timestamps: Mapping[TopicPartition, int], when_none: str) -> Offsets:
        found = self._list_offsets(timestamps)
        too_old = sorted(partition for partition, offset in found.items() if offset == NO_OFFSET)
        if too_old and when_none == "error":
            raise OptionError(
                f"starting at timestamp {timestamps[too_old[0]]}: {too_old[0]} has no record of "
                "that time or later; set startingOffsetsByTimestampStrategy to latest to begin "
                "at its end"
            )
        return {**found, **self.latest(too_old)}


def _wanted_topics(strategy: str, text: str, existing: Collection[str]) -> set[str]:
    """The topics that a strategy names, or that its pattern is found in."""
    if strategy == "subscribePattern":
        return set(filter(re.compile(text).search, existing))
    if strategy == "assign":
        return {partition.topic for partition in parse_assignment(text)}
    return {topic.strip() for topic in text.split(",") if topic.strip()}


def _ids_of(described: Mapping[str, TopicDescription]) -> TopicIds:
    return {
        name: str(topic.topic_id) for name, topic in described.items() if topic.topic_id != NO_UUID
    }


def _check_complete(
    option: str,
    numbers: Mapping[TopicPartition, int],
    partitions: Collection[TopicPartition],
) -> None:
    """Refuse offsets for some partitions only: those of the others would be open."""
    if set(numbers) == set(partitions):
        return
    missing = ", ".join(map(str, sorted(set(partitions) - set(numbers))))
    unknown = ", ".join(map(str, sorted(set(numbers) - set(partitions))))
    raise OptionError(
        f"{option}={to_json_object(numbers)}: must name exactly the partitions that are read"
        + (f"; missing: {missing}" if missing else "")
        + (f"; not read: {unknown}" if unknown else "")
    )
