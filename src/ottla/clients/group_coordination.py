"""Finding the broker that coordinates a group."""

from __future__ import annotations

from typing import cast

from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient, response_error
from ottla.clients.timing import Backoff, Deadline, pause
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.group import (
    KEY_TYPE_GROUP,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.structs import Node

FIRST_VERSION_WITH_KEY_TYPE = 1
FIRST_VERSION_WITH_KEYS = 4

COORDINATOR_MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""After these the coordinator has to be looked for again."""


async def find_coordinator(client: NetworkClient, group_id: str, deadline: Deadline) -> Node:
    """Ask any broker, once, who coordinates the group."""
    connection = await client.any_ready(deadline)
    version = connection.version_of(FindCoordinatorRequest)
    request = FindCoordinatorRequest()
    if version >= FIRST_VERSION_WITH_KEY_TYPE:
        request.key_type = KEY_TYPE_GROUP
    if version >= FIRST_VERSION_WITH_KEYS:
        request.coordinator_keys = [group_id]
    else:
        request.key = group_id
    response = cast(FindCoordinatorResponse, await client.send_on(connection, request, version))
    found = response.coordinators[0] if response.coordinators else response
    error = response_error(found.error_code, f"coordinator of group {group_id}")
    if error is not None:
        raise error
    return Node(found.node_id, found.host, found.port)


class CoordinatorLink:
    """The coordinator of one group, looked for when needed and again when it proves wrong."""

    def __init__(self, metadata: Metadata, client: NetworkClient, group_id: str) -> None:
        config, runtime = client.config, client.runtime
        self.group_id = group_id
        self._client = client
        self._metadata = metadata
        self._node_id: int | None = None
        self._backoff = Backoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, runtime.random.random
        )

    async def node_id(self, deadline: Deadline) -> int:
        """The id of the coordinator's node, waiting until there is one."""
        failures = 0
        while self._node_id is None:
            try:
                node = await find_coordinator(self._client, self.group_id, deadline)
                if node.id not in self._client.node_ids:
                    await self._metadata.update(deadline)
                self._node_id = node.id
            except KafkaError as error:
                if not error.retriable:
                    raise
                if deadline.has_passed:
                    what = f"group {self.group_id} has no coordinator ({error.message})"
                    raise deadline.timeout(what) from error
                failures += 1
                delay_ms = min(self._backoff.delay_ms(failures), deadline.left_ms)
                await pause(self._client.runtime.scheduler, delay_ms)
        return self._node_id

    def forget(self) -> None:
        """The coordinator is another one by now, or cannot be reached."""
        self._node_id = None

    def note(self, error: KafkaError) -> None:
        """Forget the coordinator if the error says that it has moved."""
        if error.error in COORDINATOR_MOVED:
            self.forget()
