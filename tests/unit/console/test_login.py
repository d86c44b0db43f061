"""Users of the cluster log in to a console, and see what its ACLs let them see."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from users_of_console import AT_LOGIN, at_login, logged_in, password, users_broker
from visitor import Visitor, visit

from ottla.console import user_sessions
from ottla.console.console_settings import ConsoleSettings
from ottla.console.lag_collector import LagCollector
from ottla.console.page import Data, StreamEvent
from ottla.console.pages import PAGES
from ottla.console.search_progress import FinishedSearches
from ottla.testing import InProcessBroker

NOWHERE = "127.0.0.1:1"
COOKIE = "ottla-console-8090"


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with users_broker() as broker:
        yield broker


def paths(topic: str, group: str) -> list[str]:
    """The path of each page, for a topic and a group."""
    place = {"{topic}": topic, "{partition:number}": "0", "{offset:number}": "0"}
    found = []
    there = [each.path for each in PAGES if each.is_there(ConsoleSettings(""))]
    for path in (each for each in there if not each.startswith("/connector")):
        for name, value in place.items():
            path = path.replace(name, value)
        query = {"/group": f"?id={group}", "/broker": "?id=0", "/find": "?q=orders"}
        found.append(path + query.get(path.removesuffix("/reset"), ""))
    return found


def test_every_page_asks_for_the_login_first():
    """At its own address, and programs get JSON; no broker is asked."""

    async def walk(visitor: Visitor) -> None:
        for path in ("/", "/topics?q=a%26b", "/t/orders/records", "/nothing", "/login"):
            answer = await visitor.get(path)
            assert answer.status == 401
            back = "/" if path == "/login" else path
            assert f'name="back" value="{back}"' in answer.text
        twin = await visitor.get("/topics.json")
        assert (twin.status, twin.json) == (401, {"error": "Log in first: /login has the form."})
        sent = await visitor.ask("POST", "/topics/new", b"name=x", {})
        assert sent.status == 401
        assert (await visitor.get("/?token=")).status == 401

    visit(NOWHERE, walk, **AT_LOGIN)


def test_login_gives_a_new_cookie_and_leads_back(broker):
    """The cookie from before is worth nothing; no script reads the new one."""

    async def walk(visitor: Visitor) -> None:
        visitor.cookies[COOKIE] = "planted"
        answer = await visitor.log_in("alice", password("alice"), "/topics?q=orders")
        assert (answer.status, answer.header("location")) == (303, "/topics?q=orders")
        assert visitor.cookies[COOKIE] != "planted"
        assert "HttpOnly; Path=/; SameSite=strict" in answer.header("set-cookie")
        page = await visitor.get("/topics")
        assert "alice-orders" in page.text
        assert ">alice</span>" in page.text
        assert (await visitor.get("/login")).header("location") == "/"
        for back in ("//evil.example/", "/\\evil.example", "https://evil.example", "/\t/evil"):
            browser = visitor.another()
            away = await browser.log_in("alice", password("alice"), back)
            assert away.header("location") == "/"

    at_login(broker, walk)


def test_login_needs_the_form_of_this_console():
    """No other site can log a browser in, even with a name and a password that it knows."""

    async def walk(visitor: Visitor) -> None:
        form = b"name=alice&password=x&csrf="
        assert (await visitor.ask("POST", "/login", form, {})).status == 403
        foreign = {"origin": "http://evil.example"}
        assert (await visitor.log_in("alice", "x", **foreign)).status == 403
        assert (await visitor.ask("POST", "/login", b"a" * 20_000, {})).status == 413

    visit(NOWHERE, walk, **AT_LOGIN)


@pytest.mark.parametrize(
    ("name", "word"), [("", "x"), ("alice", ""), ("alice", "a\0b"), ("a" * 2000, "x")]
)
def test_name_that_no_cluster_has_is_refused(name, word):
    """Before a broker is asked."""

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.log_in(name, word)
        assert answer.status == 400
        assert "must have 1 to 1024 characters" in answer.text

    visit(NOWHERE, walk, **AT_LOGIN)


def test_wrong_passwords_are_refused_and_slowed(broker, caplog):
    """After five for a name the right one waits as well; others come in. No log has a password."""
    caplog.set_level(logging.DEBUG)

    async def walk(visitor: Visitor) -> None:
        for _ in range(user_sessions.LoginTries.OF_A_NAME):
            answer = await visitor.log_in("alice", "wr0ng-w0rd")
            assert answer.status == 401
            assert user_sessions.UNKNOWN in answer.text
            assert "wr0ng-w0rd" not in answer.text
        answer = await visitor.log_in("alice", password("alice"))
        assert (answer.status, COOKIE in visitor.cookies) == (429, False)
        assert (await visitor.log_in("bob", password("bob"))).status == 303
        assert (await visitor.get("/topics")).status == 200

    at_login(broker, walk)
    assert "wr0ng-w0rd" not in caplog.text
    assert password("bob") not in caplog.text


def test_broker_that_does_not_answer_is_no_wrong_password():
    """The form says so, and the try does not count."""

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.log_in("alice", "x")
        assert answer.status in (502, 503)
        assert not visitor.sessions._tries._tries

    client = {**AT_LOGIN["client"], "default.api.timeout.ms": "300", "request.timeout.ms": "200"}
    visit(NOWHERE, walk, has_login=True, client=client)


def test_users_see_what_their_rights_let_them_see(broker):
    """At once, at every page and its twin, whatever another one has just looked at."""

    async def walk(visitor: Visitor) -> None:
        alice, bob, nobody = [await logged_in(visitor, name) for name in ("alice", "bob", "nobody")]
        for own, other in (("alice", "bob"), ("bob", "alice")):
            me = alice if own == "alice" else bob
            for path in paths(f"{own}-orders", f"{own}-readers"):
                answer = await me.get(path)
                has_right = not path.endswith("/redrive")  # its group has another name
                assert answer.status == (200 if has_right else 403), path
                assert f"{other}-" not in answer.text, path
            assert f"secret of {own}" in (await me.get(f"/t/{own}-orders/records")).text
        for path in paths("alice-orders", "alice-readers"):
            answer = await nobody.get(path)
            assert answer.status in (200, 403, 404), path
            assert "secret" not in answer.text, path
            if answer.status == 200:
                assert "alice-" not in answer.text, path
        assert (await nobody.get("/topics.json")).json["rows"] == []
        assert (await nobody.get("/topics.csv")).text == ""
        assert (await nobody.get("/t/alice-orders/records.jsonl")).status == 404
        assert "may not see it" in (await nobody.get("/t/alice-orders/records")).text

    at_login(broker, walk)


def test_refused_right_is_a_sentence_on_the_page(broker):
    """Of a user who may describe a topic, and neither read nor write nor delete it."""

    async def walk(visitor: Visitor) -> None:
        carol = await logged_in(visitor, "carol")
        assert "Not authorized" in (await carol.get("/t/alice-orders/records")).text
        words = await carol.get(f"/t/alice-orders/records?q={quote('secret')}")
        assert (words.status, "Not authorized" in words.text) == (200, True)
        assert "secret of" not in words.text
        assert (await carol.get("/t/alice-orders/0/0")).status == 403
        for path, form in (
            ("/t/alice-orders/produce", {"value": "x"}),
            ("/t/alice-orders/settings", {"name": "retention.ms", "value": "1"}),
            ("/t/alice-orders/delete", {"name": "alice-orders"}),
        ):
            answer = await carol.post(path, **form)
            assert answer.status == 403, path
            assert "uthoriz" in answer.text.partition('class="big"')[2], path

    at_login(broker, walk)


def test_nothing_that_is_remembered_is_of_two_users(broker):
    """Not of the collector of lag, the rates, the metadata, nor a search that has just ended."""

    async def walk(visitor: Visitor) -> None:
        alice, nobody = await logged_in(visitor, "alice"), await logged_in(visitor, "nobody")
        mine, other = [session.login.cluster for session in visitor.sessions._by_cookie.values()]
        for cluster in (mine, other):
            await cluster.part(LagCollector).look()
            await cluster.rates.sample()
        assert "alice-readers" in (await alice.get("/groups")).text
        assert "alice-readers" not in (await nobody.get("/groups")).text
        assert mine.rates.watched == ["alice-orders"]
        assert other.rates.watched == []
        found = await events(visitor, alice, "/search/t/alice-orders?q=secret")
        assert found[-1].name == "done"
        assert mine.part(FinishedSearches)._found
        assert not other.part(FinishedSearches)._found
        refused = await events(visitor, nobody, "/search/t/alice-orders?q=secret")
        assert "may not see it" in refused[-1].data

    at_login(broker, walk)


async def events(visitor: Visitor, browser: Visitor, path: str) -> list[StreamEvent]:
    """The events of a stream until it ends."""
    text = (await browser.get(path)).text
    found = []
    for block in filter(None, text.split("\n\n")):
        lines: Data = dict(line.partition(": ")[::2] for line in block.splitlines())
        found.append(StreamEvent(lines.get("event", ""), lines.get("data", "")))
    return found


def test_logout_ends_the_session_and_forgets_the_password(broker):
    """Its cookie is worth nothing, a page that follows a topic ends, its clients are gone."""

    async def walk(visitor: Visitor) -> None:
        alice = await logged_in(visitor, "alice")
        cluster = next(iter(visitor.sessions._by_cookie.values())).login.cluster
        wrong = await alice.ask("POST", "/logout", b"csrf=x", {})
        assert (wrong.status, cluster.is_closed) == (403, False)
        cookies = dict(alice.cookies)
        answer = await alice.post("/logout")
        assert (answer.status, answer.header("location")) == (303, "/")
        assert cluster.is_closed
        alice.cookies = cookies
        assert (await alice.get("/topics")).status == 401
        gone = weakref.ref(cluster)
        del cluster
        while gone() is not None:  # the loop may hold it for a turn more
            assert (await alice.get("/topics")).status == 401
            gc.collect()

    at_login(broker, walk)
