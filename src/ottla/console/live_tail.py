"""The live tail of a topic: records as they come, as server-sent events for one open page.

The browser gets a sample where records come faster than a person reads: 50 rows ten times a second
at most, the newest of those that came, and how many were passed over. The id of an event is the
position behind it, from which a browser that comes back continues.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from ottla.clients.network_client import NetworkClient
from ottla.config.client_config import ConsumerConfig
from ottla.console.conditions import condition_of
from ottla.console.page import ConsoleStream, Data, StreamEvent, Visit
from ottla.console.record_query import cursor_of, cursor_text, wanted_partitions
from ottla.console.record_source import FoundRecord, RecordSource, Span, read_part
from ottla.console.records import Shower
from ottla.console.refusals import NotFound, Refused
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.scheduler import pause
from ottla.structs import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ottla.console.conditions import Test

NO_END: Final = 1 << 62
WAIT_MS: Final = 250
ROWS_AT_ONCE: Final = 50
EVENT_EVERY_MS: Final = 100
STATE_EVERY_MS: Final = 1_000
FAR_BEHIND: Final = 20_000
"""Records of a partition that wait: so many are passed over, as nobody could read them."""
STREAMS_AT_ONCE: Final = 20
AFTER_ERROR_MS: Final = 1_000


async def live(visit: Visit, render: Callable[[str, Data], str]) -> AsyncIterator[StreamEvent]:
    """Rows as events without a name, and `state` once a second; `end` with the reason to stop."""
    if visit.cluster.open_streams >= STREAMS_AT_ONCE:
        yield StreamEvent(
            "end", f"{STREAMS_AT_ONCE} pages follow topics already: close one of them"
        )
        return
    visit.cluster.open_streams += 1
    try:
        async with LiveTail(visit) as tail:
            async for event in tail.events(render):
                yield event
    except (Refused, NotFound, KafkaError) as error:
        yield StreamEvent("end", error.message)
    finally:
        visit.cluster.open_streams -= 1


class LiveTail:
    """The positions of one stream in its topic, over connections of its own."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._runtime = visit.cluster.runtime
        self._topic = str(visit.place["topic"])
        self._shower = Shower(visit, self._topic)
        self._test = self._test_of(visit.query.get("q", "").strip())
        committed = visit.query.get("committed") == "1"
        self._isolation = IsolationLevel(committed)
        config = ConsumerConfig.parse(visit.cluster.client_settings)
        self._client = NetworkClient(self._runtime, config)
        topics = visit.cluster.all_topics
        self._source = RecordSource(self._client, lambda: topics.cluster, self._isolation)
        self._positions: dict[TopicPartition, int] = {}
        self._came = self._passed = self._shown = 0

    async def __aenter__(self) -> LiveTail:
        try:
            await self._begin()
        except BaseException:
            self._client.close()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
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
                await self._catch_up()
                yield self._state()
            await pause(self._runtime.scheduler, EVENT_EVERY_MS - clock.monotonic_ms() + began_ms)

    async def _begin(self) -> None:
        """At the ends of the logs, or where a browser that comes back has stopped."""
        topic = await self._visit.cluster.topic(self._topic)
        self._client.update_nodes(self._visit.cluster.all_topics.cluster.nodes)
        numbers = wanted_partitions(topic, self._visit.query.get("partition", ""), None)
        partitions = [TopicPartition(topic.name, each) for each in numbers]
        ends = await self._visit.cluster.ends(partitions, self._isolation)
        last = cursor_of(self._visit.query["last"]) if self._visit.query.get("last") else {}
        self._positions = {
            each: min(last.get(each.partition, end.offset), end.offset)
            for each, end in ends.items()
            if not isinstance(end, KafkaError)
        }

    async def _next(self) -> list[FoundRecord]:
        """The next records that are wanted, at most 50 and the newest of those that came."""
        spans = {each: Span(offset, NO_END) for each, offset in self._positions.items()}
        wanted: list[FoundRecord] = []
        for partition, chunk in (await self._source.fetch(spans, WAIT_MS)).items():
            if isinstance(chunk, KafkaError):
                await self._after(partition, chunk)
                continue
            records = read_part(partition.partition, chunk, spans[partition]).records
            self._positions[partition] = chunk.next_offset
            self._came += len(records)
            wanted += records if self._test is None else filter(self._test, records)
        wanted.sort(key=lambda each: (each.timestamp_ms, each.partition, each.offset))
        self._passed += max(0, len(wanted) - ROWS_AT_ONCE)
        return wanted[-ROWS_AT_ONCE:]

    async def _after(self, partition: TopicPartition, error: KafkaError) -> None:
        """Continue behind deleted records; ask for another leader; and raise what does not pass."""
        if error.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            found = (await self._visit.cluster.starts([partition]))[partition]
            if not isinstance(found, KafkaError):
                self._positions[partition] = max(self._positions[partition], found.offset)
        elif not error.retriable:
            raise error
        await pause(self._runtime.scheduler, AFTER_ERROR_MS)
        if error.error.refresh_metadata:
            await self._visit.cluster.changed()
            self._client.update_nodes(self._visit.cluster.all_topics.cluster.nodes)

    async def _catch_up(self) -> None:
        """Pass over records where more wait than anybody could read."""
        ends = await self._visit.cluster.ends(self._positions, self._isolation)
        for each, end in ends.items():
            if isinstance(end, KafkaError):
                continue
            behind = end.offset - self._positions[each]
            if behind > FAR_BEHIND:
                self._passed += behind - ROWS_AT_ONCE
                self._came += behind - ROWS_AT_ONCE
                self._positions[each] = end.offset - ROWS_AT_ONCE

    def _state(self) -> StreamEvent:
        state = {"came": self._came, "shown": self._shown, "passed": self._passed}
        return StreamEvent("state", json.dumps(state), self._cursor())

    def _cursor(self) -> str:
        return cursor_text({each.partition: at for each, at in self._positions.items()})

    def _test_of(self, text: str) -> Test | None:
        if not text:
            return None
        test = condition_of(text, self._runtime.clock.now_ms()).test
        hide = self._shower.hide
        return (lambda record: test(hide(record))) if hide.is_needed else test


RECORD_STREAMS: Final = (ConsoleStream("/live/t/{topic}", live),)
