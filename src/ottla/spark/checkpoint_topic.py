"""A query's checkpoint, kept in a compacted topic: state that survives the loss of its folder.

Spark keeps offsets, watermark and state of a query in files of its checkpoint. With a micro-batch
those that have changed are written to the topic as well, keyed by their path, in a transaction that
is part of the batch's decision: output and state count together, or neither does. The topic is the
truth and the folder a copy: a query begins with the files of the topic, on any machine.

Files are written once and carry their batch in their name, so that compaction keeps just the files
keeps. This works for every stateful operation and state store of Spark. It does what changelog
topics do for Kafka Streams; the records are Spark's files, though, and not rows.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from ottla.clients.admin.descriptions import ConfigResource, NewTopic
from ottla.clients.admin.missing_topics import create_missing_topics
from ottla.clients.client_settings import ClosedOnExit
from ottla.clients.consumer.consumer import Consumer
from ottla.clients.producer.producer import Producer
from ottla.config.client_config import ConsumerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.record.consumer_record import ConsumerRecord
from ottla.spark import connections, producers
from ottla.spark.decision_log import DecisionLog
from ottla.spark.exactly_once import (
    BatchCommitter,
    ExactlyOnceBatches,
    Prepared,
    SinkError,
    TakenOverError,
    commit_or_abort,
    sink_id_of,
    transactional_id_of,
    transactional_settings,
    went_back,
)
from ottla.spark.sink_options import SinkOptions
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

# Brokers take records of max.message.bytes, 1 MiB unless set; larger files are several records.
PIECE_BYTES = 900_000
METADATA = "metadata"
COPY_POLL_MS = 200
# A decided transaction ends within moments; one that does not is a late driver's.
POLLS_UNTIL_ANOTHER_BEGIN = 25
RETAINED = "spark.sql.streaming.minBatchesToRetain"
RETAINED_BATCHES = "2"
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.3"}


class FileVersion(NamedTuple):
    """Facts that differ between a file and another one of its name."""

    size: int
    modified_ns: int
    inode: int


def versions_of(folder: Path) -> dict[str, FileVersion]:
    """The files of a checkpoint by their paths in it, without those that are being written."""
    found: dict[str, FileVersion] = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith((".", "_temporary"))]
        for name in names:
            if name.startswith(".") or name.endswith(".tmp"):
                continue
            path = Path(parent, name)
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # Spark deletes files that it no longer needs at any time
            version = FileVersion(status.st_size, status.st_mtime_ns, status.st_ino)
            found[path.relative_to(folder).as_posix()] = version
    return found


@contextmanager
def retaining_few_batches(session: SparkSession) -> Iterator[None]:
    """Queries that are started meanwhile keep the files of few batches: the topic has them too."""
    before = session.conf.get(RETAINED)
    session.conf.set(RETAINED, RETAINED_BATCHES)
    try:
        yield
    finally:
        if before is not None:
            session.conf.set(RETAINED, before)


def create_topic(topic: str, settings: Mapping[str, str]) -> UUID | None:
    """Create the topic of a checkpoint with one compacted partition, unless it is there; its id."""
    admin = connections.admin(settings)
    if create_missing_topics(admin, [NewTopic(topic, 1, configs=CONFIGS)]):
        return topic_id_of(topic, settings)
    resource = ConfigResource.topic(topic)
    policy = admin.describe_configs([resource])[resource]["cleanup.policy"].value
    if policy != "compact":
        raise ValueError(
            f"topic {topic}: cleanup.policy is {policy} and must be compact, or the state of "
            "the query would be deleted with old records"
        )
    return topic_id_of(topic, settings)


def topic_id_of(topic: str, settings: Mapping[str, str]) -> UUID | None:
    """The id of a topic; None if there is no topic of that name."""
    try:
        return connections.admin(settings).describe_topics([topic])[topic].topic_id
    except KafkaError as error:
        if error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None


class CheckpointCopy(ClosedOnExit):
    """A folder with the files of a topic, which follows the topic: a warm standby.

    Nothing else may use the folder meanwhile. Files in it from before are replaced with the first
    record, or left alone while the topic has none.
    """

    def __init__(self, topic: str, folder: Path, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._where = TopicPartition(topic, 0)
        self._consumer = Consumer(
            settings={
                "client.id": connections.CLIENT_ID,
                **ConsumerConfig.known_of(settings),
                "isolation.level": "read_committed",
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": "false",  # it would not be compacted
            }
        )
        self._consumer.assign([self._where])
        self._is_begun = False

    def poll(self, timeout_ms: int = COPY_POLL_MS) -> int:
        """Write the files of committed records; returns how many records there were."""
        records = self._consumer.poll(timeout_ms)
        if records and not self._is_begun:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._is_begun = True
        for record in records:
            self._apply(record)
        return len(records)

    def read_to(self, end: int) -> None:
        """Read committed records before an offset, which no open transaction may hold back."""
        while self.position < end:
            self.poll()

    @property
    def position(self) -> int:
        """The offset of the next record."""
        return self._consumer.position(self._where)

    @property
    def stable_end(self) -> int:
        """The end of the committed records; a transaction that is open stands behind it."""
        return self._consumer.end_offsets([self._where])[self._where]

    @property
    def end(self) -> int:
        """The end of all records, those of open transactions as well."""
        return self._consumer.log_end_offsets([self._where])[self._where]

    def query_id(self) -> str | None:
        """The id of the query whose checkpoint this is; None if there is none yet."""
        try:
            text = (self._folder / METADATA).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return str(json.loads(text)["id"])

    def newest_batch(self) -> int | None:
        """The newest batch in the folder: it counts, as the topic has it."""
        names = (each.name for each in (self._folder / "offsets").glob("*"))
        return max((int(name) for name in names if name.isdigit()), default=None)

    def close(self) -> None:
        """Close the connections; the folder stays."""
        self._consumer.close()

    def _apply(self, record: ConsumerRecord) -> None:
        name, piece = file_of(record)
        path = self._folder / name
        if record.value is None:
            if not piece:
                path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if not piece:
            path.write_bytes(record.value)
            return
        with path.open("ab") as file:
            if file.tell() == piece * PIECE_BYTES:  # else of a longer file that is replaced
                file.write(record.value)


def file_of(record: ConsumerRecord) -> tuple[str, int]:
    """The path that a record has its content for, within the folder, and the number of the piece.

    SinkError for a key that no checkpoint has: it may lead to any file of this machine.
    """
    key = (record.key or b"").decode("utf-8", "backslashreplace")
    name, _, piece = key.partition("#")
    is_inside = all(part.strip(".") for part in name.split("/")) and "\0" not in name
    is_number = piece.isascii() and piece.isdecimal() and len(piece) < 10
    if not is_inside or (piece and not is_number):
        raise SinkError(
            f"{record.topic}-{record.partition} offset {record.offset}: the key {key[:100]!r} is "
            "no file of a checkpoint; nothing else may write to its topic"
        )
    return name, int(piece or 0)


def pieces_of(path: str, content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The records of a file: the first has its path as key, others its path and a number."""
    yield path.encode(), content[:PIECE_BYTES]
    for number, begin in enumerate(range(PIECE_BYTES, len(content), PIECE_BYTES), start=1):
        yield f"{path}#{number}".encode(), content[begin : begin + PIECE_BYTES]


@dataclass(frozen=True)
class CheckpointedBatches(ExactlyOnceBatches):
    """The function for `foreachBatch` of a query whose checkpoint is kept in a topic as well.

    Use `opened`, then start the query with `folder` as its `checkpointLocation`.
    """

    topic: str
    folder: Path
    _run: str = field(default_factory=lambda: secrets.token_hex(4))
    _stored: dict[str, FileVersion] = field(default_factory=dict)
    """The files in the topic, and in `_topic_id` which topic that is."""
    _topic_id: list[UUID | None] = field(default_factory=list)
    _committers: list[BatchCommitter] = field(default_factory=list)

    @classmethod
    def opened(
        cls, options: SinkOptions, topic: str, folder: Path, copy: CheckpointCopy | None = None
    ) -> Self:
        """Take the query over from whichever instance had it, with its folder as the topic says.

        `copy` has followed the topic so far, and is closed here. A folder that is there is kept if
        the topic is empty: its query did not have a topic before.
        """
        topic_id = create_topic(topic, options.client)
        batches = cls(options, topic, folder, _topic_id=[topic_id])
        with copy or CheckpointCopy(topic, folder, options.client) as follower:
            batches._restore(follower)
        return batches

    def _restore(self, copy: CheckpointCopy) -> None:
        copy.read_to(copy.stable_end)
        query_id = copy.query_id()
        if not copy.position:
            if query_id is not None:
                self._check_age(query_id, copy.newest_batch())
            return
        if query_id is None:
            raise SinkError(
                f"{self.topic}: has records and no query's id, so that it is no checkpoint; reset "
                "the application, or delete the topic where an instance has the whole folder"
            )
        committer = self._begun(query_id)
        end = copy.end
        polls = 0
        while copy.position < end:
            copy.poll()
            polls += 1
            if polls % POLLS_UNTIL_ANOTHER_BEGIN == 0:
                committer.begin()
        newest = copy.newest_batch()
        if newest is not None:
            committer.assume_decided(newest, self.topic)
        self._stored.update(versions_of(self.folder))
        logger.info("%s: restored up to batch %s of %s", self.topic, newest, query_id)

    def _check_age(self, query_id: str, newest: int | None) -> None:
        """Refuse a folder that is older than the output: an instance elsewhere has the newer."""
        sink_id = sink_id_of(self.options, query_id)
        decision = DecisionLog(sink_id, self.options.client).newest()
        before = -1 if newest is None else newest
        if decision is not None and decision.batch_id > before:
            raise went_back(sink_id, before, decision.batch_id)

    def _begun(self, query_id: str) -> BatchCommitter:
        committer = BatchCommitter(sink_id_of(self.options, query_id), self.options.client)
        committer.begin()
        self._committers.append(committer)
        return committer

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write and commit a batch with its checkpoint; runs in the driver."""
        if not self._committers:
            self._announce()
        super().write(batch, batch_id)

    def _commit(self, batch_id: int, prepared: list[Prepared]) -> None:
        committer = self._committers[0]
        found = versions_of(self.folder)
        try:
            is_decided = committer.has_decided(batch_id)
            if not is_decided:
                self._follow_topic()
                prepared.append(self._prepare(prepared[0].sink_id, batch_id, found))
        except BaseException:
            committer.abort(batch_id, prepared)
            raise
        commit_or_abort(committer, batch_id, prepared)
        if not is_decided:
            self._stored.clear()
            self._stored.update(found)

    def _follow_topic(self) -> None:
        """Have all files written where the topic was deleted: what has changed is no checkpoint."""
        topic_id = topic_id_of(self.topic, self.options.client)
        if topic_id is None or topic_id != self._topic_id[0]:
            logger.warning("%s was deleted: all of %s is written again", self.topic, self.folder)
            self._topic_id[0] = create_topic(self.topic, self.options.client)
            self._stored.clear()

    def _announce(self) -> None:
        """Write the query's id to the topic, before its first batch; an error if there is another.

        From then on each instance that begins knows the id, and fences the others under it.
        """
        metadata = self.folder / METADATA
        query_id = str(json.loads(metadata.read_text(encoding="utf-8"))["id"])
        settings = transactional_settings(self.options)
        with Producer({**settings, "transactional.id": f"{self.topic}-owner"}) as producer:
            producer.init_transactions()
            admin = connections.admin(self.options.client)
            where = TopicPartition(self.topic, 0)
            if admin.list_offsets({where: -1})[where].offset:
                raise TakenOverError(sink_id_of(self.options, query_id))
            producer.begin_transaction()
            producer.send(self.topic, metadata.read_bytes(), key=METADATA, partition=0)
            producer.commit_transaction()
        self._begun(query_id)

    def _prepare(self, sink_id: str, batch_id: int, found: Mapping[str, FileVersion]) -> Prepared:
        """Write the files changed since the last batch, in a transaction that is left open."""
        name = transactional_id_of(sink_id, self._run, batch_id, "changelog-0")
        count = 0
        settings = transactional_settings(self.options)
        with producers.transactional_producer(settings, name) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for key, value in self._changes(found):
                producer.send(self.topic, value, key=key, partition=0)
                count += 1
            if not count:
                raise SinkError(f"{self.topic}: a batch has left no trace in {self.folder}")
            return Prepared(sink_id, producer.prepare_transaction(), self.topic, count)

    def _changes(self, found: Mapping[str, FileVersion]) -> Iterator[tuple[bytes, bytes | None]]:
        """Records of files that are new, and records without value for pieces that are gone."""
        for path, version in found.items():
            before = self._stored.get(path)
            if version == before:
                continue
            try:
                content = (self.folder / path).read_bytes()
            except FileNotFoundError:
                continue  # deleted just now; the next batch says so
            yield from pieces_of(path, content)
            if before is not None:
                yield from _without(path, _count(version.size), _count(before.size))
        for path in self._stored.keys() - found.keys():
            yield from _without(path, 0, _count(self._stored[path].size))


def _count(size: int) -> int:
    """How many records a file of this size is."""
    return max(1, -(-size // PIECE_BYTES))


def _without(path: str, first: int, end: int) -> Iterator[tuple[bytes, None]]:
    for number in range(first, end):
        yield (f"{path}#{number}" if number else path).encode(), None
