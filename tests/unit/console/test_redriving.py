"""Dead letters on a page: where they are from, and their way back, which each goes once."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from hashlib import blake2b

import pytest
from topics_of_records import send
from users_of_console import AT_LOGIN, client, password, right, users_broker
from visitor import Visitor, visit

from ottla import Admin, Consumer, TopicPartition
from ottla.clients.letter_families import FAMILIES
from ottla.connect import redrive
from ottla.console import redriving
from ottla.console.masks import mask_of
from ottla.security.acls import ResourceType
from ottla.structs import encode_uuid
from ottla.testing import InProcessBroker

CONNECT = "__connect.errors."
LETTERS = 6


def headers(topic: str, offset: int) -> list[tuple[str, bytes]]:
    """The headers of Kafka Connect, and one of the record's own."""
    found = {
        "topic": topic,
        "partition": 0,
        "offset": offset,
        "exception.class.name": "ValueError",
        "exception.message": "no amount in <order>",
    }
    return [
        ("trace", b"7"),
        *((CONNECT + name, str(value).encode()) for name, value in found.items()),
    ]


async def plan_of(visitor: Visitor, *places: str, topic: str = "dead") -> str:
    """The plan of some letters, as their dry run has it."""
    chosen = "&".join(f"at.{each}=1" for each in places)
    return str((await visitor.get(f"/t/{topic}/redrive.json?{chosen}")).json["plan"])


def places_in(plan: str) -> list[str]:
    """The places of the letters of a plan."""
    return [each.rpartition(":")[0] for each in plan.partition(";")[2].split()]


@pytest.fixture
def broker() -> Iterator[InProcessBroker]:
    """Letters of orders, of payments and of a topic that is not there, and one of nowhere."""
    with InProcessBroker() as broker:
        for topic in ("orders", "payments", "dead"):
            broker.create_topic(topic, 1)
        origins = ["orders", "orders", "payments", "gone", "orders"]
        rows = [
            (0, 1_000, b"k%d" % at, b'{"id": %d}' % at, headers(topic, at))
            for at, topic in enumerate(origins)
        ]
        send(broker, "dead", *rows, (0, 1_000, b"k5", b"lost", []))
        yield broker


def read(broker: InProcessBroker, topic: str) -> list:
    """All records of a topic."""
    with Consumer(broker.bootstrap_servers) as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        end, found = consumer.end_offsets([place])[place], []
        while consumer.position(place) < end:
            found += consumer.poll(1_000)
        return found


def test_dry_run_says_where_letters_go_and_sends_nothing(broker):
    """With the reasons of those that stay; as a page, a twin and a table."""

    async def walk(visitor: Visitor) -> None:
        page = await visitor.get("/t/dead/redrive")
        assert page.status == 200
        assert "Send all 4 back" in page.text
        assert 'href="/t/orders/0/1"' in page.text
        assert "ValueError: no amount in &lt;order&gt;" in page.text
        twin = (await visitor.get("/t/dead/redrive.json")).json
        assert twin["sent"] == {"orders": 3, "payments": 1}
        assert sorted(twin["left"]) == [
            "it does not say where it is from",
            "its topic is not there, or may not be described",
        ]
        assert places_in(twin["plan"]) == ["0:0", "0:1", "0:2", "0:4"]
        chosen = (await visitor.get("/t/dead/redrive.json?at.0:2=1&at.0:3=1")).json
        assert (places_in(chosen["plan"]), chosen["chosen"]) == (["0:2"], 2)
        assert (await visitor.get("/t/dead/redrive.csv")).text.count("\n") == LETTERS + 1
        assert "Dead letters" in (await visitor.get("/t/dead/records")).text
        assert "Dead letters" not in (await visitor.get("/t/orders/records")).text
        assert "/t/dead/redrive?at.0%3A1=1" in (await visitor.get("/t/dead/0/1")).text
        assert (await visitor.get("/t/dead/redrive?at.x=1")).status == 400

    visit(broker.bootstrap_servers, walk)
    assert read(broker, "orders") == []


def test_letters_go_once(broker, caplog):
    """One, then all, then none; without the headers of the error, and with a line of audit."""
    caplog.set_level(logging.INFO, "ottla.console.audit")

    async def walk(visitor: Visitor) -> None:
        plan = await plan_of(visitor)
        one = await visitor.post("/t/dead/redrive", plan=await plan_of(visitor, "0:1"))
        assert one.header("location") == "/t/dead/redrive"
        assert "1 record sent back: 1 to orders." in (await visitor.get("/")).text
        assert places_in(await plan_of(visitor)) == ["0:0", "0:2", "0:4"]
        said = "3 records sent back: 2 to orders, 1 to payments.", "0 records sent back."
        for words in said:
            await visitor.post("/t/dead/redrive", plan=plan)
            assert words in (await visitor.get("/")).text
        for wrong in ("x", "", ";", plan.partition(";")[0] + ";0:0"):
            assert (await visitor.post("/t/dead/redrive", plan=wrong)).status == 400

    visit(broker.bootstrap_servers, walk)
    orders = read(broker, "orders")
    assert [each.key for each in orders] == [b"k1", b"k0", b"k4"]
    assert orders[0].headers == (("trace", b"7"), ("__connect.redriven", b"1"))
    assert len(read(broker, "payments")) == 1
    first = json.loads(caplog.messages[0].removeprefix("connect redrive: "))
    assert first["new"] == {"sent": {"orders": 1}, "letters": "0:1"}


def test_double_click_sends_no_letter_twice(broker):
    """The second one is refused, or finds nothing, as the first one has not ended."""

    async def walk(visitor: Visitor) -> None:
        csrf = await visitor.csrf()
        plan = await plan_of(visitor, "0:0", "0:1")
        both = [visitor.post("/t/dead/redrive", csrf, plan=plan) for _ in range(2)]
        statuses = sorted(each.status for each in await asyncio.gather(*both))
        assert statuses == [303, 409]

    visit(broker.bootstrap_servers, walk)
    assert [each.key for each in read(broker, "orders")] == [b"k0", b"k1"]


def test_letters_that_were_not_shown_stay(broker):
    """Where the topic is another one of that name, or another letter is at the place."""

    async def walk(visitor: Visitor) -> None:
        plan = await plan_of(visitor)
        topic_id, _, letters = plan.partition(";")
        assert topic_id
        other = f"{topic_id};{letters[:-16]}{int(letters[-16:], 16) ^ 1:016x}"
        answer = await visitor.post("/t/dead/redrive", plan=other)
        assert (answer.status, "letter 0:4 is another one" in answer.text) == (400, True)
        with Admin(broker.bootstrap_servers) as admin:
            admin.delete_topics(["dead"])
        broker.create_topic("dead", 1)
        send(broker, "dead", *[(0, 1_000, b"new", b"{}", headers("orders", 9))] * LETTERS)
        answer = await visitor.post("/t/dead/redrive", plan=plan)
        assert (answer.status, "made again since the plan" in answer.text) == (400, True)
        await visitor.post("/t/dead/redrive", plan=await plan_of(visitor, "0:0"))

    visit(broker.bootstrap_servers, walk)
    assert [each.key for each in read(broker, "orders")] == [b"new"]


def test_run_ends_with_its_time(broker, monkeypatch):
    """And says so; nothing was sent."""

    async def walk(visitor: Visitor) -> None:
        plan = await plan_of(visitor, "0:0")
        monkeypatch.setattr(redriving, "LIMIT_MS", 0)
        assert "There was no time" in (await visitor.get("/t/dead/redrive")).text
        await visitor.post("/t/dead/redrive", plan=plan)
        assert "0 records sent back. The time was over" in (await visitor.get("/")).text

    visit(broker.bootstrap_servers, walk)
    assert read(broker, "orders") == []


def test_masks_and_read_only_hold(broker):
    """Errors often quote the record; nothing is sent where nothing may be changed."""

    async def walk(visitor: Visitor) -> None:
        twin = (await visitor.get("/t/dead/redrive.json")).json
        messages = {each["origin"].partition(",")[0]: each["message"] for each in twin["lines"]}
        assert "amount" in messages["payments"]
        record = read(broker, "dead")[0]
        frame = repr((record.timestamp_ms, record.headers, record.key, False)).encode()
        guess = blake2b(frame + record.value, digest_size=8)
        assert guess.hexdigest() not in twin["plan"]
        assert "Hidden" in messages["orders"]
        errors = {each["origin"].partition(",")[0]: each["error"] for each in twin["lines"]}
        assert (errors["payments"], errors["orders"]) == ("ValueError", messages["orders"])

    async def reading(visitor: Visitor) -> None:
        page = await visitor.get("/t/dead/redrive")
        assert (page.status, "back</button>" in page.text) == (200, False)
        for each in (page.text, (await visitor.get("/t/dead/redrive.csv")).text):
            assert ("amount" in each, "ValueError" in each, "Hidden" in each) == (
                False,
                False,
                True,
            )
        assert (await visitor.post("/t/dead/redrive", plan="0:0")).status in (404, 405)

    visit(broker.bootstrap_servers, walk, masks=(mask_of("orders:value.id"),))
    visit(broker.bootstrap_servers, reading, read_only=True, hide_records=True)


def test_words_of_each_family_are_hidden(broker):
    """As those pages of records hide them that mask the key or the value."""
    broker.create_topic("other", 1)
    quotes = [dict.fromkeys((*each.error, *each.message), b"secret") for each in FAMILIES]
    letters = [
        [*quote.items(), (each.topic, b"orders")]
        for each, quote in zip(FAMILIES, quotes, strict=True)
    ]
    send(broker, "other", *((0, 1_000, b"k", b"{}", each) for each in letters))

    async def walk(visitor: Visitor) -> None:
        assert len((await visitor.get("/t/other/redrive.json")).json["lines"]) == len(FAMILIES)
        for ending in ("", ".json", ".csv"):
            text = (await visitor.get(f"/t/other/redrive{ending}")).text
            assert ("secret" in text, "Hidden" in text) == (False, True)

    visit(broker.bootstrap_servers, walk, masks=(mask_of("orders:value.id"),))


def test_origin_that_is_no_topic_is_shown_cut(broker):
    """It leads nowhere, goes nowhere, and makes no page long; nor do other words of a header."""
    broker.create_topic("big", 1)
    name = b"/\0" + b"n" * 100_000
    long = [(CONNECT + "exception.message", b"m" * 100_000), ("h" * 100_000, b"")]
    rows = [
        (0, 1_000, b"k", b"v", [*headers("orders", 1), *long, (CONNECT + "topic", each)])
        for each in (name, b"orders")
    ]
    send(broker, "big", *rows)

    async def walk(visitor: Visitor) -> None:
        twin = (await visitor.get("/t/big/redrive.json")).json
        first = twin["lines"][0]
        assert first["origin"] == "/\\x00" + "n" * 58 + "… (no name of a topic)"
        assert (first["origin_path"], twin["left"]) == ("", {redrive.Left.NO_TOPIC: 1})
        for path in ("redrive", "redrive.json", "redrive.csv", "0/0", "0/0.json", "records"):
            page = await visitor.get(f"/t/big/{path}")
            assert (page.status, len(page.text) < 60_000) == (200, True)

    visit(broker.bootstrap_servers, walk)


def test_rights_of_the_user_decide():
    """Who may not use the group of the queue sees a sentence, and nothing is sent."""
    with users_broker() as broker:
        with Admin(broker.bootstrap_servers, client("admin")) as admin:
            admin.create_acls([right("bob", "alice", ResourceType.TOPIC)])
            topic_id = admin.describe_topics(["alice-orders"])["alice-orders"].topic_id
        plan = f"{encode_uuid(topic_id)};0:0:{'0' * 16}"

        async def walk(visitor: Visitor) -> None:
            await visitor.log_in("bob", password("bob"))
            answers = [await visitor.get("/t/alice-orders/redrive")]
            answers.append(await visitor.post("/t/alice-orders/redrive", plan=plan))
            for answer in answers:
                assert answer.status == 403
                assert "Not authorized" in answer.text

        visit(broker.bootstrap_servers, walk, **AT_LOGIN)
