"""A broker with an authorizer, and clients whose principals a test chooses."""

from __future__ import annotations

import asyncio
from typing import Any

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


class ClientConnection:
    """What the broker sees of a client: enough of a connection for any handler."""

    def __init__(self, principal: KafkaPrincipal, host: str = "10.0.0.1") -> None:
        self.principal = principal
        self.client_host, self.client_port = host, 1
        self.id, self.number = "client-1", 1
        self.listener_name = "PLAINTEXT"
        self.is_answer_due = True
        self.authenticator = None  # whoever it is has logged in
        self.is_closing = False
        self.answer: asyncio.Future[bytes | str | None] = asyncio.get_running_loop().create_future()

    def send(self, parts: Any) -> None:
        whole = b"".join(p if not hasattr(p, "read") else bytes(p.read()) for p in parts)
        self.answer.set_result(whole)

    def no_response(self) -> None:
        self.answer.set_result(None)

    def wait_for(self, operation: object) -> None:
        """The answer comes by `send`."""

    def close(self, reason: str) -> None:
        if not self.answer.done():
            self.answer.set_result(f"closed: {reason}")


def call(
    broker: InProcessBroker,
    principal: KafkaPrincipal,
    body: Request,
    version: int,
    listener_name: str = "PLAINTEXT",
) -> Response | str | None:
    """The answer; None where none is due, and the reason where the connection was closed."""

    async def ask() -> bytes | str | None:
        connection = ClientConnection(principal)
        connection.listener_name = listener_name
        frame = encode_request(version, CORRELATION_ID, CLIENT_ID, body)
        view = memoryview(bytearray(frame))[4:]
        broker.broker.apis.on_request(connection, view)
        broker.broker.replica_manager.complete_delayed()
        return await asyncio.wait_for(connection.answer, LIMIT_S)

    answer = broker.run(ask())
    if not isinstance(answer, bytes):
        return answer
    _, response = decode_response(type(body), version, memoryview(answer)[4:])
    return response


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
