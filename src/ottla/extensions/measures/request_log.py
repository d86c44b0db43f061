"""The log of requests: a line for each that the filters `request.log.*` let through.

It is on while the logger `kafka.request.logger` is at DEBUG
(`ottla configs --entity-type broker-loggers`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from ottla.config.broker_config import BrokerConfig
from ottla.config.known_keys import shown
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.message import Request, Struct
from ottla.protocol.types import BYTES_LIKE
from ottla.runtime import FileRegion

LOGGER: Final = "kafka.request.logger"
logger = logging.getLogger(LOGGER)

Entry = dict[str, Any]
"""What is written of one request."""

MAX_ITEMS: Final = 100
"""The entries of a list that are written; a line must not be as long as a request can be."""

LOGGED_TIMES: Final = {
    "TotalTimeMs": "totalTimeMs",
    "RequestQueueTimeMs": "requestQueueTimeMs",
    "LocalTimeMs": "localTimeMs",
    "RemoteTimeMs": "remoteTimeMs",
    "ThrottleTimeMs": "throttleTimeMs",
    "ResponseQueueTimeMs": "responseQueueTimeMs",
    "ResponseSendTimeMs": "sendTimeMs",
}
"""The word of Kafka's log for a time, by the name of its metric."""


class RequestLog:
    """The choice of requests that are written, and the form of their lines."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)  # as in Kafka's log4j.properties: not with the others

    @property
    def is_on(self) -> bool:
        """Whether the level of the logger says that requests are written."""
        return logger.isEnabledFor(logging.DEBUG)

    def update_config(self, config: BrokerConfig) -> None:
        """Follow changed filters."""
        self._config = config

    def begin(self, context: RequestContext, body: Request) -> Entry | None:
        """The line of a request, as far as it is known now; None: a filter leaves it out."""
        header, connection, config = context.header, context.connection, self._config
        client_id, principal = header.client_id or "", str(context.principal)
        api = type(body).__name__.removesuffix("Request")
        for wanted, found in (
            (config.request_log_principals, principal),
            (config.request_log_client_ids, client_id),
            (config.request_log_apis, api),
        ):
            if wanted and found not in wanted:
                return None
        protocols = config.listener_security_protocol_map
        return {
            "isForwarded": False,
            "requestHeader": {
                "requestApiKey": header.api_key,
                "requestApiVersion": header.api_version,
                "correlationId": header.correlation_id,
                "clientId": client_id,
                "requestApiKeyName": ApiKey(header.api_key).name,
            },
            "request": described(body),
            "response": None,
            "connection": connection.id,
            "securityProtocol": protocols.get(connection.listener_name, connection.listener_name),
            "principal": principal,
            "listener": connection.listener_name,
        }

    def end(self, entry: Entry, times: Mapping[str, float]) -> None:
        """Write a request whose answer has been sent, unless it was faster than is wanted."""
        if times["TotalTimeMs"] < self._config.request_log_slower_than_ms:
            return
        for name, logged in LOGGED_TIMES.items():
            entry[logged] = round(times[name], 3)
        logger.debug("Completed request:%s", json.dumps(entry), extra={"fields": entry})


def described(value: Any) -> Any:
    """A message as JSON has it: bytes, records and secrets are left out, by their size or name."""
    if isinstance(value, Struct):
        fields = {field.name: getattr(value, field.name) for field in type(value).fields}
        if isinstance(fields.get("name"), str) and isinstance(fields.get("value"), str):
            fields["value"] = shown(fields["name"], fields["value"])
        return {_camel(name): described(each) for name, each in fields.items()}
    if isinstance(value, list | tuple):
        left_out = len(value) - MAX_ITEMS
        some = [described(each) for each in value[:MAX_ITEMS]]
        return [*some, f"... and {left_out} more"] if left_out > 0 else some
    if isinstance(value, BYTES_LIKE):
        return f"<{len(value)} bytes>"
    if isinstance(value, FileRegion):
        return f"<{value.size} bytes>"
    is_plain = value is None or isinstance(value, str | int | float)
    return value if is_plain else f"<{type(value).__name__}>"


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
