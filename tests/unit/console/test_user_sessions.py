"""Sessions of users: when they end, how many there are, and how guesses are slowed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from users_of_console import AT_LOGIN, at_login, logged_in, users_broker
from visitor import Visitor, visit

from ottla.console import user_sessions
from ottla.console.refusals import Refused
from ottla.console.user_sessions import LoginTries
from ottla.errors import ConfigError
from ottla.testing import InProcessBroker

COOKIE = "ottla-console-8090"


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with users_broker() as broker:
        yield broker


def test_sessions_end_without_a_person_and_where_there_are_too_many(broker, monkeypatch):
    """A page that refreshes itself is no person; a user's own sessions go first."""

    async def walk(visitor: Visitor) -> None:
        monkeypatch.setattr(user_sessions, "MOST_OF_A_USER", 1)
        bob = await logged_in(visitor, "bob")
        first, second = await logged_in(visitor, "alice"), await logged_in(visitor, "alice")
        assert await statuses(first, second, bob) == [401, 200, 200]
        monkeypatch.setattr(user_sessions, "MOST_LOGINS", 2)
        nobody = await logged_in(visitor, "nobody")
        assert await statuses(second, bob, nobody) == [401, 200, 200]
        login = visitor.sessions.find(bob.cookies[COOKIE], is_person=False).login
        login.used_ms -= user_sessions.IDLE_MS - 1_000
        before = login.used_ms
        assert (await bob.get("/topics", **{"x-refresh": "1"})).status == 200
        assert login.used_ms == before
        login.used_ms -= 1_000
        visitor.sessions.sweep()
        assert login.cluster.is_closed
        assert await statuses(bob, nobody) == [401, 200]

    at_login(broker, walk)


async def statuses(*browsers: Visitor) -> list[int]:
    answers = [await each.get("/topics") for each in browsers]
    return [each.status for each in answers]


def test_all_users_share_the_share_of_collectors(broker):
    """Two users' collectors rest twice as long, and searches of all are bounded together."""

    async def walk(visitor: Visitor) -> None:
        await logged_in(visitor, "alice")
        cluster = next(iter(visitor.sessions._by_cookie.values())).login.cluster
        alone = cluster.pause_ms(100, 1)
        await logged_in(visitor, "bob")
        other = list(visitor.sessions._by_cookie.values())[1].login.cluster
        assert cluster.pause_ms(100, 1) == 2 * alone
        assert cluster.limits is other.limits
        other.close()
        assert cluster.pause_ms(100, 1) == alone

    at_login(broker, walk)


def test_tries_are_counted_by_name_and_address():
    """For a minute; one that is forgiven does not count, and another address waits for none."""
    tries = LoginTries()
    for _ in range(tries.OF_A_NAME):
        last = tries.begin(0, "a", "alice")
    with pytest.raises(Refused, match="Too many"):
        tries.begin(59_999, "a", "alice")
    tries.begin(1, "b", "alice")
    tries.forgive(last)
    tries.begin(2, "a", "alice")
    for number in range(tries.OF_AN_ADDRESS - tries.OF_A_NAME):
        tries.begin(3, "a", f"user {number}")
    with pytest.raises(Refused, match="Too many"):
        tries.begin(4, "a", "another")
    tries.begin(60_003, "a", "another")
    tries.forgive((9, "nobody", "here"))


def test_settings_that_do_not_fit_are_told_at_the_start():
    """Not first to the user who logs in."""

    async def walk(_visitor: Visitor) -> None: ...

    with pytest.raises(ConfigError, match="mechanism=NONE"):
        visit(
            "127.0.0.1:1",
            walk,
            has_login=True,
            client={**AT_LOGIN["client"], "sasl.mechanism": "NONE"},
        )
