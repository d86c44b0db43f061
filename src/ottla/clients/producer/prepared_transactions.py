"""Two-phase commit: one process prepares a transaction, another one ends it (terms of KIP-939).

Any broker with transactions will do: the coordinator identifies a transaction only by its
transactional id, producer id and epoch, not by the client that asks. transaction.timeout.ms still
applies until the transaction is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.clients.client_settings import ClosedOnExit, Servers, merge_settings
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.clients.producer.transactions import ProducerIdentity, TransactionRequests
from ottla.config.producer_config import ProducerConfig
from ottla.errors import KafkaError
from ottla.network.timing import Deadline
from ottla.runtime.io_thread import MARGIN_MS, IoThread


class PreparedTransaction(NamedTuple):
    """Everything that is needed to end a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionCompleter(ClosedOnExit):
    """Ends prepared transactions; repeating the same end is no error.

    Create it after they are prepared: a broker may take requests on a connection that is older than
    the producer's for late ones.
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
        errors = await asyncio.gather(*(self._end(each, commit, deadline) for each in prepared))
        return {
            each: error for each, error in zip(prepared, errors, strict=True) if error is not None
        }

    async def _end(
        self, each: PreparedTransaction, commit: bool, deadline: Deadline
    ) -> KafkaError | None:
        requests = TransactionRequests(
            self._client, self._metadata, self._config, each.transactional_id
        )
        identity = ProducerIdentity(each.producer_id, each.producer_epoch)
        try:
            await requests.end(identity, commit, deadline)
        except KafkaError as error:
            return error
        return None

    def _close(self) -> None:
        self._metadata.close()
        self._client.close()
