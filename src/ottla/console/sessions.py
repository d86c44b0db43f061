"""The browsers that were let in: by a token that is good once, then by a cookie."""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Final

from ottla.structs import Value, field

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.console.console_cluster import ConsoleCluster

TOKEN_BYTES: Final = 24
MOST_SESSIONS: Final = 100


class UserLogin(Value, eq=False):
    """A user of the cluster who is logged in: a view of the cluster that is this user's alone."""

    name: str
    cluster: ConsoleCluster
    began_ms: int
    """When the session began, by the monotonic clock."""
    used_ms: int
    """When a person last asked for a page; pages that refresh themselves do not count."""


class BrowserSession(Value):
    """One browser, its CSRF token, and messages that its next page shows."""

    csrf: str
    messages: list[str] = field(default_factory=list)
    login: UserLogin | None = None
    """None where the console has no logins."""


class Sessions:
    """All browsers of a console. Without `has_token` each browser is let in.

    `token` is that for the next browser; `on_new_token` is called with it once the one before was
    used.
    """

    def __init__(self, has_token: bool, on_new_token: Callable[[str], object]) -> None:
        self.has_token = has_token
        self.token = secrets.token_urlsafe(TOKEN_BYTES) if has_token else ""
        self._on_new_token = on_new_token
        self._by_cookie: dict[str, BrowserSession] = {}

    def enter(self, token: str) -> str | None:
        """The cookie of a browser that shows the token, or None for a wrong or a used one."""
        if not self.has_token or not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        self._on_new_token(self.token)
        return self._add()

    def find(self, cookie: str, is_person: bool = True) -> BrowserSession | None:
        """The session of a cookie; None for one that was not let in.

        `is_person` is False where the page asks by itself.
        """
        session = self._by_cookie.pop(cookie, None)
        if session is not None:
            self._by_cookie[cookie] = session  # it is the last one to end now
        return session

    def admit(self) -> tuple[str, BrowserSession] | None:
        """A new session for a browser without a cookie, where no token is wanted."""
        if self.has_token:
            return None
        cookie = self._add()
        return cookie, self._by_cookie[cookie]

    def end(self, session: BrowserSession) -> None:
        """End a session, and its cookie."""
        self._by_cookie = {
            cookie: each for cookie, each in self._by_cookie.items() if each is not session
        }

    def close(self) -> None:
        """End all of them."""
        self._by_cookie.clear()

    def _add(self) -> str:
        """The session that was used least recently ends where there are too many."""
        if len(self._by_cookie) >= MOST_SESSIONS:
            self._by_cookie.pop(next(iter(self._by_cookie)))
        cookie = secrets.token_urlsafe(TOKEN_BYTES)
        self._by_cookie[cookie] = BrowserSession(secrets.token_urlsafe(TOKEN_BYTES))
        return cookie
