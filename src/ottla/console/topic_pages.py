"""The parts of a topic beside its records: partitions, records over time, and settings."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.admin.descriptions import ConfigResource
from ottla.console.page import ConsolePage, Data, Visit
from ottla.console.record_query import time_of
from ottla.console.refusals import Refused
from ottla.console.topic_facts import partition_sizes
from ottla.errors import KafkaError
from ottla.structs import ConfigSource, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.clients.metadata import PartitionInfo
    from ottla.clients.topic_offsets import ListOffsetsResult

BUCKETS: Final = 60
MOST_ASKED: Final = 6_000
"""Look-ups in time indexes that one page may cost: fewer buckets where a topic is wide."""
SHOWN_PARTITIONS: Final = 500
LEAST_SPAN_MS: Final = 60_000
NO_LEADER_NOW: Final = "it has no leader"


class TopicPartitionLine(NamedTuple):
    """A partition: None for a number that could not be found out."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    start: int | None
    end: int | None
    records: int | None
    bytes: int | None
    share: float
    """Its part of the records of all partitions, from 0 to 1."""
    error: str


class SettingLine(NamedTuple):
    """A setting of the topic, and where its value comes from."""

    name: str
    value: str
    source: str
    is_own: bool
    is_read_only: bool
    documentation: str


async def partitions(visit: Visit) -> Data:
    """Leaders, replicas, offsets and sizes of a topic's partitions."""
    topic = await visit.cluster.topic(str(visit.place["topic"]))
    led = [TopicPartition(topic.name, each) for each in topic.available]
    starts, ends, sizes = await asyncio.gather(
        visit.cluster.starts(led), visit.cluster.ends(led), partition_sizes(visit.cluster, [topic])
    )
    lines = [
        line_of(
            info,
            starts.get(TopicPartition(topic.name, number)),
            ends.get(TopicPartition(topic.name, number)),
            sizes.get((TopicPartition(topic.name, number), info.leader)),
        )
        for number, info in topic.partitions.items()
    ]
    known = sum(each.records or 0 for each in lines)
    shown = [
        each._replace(share=(each.records or 0) / known if known else 0.0)
        for each in lines[:SHOWN_PARTITIONS]
    ]
    return {
        "topic": topic.name,
        "partitions": shown,
        "count": len(lines),
        "records": total([each.records for each in lines]),
        "bytes": total([each.bytes for each in lines]),
    }


def total(numbers: Sequence[int | None]) -> int | None:
    """The sum; None where one of the numbers could not be found out."""
    known = [each for each in numbers if each is not None]
    return sum(known) if len(known) == len(numbers) else None


def line_of(
    info: PartitionInfo,
    start: ListOffsetsResult | KafkaError | None,
    end: ListOffsetsResult | KafkaError | None,
    size: int | None,
) -> TopicPartitionLine:
    """The line of a partition; its share is not known yet."""
    error = next((each.message for each in (start, end) if isinstance(each, KafkaError)), "")
    first = None if start is None or isinstance(start, KafkaError) else start.offset
    last = None if end is None or isinstance(end, KafkaError) else end.offset
    records = None if first is None or last is None else last - first
    where = (info.partition, info.leader, info.leader_epoch, list(info.replicas), list(info.isr))
    return TopicPartitionLine(*where, first, last, records, size, 0.0, error)


async def settings(visit: Visit) -> Data:
    """The settings of a topic, its own ones first."""
    topic = await visit.cluster.topic(str(visit.place["topic"]))
    resource = ConfigResource.topic(topic.name)
    answers = await visit.cluster.configs.describe_configs([resource], False, True)
    found = answers[resource]
    if isinstance(found, KafkaError):
        raise found
    lines = [
        SettingLine(
            each.name,
            "(hidden)" if each.is_sensitive else each.value or "",
            each.source.name.lower().replace("_", " "),
            each.source is ConfigSource.DYNAMIC_TOPIC_CONFIG,
            each.is_read_only,
            each.documentation or "",
        )
        for each in found.values()
    ]
    edited = next((each for each in lines if each.name == visit.query.get("edit")), None)
    return {
        "topic": topic.name,
        "settings": sorted(lines, key=lambda each: (not each.is_own, each.name)),
        "edited": edited,
    }


async def timeline(visit: Visit) -> Data:
    """Records over time: the offsets at some 60 moments, which no record is read for."""
    topic = await visit.cluster.topic(str(visit.place["topic"]))
    now_ms = visit.cluster.runtime.clock.now_ms()
    low = time_of(visit.query, "from", now_ms)
    high = time_of(visit.query, "to", now_ms)
    low = now_ms - 3_600_000 if low is None else low
    high = now_ms if high is None else high
    if high - low < LEAST_SPAN_MS // 60:
        raise Refused("from and to: there must be a second between them")
    led = [TopicPartition(topic.name, each) for each in topic.available]
    buckets = max(4, min(BUCKETS, MOST_ASKED // max(1, len(led))))
    moments = [low + (high - low) * each // buckets for each in range(buckets + 1)]
    ends = await visit.cluster.ends(led)
    asked = [visit.cluster.offsets_at(dict.fromkeys(led, each)) for each in moments]
    answers = await asyncio.gather(*asked)
    errors = {
        each.partition: found.message
        for answer in (*answers, ends)
        for each, found in answer.items()
        if isinstance(found, KafkaError)
    }
    errors |= dict.fromkeys(topic.partitions.keys() - topic.available, NO_LEADER_NOW)
    sums = [_sum(answer, ends, errors) for answer in answers]
    counts = [max(0, after - before) for before, after in pairwise(sums)]
    return {
        "topic": topic.name,
        "from": low,
        "to": high,
        "step_ms": (high - low) // buckets,
        "moments": moments[:-1],
        "counts": counts,
        "total": sum(counts),
        "errors": {str(each): errors[each] for each in sorted(errors)},
        "query": {"from": visit.query.get("from", ""), "to": visit.query.get("to", "")},
    }


def _sum(
    answer: dict[TopicPartition, Any], ends: dict[TopicPartition, Any], errors: Mapping[int, str]
) -> int:
    """The offsets at a moment, of all partitions without an error together; that of the end where
    none is later."""
    known = {each: found for each, found in answer.items() if each.partition not in errors}
    return sum(
        ends[each].offset if found.offset < 0 else found.offset for each, found in known.items()
    )


PARTS_OF_TOPICS: Final = (
    ConsolePage(
        "/t/{topic}/timeline",
        timeline,
        "timeline.html",
        "{topic}",
        "Topics",
        "ottla get-offsets --topic {topic} --time -1",
        tab="Timeline",
    ),
    ConsolePage(
        "/t/{topic}/partitions",
        partitions,
        "partitions.html",
        "{topic}",
        "Topics",
        "ottla topics --describe --topic {topic}",
        refresh_s=5,
        tab="Partitions",
        table="partitions",
    ),
    ConsolePage(
        "/t/{topic}/settings",
        settings,
        "settings.html",
        "{topic}",
        "Topics",
        "ottla configs --describe --all --topic {topic}",
        tab="Settings",
        table="settings",
    ),
)
