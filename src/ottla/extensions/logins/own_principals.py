"""Clients get their names from a class of the operator's, by `principal.builder.class`.

Its calls run in threads of their own, a few at a time: one that waits for a directory holds up
nothing but the client that it names. A client of which it says nothing usable in time is refused.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.config.place import made
from ottla.errors import ConfigError, KafkaTimeoutError
from ottla.network.tls_transport import TlsTransport
from ottla.runtime.io_thread import run_in_thread
from ottla.runtime.scheduler import within
from ottla.security.certificate import Certificate
from ottla.security.principal import KafkaPrincipal, TokenPrincipal
from ottla.security.principal_builder import AuthenticationContext, PrincipalBuilder
from ottla.server.extension import Extension

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.network.connection import Connection, LetIn, Refuse
    from ottla.server.parts import Parts

logger = logging.getLogger(__name__)

T = TypeVar("T")
KEY: Final = "principal.builder.class"
GROUP: Final = "ottla.principal_builders"
CALLS: Final = 4
"""How many calls of a builder are under way at a time; one that hangs holds its place."""
PATIENCE_MS: Final = 10_000
"""How long a client waits for its name, as for its TLS handshake."""


class OwnPrincipals(Extension):
    """Asks the builder of a broker for the names of its clients."""

    def __init__(self, broker: Parts) -> None:
        super().__init__(broker)
        word = broker.config.principal_builder_class
        assert word is not None, "the setting has wanted it"
        base = PrincipalBuilder
        self.builder = made(KEY, word, GROUP, base)  # type: ignore[type-abstract] # its subclass
        try:
            self.builder.configure(broker.config.open_texts())
        except Exception as error:  # whatever a stranger's class does
            raise ConfigError(f"{KEY}={word}: does not take the settings: {error!r}") from error
        self._free = asyncio.Semaphore(CALLS)

    def wrap(self) -> None:
        self.broker.apis.logins.identify = self.broker.processor.identify = self.identify

    async def close(self, *, is_killed: bool = False) -> None:
        if is_killed:
            return
        try:
            await self._in_time(self.builder.close)
        except Exception:
            logger.exception("%s: close() has failed", self._word)

    @property
    def _word(self) -> str:
        return f"{KEY}={self.broker.config.principal_builder_class}"

    def identify(self, connection: Connection, let_in: LetIn, refuse: Refuse) -> None:
        """Have the builder name a client, and let it in or refuse it then."""
        context = self._context(connection)
        self.broker.runtime.scheduler.spawn(
            self._identify(connection, context, let_in, refuse), "name a client"
        )

    async def _identify(
        self,
        connection: Connection,
        context: AuthenticationContext,
        let_in: LetIn,
        refuse: Refuse,
    ) -> None:
        try:
            principal = await self._in_time(lambda: checked(self.builder.build(context)))
        except Exception as error:
            reason = error.message if isinstance(error, KafkaTimeoutError) else str(error)
            logger.warning(
                "%s: the client is refused on listener %s, as %s has failed: %s",
                connection.id,
                context.listener_name,
                self._word,
                reason,
            )
            logger.debug("%s has failed", self._word, exc_info=error)
            refuse(f"{KEY} has failed: {reason}")
            return
        if isinstance(context.principal, TokenPrincipal):
            principal = TokenPrincipal(*principal)
        let_in(principal)

    async def _in_time(self, call: Callable[[], Any]) -> Any:
        what = f"no answer ({CALLS} calls may be under way)"
        return await within(self.broker.runtime.scheduler, PATIENCE_MS, self._call(call), what)

    async def _call(self, call: Callable[[], Any]) -> Any:
        await self._free.acquire()
        future = run_in_thread(partial(contained, call), "ottla-principal-builder")
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: post(loop, self._free.release))
        return await asyncio.wrap_future(future)

    def _context(self, connection: Connection) -> AuthenticationContext:
        listener_name, login = connection.listener_name, connection.authenticator
        transport = connection.transport
        certificate = transport.peer_certificate if isinstance(transport, TlsTransport) else None
        principal = connection.principal if login is None else login.principal
        listeners = self.broker.dynamic_config.broker_config.listeners
        protocols = {each.listener_name: each.security_protocol for each in listeners}
        return AuthenticationContext(
            principal,
            listener_name,
            protocols.get(listener_name, ""),
            connection.client_host,
            certificate,
            subject_of(certificate),
            "" if login is None else login.mechanism,
            "" if login is None else principal.name,
        )


def contained(call: Callable[[], T]) -> T:
    """Make a call in which nothing may end the thread but an error: sys.exit() does not pass."""
    try:
        return call()
    except BaseException as error:
        raise RuntimeError(repr(error)) from error


def checked(principal: object) -> KafkaPrincipal:
    """A builder's answer, as far as rights and quotas can go by it.

    Raises:
        TypeError, ValueError: they cannot.
    """
    if not isinstance(principal, KafkaPrincipal):
        raise TypeError(f"a builder must say a KafkaPrincipal, not {str(principal)[:80]!r}")
    for part in principal:
        if not (isinstance(part, str) and part and part.isprintable()):
            raise ValueError(f"type and name must be printable text, not {str(part)[:80]!r}")
    if ":" in principal.type:
        raise ValueError(f"the type must be without a colon, not {principal.type[:80]!r}")
    return principal


def subject_of(certificate: bytes | None) -> str:
    """The name in a certificate, as Kafka writes it; empty where there is none to be read."""
    if certificate is None:
        return ""
    try:
        return Certificate.parse(certificate).subject
    except ValueError:
        return ""


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Have the loop call back from another thread; nothing once it is closed."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        logger.debug("a builder has answered after the end of its broker")
