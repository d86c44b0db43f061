"""FindCoordinator (10), v0-6: which broker coordinates a group or a transactional id.

It is the leader of the partition that the name falls into; the topic of the partitions is created
when it is first asked for, and until then the answer is COORDINATOR_NOT_AVAILABLE.

Version notes: v1 key types · v2 the same · v3 flexible · v4 several keys (KIP-699) · v6 share
groups (KIP-932), which do not exist here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.group import (
    FIND_COORDINATORS_VERSION,
    KEY_TYPE_GROUP,
    KEY_TYPE_TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.runtime import Scheduler
from ottla.server.api import Handler
from ottla.server.coordinators import Coordinators
from ottla.server.handlers.metadata import CreateTopic
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, NamedTuple, Node

logger = logging.getLogger(__name__)

NO_NODE: Final = Node(-1, "", -1)


class KeyType(NamedTuple):
    """Where the names of one kind are kept: the topic, and the partition of each name."""

    topic: str
    partition_for: Callable[[str], int]
    may_be_empty: bool = False


class FindCoordinatorHandler:
    """Brings clients to the right broker."""

    def __init__(
        self,
        key_types: Mapping[int, KeyType],
        metadata_cache: MetadataCache,
        scheduler: Scheduler,
        create_topic: Callable[[str], Awaitable[object]],
    ) -> None:
        self.key_types = key_types
        self.metadata_cache = metadata_cache
        self.scheduler = scheduler
        self.create_topic = create_topic
        self._creating: set[str] = set()

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.FIND_COORDINATOR: self.handle_find_coordinator}

    def handle_find_coordinator(
        self, context: RequestContext, body: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        if context.api_version >= FIND_COORDINATORS_VERSION:
            return FindCoordinatorResponse(
                coordinators=[
                    self._find_coordinator(context, body.key_type, key)
                    for key in body.coordinator_keys
                ]
            )
        found = self._find_coordinator(context, body.key_type, body.key)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _find_coordinator(self, context: RequestContext, key_type: int, key: str) -> Coordinator:
        kind = self.key_types.get(key_type)
        if kind is None:
            return _not_found(
                key, ErrorCode.INVALID_REQUEST, f"The key type {key_type} is not known."
            )
        if not key and not kind.may_be_empty:
            return _not_found(
                key, ErrorCode.INVALID_REQUEST, "A transactional id must not be empty."
            )
        node = self._leader(kind.topic, kind.partition_for(key), context.listener_name)
        if node is None:
            return _not_found(
                key,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"The topic {kind.topic} has no leader for {key!r} yet.",
            )
        return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port)

    def _leader(self, name: str, partition: int, listener_name: str) -> Node | None:
        """The leader of a partition of the topic, which is created if it is missing."""
        topic = self.metadata_cache.topic(name)
        if topic is None:
            self._begin_to_create(name)
            return None
        state = topic.partitions.get(partition)
        if state is None:
            return None
        return self.metadata_cache.node(state.leader, listener_name)

    def _begin_to_create(self, topic: str) -> None:
        if topic not in self._creating:
            self._creating.add(topic)
            self.scheduler.spawn(self._create(topic), name=f"create {topic}")

    async def _create(self, topic: str) -> None:
        try:
            await self.create_topic(topic)
        except KafkaError as error:
            if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.error("The topic %s could not be created: %s", topic, error)
        finally:
            self._creating.discard(topic)


def _not_found(key: str, error: ErrorCode, message: str) -> Coordinator:
    node = NO_NODE
    return Coordinator(
        key=key,
        node_id=node.id,
        host=node.host,
        port=node.port,
        error_code=error,
        error_message=message,
    )


def of_broker(coordinators: Coordinators, create_topic: CreateTopic) -> FindCoordinatorHandler:
    """The handler of a broker: group ids and transactional ids have a topic each."""
    of_group, of_id = coordinators.offsets_log, coordinators.transactions_log
    key_types = {
        KEY_TYPE_GROUP: KeyType(OFFSETS_TOPIC, of_group.partition_for, may_be_empty=True),
        KEY_TYPE_TRANSACTION: KeyType(TRANSACTIONS_TOPIC, of_id.partition_for),
    }
    scheduler = coordinators.runtime.scheduler
    return FindCoordinatorHandler(key_types, coordinators.cache, scheduler, create_topic)
