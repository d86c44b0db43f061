"""A log manager in virtual time on a disk in memory, and what tests do with it."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.log.log import Log, LogAppendInfo
from ottla.log.log_cleaner import LogCleaner
from ottla.log.log_manager import LogManager
from ottla.log.replica_moves import ReplicaMoves
from ottla.record.batch_builder import build_batch
from ottla.record.record_batch import Record, batches
from ottla.structs import NO_UUID, TopicPartition
from ottla.testing import mock_runtime

DIR = "/data"
PARTITION = TopicPartition("topic", 0)
NOW_MS = 1_700_000_000_000
SMALL = {"segment.bytes": "1000", "index.interval.bytes": "100", "file.delete.delay.ms": "1000"}


def new_batch(*values: bytes, timestamp_ms: int = NOW_MS, key: bytes = b"k", **header) -> bytes:
    """A batch of records with these values; `header` as for `build_batch`."""
    return build_batch([(timestamp_ms, key, value, ()) for value in values], **header)


class LogWorld:
    """One broker's logs; `start` begins a new life on the same disk."""

    def __init__(self, runtime=None, directory: str = DIR, **broker_settings: str) -> None:
        self.runtime = runtime or mock_runtime()
        if runtime is None:
            self.runtime.clock.advance(NOW_MS - self.runtime.clock.now_ms())
        self.disk = self.runtime.disk
        self.directory = directory
        self.topic = dict(SMALL)
        self.broker_settings = {"log.dirs": directory, **broker_settings}
        self.start()

    def start(self) -> None:
        self.config = BrokerConfig.parse(self.broker_settings)
        self.manager = LogManager(self.runtime, self.config, lambda _: self.topic_config())
        self.cleaner = LogCleaner(self.manager) if self.config.log_cleaner_enable else None
        self.moves = ReplicaMoves(self.manager, self.cleaner)
        self.manager.attach(*filter(None, (self.cleaner, self.moves)))
        self.manager.acquire()
        self.runtime.scheduler.run(self.manager.startup())

    def topic_config(self) -> TopicConfig:
        return TopicConfig.of(self.config, self.topic)

    def configure(self, **settings: object) -> None:
        """Set topic settings (dots as underscores) for the logs that are there and to come."""
        self.topic |= {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.manager.update_topic_config(PARTITION.topic)

    def stop(self) -> None:
        """End as a broker should."""
        self.runtime.scheduler.run(self.manager.shutdown())

    def kill(self) -> None:
        """End as kill -9 does: the page cache survives, nothing is written any more."""
        for timer in self.manager._timers:
            timer.cancel()
        for log in self.manager.all_logs():
            log.is_deleted = True
        self.disk.locked.clear()

    def restart(self, *, clean: bool = False) -> Log:
        """A new life on the same files; returns the log of the partition."""
        if clean:
            self.stop()
        else:
            self.kill()
        self.start()
        return self.log()

    def log(self, partition: int = 0) -> Log:
        """The log of a partition of the topic, made if there is none."""
        topic_partition = TopicPartition(PARTITION.topic, partition)
        return self.manager.get_or_create_log(topic_partition, NO_UUID)

    def append(self, *values: bytes, epoch: int | None = None, **header) -> LogAppendInfo:
        """Append one batch to partition 0, in the latest epoch if none is named, and commit it."""
        log = self.log()
        if epoch is None:
            epoch = max(0, log.leader_epoch_cache.latest_epoch)
        data = memoryview(bytearray(new_batch(*values, **header)))
        if header.get("is_transactional"):
            producer = (header["producer_id"], header["producer_epoch"])
            self.confirm_transaction(*producer, header.get("base_sequence", 0))
        info = log.append_as_leader(data, epoch, now_ms=self.runtime.clock.now_ms())
        log.update_high_watermark(log.log_end_offset)
        return info

    def confirm_transaction(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Say that the coordinator has the partition in the producer's transaction."""
        producers = self.log().producer_state_manager
        verification = producers.begin_verification(producer_id, producer_epoch, sequence)
        if verification is not None:
            verification.is_confirmed = True

    def append_many(self, count: int, **header) -> None:
        """Append batches of one record, whose values are their offsets."""
        start = self.log().log_end_offset
        for offset in range(start, start + count):
            self.append(b"%d" % offset, **header)

    def path(self, name: str) -> str:
        return f"{self.log().dir}/{name}"

    def names(self) -> list[str]:
        """The files of partition 0."""
        return self.disk.list_dir(self.log().dir)

    def active_path(self) -> str:
        return self.log().segments.active.path

    def overwrite(self, path: str, data: bytes) -> None:
        """Put other contents into a file."""
        file = self.disk.open(path, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.close()


def read_all(log: Log, start: int | None = None, max_bytes: int = 10_000) -> list[Record]:
    """Every record from an offset to the end, read in fetches of `max_bytes`."""
    offset = log.log_start_offset if start is None else start
    records: list[Record] = []
    while True:
        data = log.read(offset, max_bytes, max_offset=log.log_end_offset, min_one_message=True)
        if data.records is None:
            return records
        for batch in batches(data.records.read()):
            batch.verify()
            records += [record for record in batch.records() if record.offset >= offset]
            offset = batch.next_offset


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def numbers(start: int, stop: int) -> list[bytes]:
    """The values that `append_many` gives to these offsets."""
    return [b"%d" % offset for offset in range(start, stop)]
