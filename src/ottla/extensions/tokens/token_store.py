"""Delegation tokens in the registry, at Kafka's paths and in Kafka's JSON.

    /delegation_token/tokens/<id>                  one token, without its HMAC
    /delegation_token/token_changes/token_change_N   the id of a token that was changed or removed

A reader of a node still needs the secret of the brokers to log in by it. Writes are conditional
on the version that was read: a token that is removed meanwhile is not made again by a renewal.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.registry.acl_store import MAX_TRIES
from ottla.registry.change_notifications import ChangeNotifications
from ottla.registry.paths import desanitize, sanitize
from ottla.registry.tree import (
    BadVersionError,
    NoNodeError,
    Registry,
    RegistryFailedError,
    ensure_path,
)
from ottla.registry.znodes import unreadable
from ottla.runtime import Runtime, Timer
from ottla.runtime.scheduler import gather_each
from ottla.security.delegation_tokens import DelegationToken, TokenTable
from ottla.security.principal import KafkaPrincipal
from ottla.structs import replace

logger = logging.getLogger(__name__)

TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
CHANGE_NAME: Final = "token_change_"
VERSION: Final = 3
REQUESTER_VERSION: Final = 3
"""Since it (KIP-373) a token names who asked for it; before, that is its owner."""


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    """The node of a token, as Kafka writes it."""
    values: dict[str, Any] = {
        "version": VERSION,
        "owner": sanitize(str(token.owner)),
        "tokenRequester": sanitize(str(token.requester)),
        "renewers": [sanitize(str(each)) for each in token.renewers],
        "issueTimestamp": token.issue_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def decode_token(path: str, data: bytes, hmac_of: Callable[[str], bytes]) -> DelegationToken:
    """The token of a node, of version 1 to 3.

    Raises:
        KafkaError: the node is something else.
    """
    try:
        values = json.loads(data)
        version = int(values["version"])
        if not 0 < version <= VERSION:
            raise ValueError(f"version {version}")
        owner = _principal(values["owner"])
        named = version >= REQUESTER_VERSION
        token_id = str(values["tokenId"])
        return DelegationToken(
            token_id,
            owner,
            _principal(values["tokenRequester"]) if named else owner,
            tuple(map(_principal, values["renewers"])),
            int(values["issueTimestamp"]),
            int(values["expiryTimestamp"]),
            int(values["maxTimestamp"]),
            hmac_of(token_id),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise unreadable(path, data) from None


def _principal(text: str) -> KafkaPrincipal:
    return KafkaPrincipal.parse(desanitize(text))


class TokenStore:
    """Reads and writes tokens; keeps `table` as the registry has it between `start` and `stop`."""

    def __init__(self, runtime: Runtime, registry: Registry, table: TokenTable) -> None:
        self.runtime = runtime
        self.registry = registry
        self.table = table
        self._changes = ChangeNotifications(
            runtime, registry, CHANGES, self._read_change, self._read_all
        )
        self._sweeping: Timer | None = None

    async def start(self) -> None:
        """Read all tokens, and from here on every change of them."""
        await ensure_path(self.registry, TOKENS)
        await ensure_path(self.registry, CHANGES)
        await self._changes.start()

    def sweep_every(self, interval_ms: int, is_ours: Callable[[], bool]) -> None:
        """Remove tokens that have ended, at times, while `is_ours` says that this broker does."""

        def sweep() -> None:
            if is_ours() and self.table.ended():
                self.runtime.scheduler.spawn(self.sweep(), "remove tokens that have ended")

        self._sweeping = self.runtime.scheduler.call_every(interval_ms, sweep)

    def stop(self) -> None:
        """Read no more changes."""
        self._changes.stop()
        if self._sweeping is not None:
            self._sweeping.cancel()

    async def create(self, token: DelegationToken) -> None:
        """Write a new token; it holds here at once, and on other brokers when they have read it."""
        await self.registry.create(token_path(token.token_id), encode_token(token))
        self.table.put(token)
        await self._tell(token.token_id)

    async def end_at(self, token_id: str, end_ms: int) -> DelegationToken:
        """Give a token another end, as far as it may live; returns it.

        Raises:
            KafkaError: DELEGATION_TOKEN_NOT_FOUND where it is gone meanwhile.
        """
        path = token_path(token_id)
        for _ in range(MAX_TRIES):
            try:
                data, stat = await self.registry.get(path)
                before = decode_token(path, data, self.table.hmac_of)
                after = replace(before, expiry_ms=min(end_ms, before.max_ms))
                await self.registry.set(path, encode_token(after), stat.version)
            except BadVersionError:
                continue
            except NoNodeError:
                self.table.remove(token_id)
                raise KafkaError.of(
                    ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "it was removed"
                ) from None
            self.table.put(after)
            await self._tell(token_id)
            return after
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"others changed the token {token_id} each of {MAX_TRIES} times",
        )

    async def remove(self, token_id: str) -> None:
        """Remove a token; that it is gone already is no error."""
        try:
            await self.registry.delete(token_path(token_id))
        except NoNodeError:
            pass
        self.table.remove(token_id)
        await self._tell(token_id)

    async def sweep(self) -> None:
        """Remove all tokens that have ended."""
        for token in self.table.ended():
            try:
                await self.remove(token.token_id)
            except KafkaError as error:
                logger.error("the token %s was not removed: %s", token.token_id, error)
                return
            logger.info("the delegation token %s of %s has ended", token.token_id, token.owner)

    async def _tell(self, token_id: str) -> None:
        await self.registry.create(f"{CHANGES}/{CHANGE_NAME}", token_id.encode(), sequential=True)

    async def _read_change(self, path: str, data: bytes) -> None:
        token_id = data.decode(errors="replace")
        token = await self._read(token_id)
        if token is None:
            self.table.remove(token_id)
        else:
            self.table.put(token)

    async def _read_all(self) -> None:
        names = await self.registry.children(TOKENS)
        found = await gather_each(self._read, names)
        self.table.replace(token for token in found if token is not None)

    async def _read(self, token_id: str) -> DelegationToken | None:
        """A token; None where it is gone, or its node cannot be used."""
        path = token_path(token_id)
        try:
            data, _ = await self.registry.get(path)
            return decode_token(path, data, self.table.hmac_of)
        except NoNodeError:
            return None
        except RegistryFailedError:
            raise
        except KafkaError as error:
            logger.error("the token %s cannot be used: %s", token_id, error)
            return None
