"""Who comes into a console: tokens, cookies, hosts, origins, forms, and headers of each answer."""

from __future__ import annotations

import pytest
from visitor import HOST, Visitor, visit

NOWHERE = "127.0.0.1:1"
"""No broker: these requests reach none."""


def test_browser_without_a_token_sees_no_page():
    """It gets a page that says where the token is."""

    async def walk(visitor: Visitor) -> None:
        for path in ("/", "/topics", "/topics.json", "/t/orders/records", "/nothing"):
            answer = await visitor.get(path)
            assert answer.status == 401
            assert "ottla console" in answer.text

    visit(NOWHERE, walk, is_in=False)


def test_token_lets_one_browser_in():
    """It becomes a cookie that no script reads and no other site sends; it is good once."""

    async def walk(visitor: Visitor) -> None:
        token = visitor.sessions.token
        answer = await visitor.get(f"/?q=a&token={token}")
        assert (answer.status, answer.header("location")) == (303, "/?q=a")
        cookie = answer.header("set-cookie")
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert visitor.sessions.token != token
        away = await visitor.get(f"//evil.example/?token={visitor.sessions.token}")
        assert away.header("location") == "/evil.example/"
        used = await visitor.get(f"/?q=a&token={token}")
        assert (used.status, used.header("location")) == (303, "/?q=a")
        visitor.cookies.clear()
        assert (await visitor.get(f"/?token={token}")).status == 401
        assert (await visitor.get("/?token=%C3%A9")).status == 401

    visit(NOWHERE, walk, is_in=False)


def test_browser_of_this_machine_comes_in_where_no_token_is_wanted():
    """It gets a cookie all the same, for the token of its forms."""

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.get("/nothing")
        assert answer.status == 404
        assert answer.header("set-cookie")

    visit(NOWHERE, walk, is_in=False, has_token=False)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": HOST, "origin": "http://evil.example"},
        {"host": HOST, "origin": "http://evil.example", "sec-fetch-site": "cross-site"},
    ],
)
def test_page_of_another_site_is_refused(headers):
    """Under a name that resolves to this machine, or with its own origin."""

    async def walk(visitor: Visitor) -> None:
        assert (await visitor.ask("GET", "/topics", b"", headers)).status == 403
        assert (await visitor.ask("POST", "/theme", b"csrf=1", headers)).status == 403

    visit(NOWHERE, walk)


def test_form_without_the_token_of_its_session_is_refused():
    """Nothing of it is done."""

    async def walk(visitor: Visitor) -> None:
        for csrf in ("", "wrong", "é"):
            answer = await visitor.post("/theme", csrf=csrf, theme="dark")
            assert answer.status == 403
            assert not answer.header("set-cookie")

    visit(NOWHERE, walk)


def test_every_answer_keeps_pages_from_running_what_is_not_ours():
    """Pages, errors, files and refusals alike."""

    async def walk(visitor: Visitor) -> None:
        for path in ("/nothing", "/static/console.css", "/theme"):
            answer = await visitor.get(path)
            policy = answer.header("content-security-policy")
            assert "default-src 'self'" in policy
            assert "unsafe" not in policy
            assert answer.header("x-content-type-options") == "nosniff"
            assert answer.header("cache-control").startswith(
                "public" if path.startswith("/static") else "no-store"
            )

    visit(NOWHERE, walk)


def test_file_that_is_not_there_is_not_kept():
    """Nor asked for with a session: who has not come in gets the style of the page that says so."""

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.get("/static/missing.css")
        assert (answer.status, answer.header("cache-control")) == (404, "no-store")
        there = await visitor.get("/static/console.css")
        assert (there.status, "immutable" in there.header("cache-control")) == (200, True)

    visit(NOWHERE, walk, is_in=False)
