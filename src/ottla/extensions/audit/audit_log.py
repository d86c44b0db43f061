"""Requests that change the cluster, and refusals, noted as records and written in the background.

No request waits for its record. At most MAX_QUEUED wait to be written; those beyond are counted,
and a record in the topic says how many are missing before it (`"missing": 12`). A record written in
doubt is written again, so that a record may be there twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.audit.audit_record import (
    ADMINISTRATIVE,
    DENIED,
    LOGGED,
    AuditRecord,
    encode,
    error_names,
    has_room,
    listed,
    shortened,
    text_of,
)
from ottla.network.connection import Connection
from ottla.network.request_context import RequestContext
from ottla.protocol.message import Response
from ottla.runtime import Runtime
from ottla.runtime.scheduler import pause, within
from ottla.runtime.timing import Backoff
from ottla.security.acls import CLUSTER, AclOperation, Resource, ResourceType
from ottla.server.api import Answer, Handler, request_name
from ottla.server.apis import Apis

logger = logging.getLogger(__name__)

MAX_QUEUED: Final = 10_000
MAX_BATCH_BYTES: Final = 500_000
"""Below the default of message.max.bytes."""
FIRST_RETRY_MS: Final = 100
MAX_RETRY_MS: Final = 10_000
CLOSE_TIMEOUT_MS: Final = 1_000
TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
NEVER_TAKEN: Final = (
    *TOO_LARGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)

Write = Callable[[list[bytes]], Awaitable[None]]
"""Writes records; KafkaError where they were not, or may not have been, written."""


class AuditLog:
    """Notes requests, and has them written in the background, in their order."""

    def __init__(
        self,
        runtime: Runtime,
        topic: str,
        broker_id: int,
        write: Write,
        max_queued: int = MAX_QUEUED,
    ) -> None:
        self._runtime = runtime
        self._topic = topic
        self._broker_id = broker_id
        self._write = write
        self._max_queued = max_queued
        self._queue: deque[AuditRecord] = deque()
        self._open: dict[RequestContext, AuditRecord] = {}
        """The administrative requests that are not answered yet."""
        self._last: tuple[RequestContext, AuditRecord] | None = None
        self._max_batch_bytes = MAX_BATCH_BYTES
        self._missing = 0  # since the last record that was written
        self._writing: asyncio.Task[None] | None = None
        self.dropped_count = 0
        """Records that were never written, since the start."""

    def watch(self, apis: Apis) -> None:
        """Note all administrative requests and all refusals from here on."""
        for key, resources in ADMINISTRATIVE.items():
            apis.wrap(key, partial(self._audited, resources))
        apis.logins.on_refused = self.note_login
        apis.on_refused_request = self.note_refusal
        apis.on_denial.append(self.note_denial)

    def note_denial(
        self, context: RequestContext, operation: AclOperation, resource: Resource, served: bool
    ) -> None:
        """A right was denied; with `served` the request is served all the same.

        A fetch from the audit topic that is served would otherwise beget the record it waits for.
        """
        if served and resource == Resource(ResourceType.TOPIC, self._topic):
            return
        record = self._record_of(context)
        record.decision = LOGGED if served else DENIED
        text = f"{operation.title} {shortened(text_of(resource))}"
        if has_room(record.denied) and text not in record.denied:
            record.denied.append(text)

    def note_refusal(self, context: RequestContext) -> None:
        """A request of brokers came from somewhere else."""
        record = self._record_of(context)
        record.decision = DENIED
        record.denied.append(f"{AclOperation.CLUSTER_ACTION.title} {text_of(CLUSTER)}")

    def note_login(self, connection: Connection, mechanism: str, reason: str) -> None:
        """A client was refused before it was known."""
        self._put(
            AuditRecord(
                self._runtime.clock.now_ms(),
                self._broker_id,
                str(connection.principal),
                "",
                connection.client_host,
                connection.listener_name,
                "SaslAuthenticate",
                decision=DENIED,
                denied=[shortened(f"{mechanism or 'no mechanism'}: {reason}")],
            )
        )

    async def close(self) -> None:
        """Write the waiting records, if that is soon done, and end."""
        task = self._writing
        if task is None or task.done():
            return
        try:
            await within(
                self._runtime.scheduler, CLOSE_TIMEOUT_MS, asyncio.shield(task), "audit records"
            )
        except KafkaError:
            logger.warning("%d audit records were not written before the stop", len(self._queue))
            task.cancel()

    def _audited(self, resources: Callable[[Any], Iterator[str]], handler: Handler) -> Handler:
        def handle(context: RequestContext, body: Any) -> Answer:
            record = self._new_record(context)
            record.resources = listed(resources(body))
            self._open[context] = record
            try:
                answer = handler(context, body)
            except Exception as error:
                self._end(context, error)
                raise
            if isinstance(answer, Coroutine):
                return self._await(context, answer)
            self._end(context, answer)
            return answer

        return handle

    async def _await(
        self, context: RequestContext, answer: Coroutine[Any, Any, Response | None]
    ) -> Response | None:
        try:
            response = await answer
        except BaseException as error:
            self._end(context, error)
            raise
        self._end(context, response)
        return response

    def _end(self, context: RequestContext, outcome: Response | BaseException | None) -> None:
        record = self._open.pop(context)
        if isinstance(outcome, KafkaError):
            record.errors = [outcome.error.name]
        elif isinstance(outcome, BaseException):
            record.errors = [ErrorCode.UNKNOWN_SERVER_ERROR.name]
        elif outcome is not None:
            record.errors = sorted(error_names(outcome))
        has_failed = isinstance(outcome, BaseException) or getattr(outcome, "error_code", 0) != 0
        self._put(record, is_an_act=record.decision != DENIED and not has_failed)

    def _record_of(self, context: RequestContext) -> AuditRecord:
        """The record of a request: that of before, if it was noted already."""
        if context in self._open:
            return self._open[context]
        if self._last is not None and self._last[0] is context:
            return self._last[1]
        record = self._new_record(context)
        self._last = (context, record)
        self._put(record)
        return record

    def _new_record(self, context: RequestContext) -> AuditRecord:
        return AuditRecord(
            self._runtime.clock.now_ms(),
            self._broker_id,
            str(context.principal),
            shortened(context.client_id),
            context.client_host,
            context.listener_name,
            request_name(context.header),
        )

    def _put(self, record: AuditRecord, *, is_an_act: bool = False) -> None:
        """Queue a record, or count it as dropped where too many wait.

        What was done has as much room again: a flood of requests that are denied, or fail, cannot
        hide it.
        """
        if len(self._queue) >= self._max_queued * (2 if is_an_act else 1):
            if not self._missing:
                logger.warning("audit records are dropped: %d wait already", self._max_queued)
            self._missing += 1
            self.dropped_count += 1
            return
        self._queue.append(record)
        if self._writing is None or self._writing.done():
            self._writing = self._runtime.scheduler.spawn(self._write_all(), "write audit records")

    async def _write_all(self) -> None:
        backoff = Backoff(FIRST_RETRY_MS, MAX_RETRY_MS, self._runtime.random.random)
        failures = 0
        await asyncio.sleep(0)  # denials of this turn may still be added to their records
        while self._queue:
            self._last = None
            missing = self._missing
            count = 1
            try:
                values = self._batch()
                count = len(values)
                await self._write([*values, self._gap(missing)] if missing else values)
            except KafkaError as error:
                failures += 1
                self._on_failure(error, failures, count)
                await pause(self._runtime.scheduler, backoff.delay_ms(failures))
                continue
            except Exception:
                logger.exception("%d audit records are lost", count)
                self._lose(count)
                continue
            failures = 0
            self._missing -= missing
            self._take(count)

    def _on_failure(self, error: KafkaError, failures: int, count: int) -> None:
        """Drop records that will never be taken; the rest waits for another attempt."""
        if failures == 1:
            logger.warning("audit records cannot be written: %s", error)
        if error.error in TOO_LARGE and count > 1:
            self._max_batch_bytes //= 2
        elif error.error in NEVER_TAKEN:
            self._lose(count)
            logger.error("%d audit records are lost: %s", count, error)

    def _lose(self, count: int) -> None:
        self._take(count)
        self._missing += count
        self.dropped_count += count

    def _batch(self) -> list[bytes]:
        """The records at the head of the queue that go together; at least one."""
        values: list[bytes] = []
        size = 0
        for record in self._queue:
            try:
                value = record.encode()
            except Exception:  # those before it are written first
                if not values:
                    raise
                break
            size += len(value)
            if values and size > self._max_batch_bytes:
                break
            values.append(value)
        return values

    def _take(self, count: int) -> None:
        for _ in range(count):
            self._queue.popleft()

    def _gap(self, missing: int) -> bytes:
        now_ms = self._runtime.clock.now_ms()
        return encode({"time": now_ms, "broker": self._broker_id, "missing": missing})
