"""A real broker in this process, the console's view of it, and groups that are behind."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from ottla import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from ottla.console.console_cluster import ConsoleCluster
from ottla.console.console_settings import ConsoleSettings
from ottla.console.group_look import GroupLook, look_at
from ottla.runtime.clock import SystemClock
from ottla.runtime.io_thread import IoThread
from ottla.structs import replace
from ottla.testing import wait_until

T = TypeVar("T")


class ShiftedClock(SystemClock):
    """The machine's clock, which a test sets forward: minutes pass in no time."""

    def __init__(self) -> None:
        self.shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.shift_ms


class LagWorld:
    """Topics, groups and their readers; `look` sees them as the console does."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.clock = ShiftedClock()
        self.admin = Admin(self.servers)
        self.producer = Producer(self.servers)
        self.consumers: list[Consumer] = []
        self._io = IoThread("console")
        self.cluster = self._io.run(self._connect())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of the console's view."""
        return self._io.run(coroutine, 60_000)

    def pass_s(self, seconds: float) -> None:
        """Let time pass on the console's clock."""
        self.clock.shift_ms += round(1000 * seconds)

    def add_topic(self, name: str, partitions: int = 1) -> list[TopicPartition]:
        self.admin.create_topics([NewTopic(name, partitions, 1)])
        return [TopicPartition(name, number) for number in range(partitions)]

    def write(self, partition: TopicPartition, count: int, value: bytes = b"v") -> None:
        """Append records to one partition."""
        for number in range(count):
            self.producer.send(
                partition.topic, value, key=b"k%d" % (number % 2), partition=partition.partition
            )
        self.producer.flush()

    def read(self, group: str, *partitions: TopicPartition, **settings: str) -> Consumer:
        """A member of a group that has joined, and reads these partitions."""
        settings = {"enable_auto_commit": "false", "client_id": f"{group}-reader", **settings}
        consumer = Consumer(self.servers, group_id=group, **settings)
        self.consumers.append(consumer)
        consumer.subscribe(sorted({each.topic for each in partitions}))
        wait_until(
            lambda: set(partitions) <= set(consumer.assignment()),
            "the assignment",
            meanwhile=lambda: consumer.poll(20),
        )
        return consumer

    def commit(self, consumer: Consumer, offsets: dict[TopicPartition, int]) -> None:
        """Commit as that member."""
        consumer.commit({each: OffsetAndMetadata(offset) for each, offset in offsets.items()})

    def look(self, group: str) -> GroupLook:
        self.run(self.cluster.all_topics.fresh(0))
        return self.run(look_at(self.cluster, group))

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()
        self.producer.close()
        self.admin.close()
        self._io.close(self.cluster.close)

    async def _connect(self) -> ConsoleCluster:
        runtime = replace(self._io.runtime, clock=self.clock)
        return ConsoleCluster(runtime, ConsoleSettings(self.servers))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
