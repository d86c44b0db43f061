"""Alerts that fire once and end once, and the webhook that is told of both."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ottla.console.alert_rules import MOST_FOUND
from ottla.runtime.http_calls import CALL_LIMIT_S, CallError, post_json
from ottla.runtime.scheduler import pause
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.console.alert_rules import AlertFinding
    from ottla.console.console_cluster import ConsoleCluster

logger = logging.getLogger(__name__)

ENDED: Final = 200
STILL_MS: Final = 30_000
"""An alert ends when its rule was not true for so long, as lag comes and goes."""
MOST_IN_A_CALL: Final = 50
LONGEST_TEXT: Final = 500
WAITING_CALLS: Final = 20
RETRIES_MS: Final = (1_000, 4_000, 15_000, 60_000)


class Alert(NamedTuple):
    """Something that is wrong, or was until `ended_ms`; times in ms since 1970."""

    rule: str
    subject: str
    text: str
    path: str
    since_ms: int
    ended_ms: int | None = None


class AlertBook:
    """The alerts that fire now, and the newest of those that have ended."""

    def __init__(self) -> None:
        self.firing: dict[tuple[str, str], Alert] = {}
        self.ended: deque[Alert] = deque(maxlen=ENDED)
        self._seen_ms: dict[tuple[str, str], int] = {}

    def update(self, rule: str, found: Sequence[AlertFinding], now_ms: int) -> list[Alert]:
        """Take what a rule is true of now; the alerts that begin by it, and those that end."""
        changed = []
        for each in found[:MOST_FOUND]:
            key = (rule, each.subject)
            before = self.firing.get(key)
            since_ms = now_ms if before is None else before.since_ms
            self.firing[key] = alert = Alert(rule, *each, since_ms)
            self._seen_ms[key] = now_ms
            if before is None:
                changed.append(alert)
        return changed + self._end(rule, now_ms)

    def _end(self, rule: str, now_ms: int) -> list[Alert]:
        over = [
            key
            for key, seen_ms in self._seen_ms.items()
            if key[0] == rule and now_ms - seen_ms >= STILL_MS
        ]
        ended = [self.firing.pop(key)._replace(ended_ms=now_ms) for key in over]
        for key in over:
            del self._seen_ms[key]
        self.ended.extendleft(ended)
        return ended


class WebhookState(NamedTuple):
    """How the webhook fares: the host alone, as the rest of its address is often a secret."""

    host: str
    sent: int
    lost: int
    waiting: int
    error: str


class Webhook:
    """Sends changes of alerts to one URL: in order, again where it fails, and never without end."""

    def __init__(self, cluster: ConsoleCluster) -> None:
        self._runtime = cluster.runtime
        self._calls = cluster.limits.calls
        self._settings = cluster.settings
        self._waiting: deque[bytes] = deque()
        self._has_work = asyncio.Event()
        self._sent = self._lost = 0
        self._error = ""

    @property
    def state(self) -> WebhookState | None:
        """Its state; None where there is no webhook."""
        url = self._settings.webhook
        if not url:
            return None
        host = urlsplit(url).hostname or ""
        return WebhookState(host, self._sent, self._lost, len(self._waiting), self._error)

    def put(self, changed: Sequence[Alert], now_ms: int) -> None:
        """Have changes sent; the oldest call is given up where too many wait."""
        if not self._settings.webhook or not changed:
            return
        cluster = self._settings.name or self._settings.bootstrap_servers
        for at in range(0, len(changed), MOST_IN_A_CALL):
            self._waiting.append(body_of(changed[at : at + MOST_IN_A_CALL], cluster, now_ms))
        while len(self._waiting) > WAITING_CALLS:
            self._waiting.popleft()
            self._lost += 1
        self._has_work.set()

    async def run(self) -> None:
        """Send until it is cancelled; a collector of the console."""
        while self._settings.webhook:
            await self._has_work.wait()
            self._has_work.clear()
            await self.send_waiting()

    async def send_waiting(self) -> None:
        """Send what waits, or give it up."""
        while self._waiting:
            await self._deliver(self._waiting.popleft())

    async def _deliver(self, body: bytes) -> None:
        runtime = self._runtime
        post = partial(post_json, runtime.clock, self._settings.webhook, body, CALL_LIMIT_S)
        for pause_ms in (*RETRIES_MS, None):
            try:
                await self._calls.run(post)
            except CallError as error:
                self._error = str(error)
            else:
                self._sent += 1
                self._error = ""
                return
            if pause_ms is not None:
                await pause(runtime.scheduler, pause_ms)
        self._lost += 1
        logger.warning("the webhook was not told of an alert: %s", self._error)


def body_of(changed: Iterable[Alert], cluster: str, now_ms: int) -> bytes:
    """The JSON of a call: names and numbers alone, no record and no setting."""
    alerts = [
        {
            "state": "firing" if each.ended_ms is None else "ended",
            **each._asdict(),
            "text": each.text[:LONGEST_TEXT],
        }
        for each in changed
    ]
    return json.dumps({"cluster": cluster, "time_ms": now_ms, "alerts": alerts}).encode()
