"""A question about the records of a topic: where to read, what for, and where to continue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.clients.producer.partitioner import partition_for_key
from ottla.config.config_type import LONG_MAX
from ottla.console.conditions import Condition, Conjunct, condition_of
from ottla.console.moments import moment_ms
from ottla.console.page import SHOWN_OF_A_NUMBER, whole_number
from ottla.console.record_source import Span
from ottla.console.refusals import NotFound, Refused
from ottla.errors import KafkaError
from ottla.structs import IsolationLevel, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.metadata import TopicInfo
    from ottla.console.console_cluster import ConsoleCluster
    from ottla.console.page import Visit

MOST_PARTITIONS_OF_CURSOR: Final = 10_000


class RecordQuery(NamedTuple):
    """The query of a page of records, checked."""

    topic: TopicInfo
    text: str
    condition: Condition | None
    spans: dict[TopicPartition, Span]
    """What is left to read, newest first."""
    total: int
    """The offsets between the ends of those logs, however much was read of them before."""
    isolation: IsolationLevel
    key_partition: int | None
    """The one partition that is searched for a key; None where all are."""
    unreachable: dict[int, str]
    """Partitions whose offsets are not known, and why."""


async def record_query(visit: Visit) -> RecordQuery:
    """The query that the address of a page has; Refused for a part that is wrong."""
    topic = await visit.cluster.topic(str(visit.place["topic"]))
    query = visit.query
    text = query.get("q", "").strip()
    now_ms = visit.cluster.runtime.clock.now_ms()
    condition = condition_of(text, now_ms) if text else None
    conjuncts = condition.conjuncts if condition is not None else []
    committed = query.get("committed") == "1"
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    key_partition = None if query.get("all") == "1" else partition_of(topic, condition)
    wanted = wanted_partitions(topic, query.get("partition", ""), key_partition)
    low_ms = max(time_of(query, "from", now_ms) or 0, newest_low(conjuncts))
    high_ms = time_of(query, "to", now_ms)
    partitions = [TopicPartition(topic.name, each) for each in wanted]
    spans, unreachable = await offsets(visit.cluster, partitions, low_ms, high_ms, isolation)
    spans = narrowed(spans, conjuncts)
    total = sum(span.end - span.start for span in spans.values())
    if before := query.get("before"):
        spans = limited(spans, cursor_of(before))
    return RecordQuery(topic, text, condition, spans, total, isolation, key_partition, unreachable)


def partition_of(topic: TopicInfo, condition: Condition | None) -> int | None:
    """The partition to which Kafka's clients send the key that a condition asks for."""
    for each in condition.conjuncts if condition is not None else ():
        if each.name == "key" and each.sign == "=" and isinstance(each.value, str):
            return partition_for_key(each.value.encode(), len(topic.partitions))
    return None


def wanted_partitions(topic: TopicInfo, chosen: str, key_partition: int | None) -> list[int]:
    """The partitions that are read: the chosen one, that of a key, or all that have a leader."""
    if chosen:
        partition = whole_number(chosen)
        if partition is None or partition not in topic.partitions:
            shown = chosen[:SHOWN_OF_A_NUMBER]
            raise NotFound(f"Topic {topic.name} has no partition {shown}.")
        return [partition]
    return topic.available if key_partition is None else [key_partition]


def narrowed(
    spans: dict[TopicPartition, Span], conjuncts: Iterable[Conjunct]
) -> dict[TopicPartition, Span]:
    """The parts of spans in which conditions on partition and offset can be true."""
    for each in conjuncts:
        if not isinstance(each.value, int):
            continue
        if each.name == "partition" and each.sign == "=":
            spans = {where: span for where, span in spans.items() if where.partition == each.value}
        elif each.name == "offset":
            spans = {where: _cut(span, each.sign, each.value) for where, span in spans.items()}
    return spans


def _cut(span: Span, sign: str, offset: int) -> Span:
    low, high = span
    if sign in ("=", ">", ">="):
        low = max(low, offset + (sign == ">"))
    if sign in ("=", "<", "<="):
        high = min(high, offset + (sign != "<"))
    return Span(low, max(low, high))


def newest_low(conjuncts: Iterable[Conjunct]) -> int:
    """The time before which no record passes such conditions, 0 without one."""
    return max(
        (
            min(int(each.value), LONG_MAX)
            for each in conjuncts
            if each.name == "timestamp" and each.sign in (">", ">=", "=")
        ),
        default=0,
    )


def time_of(query: Mapping[str, str], name: str, now_ms: int) -> int | None:
    """The time of a field; None where it is empty."""
    text = query.get(name, "").strip()
    if not text:
        return None
    found = moment_ms(text, now_ms)
    if found is None or found < 0:
        shown = f"{name}={text[:SHOWN_OF_A_NUMBER]}"
        raise Refused(f"{shown}: a time is 1h ago, 13:00, 2026-11-22 13:00 or milliseconds")
    return found


async def offsets(
    cluster: ConsoleCluster,
    partitions: list[TopicPartition],
    low_ms: int,
    high_ms: int | None,
    isolation: IsolationLevel,
) -> tuple[dict[TopicPartition, Span], dict[int, str]]:
    """The offsets of records between two times, and the partitions where they are not known."""
    starts, ends, lows, highs = await asyncio.gather(
        cluster.starts(partitions),
        cluster.ends(partitions, isolation),
        cluster.offsets_at(dict.fromkeys(partitions if low_ms else (), low_ms)),
        cluster.offsets_at(dict.fromkeys(partitions if high_ms is not None else (), high_ms or 0)),
    )
    spans, unknown = {}, {}
    for each in partitions:
        found = [answers[each] for answers in (starts, ends, lows, highs) if each in answers]
        errors = [answer for answer in found if isinstance(answer, KafkaError)]
        if errors:
            unknown[each.partition] = errors[0].message
            continue
        start, end, *rest = (a.offset for a in found if not isinstance(a, KafkaError))
        low = rest.pop(0) if low_ms else start
        high = rest.pop(0) if high_ms is not None else end
        first = end if low < 0 else max(start, low)
        spans[each] = Span(first, max(first, end if high < 0 else min(end, high)))
    return spans, unknown


def limited(
    spans: dict[TopicPartition, Span], cursor: dict[int, int]
) -> dict[TopicPartition, Span]:
    """The spans up to the positions of a cursor; partitions that it leaves out are over."""
    return {
        each: Span(span.start, max(span.start, min(span.end, cursor[each.partition])))
        for each, span in spans.items()
        if each.partition in cursor
    }


def cursor_of(text: str) -> dict[int, int]:
    """The positions of `0:57,1:33`."""
    found = {}
    for piece in text.split(",", MOST_PARTITIONS_OF_CURSOR):
        partition, colon, offset = piece.partition(":")
        number, at = whole_number(partition), whole_number(offset)
        if not colon or number is None or at is None:
            shown = text[:SHOWN_OF_A_NUMBER]
            raise Refused(f"before={shown}: must be PARTITION:OFFSET with commas between")
        found[number] = at
    return found


def cursor_text(left: dict[int, int]) -> str:
    """The text of a cursor; empty where nothing is left."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(left.items()))
