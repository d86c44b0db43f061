"""HttpSource and HttpSink: records of an endpoint that answers JSON, and records sent to one.

    connector.class=HttpSource                  connector.class=HttpSink
    url=https://shop.example/orders             url=https://crm.example/events/${topic}
    topic=orders                                topics=orders
    paging=cursor                               headers={"Authorization":"Bearer ..."}
    cursor.field=id                             batch.records=1

The source asks again and again. Its offset is a place in the endpoint's records: which page
(`next`: a cursor, a token or a URL), and how many of that page's records are in the topic already
(`done`), so that a restart within a page repeats none. The sink sends each record, or a batch of
one partition, in order; a header names the place in Kafka, by which a receiver knows repeated ones.

A server that cannot be reached, is busy or fails (408, 425, 429, 5xx) is asked again after pauses
that double, and not before `Retry-After`. So is one whose answer the source cannot read, such as
the page of a proxy: the log names the fault, and the setting that would change it. A record that
the sink's receiver refuses (another 4xx) is reported alone. A wrong password, a missing page or a
redirection to another server ends the task: no wait mends it, and it is no record's fault.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import ssl
from base64 import b64encode
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector
from yarl import URL

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import LONG, Password
from ottla.config.rule import Rule, at_least, not_empty, one_of
from ottla.connect.connector import Context, Place, SinkConnector, SourceConnector, TryAgainError
from ottla.connect.connectors import content_of
from ottla.connect.data import DataError, SinkRecord, SourceRecord, shown
from ottla.errors import ConfigError
from ottla.runtime import Chance, SystemClock
from ottla.runtime.timing import Backoff, Deadline
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
NO_CONTENT: Final = frozenset({204, 205})
NOT_MODIFIED: Final = 304
MOVED: Final = frozenset({301, 302, 303, 307, 308})
MOVED_AS_IT_IS: Final = frozenset({307, 308})
"""Redirections that another method than GET may follow."""
BUSY: Final = frozenset({408, 425, 429, *range(500, 600)})
REFUSED: Final = range(400, 500)
OF_THE_USER: Final = frozenset({401, 403, 407})
OF_THE_PASSWORD: Final = frozenset({401, 407})
MOST_REDIRECTIONS: Final = 5
MOST_PAUSE_MS: Final = 3_600_000
"""A server that asks for more is asked once in an hour all the same."""
LONGEST_PUT_MS: Final = 60_000
"""So long are records sent before the worker looks after its group, which else would take the task
for dead (max.poll.interval.ms)."""
MOST_PAGES: Final = 100_000
"""So many pages are remembered, to notice that they lead in a circle."""
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
    """The settings of both connectors about the server."""

    url: str = config_key(
        default=REQUIRED,
        rule=Rule(
            "be a URL that begins with http:// or https://",
            lambda text: text.startswith(("http://", "https://")),
        ),
        importance=HIGH,
        doc="The endpoint; for the sink with ${topic} and ${key}, if the record's are wanted.",
    )
    headers: Password = config_key(
        default=Password("{}"),
        rule=Rule("be a JSON object of texts", _is_headers),
        doc="Headers for each request, as a JSON object.",
    )
    username: str = config_key(default="", doc="The user, for basic authentication.")
    password: Password = config_key(default=Password(""), doc="The password of the user.")
    ssl_ca_file: str = config_key(
        default="",
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
        default=64 << 20, rule=at_least(1), importance=LOW, doc="The longest answer."
    )


class Answer(NamedTuple):
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    next_link: str | None

    @property
    def retry_after_ms(self) -> int:
        """How long it asks to be left alone; a date is counted from that of the answer."""
        text = self.headers.get("Retry-After", "").strip()
        if text.isascii() and text.isdecimal():
            return MOST_PAUSE_MS if len(text) > 9 else min(int(text) * 1000, MOST_PAUSE_MS)
        until = _date(text)
        if until is None:
            return 0
        now = _date(self.headers.get("Date", "")) or datetime.now(UTC)
        return min(max(0, int((until - now).total_seconds() * 1000)), MOST_PAUSE_MS)

    @property
    def charset(self) -> str:
        """How its text is encoded, where it says so."""
        message = Message()
        message["Content-Type"] = self.headers.get("Content-Type", "")
        return str(message.get_content_charset() or "")

    def __str__(self) -> str:
        return f"{self.status} {shown(self.body.decode('utf-8', 'replace'))}"


def _date(text: str) -> datetime | None:
    """A moment in one of HTTP's three forms (RFC 9110, 5.6.7), which are GMT; else None."""
    try:
        found = parsedate_to_datetime(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except Exception:  # code of others has raised more than ValueError here
        return None


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

    def deadline(self, limit_ms: int) -> Deadline:
        """The time so long from now."""
        return Deadline(self._clock, limit_ms)

    @property
    def left_s(self) -> float:
        """How long it sends nothing."""
        return max(0, self._due_ms - self._clock.monotonic_ms()) / 1000

    def pause(self, delay_ms: int) -> None:
        """Send nothing for so long."""
        self._due_ms = self._clock.monotonic_ms() + delay_ms

    def succeeded(self) -> None:
        """The server is well: the next failure's pause is a short one again."""
        self._failures = 0

    def failed(self, error: OutageError) -> None:
        """Rest for a pause that grows, and for as long as the server asks."""
        self._failures += 1
        self.pause(max(self._backoff.delay_ms(self._failures), error.retry_after_ms))
        logger.warning("%s: asked again in %.1f s: %s", self._context.name, self.left_s, error)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; an OutageError if the task is to stop before that."""
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
        """An answer other than one of a server that is busy; else OutageError.

        Redirections of the same server are followed: of GET all, else those that keep the method.
        """
        first, steps = url, 0
        while True:
            answer = await self._ask_once(method, url, headers, data)
            following = self._redirection(method, url, answer)
            if following is None:
                return answer
            if following.origin() != first.origin():
                raise ConfigError(
                    f"url={first}: is redirected to another server, which does not get the "
                    f"headers and the password; set url to {following} if it is the right one"
                )
            url, steps = following, steps + 1
            if steps > MOST_REDIRECTIONS:
                raise OutageError(
                    f"{method} {first}: was redirected {steps} times, at last to {url}; url must "
                    "be the address that answers"
                )

    @staticmethod
    def _redirection(method: str, url: URL, answer: Answer) -> URL | None:
        """Where an answer leads that is not given here."""
        followed = MOVED if method == "GET" else MOVED_AS_IT_IS
        location = answer.headers.get("Location")
        if answer.status not in followed or not location:
            return None
        try:
            found = url.join(URL(location))
            found.origin()
        except ValueError as error:
            raise OutageError(f"{method} {url}: leads to no URL: {shown(location)}") from error
        return found

    async def _ask_once(
        self, method: str, url: URL, headers: Mapping[str, str], data: bytes | None
    ) -> Answer:
        try:
            async with self._session.request(
                method, url, headers=headers, data=data, allow_redirects=False
            ) as response:
                body = await self._body(response)
                answer = Answer(response.status, response.headers, body, _next_link(response))
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
                raise OutageError(
                    f"{response.url}: the answer is longer than "
                    f"max.response.bytes={self._settings.max_response_bytes}; set it higher, or "
                    "ask for fewer records at once"
                )
        return bytes(found)


def _next_link(response: ClientResponse) -> str | None:
    """The next page in the header Link; None if it cannot be read."""
    try:
        link = response.links.get("next")
        return None if link is None else str(link["url"])
    except (ValueError, KeyError) as error:
        logger.warning("%s: its header Link cannot be read: %r", response.url, error)
        return None


class OutageError(TryAgainError):
    """The server does not answer as it should now: no request or record is to blame."""

    def __init__(self, message: str, retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class HttpSourceSettings(HttpSettings):
    """The settings of HttpSource."""

    topic: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The topic for all records.",
    )
    records_field: str = config_key(
        default="",
        importance=HIGH,
        doc="Where the list of records is in the answer, as a.b; empty if the answer is the list, "
        "or one record.",
    )
    key_field: str = config_key(
        default="", doc="The field of a record that is its key, as a.b; or none."
    )
    paging: str = config_key(
        default=DOCUMENT,
        rule=one_of(DOCUMENT, LINK, NEXT, CURSOR),
        importance=HIGH,
        doc="How more is asked for: not at all, an answer that changed is all new (document); by "
        "the header Link (link); by a field of the answer (next); by a field of the last record "
        "(cursor).",
    )
    next_field: str = config_key(
        default="next",
        doc="With paging=next: the field of the answer with the next page's URL or token.",
    )
    cursor_field: str = config_key(
        default="id",
        doc="With paging=cursor: the field by which records are in order, as a.b.",
    )
    cursor_parameter: str = config_key(
        default="cursor",
        rule=not_empty(),
        doc="The parameter of the query that takes a token, or the last record's cursor.",
    )
    cursor_initial: str = config_key(
        default="", doc="The parameter's first value; empty: it is left out at first."
    )
    cursor_inclusive: bool = config_key(
        default=False,
        doc="Whether records whose cursor equals the parameter come again.",
    )
    poll_interval_ms: int = config_key(
        default=10_000, type=LONG, rule=at_least(1), doc="How long to wait when nothing is new."
    )


class Page(NamedTuple):
    """A place in the records of an endpoint: a page, and how many of its records are delivered.

    `next` is the page's URL, token or cursor, None for the first one. `version` is of paging by
    document alone: `done` counts only as long as the document is the same.
    """

    next: Any = None
    done: int = 0
    version: str = ""

    @property
    def offset(self) -> dict[str, Any]:
        """The place in the form in which it is stored."""
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
        self._seen: dict[str, None] = {}
        """The pages that were asked for, in order."""
        self._before: Page | None = None
        """The page that led to this one."""
        self._first: Sequence[Any] = ()
        """The records of the first page, which often has another address when it comes again."""
        self._told = ""

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
        url = self._url(self._page)
        try:
            answer = client.run(client.ask("GET", url, self._unchanged))
            if answer.status not in OK and answer.status != NOT_MODIFIED:
                raise ConfigError(
                    f"{_setting_of(answer.status)}: GET {url} must be answered with records, not "
                    f"by {answer}"
                )
            is_new = answer.status not in NO_CONTENT and answer.status != NOT_MODIFIED
            found, page = self._read(url, answer) if is_new else ([], self._page)
        except OutageError as error:
            if not self.context.is_stopping:
                client.failed(error)
            return []
        client.succeeded()
        if not is_new:
            client.pause(self.settings.poll_interval_ms)
            return []
        if page == self._page or self.settings.paging == DOCUMENT:
            client.pause(self.settings.poll_interval_ms)
        is_same_request = page.next == self._page.next
        if not is_same_request:
            self._before = self._page._replace(done=self._page.done + len(found))
        self._unchanged = _validators(answer) if is_same_request else {}
        self._page = page
        return found

    def _url(self, page: Page) -> URL:
        """That of a page; one of another server is refused, as headers may hold secrets."""
        settings = self.settings
        base = URL(settings.url)
        is_place = settings.paging == LINK or str(page.next).startswith(("http", "/", "?"))
        if page.next is None or settings.paging == DOCUMENT:
            initial = settings.cursor_initial
            return base.update_query({settings.cursor_parameter: initial}) if initial else base
        if settings.paging == CURSOR or not is_place:
            return base.update_query({settings.cursor_parameter: str(page.next)})
        url = base.join(URL(str(page.next)))
        if url.origin() != base.origin():
            raise ConfigError(f"url={base}: the next page must be of the same server, not {url}")
        return url

    def _read(self, url: URL, answer: Answer) -> tuple[list[SourceRecord], Page]:
        """The new records of an answer, and the place behind them; OutageError if it has none."""
        where = self.settings.records_field
        body = self._json(url, answer)
        items = _field(body, where) if where else body
        if items is None and where and _has_field(body, where):
            items = []  # as servers in Go answer when there are none
        if isinstance(items, dict):
            items = [items]
        if not isinstance(items, list):
            raise OutageError(
                f"records.field={where}: must be a list or a record in the answer of {url}, not "
                f"{shown(items)}: {answer}"
            )
        if self._before is not None and items and items == self._first:
            self._seen[str(self._page.next)] = None
            self._tell(self._page.next, "is the first one again")
            return [], self._before
        if self._page.next is None:
            self._first = items
        pages = self._pages(answer, body, items)
        done = self._page.done if pages[0].version == self._page.version else 0
        made = [
            self._record(item, page)
            for item, page in zip(items[done:], pages[1 + done :], strict=False)
        ]
        return made, pages[-1]

    @staticmethod
    def _json(url: URL, answer: Answer) -> Any:
        """The answer as JSON: in UTF-8, 16 or 32, or in the encoding that it names."""
        try:
            encoding = answer.charset
            is_other = encoding and not encoding.startswith("utf")
            return json.loads(answer.body.decode(encoding) if is_other else answer.body)
        except (ValueError, LookupError, RecursionError) as error:
            raise OutageError(
                f"url: GET {url} must be answered with JSON ({error}), not by {answer}"
            ) from error

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
        if following not in (None, "", False, self._page.next) and self._leads_on(following):
            places[-1] = Page(following)
            if not items:
                places.insert(0, here)
        return places

    def _leads_on(self, following: Any) -> bool:
        """Whether there is such a page, and it was not read before: some lead in a circle.

        Else the source stays at this page, and asks for it again.
        """
        self._seen[str(self._page.next)] = None
        problem = ""
        if not _is_place(following):
            problem = "is neither a URL nor a token"
        elif str(following) in self._seen:
            problem = "was read already"
        else:
            try:
                self._url(Page(following))
            except ConfigError:
                pass  # it is of another server: that ends the task once this page is read
            except ValueError as error:
                problem = f"is no URL: {error}"
        while len(self._seen) > MOST_PAGES:
            del self._seen[next(iter(self._seen))]
        if problem:
            self._tell(following, problem)
        return not problem

    def _tell(self, following: Any, problem: str) -> None:
        """Log why a page is not read; again when it is another one."""
        text = f"the next page, {shown(following)}, {problem}: the source stays at the one before"
        if text != self._told:
            self._told = text
            logger.warning("%s: paging=%s: %s", self.context.name, self.settings.paging, text)

    def _cursors(self, items: Sequence[Any]) -> list[Page]:
        """With cursors that include: how many records have the last one, to leave them out.

        A record without a cursor has the place of the one before it.
        """
        is_inclusive = self.settings.cursor_inclusive
        places = [self._page]
        last, count = self._page.next, 0
        name = self.settings.cursor_field
        if items and all(_cursor(item, name) is None for item in items):
            raise OutageError(
                f"cursor.field={name}: the records must have it, as {shown(items[0])} has not"
            )
        for item in items:
            cursor = _cursor(item, name)
            if cursor is None:
                places.append(places[-1])
                continue
            count = count + 1 if cursor == last else 1
            last = cursor
            places.append(Page(cursor, count if is_inclusive else 0))
        if len(places) <= self._page.done:
            places.append(self._page)  # records that were there are gone
        return places

    def _record(self, item: Any, page: Page) -> SourceRecord:
        key, cursor = self.settings.key_field, self.settings.cursor_field
        error = None
        if self.settings.paging == CURSOR and _cursor(item, cursor) is None:
            rule = "each record must have it, as a number or as text"
            error = DataError(f"cursor.field={cursor}: {rule}: {shown(item)}")
        return SourceRecord(
            topic=self.settings.topic,
            key=_field(item, key) if key else None,
            value=item,
            source_partition=self.partition(),
            source_offset=page.offset,
            error=error,
        )

    @classmethod
    def is_exactly_once(cls, settings: ConfigTable) -> bool:
        """True: each record has a place."""
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
    """Headers by which the server need not send an unchanged page again."""
    pairs = (("If-None-Match", "ETag"), ("If-Modified-Since", "Last-Modified"))
    return {name: answer.headers[of] for name, of in pairs if of in answer.headers}


def _field(value: Any, path: str) -> Any:
    """A field within fields, as `a.b`; None where there is none."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _cursor(item: Any, path: str) -> Any:
    """The cursor of a record; None if there is none that a URL and an offset can hold."""
    found = _field(item, path)
    return found if _is_place(found) else None


def _is_place(value: Any) -> bool:
    """Whether a URL and an offset can hold it: a number, or text that UTF-8 has."""
    if isinstance(value, str):
        return value.isascii() or value == value.encode(errors="replace").decode()
    return isinstance(value, int) or (isinstance(value, float) and isfinite(value))


def _has_field(value: Any, path: str) -> bool:
    """Whether a field is there, if only with null."""
    parent, _, name = path.rpartition(".")
    found = _field(value, parent) if parent else value
    return isinstance(found, dict) and name in found


def _setting_of(status: int) -> str:
    """The settings that a person has to look at."""
    return "username, password or headers" if status in OF_THE_USER else "url"


class HttpSinkSettings(HttpSettings):
    """The settings of HttpSink."""

    method: str = config_key(
        default="POST", rule=one_of("POST", "PUT", "PATCH"), doc="How it is sent."
    )
    content_type: str = config_key(
        default="application/json", rule=not_empty(), doc="What the body is."
    )
    batch_records: int = config_key(
        default=1,
        rule=at_least(1),
        importance=HIGH,
        doc="How many records of a partition are sent at once, at most; 1 sends a record as it is.",
    )
    batch_format: str = config_key(
        default=ARRAY,
        rule=one_of(ARRAY, LINES),
        doc="How records are put together: a JSON array, or a line for each. Text and bytes stand "
        "in it as they are.",
    )
    idempotency_header: str = config_key(
        default="Idempotency-Key",
        doc="The header with topic-partition-offset, of a batch with its first and last offset.",
    )
    null_values: str = config_key(
        default=IGNORE,
        rule=one_of(IGNORE, DELETE),
        doc="Whether a record without a value is left out, or sent as DELETE (to a URL with its "
        "key).",
    )
    connections: int = config_key(
        default=4,
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

    Invariant: `_done` has the last offset of each partition that was sent or refused, so that
    records that come again after an outage are not sent twice.
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
        left = sum(records[-1].offset > self._done.get(p, -1) for p, records in waiting.items())
        if left:
            self.context.retry_after(0)
            raise TryAgainError(f"{left} partitions have records left after {LONGEST_PUT_MS} ms")

    async def _send_all(
        self,
        waiting: Mapping[TopicPartition, Sequence[SinkRecord]],
        refused: list[tuple[SinkRecord, DataError]],
    ) -> list[OutageError]:
        """Send partitions side by side; returns the errors that kept some of them back.

        Each sends at least one batch, and no more once the time is over.
        """
        assert self._client is not None, "started"
        free = asyncio.Semaphore(self.settings.connections)
        due = self._client.deadline(LONGEST_PUT_MS)

        async def send(place: TopicPartition, records: Sequence[SinkRecord]) -> None:
            async with free:
                for batch in self._batches(records, refused):
                    await self._send(batch, refused)
                    if due.has_passed:
                        return
                self._done[place] = records[-1].offset

        ends = await asyncio.gather(
            *(send(place, records) for place, records in waiting.items()), return_exceptions=True
        )
        errors = [end for end in ends if end is not None]
        for error in errors:
            if not isinstance(error, OutageError):
                raise error
        return [error for error in errors if isinstance(error, OutageError)]

    def _batches(
        self, records: Sequence[SinkRecord], refused: list[tuple[SinkRecord, DataError]]
    ) -> Iterator[list[SinkRecord]]:
        """Records for one URL each, as many as a batch has; records to leave out are in none."""
        batch: list[SinkRecord] = []
        target: URL | None = None
        for record in records:
            if record.value is None and self.settings.null_values == IGNORE:
                continue
            try:
                url = self._url(record)
            except Exception as error:  # of any kind: it is the record's, whose key is in the URL
                if batch:
                    yield batch  # the records before it have to be sent before it can count as done
                    batch = []
                refused.append((record, DataError(f"no URL can be made of its key: {error}")))
                self._pass(record, [record])
                continue
            if batch and (len(batch) >= self.settings.batch_records or url != target):
                yield batch
                batch = []
            target = url
            batch.append(record)
        if batch:
            yield batch

    async def _send(
        self, batch: Sequence[SinkRecord], refused: list[tuple[SinkRecord, DataError]]
    ) -> None:
        """Send a batch; of one that is refused, its halves, until the records are found."""
        client, first = self._client, batch[0]
        assert client is not None, "started"
        url, is_delete = self._url(first), first.value is None
        try:
            body = None if is_delete else self._body(batch)
        except Exception as error:  # of any kind: it is of a record's value
            await self._divide(batch, DataError(f"no body can be made of it: {error}"), refused)
            return
        headers = {"Content-Type": self.settings.content_type}
        if self.settings.idempotency_header:
            headers[self.settings.idempotency_header] = _place_of(batch)
        method = "DELETE" if is_delete else self.settings.method
        answer = await client.ask(method, url, headers, body)
        if answer.status in OK:
            self._pass(first, batch)
        elif answer.status not in REFUSED or answer.status in OF_THE_PASSWORD:
            raise ConfigError(
                f"{_setting_of(answer.status)}: {method} {url} must be accepted, not answered by "
                f"{answer}{_redirected(answer)}"
            )
        else:
            await self._divide(batch, DataError(f"{method} {url}: refused by {answer}"), refused)

    async def _divide(
        self,
        batch: Sequence[SinkRecord],
        error: DataError,
        refused: list[tuple[SinkRecord, DataError]],
    ) -> None:
        if len(batch) == 1:
            refused.append((batch[0], error))
            self._pass(batch[0], batch)
            return
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            await self._send(half, refused)

    def _pass(self, first: SinkRecord, batch: Sequence[SinkRecord]) -> None:
        """Note that a batch was sent or refused."""
        place = TopicPartition(first.original_topic, first.original_partition)
        self._done[place] = batch[-1].offset

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


def _redirected(answer: Answer) -> str:
    location = answer.headers.get("Location")
    return f"; it leads to {shown(location)}: set url to the address that takes it" * bool(location)


def _place_of(batch: Sequence[SinkRecord]) -> str:
    first, last = batch[0], batch[-1]
    place = f"{first.original_topic}-{first.original_partition}-{first.offset}"
    return place if first is last else f"{place}-{last.offset}"
