"""What feeds share: events as records, and times as JSON has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from ottla.pipelines.pipeline import Event

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)


def event(topic: str, key: str, **fields: Any) -> Event:
    """A record whose value is a JSON object; moments become ISO 8601 in UTC."""
    plain = {
        name: iso(value) if isinstance(value, datetime) else value for name, value in fields.items()
    }
    return Event(topic, key.encode(), json.dumps(plain).encode())


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def after(seconds: float) -> datetime:
    """The moment `seconds` after the beginning of the made-up events."""
    return START + timedelta(seconds=round(seconds, 3))


def moments(chance: Random, count: int, mean_pause_s: float) -> Iterator[datetime]:
    """The times of made-up events, in order, at random, `mean_pause_s` apart on average.

    Each is drawn on demand, between other draws from `chance`.
    """
    now_s = 0.0
    for _ in range(count):
        now_s += chance.expovariate(1 / mean_pause_s)
        yield after(now_s)


def zipf_weights(count: int) -> list[float]:
    """Popularity by rank (Zipf): the second is half as popular as the first, the third a third."""
    return [1 / rank for rank in range(1, count + 1)]
