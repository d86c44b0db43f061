"""The evidence that goes with causes of lag: records, transactions and keys that are fetched.

It is looked up only where a rule points at it, and each look is bounded in bytes and time.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Final

from ottla.clients.admin.transactions import OpenTransaction
from ottla.clients.partition_reader import RangeFetcher, UnreadRange
from ottla.config.client_config import ConsumerConfig
from ottla.console.lag_causes import HoldingTransaction, WaitingRecord
from ottla.console.transaction_owners import owners_of
from ottla.errors import KafkaError
from ottla.record.memory_records import batches
from ottla.structs import IsolationLevel, TopicPartition, replace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from ottla.console.console_cluster import ConsoleCluster
    from ottla.console.group_look import GroupLook
    from ottla.console.lag_causes import Observations
    from ottla.record.record_batch import Record

MOST_RECORDS: Final = 3
"""The partitions with most lag whose record is shown at which a reader stopped."""
MOST_TRANSACTIONS: Final = 3
MOST_TIMES: Final = 50
"""The partitions whose waiting record is fetched for its timestamp."""
SAMPLED_RECORDS: Final = 2_000
HOTTEST_KEYS: Final = 5
MOST_FETCHES: Final = 4
"""A range that takes more fetches than this is read no further."""
TEXT_LENGTH: Final = 200
ONE_RECORD_BYTES: Final = 4_096
SAMPLE_BYTES: Final = 262_144
READER_SETTINGS: Final = {
    "fetch.max.wait.ms": "100",
    "default.api.timeout.ms": "5000",
}


async def with_evidence(
    cluster: ConsoleCluster, seen: Observations, *, shows_records: bool = True
) -> Observations:
    """The observations with the evidence that their rules point at.

    Without `shows_records` neither records nor keys are read. What cannot be looked up is left out.
    """
    stopped = sorted(seen.stopped(), key=lambda each: -seen.tracks[each].lag)[:MOST_RECORDS]
    held, skewed = seen.held_back()[:MOST_TRANSACTIONS], seen.skewed()
    transactions = await asyncio.gather(*(_holder(cluster, each) for each in held))
    found = {p: each for p, each in zip(held, transactions, strict=True) if each is not None}
    seen = replace(seen, transactions=found)
    if not shows_records or not (stopped or skewed):
        return seen
    async with range_fetcher(cluster) as fetcher:
        records = {each: await _waiting(fetcher, seen, each) for each in stopped}
    keys = {}
    if skewed is not None:
        async with range_fetcher(cluster, SAMPLE_BYTES) as fetcher:
            keys[skewed] = await _hot_keys(fetcher, seen, skewed)
    known = {each: record for each, record in records.items() if record is not None}
    return replace(seen, records=known, hot_keys=keys)


async def seconds_waited(
    cluster: ConsoleCluster, look: GroupLook, known: Mapping[TopicPartition, float | None]
) -> dict[TopicPartition, float | None]:
    """The time for which each partition's next record has waited for the group, in seconds.

    It is taken from `known`, as the history tells, else from the timestamp of that one record.
    None where neither is known; of very many partitions only those with most lag are looked up.
    """
    lags = {each: lag for each in look.committed if (lag := look.lag(each)) is not None}
    found: dict[TopicPartition, float | None] = {
        each: known.get(each) if lag else 0.0 for each, lag in lags.items()
    }
    unknown = sorted((p for p, s in found.items() if s is None), key=lambda each: -lags[each])
    async with range_fetcher(cluster) as fetcher:
        for partition in unknown[:MOST_TIMES]:
            end = look.logs[partition].end or 0
            written_ms = await _first_timestamp(
                fetcher, partition, look.committed[partition].offset, end
            )
            if written_ms is not None and written_ms >= 0:
                found[partition] = max(0.0, (look.time_ms - written_ms) / 1000)
    return found


async def next_records(
    cluster: ConsoleCluster, places: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, WaitingRecord]:
    """The first record from an offset on, before an end; of very many places, of the first ones."""
    found: dict[TopicPartition, WaitingRecord] = {}
    async with range_fetcher(cluster) as fetcher:
        for partition, (offset, end) in list(places.items())[:MOST_TIMES]:
            async for record in records_between(fetcher, partition, offset, end):
                found[partition] = waiting_record(record)
                break
    return found


@asynccontextmanager
async def range_fetcher(
    cluster: ConsoleCluster, fetch_bytes: int = ONE_RECORD_BYTES
) -> AsyncIterator[RangeFetcher]:
    """A reader of a few records, closed behind the block; a fetch has `fetch_bytes` or more."""
    own = READER_SETTINGS | {"max.partition.fetch.bytes": str(fetch_bytes)}
    config = ConsumerConfig.parse(cluster.client_settings | own)
    with closing(RangeFetcher(cluster.runtime, config)) as fetcher:
        yield fetcher


async def _first_timestamp(
    fetcher: RangeFetcher, partition: TopicPartition, offset: int, end: int
) -> int | None:
    async for record in records_between(fetcher, partition, offset, end):
        return record.timestamp_ms
    return None


async def records_between(
    fetcher: RangeFetcher, partition: TopicPartition, start: int, end: int
) -> AsyncIterator[Record]:
    """The records of a range, in a few fetches; they end early where they cannot be read."""
    left = UnreadRange(partition, start, end, IsolationLevel.READ_UNCOMMITTED)
    for _ in range(MOST_FETCHES):
        if left.start >= end:
            return
        try:
            chunk = await fetcher.fetch(left)
            found = [r for view in chunk.views for batch in batches(view) for r in batch.records()]
        except KafkaError:
            return
        for record in found:
            if start <= record.offset < end:
                yield record
        left = chunk.rest_of(left)


async def _waiting(
    fetcher: RangeFetcher, seen: Observations, partition: TopicPartition
) -> WaitingRecord | None:
    track = seen.tracks[partition]
    async for record in records_between(fetcher, partition, track.offset, track.end):
        return waiting_record(record)
    return None


def waiting_record(record: Record) -> WaitingRecord:
    """A record as a sentence shows it: JSON or text, or the first bytes and what is wrong."""
    value, error = _text(record.value)
    key = None if record.key is None else _text(record.key)[0]
    size = len(record.key or b"") + len(record.value or b"")
    return WaitingRecord(record.offset, record.timestamp_ms, size, key, value, error)


def _text(data: bytes | memoryview | None) -> tuple[str, str | None]:
    """The bytes as one short line, and the reason why they are no text."""
    if data is None:
        return "null", None
    raw = bytes(data)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return f"0x{raw[: TEXT_LENGTH // 2].hex()}", f"no UTF-8 at byte {error.start}"
    return text if len(text) <= TEXT_LENGTH else f"{text[:TEXT_LENGTH]}...", _json_error(text)


def _json_error(text: str) -> str | None:
    """Where a text that begins as JSON does goes wrong; None for JSON and for other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}"
    return None


async def _hot_keys(
    fetcher: RangeFetcher, seen: Observations, partition: TopicPartition
) -> list[tuple[str, int]]:
    """The most frequent keys of the newest records of a partition."""
    end = seen.tracks[partition].end
    start = max(seen.tracks[partition].start or 0, end - SAMPLED_RECORDS)
    counted: Counter[bytes | None] = Counter()
    async for record in records_between(fetcher, partition, start, end):
        counted[None if record.key is None else bytes(record.key)] += 1
    return [(_text(key)[0], number) for key, number in counted.most_common(HOTTEST_KEYS)]


async def _holder(cluster: ConsoleCluster, partition: TopicPartition) -> HoldingTransaction | None:
    """The open transaction with the lowest offset; None where the broker does not tell."""
    producers = (await cluster.transactions.describe_producers([partition], None))[partition]
    if isinstance(producers, KafkaError):
        return None
    open_ones = [each for each in producers if each.transaction_start_offset is not None]
    if not open_ones:
        return None
    first = min(open_ones, key=lambda each: each.transaction_start_offset or 0)
    opened = OpenTransaction(partition, first)
    try:
        owners = await owners_of(cluster, [opened])
    except KafkaError:
        return None
    if owners.doubt(opened):
        return None
    start = first.transaction_start_offset or 0
    name = owners.of(opened)
    return HoldingTransaction(start, first.producer_id, name, first.last_timestamp_ms)
