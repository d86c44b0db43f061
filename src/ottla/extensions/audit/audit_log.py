"""The audit topic: who asked to change the cluster, and who was refused what (`ottla.audit.topic`).

A record is JSON, one for each administrative request, for each request of which something was
denied, and for each login that was refused:

    {"time": 1700000000000, "broker": 0, "principal": "User:eve", "client_id": "app",
     "host": "10.0.0.1", "listener": "SASL_SSL", "api": "DeleteTopics",
     "resources": ["Topic:orders"], "decision": "denied",
     "denied": ["Delete Topic:orders"], "errors": []}

`decision` is allowed, denied, or logged: denied by ACLs, and served (authorizer.mode=log). `errors`
are those of the answer. No value of a setting, no password and no record of a client is in it.

No request waits for its record. At most MAX_QUEUED wait to be written; those beyond are counted,
and a record in the topic says how many are missing before it (`"missing": 12`). A broker writes to
a partition that it leads, or asks the leader of one. What is written in doubt is written again, so
that a record may be there twice.

Wing: attaches to `server.broker`, where `ottla.audit.topic` is set; the core works without it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.network.connection import Connection, RequestContext
from ottla.network.timing import Backoff
from ottla.protocol.acls import AclFilter
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.configs import ConfigResourceType
from ottla.protocol.message import Response, Struct
from ottla.protocol.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.record.batch_builder import build_batch_of_values
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.replica_requests import ACKS_ALL
from ottla.runtime import Runtime
from ottla.runtime.scheduler import pause, within
from ottla.security.acls import (
    CLUSTER,
    AclOperation,
    AclPermissionType,
    PatternType,
    Resource,
    ResourceType,
)
from ottla.server.apis import Answer, Apis, Handler
from ottla.server.authorizer import request_name
from ottla.server.broker_connections import BrokerConnections, Purpose
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

ALLOWED: Final = "allowed"
DENIED: Final = "denied"
LOGGED: Final = "logged"

MAX_QUEUED: Final = 10_000
MAX_BATCH_BYTES: Final = 500_000
"""Below the default of message.max.bytes."""
MAX_LISTED: Final = 100
"""Resources of a record; of more, the number is told."""
MAX_TEXT: Final = 500
"""Letters of what a client has made up: its id, names, what it sent."""
FIRST_RETRY_MS: Final = 100
MAX_RETRY_MS: Final = 10_000
WRITE_TIMEOUT_MS: Final = 10_000
CLOSE_TIMEOUT_MS: Final = 1_000


# A record


@dataclass(slots=True)
class AuditRecord:
    """One request; it may still change until it is written."""

    time: int
    broker: int
    principal: str
    client_id: str
    host: str
    listener: str
    api: str
    resources: list[str] = field(default_factory=list)
    decision: str = ALLOWED
    denied: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def encode(self) -> bytes:
        return _json(asdict(self))


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."


def _listed(names: Iterable[str]) -> list[str]:
    """The names, as far as they fit in a record."""
    all_names = list(names)
    shown = [_short(name) for name in all_names[:MAX_LISTED]]
    return shown if len(all_names) <= MAX_LISTED else [*shown, f"and {len(all_names)} in all"]


# What administrative requests are about


def _topics(entries: Iterable[Any]) -> Iterator[str]:
    return (f"Topic:{each.name}" for each in entries)


def _deleted_topics(body: Any) -> Iterator[str]:
    yield from (f"Topic:{name}" for name in body.topic_names or ())
    for each in body.topics or ():
        yield f"Topic:{each.topic_id if each.name is None else each.name}"


def _with_configs(body: Any) -> Iterator[str]:
    """Resources with the names of their settings; the values may be secrets."""
    for each in body.resources:
        try:
            type_ = ConfigResourceType(each.resource_type).name.title().replace("_", "")
        except ValueError:
            type_ = str(each.resource_type)
        keys = ", ".join(config.name for config in each.configs)
        yield f"{type_}:{each.resource_name} ({keys})"


def _acl(type_: int, name: str | None, pattern: int, principal: Any, acl: Any) -> str:
    resource = f"{ResourceType.of(type_).title}:{PatternType.of(pattern).title}:{name or '*'}"
    permission = AclPermissionType.of(acl.permission_type).title
    operation = AclOperation.of(acl.operation).title
    return f"{resource} ({permission} {operation} to {principal or 'anybody'})"


def _created_acls(body: Any) -> Iterator[str]:
    for acl in body.creations:
        pattern = acl.resource_pattern_type
        yield _acl(acl.resource_type, acl.resource_name, pattern, acl.principal, acl)


def _deleted_acls(body: Any) -> Iterator[str]:
    acl: AclFilter
    for acl in body.filters:
        name, pattern = acl.resource_name_filter, acl.pattern_type_filter
        yield _acl(acl.resource_type_filter, name, pattern, acl.principal_filter, acl)


def _quotas(body: Any) -> Iterator[str]:
    for entry in body.entries:
        yield ",".join(f"{each.entity_type}={each.entity_name}" for each in entry.entity)


def _scram_users(body: Any) -> Iterator[str]:
    names = [each.name for each in (*body.deletions, *body.upsertions)]
    return (f"User:{name}" for name in dict.fromkeys(names))


def _elected(body: Any) -> Iterator[str]:
    if body.topic_partitions is None:
        return iter([_name(CLUSTER)])
    return (f"Topic:{each.topic}" for each in body.topic_partitions)


def _owner(body: Any) -> Iterator[str]:
    name = body.owner_principal_name
    return iter([f"{body.owner_principal_type}:{name}"] if name else ())


ADMINISTRATIVE: Final[Mapping[ApiKey, Callable[[Any], Iterator[str]]]] = {
    ApiKey.CREATE_TOPICS: lambda body: _topics(body.topics),
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.DELETE_RECORDS: lambda body: _topics(body.topics),
    ApiKey.CREATE_PARTITIONS: lambda body: _topics(body.topics),
    ApiKey.CREATE_ACLS: _created_acls,
    ApiKey.DELETE_ACLS: _deleted_acls,
    ApiKey.ALTER_CONFIGS: _with_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _with_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda body: _topics(t for d in body.dirs for t in d.topics),
    ApiKey.ELECT_LEADERS: _elected,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda body: _topics(body.topics),
    ApiKey.DELETE_GROUPS: lambda body: (f"Group:{name}" for name in body.groups_names),
    ApiKey.OFFSET_DELETE: lambda body: iter([f"Group:{body.group_id}"]),
    ApiKey.ALTER_CLIENT_QUOTAS: _quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _scram_users,
    ApiKey.UPDATE_FEATURES: lambda body: (
        f"Feature:{each.feature}" for each in body.feature_updates
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: _owner,
    ApiKey.RENEW_DELEGATION_TOKEN: lambda body: iter(()),
    ApiKey.EXPIRE_DELEGATION_TOKEN: lambda body: iter(()),
}
"""The APIs whose requests are audited though they are allowed, and what each names."""


def _name(resource: Resource) -> str:
    return f"{resource.type.title}:{resource.name}"


def error_names(message: Any) -> set[str]:
    """The errors of an answer, wherever they stand."""
    found: set[str] = set()
    for each in type(message).fields:
        value = getattr(message, each.name)
        if each.name.endswith("error_code"):
            found |= {ErrorCode.of(value).name} if value else set()
        elif isinstance(value, list):
            for entry in value:
                found |= error_names(entry) if isinstance(entry, Struct) else set()
    return found


# The log


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
        """Note all administrative requests, and refused logins, from here on."""
        for key, resources in ADMINISTRATIVE.items():
            apis.wrap(key, partial(self._audited, resources))
        apis.on_refused_login = self.note_login

    def note_denial(
        self, context: RequestContext, operation: AclOperation, resource: Resource, served: bool
    ) -> None:
        """A right was denied; with `served` the request is served all the same.

        A fetch from the audit topic that is served would otherwise beget what it waits for.
        """
        if served and resource == Resource(ResourceType.TOPIC, self._topic):
            return
        record = self._record_of(context)
        record.decision = LOGGED if served else DENIED
        text = f"{operation.title} {_short(_name(resource))}"
        if len(record.denied) < MAX_LISTED and text not in record.denied:
            record.denied.append(text)

    def note_refusal(self, context: RequestContext) -> None:
        """A request of brokers came from somewhere else."""
        record = self._record_of(context)
        record.decision = DENIED
        record.denied.append(f"{AclOperation.CLUSTER_ACTION.title} {_name(CLUSTER)}")

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
                denied=[_short(f"{mechanism or 'no mechanism'}: {reason}")],
            )
        )

    async def close(self) -> None:
        """Write what waits, if that is soon done, and end."""
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

    # Requests

    def _audited(self, resources: Callable[[Any], Iterator[str]], handler: Handler) -> Handler:
        def handle(context: RequestContext, body: Any) -> Answer:
            record = self._new_record(context)
            record.resources = _listed(resources(body))
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
        self._put(record, is_of_administrator=True)

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
            _short(context.client_id),
            context.client_host,
            context.listener_name,
            request_name(context.header),
        )

    # The queue

    def _put(self, record: AuditRecord, *, is_of_administrator: bool = False) -> None:
        """Queue a record, or count it as dropped where too many wait.

        What administrators do has as much room again: a flood of denials cannot hide it.
        """
        if len(self._queue) >= self._max_queued * (2 if is_of_administrator else 1):
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
        """Drop what will never be taken; the rest stays in the queue, for another attempt."""
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
        return _json({"time": now_ms, "broker": self._broker_id, "missing": missing})


TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
NEVER_TAKEN: Final = (
    *TOO_LARGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)


# The topic


class AuditTopic:
    """Writes to the audit topic, which it makes where it is missing."""

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        replica_manager: ReplicaManager,
        cache: MetadataCache,
        create_topic: Callable[[str], Awaitable[object]],
        connections: BrokerConnections | None,
    ) -> None:
        self.name = name
        self.runtime = runtime
        self.replica_manager = replica_manager
        self.cache = cache
        self.create_topic = create_topic
        self.connections = connections

    async def write(self, values: list[bytes]) -> None:
        """Have a batch on all in-sync replicas of some partition.

        Raises:
            KafkaError: it is not, or may not be.
        """
        try:
            if self.cache.topic(self.name) is None:
                await self.create_topic(self.name)
            leaders = self._leaders()
            batch = build_batch_of_values(values, self.runtime.clock.now_ms())
            own = [tp for tp in leaders if self._is_led_here(tp)]
            if own:
                await self._append(own[0], batch)
            elif leaders and self.connections is not None:
                await self._ask(*self.runtime.random.choice(list(leaders.items())), batch)
            else:
                raise KafkaError.of(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"no partition of {self.name} has a leader"
                )
        except OSError as error:
            raise KafkaError.of(ErrorCode.NETWORK_EXCEPTION, str(error)) from error

    def _leaders(self) -> dict[TopicPartition, int]:
        topic = self.cache.topic(self.name)
        partitions = () if topic is None else sorted(topic.partitions)
        found = {
            each: self.cache.leader(each)
            for each in (TopicPartition(self.name, index) for index in partitions)
        }
        return {partition: leader for partition, leader in found.items() if leader >= 0}

    def _is_led_here(self, topic_partition: TopicPartition) -> bool:
        known = self.replica_manager.partitions.get(topic_partition)
        return known is not None and known.is_leader

    async def _append(self, topic_partition: TopicPartition, batch: bytes) -> None:
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def respond(results: Mapping[TopicPartition, Any]) -> None:
            if not done.done():
                done.set_result(results[topic_partition].error)

        records = {topic_partition: memoryview(bytearray(batch))}
        self.replica_manager.append_records(WRITE_TIMEOUT_MS, ACKS_ALL, records, respond)
        self.replica_manager.complete_delayed()  # who waits for records is not to wait longer
        _check(await done, topic_partition)

    async def _ask(self, topic_partition: TopicPartition, leader: int, batch: bytes) -> None:
        assert self.connections is not None
        data = PartitionProduceData(index=topic_partition.partition, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=None,
            acks=ACKS_ALL,
            timeout_ms=WRITE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self.name, partition_data=[data])],
        )
        node = self.connections.node(leader)
        response = await self.connections.ask(node, Purpose.AUDIT, request)
        assert isinstance(response, ProduceResponse)
        (topic,) = response.responses
        (partition,) = topic.partition_responses
        _check(ErrorCode.of(partition.error_code), topic_partition)


def _check(error: ErrorCode, topic_partition: TopicPartition) -> None:
    if error is not ErrorCode.NONE:
        raise KafkaError.of(error, f"{topic_partition} did not take audit records")
