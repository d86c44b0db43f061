"""Rows of a table without Spark: the columns of the source, written as a task writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from ottla.spark.options import all_columns
from ottla.spark.source import source_schema
from ottla.structs import TopicPartition
from ottla.warehouse.data_files import write_batches
from ottla.warehouse.loads import Load

COLUMNS = source_schema(all_columns(with_headers=False))
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
TYPES = (
    pa.binary(),
    pa.binary(),
    pa.string(),
    pa.int32(),
    pa.int64(),
    pa.timestamp("us", "UTC"),
    pa.int32(),
)


def records(where, start, end):
    """The records of a range of offsets as an Arrow batch."""
    moment = datetime(2026, 3, 2, tzinfo=UTC)
    rows = [
        (None, b"%d" % n, where.topic, where.partition, n, moment, 0) for n in range(start, end)
    ]
    columns = zip(*rows, strict=True) if rows else [[] for _ in NAMES]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, NAMES)


def load_of(number, starts, ends, name="load", topic_ids=()):
    return Load(name, number, dict(starts), dict(ends), topic_ids=dict(topic_ids))


def write(home, load):
    """What the tasks of a load write."""
    batches = [records(each, load.starts[each], load.ends[each]) for each in sorted(load.ends)]
    folder = home.staging(load.name)
    return write_batches(batches, home.place.filesystem(), (), folder)


def wider(*names):
    """The columns of the source and further ones, which are texts."""
    from pyspark.sql.types import StringType

    return StructType([*COLUMNS.fields, *(StructField(name, StringType()) for name in names)])


START = datetime(2026, 3, 2, tzinfo=UTC)


class KeyedTopic:
    """A keyed topic whose partitions can be added to; readers go through its partitions apart."""

    def __init__(self, chance, keys):
        self.chance, self.keys = chance, keys
        self.logs = [[]]
        self.read = [0]
        self.truth = {}
        self.count = self.now = 0

    def add_partitions(self):
        for _ in range(self.chance.randrange(1, 4)):
            self.logs.append([])
            self.read.append(0)
        self.now += 1  # nobody sends to the old and the new partition in one millisecond

    def send(self):
        """A change or the deletion of a row, with a time that goes on with the log."""
        key = self.chance.randrange(self.keys)
        partition = key * 7 % len(self.logs)
        self.count += 1
        self.now += self.chance.choice((0, 1, 1, 5))
        is_deleted = self.chance.random() < 0.3
        time = START + timedelta(milliseconds=self.now)
        log = self.logs[partition]
        log.append((str(key), self.count, is_deleted, time, partition, len(log)))
        if is_deleted:
            self.truth.pop(str(key), None)
        else:
            self.truth[str(key)] = self.count

    def batch(self, *, is_all=False):
        """What a micro-batch has of each partition: some of what is there."""
        found = []
        for number, log in enumerate(self.logs):
            left = len(log) - self.read[number]
            taken = left if is_all else self.chance.randrange(left + 1)
            found += log[self.read[number] : self.read[number] + taken]
            self.read[number] += taken
        return found
