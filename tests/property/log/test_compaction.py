"""A compacted log against a dictionary: written to, compacted, killed and cut off in any order."""

from __future__ import annotations

import random
from pathlib import Path

from breadth import examples
from cleaner_world import CleanerWorld
from compaction_model import Entry, Model, check_answers, dictionary_of
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.log.log_files import PARTITION_METADATA
from ottla.record.compression import CompressionType

PRODUCERS = (1, 2)
DELETE_RETENTION_MS = 5000
FOREVER = 1_000_000
STORIES = 12
OPERATIONS = ["open", "pwrite", "rename", "unlink", "replace", "fsync", "fsync_dir"]


class CompactionMachine(RuleBasedStateMachine):
    """Produces with and without transactions, rolls, compacts, lets time pass, kills."""

    def __init__(self) -> None:
        super().__init__()
        self.world = CleanerWorld()
        self.model = Model()
        self.flushed = 0
        self.counter = 0

    @initialize(segment_bytes=st.sampled_from([300, 1000, 100_000]))
    def configure(self, segment_bytes: int) -> None:
        self.world.configure(segment_bytes=segment_bytes, index_interval_bytes=100)

    @property
    def log(self):
        return self.world.log()

    # -- writing

    def _value(self, is_tombstone: bool) -> bytes | None:
        self.counter += 1
        return None if is_tombstone else b"%d" % self.counter

    @rule(
        records=st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=4),
        codec=st.sampled_from(CompressionType),
        producer_id=st.sampled_from([None, None, *PRODUCERS]),
    )
    def produce(self, records, codec: CompressionType, producer_id: int | None) -> None:
        entries = [
            Entry(b"%d" % key, self._value(is_tombstone), producer_id)
            for key, is_tombstone in records
        ]
        header = {}
        if producer_id is not None:
            state = self.log.producer_state_manager.producers.get(producer_id)
            sequence = 0 if state is None else state.last_sequence + 1
            header = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "is_transactional": True,
            }
        self.world.put(*(entry[:2] for entry in entries), compression=codec, **header)
        self.model.entries += entries

    @rule(producer_id=st.sampled_from(PRODUCERS), is_commit=st.booleans())
    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        if self.model.has_open_transaction(producer_id):
            self.world.end_transaction(producer_id, is_commit)
            self.model.entries.append(Entry(None, None, producer_id, is_commit))

    @rule()
    def roll(self) -> None:
        self.world.roll()
        self.flushed = self.log.recovery_point

    @rule(ms=st.sampled_from([1000, DELETE_RETENTION_MS]))
    def wait(self, ms: int) -> None:
        self.world.runtime.advance(ms)

    # -- compacting

    @rule()
    def compact(self) -> None:
        """What has been compacted holds the last record of each key, and nothing else."""
        self.world.clean()
        end = self.log.cleaned_offset
        assert not self.world.cleaner.uncleanable
        last = self.model.last_records(end)
        expected = {offset for offset, value in last.values() if value is not None}
        tombstones = {offset for offset, value in last.values() if value is None}
        found = {record.offset for record in self.world.records() if record.offset < end}
        assert expected <= found <= expected | tombstones

    @rule(
        operation=st.sampled_from(OPERATIONS),
        skip=st.integers(0, 40),
        seed=st.none() | st.integers(0, 100),
    )
    def die_while_compacting(self, operation: str, skip: int, seed: int | None) -> None:
        """The disk stops working at some call; then the process or the power ends."""
        self.world.runtime.scheduler.run_ready()
        faults = [
            self.world.disk.fail(name, times=FOREVER, skip=skip if name == operation else FOREVER)
            for name in OPERATIONS
        ]
        self.world.clean()
        if all(fault.times == FOREVER for fault in faults):
            self.world.disk.faults.clear()
            return
        for fault in faults:
            fault.skip = 0
        self.world.runtime.advance(2000)
        self.world.disk.faults.clear()
        if seed is None:
            self._restart()
        else:
            self._lose_power(seed)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self._restart(clean=clean)

    @rule(seed=st.integers(0, 100))
    def lose_power(self, seed: int) -> None:
        self._lose_power(seed)

    def _restart(self, *, clean: bool = False) -> None:
        producers = self._producers()
        log = self.world.restart(clean=clean)
        log.update_high_watermark(log.log_end_offset)
        self.flushed = log.recovery_point
        assert log.log_end_offset == len(self.model.entries)
        assert self._producers() == producers

    def _lose_power(self, seed: int) -> None:
        self.world.manager.checkpoints.write_recovery_points()
        self.world.runtime.scheduler.run_ready()
        self.world.disk.crash(random.Random(seed))
        log = self.world.restart()
        log.update_high_watermark(log.log_end_offset)
        assert log.log_end_offset >= self.flushed
        del self.model.entries[log.log_end_offset :]
        self.flushed = log.recovery_point

    def _producers(self) -> dict[int, tuple[int, int]]:
        """What makes a retry harmless, and who has a transaction open."""
        return {
            producer_id: (state.last_sequence, state.current_txn_first_offset)
            for producer_id, state in self.log.producer_state_manager.producers.items()
        }

    # -- reading

    @invariant()
    def records_are_the_last_ones(self) -> None:
        """Each is what was appended there, in order; committed ones make up the dictionary."""
        expected = self.model.last_records(self.log.last_stable_offset)
        assert dictionary_of(self.world, self.model) == {
            key: value for key, (_, value) in expected.items() if value is not None
        }

    @invariant()
    def answers_have_records(self) -> None:
        check_answers(self.world, self.log.high_watermark)
        check_answers(self.world, self.log.last_stable_offset)

    @invariant()
    def no_file_is_left_over(self) -> None:
        assert not self.world.leftovers()


CompactionMachine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
TestCompaction = CompactionMachine.TestCase


def random_story(seed: int) -> CompactionMachine:
    """Some of the machine's steps; in the end a log without open transactions that has stopped.

    Half of the logs are compacted only then, which empties many segments one after the other.
    """
    chance = random.Random(seed)
    machine = CompactionMachine()
    machine.configure(chance.choice([300, 1000]))
    for _ in range(80):
        count = chance.randint(1, 4)
        records = [(chance.randrange(5), chance.random() < 0.3) for _ in range(count)]
        producer_id = chance.choice([None, None, *PRODUCERS])
        machine.produce(records, chance.choice(list(CompressionType)), producer_id)
        if chance.random() < 0.3:
            machine.end_transaction(chance.choice(PRODUCERS), chance.random() < 0.5)
        if seed % 2 and chance.random() < 0.3:
            machine.roll()
            machine.compact()
            machine.wait(chance.choice([1000, DELETE_RETENTION_MS]))
    for producer_id in PRODUCERS:
        machine.end_transaction(producer_id, is_commit=True)
    machine.roll()
    machine.compact()
    machine.world.stop()
    return machine


def put_log(machine: CompactionMachine, directory: Path) -> None:
    """Give a partition of a stopped broker the files of a story's log."""
    for path in directory.iterdir():
        if path.name != PARTITION_METADATA:
            path.unlink()
    disk, source = machine.world.disk, machine.log.dir
    for name in disk.list_dir(source):
        if name != PARTITION_METADATA:
            (directory / name).write_bytes(disk.read_bytes(f"{source}/{name}"))


def test_librdkafka_reads_the_dictionary(start_broker):
    """Every committed record that stays, up to the end of each partition."""
    stories = [random_story(seed) for seed in range(STORIES)]
    process = start_broker(log_cleaner_enable="false")
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    topic = NewTopic("stories", STORIES, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])["stories"].result(60)
    assert process.stop() == 0
    for partition, story in enumerate(stories):
        put_log(story, process.data_dir / f"stories-{partition}")
    process.start()

    found = read_committed(process.bootstrap_servers)
    for partition, story in enumerate(stories):
        last = story.model.last_records(len(story.model.entries))
        assert found[partition] == {key: value for key, (_, value) in last.items() if value}


def read_committed(servers: str) -> list[dict[bytes, bytes]]:
    """The dictionary of each partition, as librdkafka reads it."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("stories", number, 0) for number in range(STORIES)])
    states: list[dict[bytes, bytes]] = [{} for _ in range(STORIES)]
    reading = set(range(STORIES))
    while reading:
        message = consumer.poll(60)
        assert message is not None, f"the ends of {reading} were waited for in vain"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            reading.discard(message.partition())
        elif message.value() is None:
            states[message.partition()].pop(message.key(), None)
        else:
            states[message.partition()][message.key()] = message.value()
    consumer.close()
    return states
