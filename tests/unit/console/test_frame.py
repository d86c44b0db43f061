"""The frame: JSON twins, errors as pages, changes with their audit, streams, and paths."""

from __future__ import annotations

import json
import logging
from typing import NamedTuple

import pytest
from visitor import Visitor, visit

from ottla.console import frame as room
from ottla.console.frame import ConsoleApp, filled, json_answer, link, plain
from ottla.console.page import ChangeOutcome, ConsoleChange, ConsolePage, ConsoleStream, StreamEvent
from ottla.console.pages import CHANGES, PAGES
from ottla.console.refusals import NotFound, Refused
from ottla.errors import ErrorCode, KafkaError


class Pair(NamedTuple):
    """Data of a page."""

    name: str
    number: int


async def change(visit) -> ChangeOutcome:
    """A change that fails where it is asked to."""
    if visit.form["name"] == "bad":
        raise Refused("bad is no name")
    if visit.form["name"] == "denied":
        raise KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic denied")
    return ChangeOutcome("/topics", f"{visit.form['name']} was made", "make", "it", 1, 2)


async def events(visit, render):
    """Two events, of which the second has an id."""
    yield StreamEvent("", "<b>one</b>\ntwo")
    yield StreamEvent("state", "{}", visit.query.get("last", "7"))


async def page(visit):
    """A page that fails where it is asked to."""
    match visit.query.get("fail"):
        case "404":
            raise NotFound("no such thing", {"/topics": "another"})
        case "502":
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "<b>corrupt</b>")
    return {"names": [Pair("a", 2**63)], "found": 1, "q": "<script>"}


def own_app(visitor: Visitor) -> None:
    """The visitor's console gets a page, a change and a stream of the test."""
    app = visitor.app
    pages = [
        *PAGES,
        ConsolePage("/p/{name}", page, "find.html", "About {name}", command="see {name}"),
    ]
    visitor.app = ConsoleApp(
        app.cluster,
        app.settings,
        visitor.sessions,
        pages,
        [ConsoleChange("/make", change)],
        [ConsoleStream("/events", events)],
    )


def test_page_has_a_twin_with_exact_numbers(ottla_fresh_broker):
    """By its path or by Accept; the page itself escapes all values."""

    async def walk(visitor: Visitor) -> None:
        own_app(visitor)
        twin = (await visitor.get("/p/x.json")).json
        assert twin["names"] == [{"name": "a", "number": 2**63}]
        assert (await visitor.get("/p/x", accept="application/json")).json == twin
        text = (await visitor.get("/p/x")).text
        assert "&lt;script&gt;" in text
        assert "<title>About x" in text
        assert "see x" in text

    visit(ottla_fresh_broker.bootstrap_servers, walk)


@pytest.mark.parametrize("levels", [1, 8, 64])
def test_json_of_a_large_answer_is_no_longer_than_its_values(levels):
    """Indents made 90 MB of 2 MB, while all pages waited."""
    nested: object = 1
    for _ in range(levels):
        nested = [nested]
    small, large = {"rows": [nested]}, {"rows": [nested] * (300_000 // levels)}

    assert json.loads(json_answer(large).body) == large
    assert len(json_answer(large).body) == len(json.dumps(large))
    assert json_answer(small).body.decode() == json.dumps(small, indent=1)


@pytest.mark.parametrize(("fail", "text"), [("404", "another"), ("502", "&lt;b&gt;corrupt")])
def test_errors_are_pages(ottla_fresh_broker, fail, text):
    """With their status, also as JSON."""

    async def walk(visitor: Visitor) -> None:
        own_app(visitor)
        answer = await visitor.get(f"/p/x?fail={fail}")
        assert (answer.status, text in answer.text) == (int(fail), True)
        assert (await visitor.get(f"/p/x.json?fail={fail}")).json["error"]

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_change_leaves_a_line_and_a_message(ottla_fresh_broker, caplog):
    """The message is shown once."""
    caplog.set_level(logging.INFO, "ottla.console.audit")

    async def walk(visitor: Visitor) -> None:
        own_app(visitor)
        answer = await visitor.post("/make", name="<i>x")
        assert (answer.status, answer.header("location")) == (303, "/topics")
        assert "&lt;i&gt;x was made" in (await visitor.get("/topics")).text
        assert "was made" not in (await visitor.get("/topics")).text
        assert (await visitor.post("/make", name="bad")).status == 400
        assert (await visitor.post("/make", name="denied")).status == 403

    visit(ottla_fresh_broker.bootstrap_servers, walk)
    (line,) = [each.getMessage() for each in caplog.records if each.name.endswith("audit")]
    action, _, fields = line.partition(": ")
    said = json.loads(fields)
    assert (action, said) == ("make", {"by": "127.0.0.1", "subject": "it", "old": 1, "new": 2})


def test_console_that_only_reads_has_no_changes(ottla_fresh_broker):
    """Their paths are not there, whatever is sent to them."""

    async def walk(visitor: Visitor) -> None:
        own_app(visitor)
        paths = ["/make", *(each.path.replace("{topic}", "orders") for each in CHANGES)]
        for path in paths:
            assert (await visitor.post(path, name="x")).status == 404
        assert "read only" in (await visitor.get("/")).text

    visit(ottla_fresh_broker.bootstrap_servers, walk, read_only=True)


def test_streams_are_server_sent_events(ottla_fresh_broker):
    """Each line of the data has its prefix; a browser that comes back names the last event."""

    async def walk(visitor: Visitor) -> None:
        own_app(visitor)
        answer = await visitor.get("/events", **{"last-event-id": "9"})
        assert answer.header("content-type").startswith("text/event-stream")
        assert answer.text == "data: <b>one</b>\ndata: two\n\nevent: state\ndata: {}\nid: 9\n\n"

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_broker_that_is_not_there_is_said():
    """By a page that can be loaded again, and as JSON."""
    client = {"request.timeout.ms": "50", "default.api.timeout.ms": "50"}

    async def walk(visitor: Visitor) -> None:
        page = await visitor.get("/topics")
        assert page.status == 503
        assert "127.0.0.1:1" in page.text
        assert "could be reached" in (await visitor.get("/topics.json")).json["error"]

    visit("127.0.0.1:1", walk, client=client)


def test_theme_is_remembered(ottla_fresh_broker):
    """And the browser goes back to the page, but to no other site."""

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.post("/theme", theme="dark", back="/topics?q=a")
        assert (answer.status, answer.header("location")) == (303, "/topics?q=a")
        assert 'data-theme="dark"' in (await visitor.get("/topics")).text
        for back in ("//evil.example", "https://evil.example", "/\\evil.example"):
            answer = await visitor.post("/theme", theme="<b>", back=back)
            assert answer.header("location") == "/"
        assert 'data-theme="dark"' in (await visitor.get("/topics")).text

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_paths_and_texts_are_filled():
    """Values are quoted in a path, and as they are in a command."""
    assert link("/t/a b", q="x&y", sort="", at=None, n=0) == "/t/a%20b?q=x%26y&n=0"
    assert link("/t/\udfff", q="\ud800") == "/t/%5Cudfff?q=%5Cud800"
    assert filled("ottla tail {topic} {x}", {"topic": "a"}) == "ottla tail a {x}"
    assert filled("ottla lag {id}", {"id": "'x{y}'", "y": ";rm;"}) == "ottla lag 'x{y}'"
    assert plain({1: {2}, "a": (Pair("b", 1),)}) == {"1": [2], "a": [{"name": "b", "number": 1}]}


def test_static_paths_change_with_their_files():
    """So that browsers may keep a file for ever."""
    assert room.static_paths()("console.css").startswith("/static/console.css?")
    with pytest.raises(KeyError):
        room.static_paths()("missing.css")
