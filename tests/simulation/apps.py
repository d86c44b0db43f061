"""Apps on aiokafka, as their authors write them: a right one, and ten with a mistake each.

A scenario that did not find these mistakes would prove nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from ottla.testing import App, Scenario

ORDERS = 60
CUSTOMERS = 7
PARTITIONS = 3
GROUP = "workers"


def order(number: int) -> tuple[bytes, bytes]:
    """The customer, which is the key, and the number of an order."""
    return b"customer-%d" % (number % CUSTOMERS), b"%d" % number


ALL = {value for _, value in map(order, range(ORDERS))}


# An app that is right: a shop, and workers in a group


async def shop(servers):
    """Sends orders, each exactly once."""
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        for key, value in map(order, range(ORDERS)):
            await producer.send_and_wait("orders", value, key=key)
            await asyncio.sleep(0.3)


def consumer_of_orders(servers, **settings) -> AIOKafkaConsumer:
    given = {"group_id": GROUP, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    return AIOKafkaConsumer("orders", bootstrap_servers=servers, **{**given, **settings})


async def commit(consumer: AIOKafkaConsumer) -> None:
    """Commit what was read; another member does the work again where that is too late."""
    try:
        await consumer.commit()
    except (CommitFailedError, IllegalStateError):
        pass  # the group was rebalanced


async def worker(servers, world):
    """Does the work of an order before it is committed; to do it twice is harmless."""
    async with consumer_of_orders(servers) as consumer:
        async for record in consumer:
            await asyncio.sleep(0.1)
            world.kept.setdefault("done", set()).add(record.value)
            await commit(consumer)


# The checks


def check_orders(world):
    """Each order is there, once, and behind the customer's orders before it."""
    records = world.records("orders")
    twice = [value for value, count in Counter(each.value for each in records).items() if count > 1]
    assert not twice, f"{twice} were sent twice"
    missing = ALL.difference(each.value for each in records)
    assert not missing, f"{missing} were not sent"
    check_order_of_customers(world)


def check_order_of_customers(world):
    """The orders of a customer are in their order."""
    numbers = defaultdict(list)
    for record in world.records("orders"):
        numbers[record.key].append(int(record.value))
    for customer, found in numbers.items():
        assert found == sorted(found), f"{customer}: {found}"


def check_done(world):
    """All orders were worked on, and the group has committed all of them."""
    missing = ALL.difference(world.kept.get("done", ()))
    assert not missing, f"nobody has worked on {missing}"
    assert sum(world.committed(GROUP).values()) == ORDERS


def check_work(world):
    check_orders(world)
    check_done(world)


def check_bills(world):
    """There is one bill for each order."""
    bills = Counter(each.value for each in world.records("bills", isolation_level="read_committed"))
    twice = sorted(value for value, count in bills.items() if count > 1)
    assert not twice, f"there are two bills for {twice}"
    assert not ALL.difference(bills), f"there is no bill for {sorted(ALL.difference(bills))}"


def check_count(world):
    """Each order was counted once."""
    assert world.kept["count"] == ORDERS


def check_totals(world):
    """The totals of the customers are those of their orders."""
    assert world.kept["totals"] == Counter(key for key, _ in map(order, range(ORDERS)))


def check_acknowledged(world):
    """What was acknowledged is there."""
    missing = world.kept["acknowledged"].difference(each.value for each in world.records("orders"))
    assert not missing, f"{missing} were acknowledged and are gone"


# The mistakes


async def commits_before_the_work(servers, world):
    """An order whose worker dies while it is at work is lost."""
    async with consumer_of_orders(servers) as consumer:
        async for record in consumer:
            await commit(consumer)
            await asyncio.sleep(0.5)
            world.kept.setdefault("done", set()).add(record.value)


async def works_in_tasks_beside_auto_commit(servers, world):
    """What is committed every second may still be at work."""

    async def work(value):
        await asyncio.sleep(2)
        world.kept.setdefault("done", set()).add(value)

    tasks = set()
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 1_000}
    async with consumer_of_orders(servers, **settings) as consumer:
        async for record in consumer:
            tasks.add(asyncio.create_task(work(record.value)))


async def keeps_totals_over_a_rebalance(servers, world):
    """Totals in memory are old when a partition comes back from another member."""
    totals = {}
    kept = world.kept.setdefault("totals", {})
    async with consumer_of_orders(servers) as consumer:
        async for record in consumer:
            totals[record.key] = totals.get(record.key, kept.get(record.key, 0)) + 1
            kept[record.key] = totals[record.key]
            await commit(consumer)


async def reads_from_the_end(servers, world):
    """A group without offsets begins behind the orders that are there."""
    async with consumer_of_orders(servers, auto_offset_reset="latest") as consumer:
        async for record in consumer:
            world.kept.setdefault("done", set()).add(record.value)
            await commit(consumer)


async def counts_what_is_read_again(servers, world):
    """An order that was counted and not committed is counted again."""
    async with consumer_of_orders(servers) as consumer:
        async for _ in consumer:
            world.kept["count"] = world.kept.get("count", 0) + 1
            await asyncio.sleep(0.2)
            await commit(consumer)


async def bills_outside_of_a_transaction(servers):
    """A bill whose order was not committed is written again."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    async with consumer_of_orders(servers) as consumer, producer:
        async for record in consumer:
            await producer.send_and_wait("bills", record.value, key=record.key)
            await asyncio.sleep(0.2)
            await commit(consumer)


async def sends_again_what_has_failed_later(servers):
    """Orders of a customer that come after the one that failed overtake it."""
    waiting = [order(number) for number in range(ORDERS)]
    settings = {"request_timeout_ms": 3_000, "acks": "all"}
    async with AIOKafkaProducer(bootstrap_servers=servers, **settings) as producer:
        while waiting:
            key, value = waiting.pop(0)
            try:
                await producer.send_and_wait("orders", value, key=key)
            except KafkaError:
                waiting.append((key, value))
            await asyncio.sleep(0.3)


async def gives_up_too_early(servers):
    """A new leader takes longer than its requests may."""
    settings = {"request_timeout_ms": 300, "enable_idempotence": True}
    async with AIOKafkaProducer(bootstrap_servers=servers, **settings) as producer:
        for key, value in map(order, range(ORDERS)):
            await producer.send_and_wait("orders", value, key=key)
            await asyncio.sleep(0.3)


async def waits_for_the_leader_only(servers, world):
    """An order that only a leader had is lost with it (acks=1)."""
    acknowledged = world.kept.setdefault("acknowledged", set())
    async with AIOKafkaProducer(bootstrap_servers=servers, acks=1) as producer:
        for number in range(1_000):
            key, value = order(number)
            await producer.send_and_wait("orders", value, key=key)
            acknowledged.add(value)
            await asyncio.sleep(0.01)


async def sends_twice(servers):
    """Without idempotence a request that is repeated is written twice."""
    async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        for number in range(600):
            key, value = order(number)
            await producer.send_and_wait("orders", value, key=key)
            await asyncio.sleep(0.02)


SHOP = App(shop, is_struck=False)
TOPICS = {"orders": PARTITIONS, "bills": PARTITIONS}


def group_of(main) -> App:
    """Two members, which a supervisor starts again when they end with an error of Kafka's."""
    return App(main, instances=2, may_raise=(KafkaError,))


def scenario(check, *apps, **settings) -> Scenario:
    return Scenario(apps, topics=TOPICS, check=check, **settings)


def mistake(check, *apps, **settings) -> Scenario:
    """It goes wrong for good: what is wrong after a minute need not be looked at longer."""
    return scenario(check, *apps, patience_ms=60_000, **settings)


def group_mistake(check, main) -> Scenario:
    return mistake(check, SHOP, group_of(main), faults=["apps"])


WORK = scenario(check_work, SHOP, group_of(worker))
MISTAKES = {
    commits_before_the_work: group_mistake(check_done, commits_before_the_work),
    works_in_tasks_beside_auto_commit: group_mistake(check_done, works_in_tasks_beside_auto_commit),
    keeps_totals_over_a_rebalance: group_mistake(check_totals, keeps_totals_over_a_rebalance),
    reads_from_the_end: group_mistake(check_done, reads_from_the_end),
    counts_what_is_read_again: group_mistake(check_count, counts_what_is_read_again),
    bills_outside_of_a_transaction: group_mistake(check_bills, bills_outside_of_a_transaction),
    sends_again_what_has_failed_later: mistake(
        check_order_of_customers, App(sends_again_what_has_failed_later, is_struck=False)
    ),
    gives_up_too_early: mistake(
        check_orders, App(gives_up_too_early, is_struck=False), faults=["brokers"]
    ),
    waits_for_the_leader_only: mistake(
        check_acknowledged, App(waits_for_the_leader_only, is_struck=False), faults=["brokers"]
    ),
    sends_twice: mistake(
        check_orders, App(sends_twice, is_struck=False), faults=["brokers", "network"]
    ),
}
"""Each mistake, and the scenario that is to find it."""

MAX_SEEDS = 40
"""So many seeds at most until a mistake is found."""
SHOWN_BY = {
    works_in_tasks_beside_auto_commit: 2,
    keeps_totals_over_a_rebalance: 3,
    gives_up_too_early: 19,
    waits_for_the_leader_only: 2,
}
"""A seed that has shown the mistake, with which the search begins; most show with the first.
Whatever changes how a world goes may take it away: then the others are searched."""


def first_seed_that_fails(main) -> int | None:
    """Run the scenario of a mistake until a seed fails."""
    order = dict.fromkeys((SHOWN_BY.get(main, 1), *range(1, MAX_SEEDS + 1)))
    return next((seed for seed in order if MISTAKES[main].tell(seed).violations), None)
