"""A broker of the first design that is killed while producers write and its topic is copied."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import ottla
from ottla.clients.legacy import FetchRequest, Message, SimpleConsumer, SyncProducer
from ottla.clients.legacy.message import MessageSet
from ottla.runtime.free_port import free_port
from ottla.testing import wait_until
from ottla.testing.processes import BrokerProcess

KILLS = 15
LIMIT_S = 60
SETTINGS = {
    "first.design.flush.interval.messages": 50,
    "first.design.flush.interval.ms": 50,
    "first.design.copied.topics": "pages",
    "log.segment.bytes": 200_000,
    "log.flush.offset.checkpoint.interval.ms": 300,
}


def sent_until_killed(producer: SyncProducer, numbers: Iterator[int], chance: random.Random) -> int:
    """Send some sets, and say up to which number the broker has told that it has them."""
    last = -1
    for _ in range(chance.randrange(5, 300)):
        some = [next(numbers) for _ in range(20)]
        producer.send("pages", [Message(b"%d" % n + b"." * chance.randrange(200)) for n in some], 0)
        last = some[-1]
    return last


def all_of(consumer: SimpleConsumer) -> list[bytes]:
    """All messages that readers see."""
    (end,) = consumer.get_offsets_before("pages", 0, -1, 1)
    found: list[bytes] = []
    position = 0
    while position < end:
        messages: MessageSet = consumer.fetch(FetchRequest("pages", 0, position))
        found += [each.message.payload or b"" for each in messages]
        position = messages.next_offset
    return found


def copies(servers: str, count: int) -> list[bytes]:
    """What is in the topic of today, when it has so many records."""
    found: list[bytes] = []
    with ottla.Consumer(servers, auto_offset_reset="earliest") as reader:
        reader.assign([ottla.TopicPartition("pages", 0)])
        wait_until(
            lambda: len(found) >= count,
            f"{count} copies",
            LIMIT_S,
            meanwhile=lambda: found.extend(record.value for record in reader.poll(200)),
        )
        found.extend(record.value for record in reader.poll(1_000))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_broker_of_the_first_design_that_is_killed_keeps_and_copies_each_message_once(
    seed, tmp_path
):
    """A kill loses nothing that the broker has told of, and the copy has the same messages."""
    chance = random.Random(seed)
    numbers = iter(range(10_000_000))
    port = free_port("127.0.0.1")
    broker = BrokerProcess(
        tmp_path / "data", **{"first.design.listener": f"127.0.0.1:{port}"} | SETTINGS
    )
    last = -1
    try:
        for _ in range(KILLS):
            broker.start()
            with SyncProducer("127.0.0.1", port, broker_version="0.7") as producer:
                last = max(last, sent_until_killed(producer, numbers, chance))
                producer.send("pages", [Message(b"%d" % next(numbers))], 0)
                broker.kill()
        broker.start()
        with SimpleConsumer("127.0.0.1", port, broker_version="0.7") as consumer:
            kept = all_of(consumer)
        assert copies(broker.bootstrap_servers, len(kept)) == kept
    finally:
        broker.kill()
    found = [int(text.split(b".")[0]) for text in kept]

    assert found == sorted(set(found))
    assert found[-1] >= last
    assert len(found) > KILLS * 20
