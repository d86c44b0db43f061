"""How administrative requests find their broker, and when they are retried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from ottla.clients.client_settings import retry_backoff
from ottla.clients.group_coordination import find_coordinator
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.clients.retrying import Retrying
from ottla.clients.topic_offsets import ask_leaders
from ottla.config.client_config import AdminConfig
from ottla.errors import ErrorCode, InvalidMetadataError, KafkaError
from ottla.protocol.group import KEY_TYPE_GROUP
from ottla.protocol.message import Request
from ottla.runtime import Runtime
from ottla.runtime.timing import Deadline
from ottla.structs import NO_LEADER, Node, TopicPartition

K = TypeVar("K")
V = TypeVar("V")
Key = TypeVar("Key", bound=Hashable)
KEYS_OF_A_REQUEST: Final = 500
"""About how many groups one request asks: a coordinator answers them in one turn."""


class AdminClient:
    """The core that the subjects (topics, configs, groups, offsets) share; lives on one loop."""

    def __init__(
        self, runtime: Runtime, config: AdminConfig, client: NetworkClient | None = None
    ) -> None:
        """`client` takes the place of connections of its own; it is closed with this one."""
        self.runtime = runtime
        self.config = config
        self.client = client or NetworkClient(runtime, config)
        self.metadata = Metadata(self.client, allow_auto_topic_creation=False)
        self._coordinators: dict[tuple[int, str], Node] = {}
        self._retrying = Retrying(
            self.metadata,
            retry_backoff(config, runtime),
            runtime.scheduler,
            retries=config.retries,
            on_coordinator_moved=self._coordinators.clear,
        )
        self._idle_check = runtime.scheduler.call_every(
            max(1000, config.connections_max_idle_ms // 2), self.client.close_idle
        )

    def deadline(self) -> Deadline:
        return Deadline(self.runtime.clock, self.config.default_api_timeout_ms)

    def request_timeout_ms(self, deadline: Deadline) -> int:
        """How long a broker may work on a change before it responds that it is not done yet."""
        return min(self.config.request_timeout_ms, deadline.left_ms)

    async def for_each(
        self,
        keys: Iterable[K],
        attempt: Callable[[list[K], Deadline], Awaitable[Mapping[K, V | KafkaError]]],
    ) -> dict[K, V | KafkaError]:
        """`Retrying.for_each` within default.api.timeout.ms."""
        return await self._retrying.for_each(keys, attempt, self.deadline())

    async def until_done(self, attempt: Callable[[Deadline], Awaitable[V]]) -> V:
        """The result of `attempt`, which is retried after retriable errors."""

        async def once(pending: list[str], deadline: Deadline) -> dict[str, V | KafkaError]:
            return {"": await attempt(deadline)}

        result = (await self.for_each([""], once))[""]
        if isinstance(result, KafkaError):
            raise result
        return result

    async def any_broker(self, request: Request, deadline: Deadline, *, low: int = 0) -> Any:
        """Send a request to any broker that can be reached."""
        connection = await self.client.any_ready(deadline)
        version = connection.version_of(type(request), low)
        return await self.client.send_on(connection, request, version)

    async def controller(self, request: Request, deadline: Deadline, *, low: int = 0) -> Any:
        """Send a request to the controller."""
        cluster = self.metadata.cluster
        if cluster.controller_id not in cluster.nodes:
            cluster = await self.metadata.update(deadline)
        if cluster.controller_id == NO_LEADER:
            raise InvalidMetadataError(ErrorCode.LEADER_NOT_AVAILABLE, "there is no controller")
        return await self.client.send(cluster.controller_id, request, low=low)

    async def coordinator(
        self, key: str, deadline: Deadline, key_type: int = KEY_TYPE_GROUP
    ) -> Node:
        """The coordinator of a group, or of another kind of key; cached until it proves wrong."""
        known = (key_type, key)
        if known not in self._coordinators:
            node = await find_coordinator(self.client, key, deadline, key_type)
            if node.id not in self.client.node_ids:
                await self.metadata.update(deadline)
            self._coordinators[known] = node
        return self._coordinators[known]

    async def ask_coordinators(
        self,
        keys: Sequence[str],
        deadline: Deadline,
        ask: Callable[[Node, list[str]], Awaitable[Mapping[str, V | KafkaError]]],
        key_type: int = KEY_TYPE_GROUP,
    ) -> dict[str, V | KafkaError]:
        """`ask` each coordinator once, concurrently; an answer or an error for each key."""

        async def find(key: str) -> Node | KafkaError:
            try:
                return await self.coordinator(key, deadline, key_type)
            except KafkaError as error:
                return error

        async def ask_one(node: Node, some: list[str]) -> Mapping[str, V | KafkaError]:
            try:
                return await ask(node, some)
            except KafkaError as error:
                return dict.fromkeys(some, error)

        results: dict[str, V | KafkaError] = {}
        of_coordinators: dict[Node, list[str]] = {}
        found = await asyncio.gather(*map(find, keys))
        for key, node in zip(keys, found, strict=True):
            if isinstance(node, KafkaError):
                results[key] = node
            else:
                of_coordinators.setdefault(node, []).append(key)
        requests = [
            ask_one(node, some[first : first + KEYS_OF_A_REQUEST])
            for node, some in of_coordinators.items()
            for first in range(0, len(some), KEYS_OF_A_REQUEST)
        ]
        for answer in await asyncio.gather(*requests):
            results.update(answer)
        return results

    def note_coordinator(
        self, broker: int, keys: Iterable[str], key_type: int = KEY_TYPE_GROUP
    ) -> None:
        """Keep the broker that lists groups as their coordinator, so that none is looked up."""
        node = self.metadata.cluster.nodes.get(broker)
        if node is not None:
            self._coordinators.update(((key_type, key), node) for key in keys)

    async def ask_leaders(
        self,
        partitions: Collection[TopicPartition],
        ask: Callable[
            [int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, V | KafkaError]]
        ],
        deadline: Deadline,
    ) -> dict[TopicPartition, V | KafkaError]:
        """`ask` the current leaders; the result has an answer or an error for each partition."""
        self.metadata.want(partition.topic for partition in partitions)
        await self.metadata.update(deadline)
        return await ask_leaders(self.metadata, partitions, ask)

    async def brokers(self, deadline: Deadline) -> list[int]:
        """The ids of all brokers."""
        await self.metadata.update(deadline)
        return self.client.node_ids

    def close(self) -> None:
        self._idle_check.cancel()
        self.metadata.close()
        self.client.close()


class BulkError(KafkaError):
    """Part of a call failed: this is the first error, and `results` has all outcomes.

    A call about many things tries all of them before it raises an error.
    """

    def __init__(self, cause: KafkaError, results: Mapping[Any, Any]) -> None:
        failed = sum(isinstance(result, KafkaError) for result in results.values())
        more = f" (and {failed - 1} more)" if failed > 1 else ""
        super().__init__(cause.error, cause.message + more)
        self.results = dict(results)


def checked(results: Mapping[Key, V | KafkaError]) -> dict[Key, V]:
    """The results, if none is an error; else BulkError."""
    for result in results.values():
        if isinstance(result, KafkaError):
            raise BulkError(result, results) from result
    return cast(dict[Key, V], dict(results))
