"""Topics with records, for the pages that show them."""

from __future__ import annotations

import json

from ottla import Producer

START = 1_795_878_000_000


def send(broker, topic: str, *records: tuple) -> None:
    """Send records of (partition, timestamp, key, value, headers)."""
    with Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        sent = [
            producer.send(topic, value, key=key, partition=p, timestamp_ms=at, headers=headers)
            for p, at, key, value, headers in records
        ]
        for each in sent:
            each.result()


def interleaved(broker, count: int = 60) -> None:
    """A topic `orders` of three partitions whose timestamps are interleaved."""
    broker.create_topic("orders", 3)
    rows = [
        (
            number % 3,
            START + number * 10,
            f"k{number % 5}".encode(),
            json.dumps({"id": number, "status": "error" if number % 4 == 0 else "ok"}).encode(),
            [("trace", b"%d" % number)],
        )
        for number in range(count)
    ]
    send(broker, "orders", *rows)
