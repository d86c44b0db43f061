"""Tables, and records that were browsed or found, to take along.

They are read window by window while they are sent, so that only one is in memory, and bounded.

An export that stops before its end says so in its last line, with the reason.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from contextlib import aclosing, closing
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from ottla.console.export_formats import (
    BASE64,
    CSV,
    MEDIA_TYPES,
    PARQUET,
    CsvRows,
    JsonRows,
    ParquetRows,
    RecordRow,
)
from ottla.console.moments import LAST_YEAR_MS
from ottla.console.page import ConsoleExport, ExportWindow, utf_8
from ottla.console.record_query import cursor_text, record_query
from ottla.console.record_search import search
from ottla.console.records import TURN_BYTES, Shower, browse, size_of
from ottla.console.refusals import NotFound, Refused
from ottla.errors import KafkaError
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence

    from starlette.types import Message, Receive, Scope, Send

    from ottla.console.console_cluster import ConsoleCluster
    from ottla.console.page import ConsolePage, Visit
    from ottla.console.record_source import FoundRecord

MOST_ROWS: Final = 100_000
MOST_BYTES: Final = 256 * 1024 * 1024
MOST_MS: Final = 600_000
STALLED_S: Final = 30.0
"""How long a browser may take for the next piece."""
PIECE_BYTES: Final = 65_536
"""So much of an export waits for a browser that reads nothing."""
BROWSED: Final = 5_000
SEARCHED: Final = 10_000
"""Records of a window."""

logger = logging.getLogger(__name__)


def table_exports(pages: Iterable[ConsolePage]) -> list[ConsoleExport]:
    """The tables of the pages that have one."""
    return [table_export(each) for each in pages if each.table]


def table_export(page: ConsolePage) -> ConsoleExport:
    """The table of a page, all windows of it one after another."""

    async def windows(visit: Visit) -> AsyncIterator[ExportWindow]:
        while True:
            data = await page.load(visit)
            rest = data.get("next")
            yield ExportWindow(data[page.table], rest="" if rest is None else f"from={rest}")
            if rest is None:
                return
            visit = visit._replace(query={**visit.query, "from": str(rest)})

    return ConsoleExport(page.path, windows, left_out="from")


class ExportedRecord(NamedTuple):
    """A row of an export of records."""

    topic: str
    record: FoundRecord


async def record_windows(visit: Visit) -> AsyncIterator[ExportWindow]:
    """The records that the page of records shows or finds, the newest first, masked as there."""
    shower = Shower(visit, str(visit.place["topic"]))
    before = visit.query.get("before", "")
    while True:
        query = await record_query(visit)
        if query.condition is None:
            found = await browse(visit, query, BROWSED)
        else:
            found = await search(visit.cluster, visit.settings.masks, query, SEARCHED)
        errors = sorted((query.unreachable | found.errors).items())
        notes = [f"partition {number} could not be read: {error}" for number, error in errors]
        rows = [
            ExportedRecord(query.topic.name, each) async for each in hidden(shower, found.records)
        ]
        cursor = cursor_text(found.left)
        rest = "" if cursor == before else cursor
        if cursor and not rest:
            notes.append(f"stopped here; the rest begins with before={cursor}")
        size = sum(map(size_of, found.records))
        yield ExportWindow(rows, notes, rest and f"before={rest}", size)
        if not rest:
            return
        before = cursor
        visit = visit._replace(query={**visit.query, "before": cursor})


async def hidden(shower: Shower, records: Sequence[FoundRecord]) -> AsyncIterator[FoundRecord]:
    """The records without their masked places; others have their turn on the loop in between."""
    done = 0
    for each in records:
        done += size_of(each)
        if done > TURN_BYTES:
            done = 0
            await asyncio.sleep(0)
        yield shower.hide(each)


RECORD_EXPORT: Final = ConsoleExport(
    "/t/{topic}/records", record_windows, has_parquet=True, columns=RecordRow._fields
)


async def export_answer(export: ConsoleExport, visit: Visit, form: str, name: str) -> Response:
    """The file of an export; it is refused for what its first window is refused for."""
    pieces = pieces_of(export, visit, form)
    first = await anext(pieces)
    headers = {"content-disposition": f'attachment; filename="{name}.{form}"'}
    return ExportResponse(begun(first, pieces), media_type=MEDIA_TYPES[form], headers=headers)


class ExportResponse(StreamingResponse):
    """An answer that ends where its browser does not read on: others wait for its place."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_stalled = False

        async def sending(message: Message) -> None:
            nonlocal is_stalled
            try:
                async with asyncio.timeout(STALLED_S):
                    await send(message)
            except TimeoutError:
                is_stalled = True
                raise

        async with aclosing(cast("AsyncGenerator[bytes]", self.body_iterator)):
            try:
                await super().__call__(scope, receive, sending)
            except (TimeoutError, ClientDisconnect):
                if not is_stalled:
                    raise
                logger.warning("an export has ended: nothing of it was read for %d s", STALLED_S)


async def begun(first: bytes, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The pieces of an answer whose first one is there."""
    async with aclosing(pieces):
        for part in parts_of(first):
            yield part
        async for piece in pieces:
            for part in parts_of(piece):
                yield part


def parts_of(piece: bytes) -> Iterator[bytes]:
    """A piece in parts that a browser is waited for."""
    return (piece[at : at + PIECE_BYTES] for at in range(0, len(piece), PIECE_BYTES))


async def pieces_of(export: ConsoleExport, visit: Visit, form: str) -> AsyncGenerator[bytes]:
    """The bytes of the file."""
    windows = bounded(export.windows(visit), visit.cluster)
    pieces = parquet_pieces(windows, visit.cluster, bool(export.columns))
    if form != PARQUET:
        pieces = text_pieces(windows, CsvRows(export.columns) if form == CSV else JsonRows())
    with visit.cluster.limits.exports.taken(visit.cluster.user):
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece


async def bounded(
    windows: AsyncIterator[ExportWindow], cluster: ConsoleCluster
) -> AsyncGenerator[ExportWindow]:
    """The windows up to a number of rows, bytes and milliseconds; later errors become notes."""
    clock = cluster.runtime.clock
    began_ms, rows, size, rest = clock.monotonic_ms(), 0, 0, ""
    try:
        async with aclosing(cast("AsyncGenerator[ExportWindow]", windows)) as found:
            async for window in found:
                yield window
                rows, size, rest = rows + len(window.rows), size + window.size, window.rest
                is_over = rows >= MOST_ROWS or size >= MOST_BYTES
                if window.rest and (is_over or clock.monotonic_ms() - began_ms >= MOST_MS):
                    words = f"stopped after {rows:,} rows; the rest begins with {window.rest}"
                    yield ExportWindow((), [words])
                    return
    except (NotFound, Refused, KafkaError) as error:
        if not rows:
            raise
        words = f"; the rest begins with {rest}" if rest else ""
        yield ExportWindow((), [f"stopped after {rows:,} rows: {error.message}{words}"])


async def text_pieces(
    windows: AsyncGenerator[ExportWindow], lines: CsvRows | JsonRows
) -> AsyncGenerator[bytes]:
    """A file of text, a piece for each window."""
    async with aclosing(windows):
        async for window in windows:
            rows = [record_row(*each) if is_record(each) else each for each in window.rows]
            yield utf_8(lines.text_of(rows, window.types) + "".join(map(lines.note, window.notes)))


async def parquet_pieces(
    windows: AsyncGenerator[ExportWindow], cluster: ConsoleCluster, of_records: bool
) -> AsyncGenerator[bytes]:
    """A file of Parquet, which is whole before its first byte is sent."""
    work = cluster.runtime.background.run
    notes: list[str] = []
    with closing(await work(partial(ParquetRows, of_records))) as file:
        async with aclosing(windows):
            async for window in windows:
                notes += window.notes
                rows = [parquet_row(*each) if of_records else each for each in window.rows]
                await work(partial(file.add, rows, window.types))
        await work(partial(file.finish, notes))
        while piece := await work(file.read):
            yield piece


def is_record(row: Any) -> bool:
    """Whether a row is a topic with a record of it."""
    return isinstance(row, ExportedRecord)


def parquet_row(topic: str, record: FoundRecord) -> dict[str, Any]:
    """A record with its bytes."""
    headers = [{"name": name, "value": data} for name, data in record.headers]
    return {"topic": topic, **record._asdict(), "headers": headers}


def record_row(topic: str, record: FoundRecord) -> RecordRow:
    """A record with its bytes as text."""
    return RecordRow(
        topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        time_text(record.timestamp_ms),
        *text_of(record.key),
        *text_of(record.value),
        [(name, *text_of(data)) for name, data in record.headers],
    )


def time_text(ms: int) -> str:
    """A time as ISO 8601 has it, in UTC; empty where the calendar has no such time."""
    if not 0 <= ms < LAST_YEAR_MS:
        return ""
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"


def text_of(data: bytes | None) -> tuple[str | None, str]:
    """Bytes as a text, and its encoding, by which they come back as they were."""
    if data is None:
        return None, ""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return b64encode(data).decode(), BASE64
