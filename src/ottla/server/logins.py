"""Clients that log in: their frames before the first request, and their names.

Security's `SaslAuthenticator` judges the frames of one connection. Whom it lets in may be named by
somebody else, and whom it refuses waits for the answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.network.connection import Connection, Identify
from ottla.network.refusal_log import RefusalLog
from ottla.runtime import Scheduler
from ottla.server.api import MAX_REASON, refuse

if TYPE_CHECKING:
    from ottla.security.principal import KafkaPrincipal
    from ottla.security.sasl import SaslAuthenticator, Verdict

logger = logging.getLogger(__name__)

OnRefusedLogin = Callable[[Connection, str, str], object]
"""Gets a client that was refused, the mechanism that it has chosen, and the reason."""


class Logins:
    """Shows the frames of a connection that has an authenticator to it, and does as it says."""

    def __init__(self, scheduler: Scheduler, refusals: RefusalLog) -> None:
        self._scheduler, self._refusals = scheduler, refusals
        self.identify: Identify | None = None
        """Names clients that have logged in, where they do not go by the name of their login."""
        self.on_refused: OnRefusedLogin | None = None

    def receive(self, connection: Connection, frame: memoryview) -> bool:
        """Show a frame to the connection's authenticator; True if it is a request for us."""
        authenticator = connection.authenticator
        assert authenticator is not None
        verdict = authenticator.receive(frame)
        if verdict.is_request:
            return True
        if verdict.is_end:
            refuse(connection, verdict.reason, self._refusals)
        elif verdict.is_refusal:
            self._refuse(connection, authenticator, verdict)
        elif authenticator.is_complete and self.identify is not None:
            self._identify(self.identify, connection, authenticator)
        else:
            if authenticator.is_complete:
                connection.authenticated(authenticator, authenticator.principal)
            connection.send(verdict.answer or ())
        return False

    def _identify(
        self, identify: Identify, connection: Connection, authenticator: SaslAuthenticator
    ) -> None:
        """Answer a login, which is complete, once the client has its name."""
        before = connection.principal if authenticator.login_count > 1 else None

        def let_in(principal: KafkaPrincipal) -> None:
            if before in (None, principal):
                connection.authenticated(authenticator, principal)
                connection.send(authenticator.welcome())
            else:
                turn_away(f"Cannot change principals during re-authentication from {before}")

        def turn_away(reason: str) -> None:
            self._refuse(connection, authenticator, authenticator.refuse(reason))

        identify(connection, let_in, turn_away)

    def _refuse(
        self, connection: Connection, authenticator: SaslAuthenticator, verdict: Verdict
    ) -> None:
        """Answer after a while, and close: passwords are not tried faster than that."""
        answer, reason = verdict.answer, verdict.reason
        logger.info(
            "Failed authentication with /%s (channelId=%s) (%s)",
            connection.client_host,
            connection.id,
            reason[:MAX_REASON],
        )
        if self.on_refused is not None:
            self.on_refused(connection, authenticator.mechanism, reason)

        def end() -> None:
            if answer is None:
                connection.close(reason)
            else:
                connection.send_last(answer, reason)

        self._scheduler.call_later(authenticator.listener.failure_delay_ms, end)
