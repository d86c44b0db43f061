"""An administrator at work while things break: replicas move, records and topics are deleted."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Final

from ottla.config.replication_config import RACK_AWARE_SELECTOR
from ottla.structs import TopicPartition
from ottla.testing.simulation.administrator import Administrator
from ottla.testing.simulation.invariants import History, check_history, records_of, replicas_of
from ottla.testing.simulation.story import PARTITIONS, REPLICAS, TOPIC, Story
from ottla.testing.simulation.workload import Reader, Writer


class OperationsStory(Story):
    """Four brokers and three replicas of each partition, which are moved all the time.

    Besides, records that were read are deleted, preferred leaders are elected, disks fail, a second
    topic is deleted under its writer and made again under the same name, and others come, are
    written to and deleted meanwhile. The reader reads from the replica in its rack (KIP-392).
    """

    brokers: ClassVar[int] = 4
    settings: ClassVar[Mapping[str, str | int]] = {
        "auto.create.topics.enable": "false",
        "broker.rack": "rack",
        "replica.selector.class": RACK_AWARE_SELECTOR,
    }

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._reader: Reader | None = None
        self._life = 0
        self._life_history = History()
        self._life_writer: Writer | None = None
        self._is_between_lives = False
        self._passing_count = 0
        self._passing: set[str] = set()
        self._short_lived = [TopicPartition(SHORT_LIVED, index) for index in range(PARTITIONS)]
        self._administrator = Administrator(self.cluster, "administrator", self.history)

    def _begin(self) -> None:
        self._make_topic(TOPIC)
        self._make_topic(SHORT_LIVED)
        for number in range(2):
            self._start_writer(f"writer{number}", interval_ms=600, burst=3)
        self._start_life()
        self._reader = Reader(self.cluster, "reader", self.history, rack="rack-2")
        self._reader.process.spawn(self._reader.run(self.partitions), "read")

    def _start_life(self) -> None:
        """Start a writer for this topic: the promises to it hold for this topic only."""
        self._life += 1
        # Records of a writer in flight when it was killed may get into the next topic.
        self._life_history = History(sent=self._life_history.sent)
        writer = Writer(self.cluster, f"life{self._life}", self._life_history)
        writer.process.spawn(writer.run(SHORT_LIVED, 400), "write")
        self._life_writer = writer

    async def _make_again(self) -> None:
        await self._administrator.make_again(SHORT_LIVED, PARTITIONS, REPLICAS)
        self._start_life()
        self._is_between_lives = False

    async def _let_pass(self, topic: str, life_ms: int) -> None:
        """Create a topic and delete it later; its writer continues, and is promised nothing."""
        await self._administrator.make(topic, PARTITIONS, REPLICAS)
        writer = Writer(self.cluster, f"{topic}-writer", History())
        writer.process.spawn(writer.run(topic, PASSING_INTERVAL_MS), "write")
        await self._administrator.pause(life_ms)
        await self._administrator.delete(topic)
        writer.process.kill()
        self._passing.remove(topic)

    def _more_faults(self) -> list[Callable[[random.Random], str]]:
        return [
            *[self._reassign] * 2 * WEIGHT,
            *[self._delete_records] * 2 * WEIGHT,
            *[self._delete_topic] * WEIGHT,
            *[self._pass_topic] * WEIGHT,
            self._elect_preferred_leaders,
            self._fail_disk,
        ]

    def _reassign(self, chance: random.Random) -> str:
        partition = chance.choice(self.partitions + self._short_lived)
        brokers = [host.broker_id for host in self.cluster.hosts]
        target = tuple(chance.sample(brokers, REPLICAS))
        self._administrator.reassign({partition: target})
        if chance.random() >= SHARE_TAKEN_BACK:
            return f"reassign {partition} to {target}"
        delay_ms = chance.randint(1, MAX_BEFORE_TAKEN_BACK_MS)
        take_back = partial(self._administrator.reassign, {partition: None})
        self.world.loop.add_timer(delay_ms, take_back)
        return f"reassign {partition} to {target}, and take it back after {delay_ms} ms"

    def _delete_records(self, chance: random.Random) -> str:
        partition = chance.choice(self.partitions)
        read = 0 if self._reader is None else self._reader.next_offsets.get(partition, 0)
        first = self.cluster.first_offsets.get(partition, 0)
        offset = chance.randint(first, max(first, read))
        self._administrator.delete_records(partition, offset)
        return f"delete the records of {partition} before offset {offset}"

    def _delete_topic(self, chance: random.Random) -> str:
        if self._is_between_lives or self._life_writer is None:
            return "the topic is being made again still"
        self._is_between_lives = True
        self._life_writer.process.kill()
        self._administrator.process.spawn(self._make_again(), "make again")
        return f"delete topic {SHORT_LIVED}, and make it again"

    def _pass_topic(self, chance: random.Random) -> str:
        self._passing_count += 1
        topic, life_ms = f"passing{self._passing_count}", chance.randint(100, MAX_PASSING_MS)
        self._passing.add(topic)
        self._administrator.process.spawn(self._let_pass(topic, life_ms), "let it pass")
        return f"make topic {topic}, and delete it under its writer after {life_ms} ms"

    def _elect_preferred_leaders(self, chance: random.Random) -> str:
        self._administrator.elect_preferred_leaders()
        return "elect preferred leaders"

    def _fail_disk(self, chance: random.Random) -> str:
        """Fail a broker's only disk, which stops it; after a restart the disk works again."""
        host, operation = chance.choice(self.cluster.hosts), chance.choice(("pwrite", "fsync"))
        host.disk.fail(operation, "*.log")
        return f"let {host.name} fail at its next {operation}"

    def _is_whole(self) -> bool:
        writer = self._life_writer
        if self._is_between_lives or self._passing or writer is None:
            return False
        writer.is_told_to_stop = True
        return (
            super()._is_whole()
            and writer.is_done
            and all(self._end_of(tp) >= 0 for tp in self._short_lived)
        )

    def _end(self) -> None:
        super()._end()
        if not self.history.violations:
            for partition in self._short_lived:
                known = replicas_of(self.cluster, partition)[0]
                log = records_of(known, 0, known.high_watermark)
                self.history.violations += check_history(self._life_history, partition, log)

    def _state(self) -> str:
        lives = f"life {self._life}, between lives {self._is_between_lives}"
        return f"{lives}, passing {sorted(self._passing)}, {super()._state()}"


SHORT_LIVED: Final = "short-lived"
WEIGHT: Final = 4
"""How much likelier each operation is than another fault; for some it is doubled."""
SHARE_TAKEN_BACK: Final = 0.3
MAX_BEFORE_TAKEN_BACK_MS: Final = 1_000
MAX_PASSING_MS: Final = 3_000
PASSING_INTERVAL_MS: Final = 20
