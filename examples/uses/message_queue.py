"""A topic in the place of a message queue: orders in a burst, workers at their own pace.

    python examples/uses/message_queue.py --bootstrap-server localhost:9092

Decoupling, load levelling, buffering, and each customer's orders in order;
the page (docs/start/uses.md) says what a queue does otherwise.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition

TOPIC = "orders"
PARTITIONS = 4
CUSTOMERS = 20


def take_orders(servers: str, count: int) -> None:
    """A shop: it sends and goes on. No worker needs to run, nor to be as fast."""
    with Producer(servers, linger_ms=5, acks="all") as shop:
        for number in range(count):
            shop.send(TOPIC, f"order {number}", key=f"customer {number % CUSTOMERS}")


class Worker:
    """A member of the group `workers`, which handles a few orders at a time."""

    def __init__(self, servers: str, name: str) -> None:
        self.name = name
        self.handled: list[tuple[str, int]] = []
        self.consumer = Consumer(
            servers,
            group_id="workers",
            topics=[TOPIC],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=10,
        )

    def work(self) -> int:
        """Handle what the next poll brings, and say so to the broker only then."""
        records = self.consumer.poll(timeout_ms=100)
        for record in records:
            self.handled.append((record.key.decode(), int(record.value.split()[1])))
        if records:
            self.consumer.commit()
        return len(records)

    def fail(self) -> int:
        """Handle some orders and end before the commit: the group hands them to another worker."""
        while not (records := self.consumer.poll(timeout_ms=100)):
            pass
        self.consumer.close()
        return len(records)


def waiting(servers: str) -> int:
    """The length of the queue: what is in the topic and not yet committed by the workers."""
    with Admin(servers) as admin:
        done = admin.list_group_offsets("workers")
    with Consumer(servers) as reader:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        ends = reader.end_offsets(partitions)
    return sum(ends[p] - (done[p].offset if p in done else 0) for p in partitions)


def in_order(workers: list[Worker]) -> bool:
    """Whether each customer's orders were handled in the order in which they were sent."""
    of_customer: dict[str, list[int]] = defaultdict(list)
    for worker in workers:
        for customer, number in worker.handled:
            of_customer[customer].append(number)
    return all(numbers == sorted(numbers) for numbers in of_customer.values())


def run(servers: str, count: int = 600) -> dict[str, object]:
    """Send a burst, let three workers take it, one of which fails; returns what came of it."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])
    take_orders(servers, count)
    print(
        f"{count} orders were taken in one burst; {waiting(servers)} wait, and no worker runs yet"
    )

    failing = Worker(servers, "worker-0")
    lost = failing.fail()
    print(f"worker-0 took {lost} orders and failed before it had said that they are done")

    workers = [Worker(servers, "worker-1"), Worker(servers, "worker-2")]
    while sum(len(worker.handled) for worker in workers) < count:
        for worker in workers:
            worker.work()
    left = waiting(servers)
    for worker in workers:
        worker.consumer.close()
    handled = sorted(number for worker in workers for _, number in worker.handled)
    print(f"the others handled {len(handled)} orders, {len(set(handled))} of them different")
    print(f"each customer's in order: {in_order(workers)}; {left} wait")
    return {
        "handled": handled,
        "by worker": [len(worker.handled) for worker in workers],
        "in order": in_order(workers),
        "waiting": left,
    }


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--bootstrap-server", default="localhost:9092")
    try:
        run(arguments.parse_args().bootstrap_server)
    except KafkaError as error:
        raise SystemExit(error.message) from None  # as at a second run, while the topic is there
