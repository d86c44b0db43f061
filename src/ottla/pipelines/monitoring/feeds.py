"""Where metrics come from: made-up hosts, this machine, and a site's access log."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby

from ottla.pipelines.access_log import lines_of, requests
from ottla.pipelines.feeds import after, event
from ottla.pipelines.pipeline import Event, FeedRequest

METRICS = "metrics"
HOSTS = 5
SAMPLE_PAUSE_S = 5.0
HOST_PAUSE_S = 1.0
OVERLOADS = (300, 900, 1700)  # seconds at which a made-up host has too much to do
OVERLOAD_S = 180
SITE = "site"


def sample(request: FeedRequest) -> Iterator[Event]:
    """Hosts whose CPU is busy now and then; one is overloaded for a few minutes."""
    chance = random.Random(request.seed)
    for number in range(request.events):
        host = f"host-{number % HOSTS}"
        now_s = number // HOSTS * SAMPLE_PAUSE_S
        busy = host == "host-3" and any(0 <= now_s - begin < OVERLOAD_S for begin in OVERLOADS)
        cpu = min(100.0, max(0.0, chance.gauss(96.0 if busy else 35.0, 6.0)))
        yield metric(host, "cpu_percent", round(cpu, 1), after(now_s))


def this_host(request: FeedRequest) -> Iterator[Event]:
    """Samples of this machine, one a second: as many as events are asked for."""
    import psutil

    host = socket.gethostname()
    psutil.cpu_percent()
    before = psutil.net_io_counters()
    for _ in range(request.events):
        time.sleep(HOST_PAUSE_S)
        now = datetime.now(UTC)
        after_pause = psutil.net_io_counters()
        values = {
            "cpu_percent": psutil.cpu_percent(),
            "memory_percent": psutil.virtual_memory().percent,
            "disk_percent": psutil.disk_usage("/").percent,
            "load": psutil.getloadavg()[0],
            "network_bytes": float(
                after_pause.bytes_sent
                + after_pause.bytes_recv
                - before.bytes_sent
                - before.bytes_recv
            ),
        }
        before = after_pause
        for name, value in values.items():
            yield metric(host, name, value, now)


def from_log(request: FeedRequest) -> Iterator[Event]:
    """What an agent on the web server would report: requests, errors and bytes per minute."""
    found = requests(lines_of(request.log, request.seed, request.events))
    ordered = sorted(found, key=lambda each: each.time)
    for minute, group in groupby(ordered, lambda each: each.time.replace(second=0)):
        asked = list(group)
        errors = sum(each.status >= 400 for each in asked)
        yield metric(SITE, "requests", float(len(asked)), minute)
        yield metric(SITE, "error_percent", round(100 * errors / len(asked), 3), minute)
        yield metric(SITE, "bytes", float(sum(each.size for each in asked)), minute)


def metric(host: str, name: str, value: float, time: datetime) -> Event:
    return event(METRICS, host, host=host, metric=name, value=value, time=time)
