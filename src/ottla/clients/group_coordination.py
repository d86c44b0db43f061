"""Finding the broker that coordinates a group."""

from __future__ import annotations

from typing import cast

from ottla.clients.network_client import NetworkClient, response_error
from ottla.clients.timing import Deadline
from ottla.errors import ErrorCode
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
