"""What feeds share: events as records, and times as JSON has them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
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
    """So many seconds after the moment at which made-up events begin."""
    return START + timedelta(seconds=round(seconds, 3))
