"""The transactions of one producer; everything runs on the loop.

In two-phase commit one process prepares a transaction, and another one ends it (terms of KIP-939).
Any broker with transactions will do: the coordinator identifies a transaction only by its
transactional id, producer id and epoch, not by the client that asks. transaction.timeout.ms still
applies until the transaction is ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from ottla.clients.answers import left_out
from ottla.clients.client_settings import ClosedOnExit, Servers, merge_settings, retry_backoff
from ottla.clients.committed_offsets import (
    ConsumerGroupMetadata,
    GroupMembership,
    by_kind_of_topic,
)
from ottla.clients.group_coordination import CoordinatorLink
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient, check_code
from ottla.clients.producer.transaction_manager import (
    FATAL,
    LOST,
    ProducerTransactionState,
    StateMachine,
    TransactionManager,
)
from ottla.clients.topic_offsets import OffsetAndMetadata, with_ids
from ottla.config.client_config import ProducerConfig
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.protocol.group import KEY_TYPE_GROUP, KEY_TYPE_TRANSACTION
from ottla.protocol.transactions import (
    OFFSET_COMMIT_BY_ID_VERSION,
    OFFSET_COMMIT_THAT_ADDS_VERSION,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.runtime.io_thread import MARGIN_MS, IoThread
from ottla.runtime.scheduler import is_under_way, pause, within
from ottla.runtime.timing import Deadline
from ottla.structs import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_UUID,
    TRANSACTION_VERSION,
    NamedTuple,
    TopicPartition,
    by_topic,
)

logger = logging.getLogger(__name__)


T = TypeVar("T")

LAST_VERSION_FOR_CLIENTS = 3  # of AddPartitionsToTxn; newer ones are for brokers (KIP-890)
LEVEL_WITH_BUMP = 2
FIRST_END_WITH_BUMP = 5
FIRST_VERSION_WITH_EPOCH = 3  # of InitProducerId (KIP-360)
FIRST_VERSION_WITH_MEMBER = 3  # of TxnOffsetCommit (KIP-447)
# A coordinator hears of a new topic in less; a topic that is unknown for longer was deleted.
UNKNOWN_TOPIC_LIMIT_MS = 5000
# Longest pause while the markers of the previous transaction are being written.
MARKERS_BACKOFF_MS = 20


class Transactions:
    """Keeps the state of the producer in step with that of its coordinator.

    Invariants: a batch leaves only while `may_send` holds for its partition; EndTxn leaves only
    when no batch is on the wire and no other request of the transaction may follow it.
    `_is_begun`: the transaction may be open at the coordinator; `_is_confirmed`: the coordinator
    said that it is. A transaction that `bumps` is one of transaction.version 2: its requests add
    the partitions that they write to, and its end begins a new epoch (KIP-890).
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        config: ProducerConfig,
        manager: TransactionManager,
        transactional_id: str,
    ) -> None:
        self.requests = TransactionRequests(client, metadata, config, transactional_id)
        self.machine = StateMachine(self.requests.transactional_id)
        self.outbox: Outbox
        self._config = config
        self._runtime = client.runtime
        self._manager = manager
        self._added: set[TopicPartition] = set()
        self._wanted: dict[TopicPartition, None] = {}
        self._groups: set[str] = set()
        self._adding: asyncio.Task[None] | None = None
        self._offset_calls: set[asyncio.Future[None]] = set()
        self._is_begun = False
        self._is_confirmed = False
        self.bumps = False

    # For the application

    async def init(self, deadline: Deadline) -> None:
        """Take over the id: its previous producer is fenced and its open transaction aborted."""
        self.machine.become(ProducerTransactionState.INITIALIZING, "init_transactions")
        await self._renew(ProducerIdentity(), deadline)

    async def begin(self) -> None:
        """Begin a transaction locally; the coordinator learns of it by its first partition."""
        self.machine.become(ProducerTransactionState.IN_TRANSACTION, "begin_transaction")
        self._added.clear()
        self._wanted.clear()
        self._groups.clear()
        self._is_begun = self._is_confirmed = False
        self.bumps = self.requests.level >= LEVEL_WITH_BUMP
        self.outbox.refuse(None)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        deadline: Deadline,
    ) -> None:
        """Put a group's offsets into the transaction."""
        self.machine.require(ProducerTransactionState.IN_TRANSACTION, "send_offsets_to_transaction")
        if not offsets:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._offset_calls.add(done)
        try:
            await self._send_offsets(offsets, group, deadline)
        except KafkaTimeoutError as error:
            if self.machine.state is ProducerTransactionState.COMMITTING:
                raise self._fail(error) from None
            raise  # the same call may be made again, or the transaction aborted
        except KafkaError as error:
            raise self._fail(error) from None
        finally:
            self._offset_calls.discard(done)
            done.set_result(None)

    async def commit(self, deadline: Deadline) -> None:
        """Commit the transaction, once everything that was accepted is acknowledged."""
        self.machine.become(ProducerTransactionState.COMMITTING, "commit_transaction")
        await self._deliver("commit_transaction", deadline)
        await self._end(True, deadline)
        self.machine.become(ProducerTransactionState.READY)

    async def prepare(self, deadline: Deadline) -> ProducerIdentity:
        """Leave it open for a TransactionCompleter, once everything accepted is acknowledged."""
        self.machine.require(ProducerTransactionState.IN_TRANSACTION, "prepare_transaction")
        await self._deliver("prepare_transaction", deadline)
        self.machine.become(ProducerTransactionState.PREPARED, "prepare_transaction")
        return self._identity

    async def abort(self, deadline: Deadline) -> None:
        """Abort the transaction; batches that are not on the wire yet are dropped."""
        self.machine.become(ProducerTransactionState.ABORTING, "abort_transaction")
        self._refuse_records("abort_transaction")
        await self._stop_adding()
        await self.outbox.idle()
        self._drop("the transaction was aborted")
        await self._end(False, deadline)
        if self._manager.needs_new_epoch:
            await self._renew(self._identity, deadline)
        else:
            self.machine.become(ProducerTransactionState.READY)

    def check_may_leave(self) -> None:
        """Refuse to leave the transactional id for another one in the middle of a transaction."""
        if self.machine.state not in LEAVES:
            raise self.machine.refusal("take_id")

    def check_may_send(self) -> None:
        """Refuse a record outside a transaction; may be called from any thread."""
        self.machine.require(ProducerTransactionState.IN_TRANSACTION, "send")

    def note_refusal(self, error: KafkaError) -> None:
        """A record of the open transaction was refused: without it, nothing is committed."""
        if self.machine.state is ProducerTransactionState.IN_TRANSACTION:
            self._fail(error, is_fatal=False)

    @property
    def is_open(self) -> bool:
        """Whether there is something to abort."""
        return self.machine.state in (
            ProducerTransactionState.IN_TRANSACTION,
            ProducerTransactionState.ABORTABLE_ERROR,
            ProducerTransactionState.ABORTING,
        )

    # For the sender

    def may_send(self, partition: TopicPartition) -> bool:
        """Whether batches of the partition may be sent; otherwise begin to add it."""
        if self.machine.state not in WRITES:
            return False
        if self.bumps:
            self._is_begun = True
            return True
        if partition in self._added:
            return True
        self._wanted[partition] = None
        if not is_under_way(self._adding):
            name = f"partitions of transaction {self.requests.transactional_id}"
            self._adding = self._runtime.scheduler.spawn(self._add_partitions(), name)
        return False

    def drop_what_cannot_be_sent(self) -> None:
        """Drop the queued records of a transaction that cannot be committed."""
        if self.machine.error is not None:
            self._drop(self.machine.error.message)

    def on_batch_failed(self, error: KafkaError) -> None:
        """A record of the transaction is lost: the transaction can only be aborted."""
        if self.machine.state in WRITES:
            self._fail(error, is_fatal=error.error in LOST)

    async def close(self) -> None:
        await self._stop_adding()

    # Internals

    @property
    def _identity(self) -> ProducerIdentity:
        return ProducerIdentity(self._manager.producer_id, self._manager.producer_epoch)

    async def _renew(self, present: ProducerIdentity, deadline: Deadline) -> None:
        """Get an epoch in which nothing has been written yet."""
        try:
            identity = await self.requests.init_producer_id(present, deadline)
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            raise self._fail(error, is_fatal=True) from None
        self._manager.begin_epoch(*identity)
        self.machine.become(ProducerTransactionState.READY)

    async def _send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        deadline: Deadline,
    ) -> None:
        if self.bumps:
            self._is_begun = True
        elif group.group_id not in self._groups:
            self._is_begun = True
            await self.requests.add_offsets(self._identity, group.group_id, deadline)
            self._is_confirmed = True
            self._groups.add(group.group_id)
        await self.requests.commit_offsets(
            self._identity, group, offsets, deadline, adds=self.bumps
        )

    async def _deliver(self, call: str, deadline: Deadline) -> None:
        """Take no more records and wait for those of other threads; raises if one is lost."""
        self._refuse_records(call)
        await self.outbox.delivered(deadline)
        while self._offset_calls and self.machine.error is None:
            calls = asyncio.wait(self._offset_calls, return_when=asyncio.FIRST_COMPLETED)
            what = f"{call}: offsets are still on their way"
            await within(self._runtime.scheduler, deadline.left_ms, calls, what)
        if self.machine.error is not None:
            raise self.machine.refusal(call)

    def _refuse_records(self, call: str) -> None:
        text = f"send: {call} of producer {self.requests.transactional_id} was called before"
        self.outbox.refuse(KafkaError(ErrorCode.INVALID_TXN_STATE, text))

    async def _add_partitions(self) -> None:
        try:
            while self._wanted and self.machine.state in WRITES:
                wanted = list(self._wanted)
                self._is_begun = True
                limit = Deadline(self._runtime.clock, self._config.delivery_timeout_ms)
                await self.requests.add_partitions(self._identity, wanted, limit)
                self._is_confirmed = True
                self._added.update(wanted)
                for partition in wanted:
                    del self._wanted[partition]
                self.outbox.wakeup()
        except KafkaError as error:
            if self.machine.state in WRITES:
                self._fail(error)
        finally:
            self._adding = None

    async def _stop_adding(self) -> None:
        """Stop adding partitions.

        A request already sent is handled before any that follows, as the connection keeps order.
        """
        task = self._adding
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _end(self, commit: bool, deadline: Deadline) -> None:
        if not self._is_begun:
            return
        try:
            identity = await self.requests.end(self._identity, commit, deadline, bumps=self.bumps)
        except KafkaTimeoutError:
            raise  # the outcome is unknown: the same call may be made again
        except KafkaError as error:
            if commit or not self._was_never_begun(error):
                is_fatal = not commit or error.error is not ErrorCode.TRANSACTION_ABORTABLE
                raise self._fail(error, is_fatal=is_fatal) from None
        else:
            if self.bumps:
                self._manager.begin_epoch(*identity)

    def _was_never_begun(self, error: KafkaError) -> bool:
        """Whether the coordinator has nothing to abort, as it accepted no request before."""
        return error.error is ErrorCode.INVALID_TXN_STATE and not self._is_confirmed

    def _fail(self, error: KafkaError, is_fatal: bool | None = None) -> KafkaError:
        if error.error is ErrorCode.UNKNOWN_PRODUCER_ID:
            self._manager.needs_new_epoch = True
        fatal = error.error in FATAL if is_fatal is None else is_fatal
        raised = self.machine.fail(error, is_fatal=fatal)
        logger.info("transactional id %s: %s", self.requests.transactional_id, raised)
        self.outbox.wakeup()  # it drops batches that may no longer be sent
        return raised

    def _drop(self, why: str) -> None:
        self.outbox.drop_queued(KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, why))


class ProducerIdentity(NamedTuple):
    """The producer id and epoch with which the producer writes."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class TransactionRequests:
    """Sends requests to the coordinator of one transactional id, and to those of groups.

    Each request is sent again until it is answered, refused, or too late. Where the cluster has
    transaction.version at level 2 (KIP-890), partitions and groups are not added beforehand:
    Produce and TxnOffsetCommit add them, and EndTxn returns the producer's next id and epoch. Below
    level 2 these requests must not be sent in the versions with that meaning.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        config: ProducerConfig,
        transactional_id: str,
    ) -> None:
        self.transactional_id = transactional_id
        self._client = client
        self._metadata = metadata
        self._config = config
        self._runtime = client.runtime
        self._link = self._link_to(self.transactional_id, KEY_TYPE_TRANSACTION)
        self._groups: dict[str, CoordinatorLink] = {}
        self.level = 0  # of transaction.version, as last reported by the coordinator
        # Errors that are raised at once, although another attempt might help.
        self.passed_on: frozenset[ErrorCode] = frozenset()
        self._backoff = retry_backoff(config, self._runtime)

    async def init_producer_id(
        self, present: ProducerIdentity, deadline: Deadline
    ) -> ProducerIdentity:
        """Get the next epoch; with `present`, only the one directly after it (KIP-360)."""
        has_epoch = present.producer_id != NO_PRODUCER_ID
        low = FIRST_VERSION_WITH_EPOCH if has_epoch else 0
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
        )
        if has_epoch:
            request.producer_id, request.producer_epoch = present

        async def attempt(node_id: int) -> ProducerIdentity:
            connection = await self._client.ready(node_id)
            self.level = connection.features.get(TRANSACTION_VERSION, 0)
            version = connection.version_of(InitProducerIdRequest, low)
            response = await self._client.send_on(connection, request, version)
            self._check(response.error_code, "init_transactions")
            return _identity_of(response)

        return await self._persist(self._link, attempt, deadline)

    async def add_partitions(
        self,
        identity: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        deadline: Deadline,
    ) -> None:
        """Add partitions to the transaction before records are sent to them."""
        wanted = list(partitions)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                for topic, numbers in by_topic(wanted).items()
            ],
        )

        async def attempt(node_id: int) -> None:
            connection = await self._client.ready(node_id)
            version = connection.version_of(
                AddPartitionsToTxnRequest, high=LAST_VERSION_FOR_CLIENTS
            )
            response = await self._client.send_on(connection, request, version)
            self._check_all(
                wanted,
                {
                    TopicPartition(result.name, p.partition_index): p.partition_error_code
                    for result in response.results_by_topic_v3_and_below
                    for p in result.results_by_partition
                },
                "the transaction cannot have the partition",
            )

        await self._persist(self._link, attempt, deadline)

    async def add_offsets(
        self, identity: ProducerIdentity, group_id: str, deadline: Deadline
    ) -> None:
        """Add a group to the transaction before its offsets are committed."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=group_id,
        )

        async def attempt(node_id: int) -> None:
            response = await self._client.send(node_id, request)
            self._check(response.error_code, f"the transaction cannot have group {group_id}")

        await self._persist(self._link, attempt, deadline)

    async def commit_offsets(
        self,
        identity: ProducerIdentity,
        group: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
        *,
        adds: bool = False,
    ) -> None:
        """Send the offsets to the group's coordinator, which keeps them until the end.

        Those that have the ids of their topics, and those that have none, are two requests.
        """
        wanted = with_ids(offsets, group.topics)
        unknown = Deadline(self._runtime.clock, UNKNOWN_TOPIC_LIMIT_MS)

        async def attempt(node_id: int) -> None:
            connection = await self._client.ready(node_id)
            low, high = _offset_commit_versions(group.membership, adds=adds)
            newest = connection.version_of(TxnOffsetCommitRequest, low, high)
            are_ids_known = newest >= OFFSET_COMMIT_BY_ID_VERSION
            for part in by_kind_of_topic(wanted, are_ids_known=are_ids_known):
                request = self._offset_commit(identity, group, part)
                if low >= FIRST_VERSION_WITH_MEMBER:
                    _name_member(request, group.membership)
                names = {topic.topic_id: topic.name for topic in request.topics}
                by_name = OFFSET_COMMIT_BY_ID_VERSION - 1
                version = min(newest, by_name) if NO_UUID in names else newest
                response = await self._client.send_on(connection, request, version)
                self._check_all(
                    part,
                    {
                        TopicPartition(result.name or names[result.topic_id], p.partition_index): (
                            p.error_code
                        )
                        for result in response.topics
                        for p in result.partitions
                        if result.name or result.topic_id in names
                    },
                    f"group {group.group_id} cannot have the offset",
                )

        async def attempt_for_present_topics(node_id: int) -> None:
            try:
                await attempt(node_id)
            except KafkaError as error:
                if error.error is ErrorCode.UNKNOWN_TOPIC_ID and unknown.has_passed:
                    text = f"{error.message} The topic of the offset was deleted."
                    raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE, text) from error
                raise

        if group.group_id not in self._groups:
            self._groups[group.group_id] = self._link_to(group.group_id, KEY_TYPE_GROUP)
        link = self._groups[group.group_id]
        await self._persist(link, attempt_for_present_topics, deadline)

    def _offset_commit(
        self,
        identity: ProducerIdentity,
        group: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            topics=_offsets_by_topic(offsets),
        )

    async def end(
        self, identity: ProducerIdentity, commit: bool, deadline: Deadline, *, bumps: bool = False
    ) -> ProducerIdentity:
        """Commit or abort; the request may be repeated, and gets the same answer.

        Returns the identity to use from now on: in the next epoch, if the end `bumps` it.
        """
        low, high = 0, FIRST_END_WITH_BUMP - 1
        if bumps:
            low = high = FIRST_END_WITH_BUMP
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=commit,
        )

        async def attempt(node_id: int) -> ProducerIdentity:
            connection = await self._client.ready(node_id)
            version = connection.version_of(EndTxnRequest, low, high)
            response = await self._client.send_on(connection, request, version)
            self._check(response.error_code, "commit" if commit else "abort")
            if not bumps:
                return identity
            return _identity_of(response)

        return await self._persist(self._link, attempt, deadline)

    def _link_to(self, key: str, key_type: int) -> CoordinatorLink:
        return CoordinatorLink(self._metadata, self._client, key, key_type)

    async def _persist(
        self, link: CoordinatorLink, attempt: Callable[[int], Awaitable[T]], deadline: Deadline
    ) -> T:
        """Try until it succeeds; raises an error that is not retriable, or KafkaTimeoutError."""
        failures = 0
        what = f"the coordinator of {link.group_id} did not carry it out"
        while True:
            try:
                node_id = await link.node_id(deadline)
                scheduler = self._runtime.scheduler
                return await within(scheduler, deadline.left_ms, attempt(node_id), what)
            except KafkaError as error:
                link.note(error)
                if not error.retriable or error.error in self.passed_on:
                    raise
                if deadline.has_passed:
                    raise deadline.timeout(f"{what} ({error.message})") from error
                failures += 1
                await self._pause(error, failures, deadline)

    async def _pause(self, error: KafkaError, failures: int, deadline: Deadline) -> None:
        delay_ms = self._backoff.delay_ms(failures)
        if error.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            delay_ms = min(delay_ms, MARKERS_BACKOFF_MS)
        await pause(self._runtime.scheduler, min(delay_ms, deadline.left_ms))
        if error.error.refresh_metadata:
            self._metadata.request_update()

    def _check(self, code: int, what: str) -> None:
        check_code(code, f"transactional id {self.transactional_id}: {what}")

    def _check_all(
        self, wanted: Iterable[TopicPartition], codes: Mapping[TopicPartition, int], what: str
    ) -> None:
        """Raise the worst of several errors: a permanent one before a retriable one.

        None that is wanted may be left out: it would be written, or committed, outside.
        """
        failed = [(name, code) for name, code in codes.items() if code]
        attempted = [entry for entry in failed if entry[1] != ErrorCode.OPERATION_NOT_ATTEMPTED]
        worst = sorted(attempted or failed, key=lambda entry: ErrorCode.of(entry[1]).retriable)
        for name, code in worst[:1]:
            self._check(code, f"{what} {name}")
        for partition in wanted:
            if partition not in codes:
                raise left_out(f"transactional id {self.transactional_id}: {partition}")


def _identity_of(answer: InitProducerIdResponse | EndTxnResponse) -> ProducerIdentity:
    """The producer id and epoch in an answer without an error."""
    if answer.producer_id < 0 or answer.producer_epoch < 0:
        raise left_out("the producer id")
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)


def _offset_commit_versions(membership: GroupMembership, *, adds: bool) -> tuple[int, int]:
    """The lowest and highest version of TxnOffsetCommit that fit the request."""
    if adds:
        return OFFSET_COMMIT_THAT_ADDS_VERSION, OFFSET_COMMIT_BY_ID_VERSION
    is_member = bool(membership.member_id) or membership.instance_id is not None
    return FIRST_VERSION_WITH_MEMBER if is_member else 0, OFFSET_COMMIT_THAT_ADDS_VERSION - 1


def _name_member(request: TxnOffsetCommitRequest, membership: GroupMembership) -> None:
    request.generation_id, request.member_id, request.group_instance_id = membership


def _offsets_by_topic(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[TxnOffsetCommitRequestTopic]:
    topics = by_topic(
        (
            (partition.topic, offset.topic_id),
            TxnOffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            ),
        )
        for partition, offset in offsets.items()
    )
    return [
        TxnOffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=partitions)
        for (topic, topic_id), partitions in topics.items()
    ]


LEAVES = frozenset(
    {
        ProducerTransactionState.UNINITIALIZED,
        ProducerTransactionState.READY,
        ProducerTransactionState.PREPARED,
    }
)
"""The states in which a producer may take another transactional id."""


WRITES = frozenset({ProducerTransactionState.IN_TRANSACTION, ProducerTransactionState.COMMITTING})
"""The states in which batches may be sent: a commit waits for those that were accepted before."""


class Outbox(NamedTuple):
    """The sender and the queues of records, as transactions use them.

    `refuse` has new records refused with an error, or taken again (None). It holds for threads
    that were already on their way into a queue, too: each record is in the transaction or refused.
    """

    wakeup: Callable[[], object]
    drop_queued: Callable[[KafkaError], object]
    idle: Callable[[], Awaitable[None]]
    delivered: Callable[[Deadline], Awaitable[None]]
    refuse: Callable[[KafkaError | None], object]


def group_metadata_of(group: ConsumerGroupMetadata | str) -> ConsumerGroupMetadata:
    """The group's metadata; an application that is no member may give only its name."""
    return ConsumerGroupMetadata(group) if isinstance(group, str) else group


class PreparedTransaction(NamedTuple):
    """Everything that is needed to end a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


LATE = frozenset({ErrorCode.NOT_COORDINATOR})
"""The errors of a coordinator for a connection that is too old, or when it has been replaced."""


class TransactionCompleter(ClosedOnExit):
    """Ends prepared transactions; repeating the same end is no error.

    A broker may take requests on a connection that is older than the producer's for late ones;
    then another connection is opened.
    """

    def __init__(
        self,
        bootstrap_servers: Servers = None,
        settings: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        self._config = ProducerConfig.parse(merge_settings(bootstrap_servers, settings, keywords))
        self._io = IoThread(f"{self._config.client_id}-completer")
        self._io.begin_with(self._build())

    def complete(
        self, prepared: Iterable[PreparedTransaction], *, commit: bool = True
    ) -> dict[PreparedTransaction, KafkaError]:
        """Commit or abort all of them; returns those that could not be, and why."""
        limit_ms = self._config.max_block_ms
        margin_ms = self._config.request_timeout_ms + MARGIN_MS
        return self._io.run(self._complete(list(prepared), commit), limit_ms + margin_ms)

    def close(self) -> None:
        """Close the connections and end the I/O thread."""
        self._io.close(self._close)

    async def _build(self) -> None:
        self._client = NetworkClient(self._io.runtime, self._config)
        self._metadata = Metadata(self._client, allow_auto_topic_creation=False)

    async def _complete(
        self, prepared: list[PreparedTransaction], commit: bool
    ) -> dict[PreparedTransaction, KafkaError]:
        deadline = Deadline(self._io.runtime.clock, self._config.max_block_ms)

        async def end_all(
            left: Collection[PreparedTransaction], passed_on: frozenset[ErrorCode] = frozenset()
        ) -> dict[PreparedTransaction, KafkaError]:
            errors = await asyncio.gather(
                *(self._end(each, commit, deadline, passed_on) for each in left)
            )
            return {each: e for each, e in zip(left, errors, strict=True) if e is not None}

        errors = await end_all(prepared, LATE)
        refused = [each for each, error in errors.items() if error.error in LATE]
        if refused:
            self._client.disconnect()
            for each in refused:
                del errors[each]
            errors |= await end_all(refused)
        return errors

    async def _end(
        self,
        each: PreparedTransaction,
        commit: bool,
        deadline: Deadline,
        passed_on: frozenset[ErrorCode],
    ) -> KafkaError | None:
        requests = TransactionRequests(
            self._client, self._metadata, self._config, each.transactional_id
        )
        requests.passed_on = passed_on
        identity = ProducerIdentity(each.producer_id, each.producer_epoch)
        try:
            await requests.end(identity, commit, deadline)
        except KafkaError as error:
            return error
        return None

    def _close(self) -> None:
        self._metadata.close()
        self._client.close()
