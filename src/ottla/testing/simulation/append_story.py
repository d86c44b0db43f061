"""Transactions that read and write several partitions, and their history as Elle would read it.

Each appends values of its own to some partitions, and notes the values read by then. In the end:

- of a committed transaction everything is there, of an aborted one nothing; of one whose end is not
  known, all or nothing, in all partitions together;
- nobody has read an aborted value (G1a), or a part of the values of a transaction (G1b);
- the transactions can be put in one order that agrees with the reads, with the ends before the
  begins, and with the order of writes where two wrote (no cycle: G0, G1c).

Transactions that overlap in time may write in one order here and in another there: Kafka takes no
locks, and does not promise otherwise. So the order of their writes is left out.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ottla.clients.consumer.consumer_core import ConsumerCore
from ottla.clients.producer.producer_batch import RecordMetadata
from ottla.clients.producer.producer_core import ProducerCore
from ottla.clients.producer.transactions import Transactions
from ottla.config.client_config import ConsumerConfig
from ottla.errors import KafkaError
from ottla.runtime.timing import NEVER_MS, Deadline
from ottla.structs import TopicPartition
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.copier import CALL_TIMEOUT_MS, transactional_producer
from ottla.testing.simulation.copy_story import CopyStory
from ottla.testing.simulation.group_ledger import CLOSE_TIMEOUT_MS, RESTART_MS
from ottla.testing.simulation.invariants import History
from ottla.testing.simulation.story import TOPIC, Story
from ottla.testing.simulation.workload import METADATA_TIMEOUT_MS, Reader, SimulatedClient

APPENDERS: Final = 3
INTERVAL_MS: Final = 500
READ_MS: Final = 100
MAX_WRITES: Final = 4
SHARE_ABORTED: Final = 0.25

Visible = Mapping[TopicPartition, Mapping[int, bytes]]
"""The values that a reader of committed records has seen in the end, by partition and offset."""


class AppendStory(CopyStory):
    """Appenders, which are killed, paused and replaced as copiers are, and a reader of all."""

    def _begin(self) -> None:
        self._appends = AppendHistory()
        self._lives = 0
        if self._raises_epochs:
            self._raise_epochs()
        self._make_topic(TOPIC)
        self._copiers += [self._start_copier(f"appender{n}") for n in range(APPENDERS)]
        reader = Reader(self.cluster, "reader", self.history, "read_committed")
        reader.process.spawn(reader.run(self.partitions), "read")
        self._watch_ends(self.partitions, "read_committed")

    def _start_copier(self, name: str) -> SimulatedClient:
        self._lives += 1
        writer = f"life{self._lives}"
        appender = Appender(self.cluster, name, self.history, self._appends, writer)
        appender.process.spawn(appender.run(self._written), "append")
        return appender

    @property
    def _written(self) -> list[TopicPartition]:
        """The partitions that transactions write to."""
        return self.partitions

    def _is_whole(self) -> bool:
        for zombie in self._zombies:
            zombie.process.kill()  # it would take its id back, and go on
        for appender in self._copiers:
            appender.is_told_to_stop = True
        return all(each.is_done for each in self._copiers) and super()._is_whole()

    def _end(self) -> None:
        Story._end(self)

    def _read_everything(self, ends: dict[TopicPartition, int]) -> None:
        last = Reader(self.cluster, "last-reader", History(), "read_committed")
        last.process.spawn(last.run(self.partitions), "read everything")

        def has_read_all() -> bool:
            return all(last.next_offsets.get(each, 0) >= end for each, end in ends.items())

        if not self._is_reached(has_read_all):
            self.history.violations.append(f"not everything can be read: {last.next_offsets}")
        visible = last.history.seen
        self.history.violations += [*last.history.violations, *self._appends.check(visible)]
        for partition in self.partitions:
            self._compare_prefix(partition, visible.get(partition, {}))


class End(Enum):
    """How a transaction has ended, as its client knows."""

    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False, slots=True)
class Appended:
    """A transaction: its values, the values read when it began, and its time."""

    number: int
    begun_ms: int
    ended_ms: int = NEVER_MS
    end: End = End.UNKNOWN
    writes: dict[bytes, TopicPartition] = field(default_factory=dict)
    reads: list[bytes] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"transaction {self.number} ({self.end.value})"


class AppendHistory:
    """All transactions of a story."""

    def __init__(self) -> None:
        self.transactions: list[Appended] = []

    def begin(self, now_ms: int, reads: Iterable[bytes]) -> Appended:
        transaction = Appended(len(self.transactions), now_ms, reads=list(reads))
        self.transactions.append(transaction)
        return transaction

    @property
    def committed(self) -> set[bytes]:
        """The values of the transactions whose commit has been confirmed."""
        return {
            value
            for each in self.transactions
            if each.end is End.COMMITTED
            for value in each.writes
        }

    def check(self, visible: Visible) -> Iterator[str]:
        """Compare the transactions with the values in the end."""
        there = {value for values in visible.values() for value in values.values()}
        yield from self._check_whole(there)
        writer_of = {value: each for each in self.transactions for value in each.writes}
        for transaction in self.transactions:
            for value in transaction.reads:
                if value not in there:
                    yield f"{transaction} has read {value!r}, which was not committed (G1a)"
        cycle = find_cycle(self._successors(writer_of, visible))
        if cycle:
            yield f"{cycle} come one before the other in a circle (G0, G1c)"

    def _check_whole(self, there: set[bytes]) -> Iterator[str]:
        for transaction in self.transactions:
            # Another topic may have been deleted since.
            writes = [value for value, tp in transaction.writes.items() if tp.topic == TOPIC]
            count = len(there.intersection(writes))
            expected = {
                End.COMMITTED: {len(writes)},
                End.ABORTED: {0},
                End.UNKNOWN: {0, len(writes)},
            }[transaction.end]
            if count not in expected:
                yield f"of {transaction} {count} of {len(writes)} records are there"

    def _successors(
        self, writer_of: Mapping[bytes, Appended], visible: Visible
    ) -> dict[Appended, list[Appended]]:
        """The transactions that must come after each, in one order of all that were committed."""
        following: defaultdict[Appended, list[Appended]] = defaultdict(list)
        present = dict.fromkeys(
            writer_of[value]
            for values in visible.values()
            for value in values.values()
            if value in writer_of
        )
        for later in present:
            for value in later.reads:
                if value in writer_of and writer_of[value] is not later:
                    following[writer_of[value]].append(later)
            for earlier in present:
                if earlier.ended_ms < later.begun_ms:
                    following[earlier].append(later)
        for values in visible.values():
            writers = [writer_of[v] for _, v in sorted(values.items()) if v in writer_of]
            for index, earlier in enumerate(writers):
                following[earlier] += [
                    later for later in writers[index + 1 :] if not overlap(earlier, later)
                ]
        return following


def overlap(one: Appended, other: Appended) -> bool:
    """Whether two transactions may have been open at the same time."""
    return one is other or (one.begun_ms <= other.ended_ms and other.begun_ms <= one.ended_ms)


def find_cycle(successors: Mapping[Appended, Iterable[Appended]]) -> list[Appended]:
    """Transactions, each before the next one, and the last before the first; [] without any."""
    done: set[Appended] = set()
    for start in successors:
        path: dict[Appended, Iterator[Appended]] = {}
        current: Appended | None = start
        while current is not None:
            if current not in done and current not in path:
                path[current] = iter(dict.fromkeys(successors.get(current, ())))
            last = next(reversed(path), None)
            if last is None:
                break
            current = next((each for each in path[last] if each not in done), None)
            if current in path:
                members = list(path)
                return members[members.index(current) :]
            if current is None:
                done.add(last)
                del path[last]
                current = next(reversed(path), None)
    return []


class Appender(SimulatedClient):
    """Reads a little, and appends in a transaction to some partitions; it aborts some of them."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        name: str,
        history: History,
        appends: AppendHistory,
        writer: str,
    ) -> None:
        super().__init__(cluster, name, history)
        self._writer = writer
        self._appends = appends
        self._numbers = iter(range(1 << 30))

    async def run(self, partitions: list[TopicPartition]) -> None:
        """Append until the end; after an error with a new producer and consumer."""
        while not self.is_told_to_stop:
            producer = transactional_producer(self, self.name)
            consumer = self._consumer()
            consumer.assign([each for each in partitions if each.topic == TOPIC])
            try:
                assert producer.transactions is not None
                await producer.transactions.init(self._deadline())
                for topic in dict.fromkeys(partition.topic for partition in partitions):
                    await producer.queues_of(topic, METADATA_TIMEOUT_MS)
                while not self.is_told_to_stop:
                    reads = await self._read(consumer)
                    await self._append(producer, producer.transactions, partitions, reads)
                    await self.pause(self._random.randint(1, 2 * INTERVAL_MS))
            except KafkaError:
                await self.pause(RESTART_MS)
            finally:
                await producer.close()
                await consumer.close(Deadline(self.process.clock, CLOSE_TIMEOUT_MS))
        self.is_done = True

    @property
    def _random(self) -> random.Random:
        return self.process.runtime.random

    async def _read(self, consumer: ConsumerCore) -> list[bytes]:
        records = await consumer.poll(Deadline(self.process.clock, READ_MS))
        return [record.value for record in records] if isinstance(records, list) else []

    async def _append(
        self,
        producer: ProducerCore,
        transactions: Transactions,
        partitions: list[TopicPartition],
        reads: list[bytes],
    ) -> None:
        await transactions.begin()
        appended = self._appends.begin(self.cluster.world.now_ms, reads)
        errors = await self._write(producer, partitions, appended)
        is_aborted = self._random.random() < SHARE_ABORTED
        if errors or is_aborted:
            # From here on its end is known, whatever the answer: nobody asks for a commit.
            appended.end = End.ABORTED
            await transactions.abort(self._deadline())
        else:
            await transactions.commit(self._deadline())
            appended.end = End.COMMITTED
        appended.ended_ms = self.cluster.world.now_ms
        if errors:
            raise errors[0]

    async def _write(
        self, producer: ProducerCore, partitions: list[TopicPartition], appended: Appended
    ) -> list[KafkaError]:
        """Write some records, and wait for their answers; returns the errors."""
        count = self._random.randint(1, MAX_WRITES)
        answers = []
        for _ in range(count):
            partition = self._random.choice(partitions)
            number = next(self._numbers)
            value = b"%s-%d-%d" % (self._writer.encode(), partition.partition, number)
            appended.writes[value] = partition
            self.history.sent.setdefault(partition, []).append(value)
            answers.append(self._send(producer, partition, value))
        producer.accumulator.begin_flush()
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        producer.accumulator.end_flush()
        return [each for each in outcomes if isinstance(each, KafkaError)]

    def _send(
        self, producer: ProducerCore, partition: TopicPartition, value: bytes
    ) -> asyncio.Future[None]:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def delivered(metadata: RecordMetadata | None, error: Exception | None) -> None:
            if not answer.done():
                answer.set_result(None) if error is None else answer.set_exception(error)

        queues = producer.accumulator.topics[partition.topic]
        record = (self.process.clock.now_ms(), None, value, ())
        queue = queues.queues[partition.partition]
        producer.accumulator.append(queues, queue, record, len(value) + 20, delivered)
        return answer

    def _deadline(self) -> Deadline:
        return Deadline(self.process.clock, CALL_TIMEOUT_MS)

    def _consumer(self) -> ConsumerCore:
        config = ConsumerConfig.parse(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "request.timeout.ms": 5_000,
            }
        )
        return ConsumerCore(self.process.runtime, config)
