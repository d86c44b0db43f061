"""An app on `ottla.aio`: a shop whose orders are processed by many workers at once, per customer.

Members of its group are killed, stopped, paused and cut off, brokers and links fail. A handler
takes its time, and fails now and then; some orders it never takes, and these are dead letters.
Whenever an order is begun, the orders of that customer before it have been finished; and
whenever offsets are committed, all orders before these have been.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

from ottla import KafkaError, TopicPartition
from ottla.aio import Consumer, Producer
from ottla.testing import App, Scenario

ORDERS = 150
CUSTOMERS = 7
PARTITIONS = 3
POISON = 40
"""Each order of that number is never taken."""
LONGEST_S = 3.0
OFTEN_S = 0.05
COMMIT_MS = 500


def order(number: int) -> tuple[bytes, bytes]:
    """The customer, which is the key, and the number of an order."""
    return b"customer-%d" % (number % CUSTOMERS), b"%d" % number


def is_poison(number: int) -> bool:
    return number % POISON == POISON - 1


async def shop(servers):
    async with Producer(servers, acks="all") as producer:
        for key, value in map(order, range(ORDERS)):
            await producer.send_and_wait("orders", value, key=key)
            await asyncio.sleep(0.1)


class Ledger:
    """What is finished, outside of all processes."""

    def __init__(self, world) -> None:
        self.finished: dict[bytes, set[int]] = world.kept.setdefault("finished", defaultdict(set))
        self.places: dict[tuple[int, int], int] = world.kept.setdefault("places", {})
        self.wrong: list[str] = world.kept.setdefault("wrong", [])
        self.handled: list[int] = world.kept.setdefault("handled", [])

    def begin(self, record) -> int:
        """The number of an order; all before it that are the customer's must be finished."""
        number = int(record.value)
        before = range(number % CUSTOMERS, number, CUSTOMERS)
        missing = [each for each in before if each not in self.finished[record.key]]
        if missing:
            self.wrong.append(f"order {number} is begun before {missing}")
        self.places[record.partition, record.offset] = number
        return number

    def finish(self, record) -> None:
        self.finished[record.key].add(int(record.value))
        self.handled.append(int(record.value))

    def on_commit(self, offsets) -> None:
        """The interceptor of commits."""
        for place, committed in offsets.items():
            for (partition, offset), number in self.places.items():
                is_before = partition == place.partition and offset < committed.offset
                if is_before and number not in self.finished[b"customer-%d" % (number % CUSTOMERS)]:
                    self.wrong.append(f"order {number} is committed and not finished")


def settings_of(world, protocol: str) -> dict[str, object]:
    return {
        "group_id": "workers",
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": COMMIT_MS,
        "interceptor_classes": [Ledger(world)],
    } | ({} if protocol == "consumer" else {"session_timeout_ms": 6000})


async def stop_at_the_end(consumer: Consumer) -> None:
    """Stop when all orders are committed: then the world comes to rest."""
    partitions = [TopicPartition("orders", number) for number in range(PARTITIONS)]
    done = 0
    while done < ORDERS:
        await asyncio.sleep(1)
        try:
            done = sum(each.offset for each in (await consumer.committed(partitions)).values())
        except KafkaError:
            pass  # the next time
    consumer.stop()


async def worker(servers, world, protocol: str = "classic"):
    """Processes orders of many customers at once."""
    ledger = Ledger(world)

    async def handle(record):
        number = ledger.begin(record)
        await asyncio.sleep(LONGEST_S if random.random() < 0.02 else OFTEN_S * random.random())
        if is_poison(number):
            # A dead letter finishes the order: it is noted here, before it is written.
            ledger.finished[record.key].add(number)
            raise ValueError(f"order {number} is poison")
        if random.random() < 0.1:
            raise ConnectionError("the database is busy")
        ledger.finish(record)

    async with Consumer(servers, topics=["orders"], **settings_of(world, protocol)) as consumer:
        watching = asyncio.create_task(stop_at_the_end(consumer))
        await consumer.process(handle, workers=5, retries=8, retry_pause=0.02, dead_letters="dead")
        watching.cancel()


async def modern_worker(servers, world):
    """The same in a group of KIP-848."""
    await worker(servers, world, "consumer")


def check(world):
    """All orders are finished or dead letters, in order per customer, and all are committed."""
    assert not world.kept["wrong"], world.kept["wrong"][:5]
    letters = {int(each.value) for each in world.records("dead")}
    missing = set(range(ORDERS)) - set(world.kept["handled"]) - letters
    assert not missing, f"{sorted(missing)} were not handled"
    unburied = set(filter(is_poison, range(ORDERS))) - letters
    assert not unburied, f"{sorted(unburied)} are no dead letters"
    assert sum(world.committed("workers").values()) == len(world.records("orders"))


def scenario_of(main) -> Scenario:
    return Scenario(
        [App(shop, is_struck=False), App(main, instances=3, may_raise=(KafkaError,))],
        topics={"orders": PARTITIONS, "dead": 1},
        check=check,
        quiet_ms=3_000,
    )


CLASSIC = scenario_of(worker)
MODERN = scenario_of(modern_worker)
