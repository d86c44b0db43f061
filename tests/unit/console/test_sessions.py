"""Browsers that were let in."""

from __future__ import annotations

from ottla.console.sessions import MOST_SESSIONS, Sessions


def test_token_is_good_once():
    """The next one is said at once."""
    said: list[str] = []
    sessions = Sessions(True, said.append)
    first = sessions.token
    cookie = sessions.enter(first)

    assert sessions.find(cookie) is not None
    assert sessions.find("another") is None
    assert said == [sessions.token]
    assert sessions.enter(first) is None
    assert sessions.enter("") is None
    assert sessions.admit() is None


def test_each_browser_has_a_csrf_token_of_its_own():
    """Without a token for entry too."""
    sessions = Sessions(False, lambda token: None)
    (one, first), (two, second) = sessions.admit(), sessions.admit()

    assert sessions.find(one) is first
    assert sessions.find(two) is second
    assert first.csrf != second.csrf
    assert sessions.enter("") is None


def test_oldest_browser_leaves_where_there_are_too_many():
    """Sessions are bounded."""
    sessions = Sessions(False, lambda token: None)
    cookies = [sessions.admit()[0] for _ in range(MOST_SESSIONS + 1)]

    assert sessions.find(cookies[0]) is None
    assert sessions.find(cookies[1]) is not None
