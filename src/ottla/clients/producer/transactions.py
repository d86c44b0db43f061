"""The transactions of one producer, from the first request to the last; on the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from ottla.clients.committed_offsets import ConsumerGroupMetadata
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.clients.producer.transaction_manager import TransactionManager
from ottla.clients.producer.transaction_requests import (
    LEVEL_WITH_BUMP,
    ProducerIdentity,
    TransactionRequests,
)
from ottla.clients.producer.transaction_state import FATAL, FENCED, StateMachine, TransactionState
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.producer_config import ProducerConfig
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.network.timing import Deadline
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

# The coordinator has forgotten the producer, which may become a new one after the abort (KIP-360).
FORGOTTEN = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING})


class Outbox(Protocol):
    """What the sender has of records."""

    def wakeup(self) -> None: ...

    def drop_queued(self, error: KafkaError) -> None: ...

    async def idle(self) -> None: ...


class Transactions:
    """Keeps the coordinator's view and the producer's together.

    Invariants: a batch leaves only while `may_send` holds for its partition; EndTxn leaves only
    when no batch is on the wire and no other request of the transaction may follow it.
    `_is_begun` says whether the coordinator may have the transaction as open, `_is_confirmed`
    whether it said so. A transaction that `bumps` is one of transaction.version 2: requests name
    what they write to by themselves, and its end begins an epoch (KIP-890).
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        config: ProducerConfig,
        manager: TransactionManager,
    ) -> None:
        assert config.transactional_id is not None, "the producer is not transactional"
        self.requests = TransactionRequests(client, metadata, config, config.transactional_id)
        self.machine = StateMachine(self.requests.transactional_id)
        self.outbox: Outbox
        self._config = config
        self._runtime = client.runtime
        self._manager = manager
        self._added: set[TopicPartition] = set()
        self._wanted: dict[TopicPartition, None] = {}
        self._groups: set[str] = set()
        self._adding: asyncio.Task[None] | None = None
        self._is_begun = False
        self._is_confirmed = False
        self.bumps = False

    # What the application asks for

    async def init(self, deadline: Deadline) -> None:
        """Take the id over: whoever had it can do nothing more, and what it had open is aborted."""
        self.machine.become(TransactionState.INITIALIZING, "init_transactions")
        await self._renew(ProducerIdentity(), deadline)

    async def begin(self) -> None:
        """Begin a transaction here; the coordinator hears of it with the first partition."""
        self.machine.become(TransactionState.IN_TRANSACTION, "begin_transaction")
        self._added.clear()
        self._wanted.clear()
        self._groups.clear()
        self._is_begun = self._is_confirmed = False
        self.bumps = self.requests.level >= LEVEL_WITH_BUMP

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        deadline: Deadline,
    ) -> None:
        """Put a group's offsets into the transaction."""
        self.machine.require(TransactionState.IN_TRANSACTION, "send_offsets_to_transaction")
        if not offsets:
            return
        try:
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
        except KafkaTimeoutError:
            raise  # the same call may be made again, or the transaction aborted
        except KafkaError as error:
            raise self._fail(error) from None

    async def commit(self, deadline: Deadline) -> None:
        """Make it count, once everything that was sent is there."""
        self.machine.become(TransactionState.COMMITTING, "commit_transaction")
        await self.outbox.idle()  # a record that another thread has sent behind the flush
        await self._end(True, deadline)
        self.machine.become(TransactionState.READY)

    async def prepare(self) -> ProducerIdentity:
        """Leave it open for someone else to end, once everything that was sent is there."""
        self.machine.require(TransactionState.IN_TRANSACTION, "prepare_transaction")
        await self.outbox.idle()
        self.machine.become(TransactionState.PREPARED, "prepare_transaction")
        return self._identity

    async def abort(self, deadline: Deadline) -> None:
        """Undo everything; what is not on the wire yet is not sent any more."""
        self.machine.become(TransactionState.ABORTING, "abort_transaction")
        await self._stop_adding()
        self._drop("the transaction was aborted")
        await self.outbox.idle()
        self._drop("the transaction was aborted")
        await self._end(False, deadline)
        if self._manager.needs_new_epoch:
            await self._renew(self._identity, deadline)
        else:
            self.machine.become(TransactionState.READY)

    def check_may_send(self) -> None:
        """Refuse a record that is in no transaction; from any thread."""
        self.machine.require(TransactionState.IN_TRANSACTION, "send")

    @property
    def is_open(self) -> bool:
        """Whether there is something to abort."""
        return self.machine.state in (
            TransactionState.IN_TRANSACTION,
            TransactionState.ABORTABLE_ERROR,
            TransactionState.ABORTING,
        )

    # What the sender asks for

    def may_send(self, partition: TopicPartition) -> bool:
        """Whether batches of the partition may leave; if it is not in the transaction, it will."""
        if self.machine.state is not TransactionState.IN_TRANSACTION:
            return False
        if self.bumps:
            self._is_begun = True
            return True
        if partition in self._added:
            return True
        self._wanted[partition] = None
        if self._adding is None:
            name = f"partitions of transaction {self.requests.transactional_id}"
            self._adding = self._runtime.scheduler.spawn(self._add_partitions(), name)
        return False

    def drop_what_cannot_be_sent(self) -> None:
        """A transaction that cannot be committed takes its records with it."""
        if self.machine.error is not None:
            self._drop(self.machine.error.message)

    def on_batch_failed(self, error: KafkaError) -> None:
        """A record of the transaction will never be there: it can only be aborted."""
        if self.machine.state is TransactionState.IN_TRANSACTION:
            self._fail(error, is_fatal=error.error in FENCED)

    async def close(self) -> None:
        await self._stop_adding()

    # Within

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
        self.machine.become(TransactionState.READY)

    async def _add_partitions(self) -> None:
        try:
            while self._wanted and self.machine.state is TransactionState.IN_TRANSACTION:
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
            if self.machine.state is TransactionState.IN_TRANSACTION:
                self._fail(error)
        finally:
            self._adding = None

    async def _stop_adding(self) -> None:
        """The connection keeps requests in order: what is on it comes before what follows."""
        task = self._adding
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            self._adding = None

    async def _end(self, commit: bool, deadline: Deadline) -> None:
        if not self._is_begun:
            return
        try:
            identity = await self.requests.end(self._identity, commit, deadline, bumps=self.bumps)
        except KafkaTimeoutError:
            raise  # nobody knows how it ended: the same call goes on
        except KafkaError as error:
            if commit or not self._was_never_begun(error):
                is_fatal = not commit or error.error is not ErrorCode.TRANSACTION_ABORTABLE
                raise self._fail(error, is_fatal=is_fatal) from None
        else:
            if self.bumps:
                self._manager.begin_epoch(*identity)
        self._is_begun = False

    def _was_never_begun(self, error: KafkaError) -> bool:
        """Whether the coordinator has nothing to abort, as it had taken nothing in."""
        is_unknown = error.error is ErrorCode.INVALID_TXN_STATE or error.error in FORGOTTEN
        return is_unknown and not self._is_confirmed

    def _fail(self, error: KafkaError, is_fatal: bool | None = None) -> KafkaError:
        if error.error in FORGOTTEN:
            self._manager.needs_new_epoch = True
            self._is_confirmed = False
        fatal = error.error in FATAL if is_fatal is None else is_fatal
        raised = self.machine.fail(error, is_fatal=fatal)
        logger.info("transactional id %s: %s", self.requests.transactional_id, raised)
        self.outbox.wakeup()  # it drops what cannot be sent any more
        return raised

    def _drop(self, why: str) -> None:
        self.outbox.drop_queued(KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, why))


def group_metadata_of(group: ConsumerGroupMetadata | str) -> ConsumerGroupMetadata:
    """A group may be named alone, by an application that is no member of it."""
    return ConsumerGroupMetadata(group) if isinstance(group, str) else group
