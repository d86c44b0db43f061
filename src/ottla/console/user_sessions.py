"""Users of the cluster who are logged in to the console, each browser with clients of its own.

The console has no users and no rights of its own: the brokers take the name and the password, and
their ACLs decide all that a page shows and does. What the console remembers of the brokers' answers
belongs to one session, so that no user sees what another one may. A password is kept in the clients
of its session alone, and goes with them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

from ottla.config.client_config import AdminConfig
from ottla.console.console_cluster import ConsoleCluster, SharedLimits
from ottla.console.refusals import TOO_MANY, Refused
from ottla.console.sessions import TOKEN_BYTES, BrowserSession, Sessions, UserLogin
from ottla.errors import ErrorCode, SaslAuthenticationError
from ottla.structs import MS_PER_HOUR, MS_PER_MINUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.console.console_settings import ConsoleSettings
    from ottla.runtime import Runtime

IDLE_MS: Final = 30 * MS_PER_MINUTE
LONGEST_MS: Final = 12 * MS_PER_HOUR
SWEEP_MS: Final = MS_PER_MINUTE
MOST_LOGINS: Final = 32
MOST_OF_A_USER: Final = 5
AT_ONCE: Final = 4
"""Logins that wait for the brokers at the same time."""
LONGEST_WORD: Final = 1024
WRONG: Final = 401
UNKNOWN: Final = "The cluster does not know this name with this password."


class LoginTries:
    """Failed logins of the last minute, by address, and by name at an address.

    Five for a name at an address are allowed, and thirty for an address; who guesses from elsewhere
    keeps nobody out.
    """

    OF_A_NAME: Final = 5
    OF_AN_ADDRESS: Final = 30
    MOST_KEPT: Final = 10_000

    def __init__(self) -> None:
        self._tries: deque[tuple[int, str, str]] = deque(maxlen=self.MOST_KEPT)

    def begin(self, now_ms: int, address: str, name: str) -> tuple[int, str, str]:
        """Count a try, which counts as failed until `forgive`; Refused where there were too many.

        It is counted before its end, so that many at the same time are not taken for one.
        """
        while self._tries and self._tries[0][0] <= now_ms - MS_PER_MINUTE:
            self._tries.popleft()
        of_address = [each for each in self._tries if each[1] == address]
        of_name = [each for each in of_address if each[2] == name]
        if len(of_name) >= self.OF_A_NAME or len(of_address) >= self.OF_AN_ADDRESS:
            raise Refused("Too many logins have failed: try again in a minute.", TOO_MANY)
        found = (now_ms, address, name)
        self._tries.append(found)
        return found

    def forgive(self, found: tuple[int, str, str]) -> None:
        """Forget a try that was no wrong password."""
        if found in self._tries:
            self._tries.remove(found)


class UserSessions(Sessions):
    """The sessions of a console where users log in; they end after half an hour without a person,
    after twelve hours, and where there are too many: those of the same user first.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: ConsoleSettings,
        collectors: Iterable[Callable[[ConsoleCluster], Any]] = (),
    ) -> None:
        """ConfigError where the settings of clients do not fit."""
        super().__init__(has_token=False, on_new_token=lambda token: None)
        AdminConfig.parse({**settings.client, **login_of("name", "password")})
        self._runtime = runtime
        self._settings = settings
        self._collectors = tuple(collectors)
        self._limits = SharedLimits()
        self._tries = LoginTries()
        self._waiting = asyncio.Semaphore(AT_ONCE)
        self._sweep = runtime.scheduler.call_every(SWEEP_MS, self.sweep)

    def admit(self) -> None:
        """Nobody comes in without a login."""

    def find(self, cookie: str, is_person: bool = True) -> BrowserSession | None:
        """The session of a cookie that has not ended."""
        session = super().find(cookie)
        if session is None or session.login is None:
            return None
        if self._is_over(session.login):
            self.end(session)
            return None
        if is_person:
            session.login.used_ms = self._runtime.clock.monotonic_ms()
        return session

    async def log_in(self, name: str, password: str, address: str) -> str:
        """The cookie of a new session of a user whom the brokers have let in.

        Refused for a wrong name or password, and after too many of them; any other KafkaError where
        the brokers do not answer, or have no such mechanism.
        """
        name = name.strip()  # as settings of clients are read
        check_words(name, password)
        found = self._tries.begin(self._runtime.clock.monotonic_ms(), address, name)
        try:
            async with self._waiting:
                cluster = await self._opened(name, password)
        except SaslAuthenticationError as error:
            if error.error is not ErrorCode.SASL_AUTHENTICATION_FAILED:
                self._tries.forgive(found)
                raise
            raise Refused(UNKNOWN, WRONG) from None
        except BaseException:
            self._tries.forgive(found)
            raise
        self._tries.forgive(found)
        return self._keep(name, cluster)

    def end(self, session: BrowserSession) -> None:
        """End a session: its cookie, its clients and its password."""
        super().end(session)
        if session.login is not None:
            session.login.cluster.close()
        session.messages.clear()

    def sweep(self) -> None:
        """End the sessions whose time is over."""
        for session in list(self._by_cookie.values()):
            if session.login is None or self._is_over(session.login):
                self.end(session)

    def close(self) -> None:
        """End all of them."""
        self._sweep.cancel()
        for session in list(self._by_cookie.values()):
            self.end(session)

    def _is_over(self, login: UserLogin) -> bool:
        now_ms = self._runtime.clock.monotonic_ms()
        return now_ms - login.used_ms >= IDLE_MS or now_ms - login.began_ms >= LONGEST_MS

    async def _opened(self, name: str, password: str) -> ConsoleCluster:
        """The cluster as this user sees it, once the brokers have let the user in."""
        login = login_of(name, password)
        cluster = ConsoleCluster(self._runtime, self._settings, login, self._limits)
        try:
            await cluster.snapshot()
        except BaseException:
            cluster.close()
            raise
        return cluster

    def _keep(self, name: str, cluster: ConsoleCluster) -> str:
        self._make_room(name)
        cluster.start(self._collectors)
        now_ms = self._runtime.clock.monotonic_ms()
        cookie = secrets.token_urlsafe(TOKEN_BYTES)
        self._by_cookie[cookie] = BrowserSession(
            secrets.token_urlsafe(TOKEN_BYTES), login=UserLogin(name, cluster, now_ms, now_ms)
        )
        return cookie

    def _make_room(self, name: str) -> None:
        """End the session that was used least recently: of the same user, then of all."""
        users = {cookie: each.login.name for cookie, each in self._by_cookie.items() if each.login}
        if Counter(users.values())[name] >= MOST_OF_A_USER:
            self.end(self._by_cookie[next(each for each in users if users[each] == name)])
        elif len(users) >= MOST_LOGINS:
            self.end(self._by_cookie[next(iter(users))])


def login_of(name: str, password: str) -> Mapping[str, str]:
    """The settings of a user's clients."""
    return {"sasl.username": name, "sasl.password": password}


def check_words(name: str, password: str) -> None:
    """Refused for a name or a password that no cluster has."""
    for what, text in (("name", name), ("password", password)):
        if not text or len(text) > LONGEST_WORD or "\0" in text:
            raise Refused(f"The {what} must have 1 to {LONGEST_WORD} characters, and no NUL.")
