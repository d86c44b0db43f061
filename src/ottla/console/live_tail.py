"""The live tail of a topic: records as they come, as server-sent events for one open page.

The browser gets a sample where records come faster than a person reads: 50 rows ten times a second
at most, the newest of those that came, and how many were passed over. The id of an event is the
position behind it, from which a browser that comes back continues.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Final

from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.clients.topic_offsets import OffsetSpec, list_offsets
from ottla.config.client_config import ConsumerConfig
from ottla.console.conditions import condition_of
from ottla.console.page import ConsoleStream, Data, StreamEvent, Visit
from ottla.console.record_query import cursor_of, cursor_text, wanted_partitions
from ottla.console.record_source import FoundRecord, RecordSource, Span, read_part
from ottla.console.records import Shower
from ottla.console.refusals import NotFound, Refused
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.scheduler import pause
from ottla.runtime.timing import Deadline
from ottla.structs import NO_UUID, IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from ottla.clients.topic_offsets import ListOffsetsResult
    from ottla.console.conditions import Test

NO_END: Final = 1 << 62
WAIT_MS: Final = 250
ROWS_AT_ONCE: Final = 50
EVENT_EVERY_MS: Final = 100
STATE_EVERY_MS: Final = 1_000
FAR_BEHIND: Final = 20_000
"""Records of a partition that wait: so many are passed over, as nobody could read them."""
AFTER_ERROR_MS: Final = 1_000
SLICE_MS: Final = 20
LOOKED_AT: Final = 1024 * 1024
"""Bytes of a value that a condition looks at, as all pages wait for it."""

logger = logging.getLogger(__name__)


async def live(visit: Visit, render: Callable[[str, Data], str]) -> AsyncIterator[StreamEvent]:
    """Rows as events without a name, and `state` once a second; `end` with the reason to stop."""
    try:
        with visit.cluster.limits.streams.taken(visit.cluster.user):
            async with LiveTail(visit) as tail:
                async for event in tail.events(render):
                    yield event
    except (Refused, NotFound, KafkaError) as error:
        yield StreamEvent("end", error.message)
    except Exception as error:
        logger.exception("a live tail has failed")
        yield StreamEvent("end", f"{type(error).__name__}: {error}")


class LiveTail:
    """The positions of one stream in its topic, over connections and metadata of its own.

    A partition that fails is tried again a second later, and the others are read meanwhile.
    """

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._runtime = visit.cluster.runtime
        self._topic = str(visit.place["topic"])
        self._topic_id = NO_UUID
        self._chosen = visit.query.get("partition", "")
        self._shower = Shower(visit, self._topic)
        self._test = self._test_of(visit.query.get("q", "").strip())
        committed = visit.query.get("committed") == "1"
        self._isolation = IsolationLevel(committed)
        config = ConsumerConfig.parse(visit.cluster.client_settings)
        self._client = NetworkClient(self._runtime, config)
        self._metadata = Metadata(self._client, allow_auto_topic_creation=False)
        self._source = RecordSource(self._client, lambda: self._metadata.cluster, self._isolation)
        self._positions: dict[TopicPartition, int] = {}
        self._awaited: dict[TopicPartition, OffsetSpec] = {}
        """Partitions whose first position no leader has told yet."""
        self._resting: dict[TopicPartition, int] = {}
        """Partitions that could not be read, and until when they are left alone."""
        self._unread: dict[int, str] = {}
        """Why, of those that have not been read since."""
        self._looking: asyncio.Task[None] | None = None
        self._came = self._passed = self._shown = 0

    async def __aenter__(self) -> LiveTail:
        try:
            await self._begin()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        self._metadata.close()
        self._client.close()

    async def events(self, render: Callable[[str, Data], str]) -> AsyncIterator[StreamEvent]:
        """Until the browser goes."""
        clock = self._runtime.clock
        said_ms = clock.monotonic_ms()
        yield self._state()
        while True:
            began_ms = clock.monotonic_ms()
            found = await self._next()
            if found:
                self._shown += len(found)
                rows = await self._shower.rows(found[::-1])
                html = render("record_rows.html", {"records": rows, "fresh": True})
                yield StreamEvent("", html, self._cursor())
            if clock.monotonic_ms() - said_ms >= STATE_EVERY_MS:
                said_ms = clock.monotonic_ms()
                self._look_again()
                yield self._state()
            await pause(self._runtime.scheduler, EVENT_EVERY_MS - clock.monotonic_ms() + began_ms)

    async def _begin(self) -> None:
        """At the ends of the logs, or where a browser that comes back has stopped."""
        topic = await self._visit.cluster.topic(self._topic)
        known = self._visit.cluster.all_topics.cluster
        self._client.update_nodes(known.nodes)
        self._metadata.cluster = known
        self._metadata.set_topics([topic.name])
        self._topic_id = topic.topic_id
        numbers = wanted_partitions(topic, self._chosen, None) if self._chosen else topic.partitions
        partitions = [TopicPartition(topic.name, each) for each in numbers]
        last = cursor_of(self._visit.query["last"]) if self._visit.query.get("last") else {}
        self._positions = {
            each: last[each.partition] for each in partitions if each.partition in last
        }
        self._awaited = dict.fromkeys(partitions, OffsetSpec.LATEST)
        await self._place()

    async def _next(self) -> list[FoundRecord]:
        """The next records that are wanted, at most 50 and the newest of those that came."""
        now_ms = self._runtime.clock.monotonic_ms()
        spans = {
            each: Span(offset, NO_END)
            for each, offset in self._positions.items()
            if self._resting.get(each, now_ms) <= now_ms
        }
        if not spans:
            await pause(self._runtime.scheduler, WAIT_MS)
        wanted: list[FoundRecord] = []
        failed: dict[TopicPartition, KafkaError] = {}
        for partition, chunk in (await self._source.fetch(spans, WAIT_MS)).items():
            if self._positions.get(partition) != spans[partition].start:
                continue  # it was placed elsewhere meanwhile
            if isinstance(chunk, KafkaError):
                failed[partition] = chunk
                self._unread[partition.partition] = chunk.message
                continue
            self._unread.pop(partition.partition, None)
            records = read_part(partition.partition, chunk, spans[partition]).records
            self._positions[partition] = chunk.next_offset
            self._came += len(records)
            wanted += await self._passing(records)
        await self._after(failed)
        wanted.sort(key=lambda each: (each.timestamp_ms, each.partition, each.offset))
        self._passed += max(0, len(wanted) - ROWS_AT_ONCE)
        return wanted[-ROWS_AT_ONCE:]

    async def _passing(self, records: list[FoundRecord]) -> list[FoundRecord]:
        """Those that pass the condition; other pages are answered between them."""
        if self._test is None:
            return records
        clock, found = self._runtime.clock, []
        began_ms = clock.monotonic_ms()
        for each in records:
            if self._test(_beginning_of(each)):
                found.append(each)
            if clock.monotonic_ms() - began_ms >= SLICE_MS:
                await pause(self._runtime.scheduler, 0)
                began_ms = clock.monotonic_ms()
        return found

    async def _after(self, failed: dict[TopicPartition, KafkaError]) -> None:
        """Leave partitions alone for a while; raise what does not pass."""
        if not failed:
            return
        for error in failed.values():
            if error.error is not ErrorCode.OFFSET_OUT_OF_RANGE and not error.retriable:
                raise error
        until_ms = self._runtime.clock.monotonic_ms() + AFTER_ERROR_MS
        self._resting = dict.fromkeys(failed, until_ms) | {
            each: at_ms for each, at_ms in self._resting.items() if each not in failed
        }
        self._metadata.request_update()
        outside = [
            each for each, error in failed.items() if error.error is ErrorCode.OFFSET_OUT_OF_RANGE
        ]
        if outside:
            await self._come_back(outside)

    async def _come_back(self, outside: list[TopicPartition]) -> None:
        """Into logs that begin later, or end earlier, than the positions in them.

        A topic that was made again is read from its start.
        """
        try:
            clock = self._runtime.clock
            await self._metadata.update(Deadline(clock, self._client.config.request_timeout_ms))
        except KafkaError:
            return  # it is tried again, as the positions stay
        self._follow()
        starts = await self._offsets(dict.fromkeys(outside, OffsetSpec.EARLIEST))
        ends = await self._offsets(dict.fromkeys(outside, OffsetSpec.LATEST))
        for each in outside:
            start, end, position = starts[each], ends[each], self._positions.get(each)
            if position is None or isinstance(start, KafkaError) or isinstance(end, KafkaError):
                continue
            self._positions[each] = min(max(position, start.offset), end.offset)

    def _look_again(self) -> None:
        """Look at the topic beside the reading, as brokers may take long to answer."""
        if self._looking is not None:
            if not self._looking.done():
                return
            self._looking.result()
        self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        self._metadata.request_update()
        self._follow()
        await self._place()
        await self._catch_up()

    def _follow(self) -> None:
        """Take in new partitions, and a topic that was deleted and made again: from the start."""
        topic = self._metadata.cluster.topics.get(self._topic)
        if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return  # it may be made again
        if topic.error is not ErrorCode.NONE:
            if topic.error.retriable:
                return
            raise KafkaError.of(topic.error, f"topic {topic.name}: {topic.error.sentence}")
        if topic.topic_id != self._topic_id and NO_UUID not in (topic.topic_id, self._topic_id):
            self._positions, self._awaited, self._resting, self._unread = {}, {}, {}, {}
        self._topic_id = topic.topic_id
        for number in topic.partitions:
            partition = TopicPartition(topic.name, number)
            if partition not in self._positions and self._chosen in ("", str(number)):
                self._awaited.setdefault(partition, OffsetSpec.EARLIEST)

    async def _place(self) -> None:
        """Begin with partitions that have a leader now."""
        awaited = dict(self._awaited)
        for each, found in (await self._offsets(awaited)).items():
            if isinstance(found, KafkaError) or self._awaited.get(each) is not awaited[each]:
                continue
            del self._awaited[each]
            self._positions[each] = min(self._positions.get(each, found.offset), found.offset)

    async def _offsets(
        self, wanted: Mapping[TopicPartition, OffsetSpec]
    ) -> dict[TopicPartition, ListOffsetsResult | KafkaError]:
        return await list_offsets(self._client, self._metadata, wanted, self._isolation)

    async def _catch_up(self) -> None:
        """Pass over records where more wait than anybody could read."""
        ends = await self._offsets(dict.fromkeys(self._positions, OffsetSpec.LATEST))
        for each, end in ends.items():
            if isinstance(end, KafkaError) or each not in self._positions:
                continue
            behind = end.offset - self._positions[each]
            if behind > FAR_BEHIND:
                self._passed += behind - ROWS_AT_ONCE
                self._came += behind - ROWS_AT_ONCE
                self._positions[each] = end.offset - ROWS_AT_ONCE

    def _state(self) -> StreamEvent:
        state = {"came": self._came, "shown": self._shown, "passed": self._passed}
        data = json.dumps(state | {"unread": self._unread})
        return StreamEvent("state", data, self._cursor())

    def _cursor(self) -> str:
        return cursor_text({each.partition: at for each, at in self._positions.items()})

    def _test_of(self, text: str) -> Test | None:
        if not text:
            return None
        test = condition_of(text, self._runtime.clock.now_ms()).test
        hide = self._shower.hide
        return (lambda record: test(hide(record))) if hide.is_needed else test


def _beginning_of(record: FoundRecord) -> FoundRecord:
    """The record as far as a condition looks at it."""
    value = record.value
    if value is None or len(value) <= LOOKED_AT:
        return record
    return record._replace(value=value[:LOOKED_AT])


RECORD_STREAMS: Final = (ConsoleStream("/live/t/{topic}", live),)
