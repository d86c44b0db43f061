"""Finding the broker that coordinates a group, or a transactional id."""

from __future__ import annotations

import asyncio

from ottla.clients.client_settings import retry_backoff
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient, check_code
from ottla.errors import ErrorCode, KafkaError
from ottla.network.node_connection import NodeConnection
from ottla.protocol.group import (
    KEY_TYPE_GROUP,
    KEY_TYPE_TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.runtime.scheduler import pause
from ottla.runtime.timing import Deadline
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
"""After these errors the coordinator has to be looked up again."""


TITLES = {KEY_TYPE_GROUP: "group", KEY_TYPE_TRANSACTION: "transactional id"}


async def find_coordinator(
    client: NetworkClient, key: str, deadline: Deadline, key_type: int = KEY_TYPE_GROUP
) -> Node:
    """Ask any broker, once, for the coordinator of a group, or of another kind of key."""

    def ask(connection: NodeConnection) -> asyncio.Future[FindCoordinatorResponse]:
        low = 0 if key_type == KEY_TYPE_GROUP else FIRST_VERSION_WITH_KEY_TYPE
        version = connection.version_of(FindCoordinatorRequest, low)
        request = FindCoordinatorRequest()
        if version >= FIRST_VERSION_WITH_KEY_TYPE:
            request.key_type = key_type
        if version >= FIRST_VERSION_WITH_KEYS:
            request.coordinator_keys = [key]
        else:
            request.key = key
        return client.send_on(connection, request, version)

    response = await client.ask_any(ask, deadline)
    found = response.coordinators[0] if response.coordinators else response
    check_code(found.error_code, f"coordinator of {TITLES[key_type]} {key}")
    return Node(found.node_id, found.host, found.port)


class CoordinatorLink:
    """The coordinator of one group, looked up when needed and again when it proves wrong.

    With another `key_type` it is that of a transactional id, which takes the place of `group_id`.
    """

    def __init__(
        self,
        metadata: Metadata,
        client: NetworkClient,
        group_id: str,
        key_type: int = KEY_TYPE_GROUP,
    ) -> None:
        config, runtime = client.config, client.runtime
        self.group_id = group_id
        self._key_type = key_type
        self._client = client
        self._metadata = metadata
        self._node_id: int | None = None
        self._backoff = retry_backoff(config, runtime)

    async def node_id(self, deadline: Deadline) -> int:
        """The id of the coordinator's node, waiting until there is one."""
        failures = 0
        task = f"the search for the coordinator of {TITLES[self._key_type]} {self.group_id}"
        while self._node_id is None:
            try:
                node = await find_coordinator(self._client, self.group_id, deadline, self._key_type)
                if node.id not in self._client.node_ids:
                    await self._metadata.update(deadline)
                self._node_id = node.id
                self._client.troubles.worked(task)
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._client.troubles.failed(task, error)
                if deadline.has_passed:
                    title = f"{TITLES[self._key_type]} {self.group_id}"
                    what = f"{title} has no coordinator ({error.message})"
                    raise deadline.timeout(what) from error
                failures += 1
                delay_ms = min(self._backoff.delay_ms(failures), deadline.left_ms)
                await pause(self._client.runtime.scheduler, delay_ms)
        return self._node_id

    def forget(self) -> None:
        """Forget the coordinator, which has moved or cannot be reached."""
        self._node_id = None

    def note(self, error: KafkaError) -> None:
        """Forget the coordinator if the error says that it has moved."""
        if error.error in COORDINATOR_MOVED:
            self.forget()
