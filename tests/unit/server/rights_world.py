"""A broker with an authorizer, and clients whose principals a test chooses."""

from __future__ import annotations

import asyncio
from typing import Any

from apis_world import Client

from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.message import Request, Response
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from ottla.security.principal import KafkaPrincipal
from ottla.testing import InProcessBroker

LIMIT_S = 60
CLIENT_ID = "rights"
CORRELATION_ID = 7


def call(
    broker: InProcessBroker,
    principal: KafkaPrincipal,
    body: Request,
    version: int,
    listener_name: str = "PLAINTEXT",
) -> Response | str | None:
    """The answer; None where none is due, and the reason where the connection was closed."""

    async def ask() -> Client:
        client = Client(principal, listener_name=listener_name)
        frame = encode_request(version, CORRELATION_ID, CLIENT_ID, body)
        client.hand_over(broker.broker.apis, bytearray(frame[4:]))
        broker.broker.replica_manager.complete_delayed()
        await asyncio.wait_for(client.is_over.wait(), LIMIT_S)
        return client

    client = broker.run(ask())
    if client.closed is not None:
        return f"closed: {client.closed}"
    return decode_response(type(body), version, client.sent[0])[1] if client.sent else None


def acl(
    operation: AclOperation,
    type_: ResourceType,
    name: str,
    principal: str,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern_type: PatternType = PatternType.LITERAL,
) -> AclBinding:
    entry = AccessControlEntry(principal, "*", operation, permission)
    return AclBinding(ResourcePattern(type_, name, pattern_type), entry)


def error_codes(message: Any) -> set[int]:
    """Every error of a response, wherever it stands; without errors none."""
    found: set[int] = set()
    for field in type(message).fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code") and field.name != "topic_config_error_code":
            found |= {value} - {0}
        elif isinstance(value, list):
            for each in value:
                if hasattr(type(each), "fields"):
                    found |= error_codes(each)
    return found
