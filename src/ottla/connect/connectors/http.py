"""HttpSource and HttpSink: records of an endpoint that answers JSON, and records sent to one.

    connector.class=HttpSource                  connector.class=HttpSink
    url=https://shop.example/orders             url=https://crm.example/events/${topic}
    topic=orders                                topics=orders
    paging=cursor                               headers={"Authorization":"Bearer ..."}
    cursor.field=id                             batch.records=1

The source asks again and again. Its offset is a place in what the endpoint has: which page (`next`:
a cursor, a token or a URL), and how many of that page's records are in the topic already (`done`),
so that a restart within a page repeats none. The sink sends each record, or a batch of one
partition, in order; a header names the place in Kafka, by which a receiver knows what comes twice.

A server that cannot be reached, is busy or fails (408, 425, 429, 5xx) is asked again after
`Retry-After`, or pauses that double. A record that is refused (400, 422, ...) is reported alone.
All else, such as a wrong password, ends the task: it is no record's fault.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import ssl
from base64 import b64encode
from collections.abc import Collection, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    TCPConnector,
)
from yarl import URL

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import (
    BOOLEAN,
    INT,
    LONG,
    PASSWORD,
    STRING,
    Password,
    Rule,
    at_least,
    not_empty,
    one_of,
)
from ottla.connect.connector import Context, Place, SinkConnector, SourceConnector, TryAgainError
from ottla.connect.connectors import content_of
from ottla.connect.data import DataError, SinkRecord, SourceRecord, shown
from ottla.errors import ConfigError
from ottla.network.timing import Backoff
from ottla.runtime import Chance, SystemClock
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")
DOCUMENT: Final = "document"
LINK: Final = "link"
NEXT: Final = "next"
CURSOR: Final = "cursor"
ARRAY: Final = "array"
LINES: Final = "lines"
IGNORE: Final = "ignore"
DELETE: Final = "delete"
OK: Final = range(200, 300)
NOT_MODIFIED: Final = 304
BUSY: Final = frozenset({408, 425, 429, *range(500, 600)})
OF_A_RECORD: Final = frozenset({400, 409, 410, 411, 413, 414, 415, 422, 431})
OF_A_PLACE: Final = frozenset({404, 405})
"""The record's own fault only where the URL is made of its key."""
LOOK_S: Final = 0.2
"""How soon a task that waits for an answer sees that it is to stop."""
BLOCK: Final = 1 << 16


def _is_headers(value: Password) -> bool:
    try:
        found = json.loads(value.value)
    except ValueError:
        return False
    return isinstance(found, dict) and all(isinstance(text, str) for text in found.values())


class HttpSettings(ConfigTable, group=True):
    """What both connectors are told of the server."""

    url: str = config_key(
        default=REQUIRED,
        type=STRING,
        rule=Rule(
            "be a URL that begins with http:// or https://",
            lambda text: text.startswith(("http://", "https://")),
        ),
        importance=HIGH,
        doc="The endpoint; for the sink with ${topic} and ${key}, if the record's are wanted.",
    )
    headers: Password = config_key(
        default=Password("{}"),
        type=PASSWORD,
        rule=Rule("be a JSON object of texts", _is_headers),
        doc="Headers for each request, as a JSON object.",
    )
    username: str = config_key(default="", type=STRING, doc="The user, for basic authentication.")
    password: Password = config_key(
        default=Password(""), type=PASSWORD, doc="The password of the user."
    )
    ssl_ca_file: str = config_key(
        default="",
        type=STRING,
        doc="A PEM file of the authorities to trust; empty: those of the system.",
    )
    request_timeout_ms: int = config_key(
        default=30_000, type=LONG, rule=at_least(1), doc="How long an answer is waited for."
    )
    retry_backoff_ms: int = config_key(
        default=1000,
        type=LONG,
        rule=at_least(1),
        importance=LOW,
        doc="The first pause after a failure; each next one is twice as long.",
    )
    retry_backoff_max_ms: int = config_key(
        default=60_000, type=LONG, rule=at_least(1), importance=LOW, doc="The longest pause."
    )
    max_response_bytes: int = config_key(
        default=64 << 20, type=INT, rule=at_least(1), importance=LOW, doc="The longest answer."
    )


class Answer(NamedTuple):
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    next_link: str | None

    @property
    def retry_after_ms(self) -> int | None:
        """How long it asks to be left alone; a date is counted from that of the answer."""
        text = self.headers.get("Retry-After", "").strip()
        if text.isdecimal():
            return int(text) * 1000
        try:
            until = parsedate_to_datetime(text)
        except ValueError:
            return None
        try:
            now = parsedate_to_datetime(self.headers.get("Date", ""))
        except ValueError:
            now = datetime.now(UTC)
        return max(0, int((until - now).total_seconds() * 1000))

    def __str__(self) -> str:
        return f"{self.status} {shown(self.body.decode('utf-8', 'replace'))}"


class HttpClient:
    """Sends the requests of one task, in its thread, and counts pauses after failures."""

    def __init__(self, settings: HttpSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._clock = SystemClock()
        self._backoff = Backoff(
            settings.retry_backoff_ms, settings.retry_backoff_max_ms, Chance().random
        )
        self._failures = 0
        self._due_ms = 0
        self._runner = asyncio.Runner()
        try:
            self._session = self._runner.run(self._open())
        except BaseException:
            self._runner.close()
            raise

    async def _open(self) -> ClientSession:
        settings = self._settings
        headers = json.loads(settings.headers.value)
        if settings.username:
            user = f"{settings.username}:{settings.password.value}".encode()
            headers["Authorization"] = f"Basic {b64encode(user).decode()}"
        trusted: ssl.SSLContext | bool = True
        if settings.ssl_ca_file:
            trusted = ssl.create_default_context(cafile=settings.ssl_ca_file)
        return ClientSession(
            connector=TCPConnector(ssl=trusted),
            headers=headers,
            timeout=ClientTimeout(total=self._settings.request_timeout_ms / 1000),
        )

    def close(self) -> None:
        """Close the connections."""
        self._runner.run(self._session.close())
        self._runner.close()

    @property
    def left_s(self) -> float:
        """How long it sends nothing."""
        return max(0, self._due_ms - self._clock.monotonic_ms()) / 1000

    def rest(self, delay_ms: int) -> None:
        """Send nothing for so long."""
        self._due_ms = self._clock.monotonic_ms() + delay_ms

    def succeeded(self) -> None:
        """The server is well: the next failure's pause is a short one again."""
        self._failures = 0

    def failed(self, error: OutageError) -> None:
        """Rest for as long as the server asks, or for a pause that grows."""
        self._failures += 1
        delay_ms = error.retry_after_ms
        self.rest(self._backoff.delay_ms(self._failures) if delay_ms is None else delay_ms)
        logger.warning("%s: asked again in %.1f s: %s", self._context.name, self.left_s, error)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns; an OutageError if the task is to stop before that."""
        return self._runner.run(self._until_stopped(work))

    async def _until_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        for _ in range(2):
            await asyncio.sleep(0)  # connections that the server has closed meanwhile are seen
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
            if self._context.is_stopping:
                task.cancel()
                await asyncio.wait({task})
                raise OutageError("the task stops before there is an answer")
        return task.result()

    async def ask(
        self, method: str, url: URL, headers: Mapping[str, str], data: bytes | None = None
    ) -> Answer:
        """An answer other than one of a server that is busy; else OutageError."""
        try:
            async with self._session.request(
                method, url, headers=headers, data=data, allow_redirects=False
            ) as response:
                link = response.links.get("next")
                body = await self._body(response)
                url_behind = None if link is None else str(link["url"])
                answer = Answer(response.status, response.headers, body, url_behind)
        except (ClientError, OSError, TimeoutError) as error:
            raise OutageError(f"{method} {url}: {error!r}") from error
        if answer.status in BUSY:
            raise OutageError(f"{method} {url}: {answer}", answer.retry_after_ms)
        return answer

    async def _body(self, response: ClientResponse) -> bytes:
        found = bytearray()
        async for block in response.content.iter_chunked(BLOCK):
            found += block
            if len(found) > self._settings.max_response_bytes:
                raise DataError(
                    f"{response.url}: an answer must not be longer than "
                    f"max.response.bytes={self._settings.max_response_bytes}"
                )
        return bytes(found)


class OutageError(TryAgainError):
    """The server cannot do it now: no request or record is to blame."""

    def __init__(self, message: str, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class HttpSourceSettings(HttpSettings):
    """What HttpSource is told."""

    topic: str = config_key(
        default=REQUIRED,
        type=STRING,
        rule=not_empty(),
        importance=HIGH,
        doc="The topic for all records.",
    )
    records_field: str = config_key(
        default="",
        type=STRING,
        importance=HIGH,
        doc="Where the list of records is in the answer, as a.b; empty if the answer is the list, "
        "or one record.",
    )
    key_field: str = config_key(
        default="", type=STRING, doc="The field of a record that is its key, as a.b; or none."
    )
    paging: str = config_key(
        default=DOCUMENT,
        type=STRING,
        rule=one_of(DOCUMENT, LINK, NEXT, CURSOR),
        importance=HIGH,
        doc="How more is asked for: not at all, an answer that changed is all new (document); by "
        "the header Link (link); by a field of the answer (next); by a field of the last record "
        "(cursor).",
    )
    next_field: str = config_key(
        default="next",
        type=STRING,
        doc="With paging=next: the field of the answer with the next page's URL or token.",
    )
    cursor_field: str = config_key(
        default="id",
        type=STRING,
        doc="With paging=cursor: the field by which records are in order, as a.b.",
    )
    cursor_parameter: str = config_key(
        default="cursor",
        type=STRING,
        rule=not_empty(),
        doc="The parameter of the query that takes a token, or the last record's cursor.",
    )
    cursor_initial: str = config_key(
        default="", type=STRING, doc="The parameter's first value; empty: it is left out at first."
    )
    cursor_inclusive: bool = config_key(
        default=False,
        type=BOOLEAN,
        doc="Whether records whose cursor equals the parameter come again.",
    )
    poll_interval_ms: int = config_key(
        default=10_000, type=LONG, rule=at_least(1), doc="How long to wait when nothing is new."
    )


class Page(NamedTuple):
    """A place in what an endpoint has: a page, and how many of its records are delivered.

    `next` is the page's URL, token or cursor, None for the first one. `version` is of paging by
    document alone: `done` counts only as long as the document is the same.
    """

    next: Any = None
    done: int = 0
    version: str = ""

    @property
    def offset(self) -> dict[str, Any]:
        """As it is stored."""
        found = {"next": self.next, "done": self.done}
        return found | {"version": self.version} if self.version else found

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> Page:
        """The place that an offset says; ConfigError if it is none."""
        done = offset.get("done", 0)
        is_number = isinstance(done, int) and not isinstance(done, bool)
        if not set(offset) <= set(cls._fields) or not is_number or done < 0:
            raise ConfigError(
                f"offset={dict(offset)}: must have the keys next, done (a number from 0 on) and "
                "version, or some of them"
            )
        return cls(offset.get("next"), done, offset.get("version", ""))


class HttpSource(SourceConnector):
    """Asks an endpoint for records, and brings each once."""

    Settings = HttpSourceSettings
    settings: HttpSourceSettings

    _client: HttpClient | None = None

    def partition(self) -> Place:
        return {"url": self.settings.url}

    def start(self) -> None:
        self._client = HttpClient(self.settings, self.context)
        self._page = Page.of(self.context.offset(self.partition()) or {})
        self._unchanged: dict[str, str] = {}

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()

    def poll(self) -> Sequence[SourceRecord]:
        """The records of a page; none while it waits for new ones, or for the server."""
        client = self._client
        assert client is not None, "started"
        if client.left_s:
            self.context.wait(min(client.left_s, LOOK_S))
            return []
        url = self._url()
        try:
            answer = client.run(client.ask("GET", url, self._unchanged))
        except OutageError as error:
            if not self.context.is_stopping:
                client.failed(error)
            return []
        client.succeeded()
        if answer.status == NOT_MODIFIED:
            client.rest(self.settings.poll_interval_ms)
            return []
        if answer.status not in OK:
            raise ConfigError(f"url: GET {url} must be answered with records, not by {answer}")
        found, page = self._read(answer)
        if page == self._page or self.settings.paging == DOCUMENT:
            client.rest(self.settings.poll_interval_ms)
        is_same_request = page.next == self._page.next
        self._unchanged = _validators(answer) if is_same_request else {}
        self._page = page
        return found

    def _url(self) -> URL:
        """That of the page; one of another server is refused, as headers may hold secrets."""
        settings, page = self.settings, self._page
        base = URL(settings.url)
        is_place = settings.paging == LINK or str(page.next).startswith(("http", "/", "?"))
        if page.next is None or settings.paging == DOCUMENT:
            initial = settings.cursor_initial
            return base.update_query({settings.cursor_parameter: initial}) if initial else base
        if settings.paging == CURSOR or not is_place:
            return base.update_query({settings.cursor_parameter: str(page.next)})
        url = base.join(URL(page.next))
        if url.origin() != base.origin():
            raise ConfigError(f"url={base}: the next page must be of the same server, not {url}")
        return url

    def _read(self, answer: Answer) -> tuple[list[SourceRecord], Page]:
        """The new records of an answer, and the place behind them."""
        try:
            body = json.loads(answer.body)
        except ValueError as error:
            raise DataError(f"{self._url()}: the answer must be JSON: {answer}") from error
        items = _field(body, self.settings.records_field) if self.settings.records_field else body
        if isinstance(items, dict):
            items = [items]
        if not isinstance(items, list):
            raise DataError(
                f"records.field={self.settings.records_field}: must be a list: {shown(items)}"
            )
        pages = self._pages(answer, body, items)
        done = self._page.done if pages[0].version == self._page.version else 0
        made = [
            self._record(item, page)
            for item, page in zip(items[done:], pages[1 + done :], strict=False)
        ]
        return made, pages[-1]

    def _pages(self, answer: Answer, body: Any, items: Sequence[Any]) -> list[Page]:
        """The places before the first record, and behind each; the last one may be another page."""
        here = self._page._replace(done=0)
        if self.settings.paging == CURSOR:
            return self._cursors(items)
        if self.settings.paging == DOCUMENT:
            here = Page(version=hashlib.sha256(answer.body).hexdigest()[:16])
        places = [here._replace(done=number) for number in range(len(items) + 1)]
        following = None
        if self.settings.paging == LINK:
            following = answer.next_link
        elif self.settings.paging == NEXT:
            following = _field(body, self.settings.next_field)
        if following not in (None, "", False, self._page.next):
            places[-1] = Page(following)
            if not items:
                places.insert(0, here)
        return places

    def _cursors(self, items: Sequence[Any]) -> list[Page]:
        """With cursors that include: how many records have the last one, to leave them out."""
        is_inclusive = self.settings.cursor_inclusive
        places = [self._page]
        last, count = self._page.next, 0
        for item in items:
            cursor = _field(item, self.settings.cursor_field)
            if cursor is None:
                raise DataError(
                    f"cursor.field={self.settings.cursor_field}: each record must have it: "
                    f"{shown(item)}"
                )
            count = count + 1 if cursor == last else 1
            last = cursor
            places.append(Page(cursor, count if is_inclusive else 0))
        if len(places) <= self._page.done:
            places.append(self._page)  # records that were there are gone
        return places

    def _record(self, item: Any, page: Page) -> SourceRecord:
        key = self.settings.key_field
        return SourceRecord(
            topic=self.settings.topic,
            key=_field(item, key) if key else None,
            value=item,
            source_partition=self.partition(),
            source_offset=page.offset,
        )

    @classmethod
    def is_exactly_once(cls, settings: ConfigTable) -> bool:
        """Each record has a place."""
        return True

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Sequence[tuple[Place, Place | None]]
    ) -> bool:
        """Any page that the endpoint has."""
        for partition, offset in offsets:
            if set(partition) != {"url"}:
                raise ConfigError(f"partition={dict(partition)}: must have the one key url")
            if offset is not None:
                Page.of(offset)
        return True


def _validators(answer: Answer) -> dict[str, str]:
    """Headers by which the server need not send again what has not changed."""
    pairs = (("If-None-Match", "ETag"), ("If-Modified-Since", "Last-Modified"))
    return {name: answer.headers[of] for name, of in pairs if of in answer.headers}


def _field(value: Any, path: str) -> Any:
    """A field within fields, as `a.b`; None where there is none."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


class HttpSinkSettings(HttpSettings):
    """What HttpSink is told."""

    method: str = config_key(
        default="POST", type=STRING, rule=one_of("POST", "PUT", "PATCH"), doc="How it is sent."
    )
    content_type: str = config_key(
        default="application/json", type=STRING, rule=not_empty(), doc="What the body is."
    )
    batch_records: int = config_key(
        default=1,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="How many records of a partition are sent at once, at most; 1 sends a record as it is.",
    )
    batch_format: str = config_key(
        default=ARRAY,
        type=STRING,
        rule=one_of(ARRAY, LINES),
        doc="How records are put together: a JSON array, or a line for each. Text and bytes stand "
        "in it as they are.",
    )
    idempotency_header: str = config_key(
        default="Idempotency-Key",
        type=STRING,
        doc="The header with topic-partition-offset, of a batch with its first and last offset.",
    )
    null_values: str = config_key(
        default=IGNORE,
        type=STRING,
        rule=one_of(IGNORE, DELETE),
        doc="Whether a record without a value is left out, or sent as DELETE (to a URL with its "
        "key).",
    )
    connections: int = config_key(
        default=4,
        type=INT,
        rule=at_least(1),
        importance=LOW,
        doc="How many partitions are sent at the same time.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        if values["null_values"] == DELETE and values["batch_records"] > 1:
            raise ConfigError("null.values=delete: needs batch.records=1, as a DELETE has no body")


class HttpSink(SinkConnector):
    """Sends records to an endpoint, those of a partition in their order.

    Invariant: `_done` has the last offset of each partition that was sent or refused, so that what
    comes again after an outage is not sent twice.
    """

    Settings = HttpSinkSettings
    settings: HttpSinkSettings

    _client: HttpClient | None = None

    def start(self) -> None:
        self._client = HttpClient(self.settings, self.context)
        self._done: dict[TopicPartition, int] = {}
        self._has_own_url = "${key}" in self.settings.url

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()

    def open(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._done.pop(partition, None)

    def put(self, records: Sequence[SinkRecord]) -> None:
        client = self._client
        assert client is not None, "started"
        if client.left_s:
            self.context.retry_after(int(client.left_s * 1000) + 1)
            raise TryAgainError(f"nothing is sent for {client.left_s:.1f} s")
        waiting: dict[TopicPartition, list[SinkRecord]] = {}
        for record in records:
            place = TopicPartition(record.original_topic, record.original_partition)
            if record.offset > self._done.get(place, -1):
                waiting.setdefault(place, []).append(record)
        refused: list[tuple[SinkRecord, DataError]] = []
        outages = client.run(self._send_all(waiting, refused))
        for record, error in refused:
            self.context.report(record, error)
        if outages:
            client.failed(outages[0])
            self.context.retry_after(int(client.left_s * 1000) + 1)
            raise outages[0]
        client.succeeded()

    async def _send_all(
        self,
        waiting: Mapping[TopicPartition, Sequence[SinkRecord]],
        refused: list[tuple[SinkRecord, DataError]],
    ) -> list[OutageError]:
        """Send partitions side by side; what kept some of them from being sent."""
        free = asyncio.Semaphore(self.settings.connections)

        async def send(place: TopicPartition, records: Sequence[SinkRecord]) -> None:
            async with free:
                for batch in self._batches(records):
                    await self._send(batch, refused)
                    self._done[place] = batch[-1].offset

        ends = await asyncio.gather(
            *(send(place, records) for place, records in waiting.items()), return_exceptions=True
        )
        errors = [end for end in ends if end is not None]
        for error in errors:
            if not isinstance(error, OutageError):
                raise error
        return [error for error in errors if isinstance(error, OutageError)]

    def _batches(self, records: Sequence[SinkRecord]) -> list[list[SinkRecord]]:
        """Records for one URL each, as many as a batch has; records to leave out are in none."""
        found: list[list[SinkRecord]] = []
        for record in records:
            if record.value is None and self.settings.null_values == IGNORE:
                continue
            is_full = not found or len(found[-1]) >= self.settings.batch_records
            if is_full or self._url(found[-1][0]) != self._url(record):
                found.append([])
            found[-1].append(record)
        return found

    async def _send(
        self, batch: Sequence[SinkRecord], refused: list[tuple[SinkRecord, DataError]]
    ) -> None:
        """Send a batch; of one that is refused, its halves, until the records are found."""
        client, first = self._client, batch[0]
        assert client is not None, "started"
        url, is_delete = self._url(first), first.value is None
        try:
            body = None if is_delete else self._body(batch)
        except DataError as error:
            await self._divide(batch, error, refused)
            return
        headers = {"Content-Type": self.settings.content_type}
        if self.settings.idempotency_header:
            headers[self.settings.idempotency_header] = _place_of(batch)
        method = "DELETE" if is_delete else self.settings.method
        answer = await client.ask(method, url, headers, body)
        if answer.status in OK:
            return
        is_record = answer.status in OF_A_RECORD
        if not is_record and not (self._has_own_url and answer.status in OF_A_PLACE):
            raise ConfigError(f"url: {method} {url} must be accepted, not answered by {answer}")
        await self._divide(batch, DataError(f"{method} {url}: refused by {answer}"), refused)

    async def _divide(
        self,
        batch: Sequence[SinkRecord],
        error: DataError,
        refused: list[tuple[SinkRecord, DataError]],
    ) -> None:
        if len(batch) == 1:
            refused.append((batch[0], error))
            return
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            await self._send(half, refused)

    def _url(self, record: SinkRecord) -> URL:
        text = self.settings.url.replace("${topic}", quote(record.topic, safe=""))
        if self._has_own_url:
            key = b"" if record.key is None else content_of(record.key, record.key_schema)
            text = text.replace("${key}", quote(key, safe=""))
        return URL(text, encoded=True)

    def _body(self, batch: Sequence[SinkRecord]) -> bytes:
        parts = [content_of(record.value, record.value_schema) for record in batch]
        if self.settings.batch_records == 1:
            return parts[0]
        if self.settings.batch_format == LINES:
            return b"".join(part + b"\n" for part in parts)
        return b"[" + b",".join(parts) + b"]"

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Any offset will do: records are sent again under the same place."""
        return True


def _place_of(batch: Sequence[SinkRecord]) -> str:
    first, last = batch[0], batch[-1]
    place = f"{first.original_topic}-{first.original_partition}-{first.offset}"
    return place if first is last else f"{place}-{last.offset}"
