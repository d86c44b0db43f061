"""Alerts fire once and end once; the webhook gets both in order, and is given up at some time."""

from __future__ import annotations

import asyncio
import json

import pytest

from ottla.console import alert_book
from ottla.console.alert_book import MOST_IN_A_CALL, WAITING_CALLS, AlertBook, Webhook, body_of
from ottla.console.alert_rules import MOST_FOUND, AlertFinding
from ottla.console.console_settings import ConsoleSettings
from ottla.runtime.http_calls import CallError


def findings(*names: str) -> list[AlertFinding]:
    return [AlertFinding(each, f"{each} is behind", f"/group?id={each}") for each in names]


def test_alert_fires_once_and_ends_once():
    """A moment in which its rule is not true does not end it; its text is the newest."""
    book = AlertBook()
    assert [each.subject for each in book.update("behind", findings("a", "b"), 0)] == ["a", "b"]
    assert book.update("behind", findings("a", "b"), 10_000) == []
    assert book.update("behind", findings("b"), 20_000) == []
    assert book.update("stuck", [], 90_000) == []
    assert book.update("behind", findings("a", "b"), 39_000) == []
    (ended,) = book.update("behind", findings("b"), 69_000)

    assert (ended.subject, ended.since_ms, ended.ended_ms) == ("a", 0, 69_000)
    assert list(book.ended) == [ended]
    assert [each.subject for each in book.firing.values()] == ["b"]


def test_alerts_are_bounded():
    """Of a rule, and those that have ended."""
    book = AlertBook()
    for round_ in range(5):
        names = [f"{round_}-{number}" for number in range(150)]
        book.update("behind", findings(*names), round_ * 100_000)
        assert len(book.firing) == MOST_FOUND
    assert len(book.ended) == alert_book.ENDED


def test_call_has_names_and_numbers_alone():
    """It is bounded for texts of any length."""
    book = AlertBook()
    changed = book.update("behind", findings("x" * 900), 5)
    said = json.loads(body_of(changed, "shop", 7))

    assert (said["cluster"], said["time_ms"]) == ("shop", 7)
    (first,) = said["alerts"]
    assert len(first.pop("text")) == 500
    assert first.pop("subject") == "x" * 900
    assert first.pop("path").startswith("/group?id=x")
    assert first == {"state": "firing", "rule": "behind", "since_ms": 5, "ended_ms": None}


class Parts:
    """What a webhook needs of a cluster; no time passes while it waits."""

    def __init__(self, url: str) -> None:
        self.settings = ConsoleSettings("kafka:9092", webhook=url)
        self.runtime = self.limits = self.calls = self.scheduler = self
        self.clock = None

    async def run(self, work):
        return work()


@pytest.fixture
def calls(monkeypatch):
    """The bodies of calls; those of `failing` fail, and the pauses between tries are noted."""
    found: dict[str, list] = {"sent": [], "failing": [], "pauses": []}

    def post(_clock: object, _url: str, body: bytes, _limit_s: float) -> None:
        if found["failing"]:
            raise CallError(found["failing"].pop())
        found["sent"].append(json.loads(body)["time_ms"])

    async def pause(_scheduler: object, ms: int) -> None:
        found["pauses"].append(ms)

    monkeypatch.setattr(alert_book, "post_json", post)
    monkeypatch.setattr(alert_book, "pause", pause)
    return found


def test_call_is_made_again_where_it_fails(calls):
    """In order, with longer and longer pauses; then it is given up, and the next one is made."""
    webhook, changed = Webhook(Parts("https://hooks.example/secret")), AlertBook()
    calls["failing"] = ["timed out"] * 2
    for time_ms in (1, 2):
        webhook.put(changed.update("behind", findings(str(time_ms)), time_ms), time_ms)
    asyncio.run(webhook.send_waiting())
    assert (calls["sent"], calls["pauses"]) == ([1, 2], [1_000, 4_000])

    calls["failing"] = ["it answers 500 Error"] * 5
    webhook.put(changed.update("behind", findings("3"), 3), 3)
    webhook.put(changed.update("behind", findings("4"), 4), 4)
    asyncio.run(webhook.send_waiting())
    assert calls["sent"] == [1, 2, 4]
    assert webhook.state._asdict() == {
        "host": "hooks.example",
        "sent": 3,
        "lost": 1,
        "waiting": 0,
        "error": "",
    }


def test_many_changes_are_more_than_one_call(calls, monkeypatch):
    """Whoever keeps count of what fires hears of the end of each."""
    sent: list[list[str]] = []

    def post(_clock: object, _url: str, body: bytes, _limit_s: float) -> None:
        sent.append([each["subject"] for each in json.loads(body)["alerts"]])

    monkeypatch.setattr(alert_book, "post_json", post)
    webhook, book = Webhook(Parts("http://a/")), AlertBook()
    names = [str(number) for number in range(MOST_IN_A_CALL + 11)]
    webhook.put(book.update("behind", findings(*names), 5), 5)
    asyncio.run(webhook.send_waiting())
    assert [len(each) for each in sent] == [MOST_IN_A_CALL, 11]
    assert sent[0] + sent[1] == names


def test_calls_that_wait_are_bounded(calls):
    """The oldest ones are given up; without a webhook none waits."""
    webhook, book = Webhook(Parts("http://a/")), AlertBook()
    for number in range(WAITING_CALLS + 3):
        webhook.put(book.update("behind", findings(str(number)), number), number)
    assert (webhook.state.waiting, webhook.state.lost) == (WAITING_CALLS, 3)

    none = Webhook(Parts(""))
    none.put(book.update("behind", findings("z"), 99), 99)
    assert none.state is None
    asyncio.run(none.run())
