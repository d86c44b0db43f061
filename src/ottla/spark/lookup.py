"""Asks the brokers, in the driver: which partitions there are, and which offsets bounds mean."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ottla.clients.admin.descriptions import TopicDescription
from ottla.clients.topic_offsets import ListOffsetsResult, OffsetSpec
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


class OffsetLookup:
    """Partitions and offsets as they are when asked for; nothing is remembered."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin = connections.admin(options.client)

    def partitions(self, *, must_exist: bool) -> list[TopicPartition]:
        """The partitions that the options name, sorted. With `must_exist` one that does not
        exist is an error, else it is left out."""
        return self.partitions_and_ids(must_exist=must_exist)[0]

    def partitions_and_ids(self, *, must_exist: bool) -> tuple[list[TopicPartition], TopicIds]:
        """As above, and the ids of their topics, by which one is known that was created again."""
        described = self._admin.describe_topics(sorted(self._wanted_topics(must_exist)))
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

    def _wanted_topics(self, must_exist: bool) -> set[str]:
        existing = self._admin.list_topics()
        strategy, text = self._options.strategy, self._options.topics
        if strategy == "subscribePattern":
            pattern = re.compile(text)
            # In Spark's source a pattern never matches internal topics.
            return {
                topic
                for topic in existing
                if pattern.fullmatch(topic) and not topic.startswith("__")
            }
        if strategy == "assign":
            wanted = {partition.topic for partition in parse_assignment(text)}
        else:
            wanted = {topic.strip() for topic in text.split(",") if topic.strip()}
        missing = sorted(wanted - existing)
        if missing and must_exist:
            raise OptionError(f"{strategy}={text}: there is no topic {', '.join(missing)}")
        return wanted & existing

    def _list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        return {partition: result.offset for partition, result in self._ask(timestamps).items()}

    def _ask(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ListOffsetsResult]:
        if not timestamps:
            return {}
        return self._admin.list_offsets(timestamps, self._options.isolation)

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
