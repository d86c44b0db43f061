"""The plug-in API: the classes that a person writes to bring data into topics, or out of them.

    class Ticks(SourceConnector):
        \"\"\"Counts.\"\"\"

        class Settings(ConfigTable):
            topic: str = config_key(default=REQUIRED, type=STRING, doc="Where the numbers go.")

        def records(self, offset):
            for number in range(offset["number"] + 1 if offset else 0, 10):
                yield SourceRecord(
                    topic=self.settings.topic, value=number, source_offset={"number": number}
                )

A worker makes one object of the class that plans (`tasks`, `watch`), and one for each task
(`start`, then `records` or `put`, then `stop`). Each runs in a thread of its own, where it may
block: code that hangs or raises there stops neither the worker nor its neighbours. All that a
plug-in asks of its worker, it asks of `context`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

from ottla.config.config_def import ConfigTable
from ottla.errors import ErrorCode, RetriableError
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.producer.producer_batch import RecordMetadata
    from ottla.connect.data import Schema, SinkRecord, SourceRecord
    from ottla.metrics.metrics_registry import Beans
    from ottla.record.rows import EncodedRecords

Place: TypeAlias = Mapping[str, Any]
"""A source's partition, or an offset in it: names and simple values, which JSON can hold."""

IDLE_S: Final = 1.0
MOST_RECORDS: Final = 2000


class Connector(ABC):
    """The base of sources and sinks.

    `settings` is the table `Settings`, filled in; a value that breaks a rule has stopped the
    connector before an object of it is made. `tasks` and `watch` are called on the object that
    plans, everything else on those of the tasks.
    """

    Settings: ClassVar[type[ConfigTable]] = ConfigTable
    """The connector's own settings: types, rules, defaults and documentation."""
    kafka_class: ClassVar[str] = ""
    """The class of Java that it stands for: shipped property files ask for that."""
    version: ClassVar[str] = ""
    """Left empty it is that of the package which it comes from."""
    kind: ClassVar[str]

    context: Any
    settings: Any

    def __init__(self, settings: ConfigTable, context: Context) -> None:
        self.settings = settings
        self.context = context

    @classmethod
    def validate(cls, settings: ConfigTable) -> Mapping[str, str]:
        """The faults of settings that keep their rules one by one: a sentence for each key."""
        return {}

    def tasks(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """How the work is split: for each task the settings in which it differs.

        At most `max_tasks`; none at all means that there is nothing to do yet.
        """
        return [{}]

    def watch(self) -> None:
        """Runs beside the tasks, in a thread of its own, until `context.is_stopping`.

        For a connector that looks whether there is more to do, and asks then to be split again.
        """

    def start(self) -> None:
        """Open the task's resources; after a TryAgainError it is called again."""

    def stop(self) -> None:
        """Close the resources of `start`. It is called once, also after an error."""


class TryAgainError(RetriableError):
    """Kafka's RetriableException: raised by a plug-in when the same call may succeed later.

    A system that is down is one of these: it is asked again, and no record is to blame for it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


class SourceBatch(NamedTuple):
    """Records of one partition that are encoded already, and go to the topic as they are.

    For sources that copy whole batches: neither transforms nor converters see them, and a
    connector that has transforms must yield records instead. `source_offset` is that of the last.
    """

    source_partition: Place
    source_offset: Place
    topic: str
    content: EncodedRecords


class TransactionContext(ABC):
    """Where a source's own transactions end, with transaction.boundary=connector (KIP-618)."""

    @abstractmethod
    def commit(self) -> None:
        """Commit after the records that this poll returns."""

    @abstractmethod
    def abort(self) -> None:
        """Abort after the records that this poll returns; they are not in the topic then."""


class Context(ABC):
    """The services of a worker for a connector."""

    name: str
    """The connector's name."""
    properties: Mapping[str, str]
    """All its settings as they were given, also those of the worker's."""

    @property
    @abstractmethod
    def is_stopping(self) -> bool:
        """Whether the worker wants this object to end."""

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Sleep, but at most until the worker wants this object to end: then it is True."""

    @abstractmethod
    def request_task_reconfiguration(self) -> None:
        """Have `tasks` called again, as the things to read have changed."""

    @abstractmethod
    def offset(self, partition: Place) -> dict[str, Any] | None:
        """The offset that was stored last for a partition of a source."""

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """Show the connector as FAILED; for threads of its own, whose errors nobody sees."""


class SourceTaskContext(Context):
    """The services of a worker for a task of a source."""

    beans: Beans
    """What the task measures of its own: the worker shows it beside its own metrics (KIP-877)."""
    transaction: TransactionContext | None
    """None unless the source sets its own boundaries of transactions."""

    def offsets(self) -> Sequence[tuple[Place, dict[str, Any]]]:
        """All partitions that have a stored offset, of this task and its neighbours, and these.

        For a source whose partitions may have other names by now.
        """
        return ()

    def batch(
        self, topic: str, values: Sequence[Any], schema: Schema | None
    ) -> EncodedRecords | None:
        """The values, of records that have nothing else, as the content of one `SourceBatch`.

        None if each must be a record of its own, as a transform looks at it, or one is too long or
        cannot be converted.
        """
        return None


class SinkTaskContext(Context):
    """The services of a worker for a task of a sink."""

    beans: Beans
    """As of a source."""

    @property
    @abstractmethod
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the task reads now."""

    def topic_id(self, topic: str) -> str:
        """The id of a topic that the task reads, "" where brokers have none.

        A topic that was deleted and created again has another one: for a sink that keeps offsets
        itself, those of the former do not count.
        """
        return ""

    def log_range(self, partition: TopicPartition) -> range:
        """The offsets that there are in a partition now."""
        return range(0)

    @abstractmethod
    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read on from these offsets after this call, as of a sink that keeps them itself."""

    @abstractmethod
    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Bring no records of these partitions until `resume`."""

    @abstractmethod
    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Bring records of these partitions again."""

    @abstractmethod
    def request_commit(self) -> None:
        """Commit offsets soon, without waiting for offset.flush.interval.ms."""

    @abstractmethod
    def retry_after(self, timeout_ms: int) -> None:
        """How long the worker waits before it calls `put` again after a TryAgainError."""

    @abstractmethod
    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        """Give a bad record to the dead letter queue, or fail, as errors.tolerance says (KIP-610).

        Offsets are committed only when the future is done.
        """


class SourceConnector(Connector):
    """Brings data into topics. Define `records`, or for full control `poll`.

    The place of a record (`source_partition`, `source_offset`) is stored once it has reached the
    topic, so that a new start continues behind it.
    """

    kind: ClassVar[str] = "source"
    context: SourceTaskContext
    idle_s: float = IDLE_S
    """How long to wait when there is nothing to read now."""
    most_records: int = MOST_RECORDS
    """How many records `poll` takes from `records` at once."""
    no_preview: ClassVar[str] = ""
    """What reading alone would change, if anything: `ottla connect preview` refuses it then."""

    _reading: Iterator[SourceRecord | SourceBatch | None] | None = None

    def partition(self) -> Place:
        """The source partition of a task that has one: the key under which its offset is stored."""
        return {}

    def records(self, offset: dict[str, Any] | None) -> Iterator[SourceRecord | SourceBatch | None]:
        """The records behind `offset`, that of `partition()`; None at a place without an offset.

        Yield None where there is nothing to read now: the task waits `idle_s`, and continues
        the same iterator. After its end `records` is called again, with the offset of the last
        record, when `idle_s` has passed.
        """
        raise TypeError(f"{type(self).__name__} must define records or poll")

    def poll(self) -> Sequence[SourceRecord | SourceBatch]:
        """The next records; an empty list if there are none now, after a wait.

        The default drives `records`.
        """
        found: list[SourceRecord | SourceBatch] = []
        if self._reading is None:
            self._reading = self.records(self._resumed())
        for record in self._reading:
            if record is None:
                break
            found.append(record)
            if len(found) >= self.most_records:
                break
        else:
            self._reading = None
        if found:
            self._last = found[-1].source_offset
        else:
            self.context.wait(self.idle_s)
        return found

    _last: Place | None = None

    def _resumed(self) -> dict[str, Any] | None:
        return dict(self._last) if self._last is not None else self.context.offset(self.partition())

    def commit(self) -> None:
        """Offsets of all records that this task knows to be delivered are stored now."""

    def commit_record(
        self, record: SourceRecord | SourceBatch, metadata: RecordMetadata | None
    ) -> None:
        """A record has reached its topic; `metadata` is None where a transform dropped it.

        Called in the order of records, in the task's thread.
        """

    @classmethod
    def topics(cls, settings: ConfigTable) -> Mapping[str, str]:
        """The topics that the settings name, each with the setting that does, as `tables=a`.

        A name that no topic can have is refused, unless a transform may give another.
        """
        return {}

    @classmethod
    def is_exactly_once(cls, settings: ConfigTable) -> bool:
        """Whether offsets describe places so well that nothing is read twice (KIP-618)."""
        return False

    @classmethod
    def sets_boundaries(cls, settings: ConfigTable) -> bool:
        """Whether it uses `context.transaction` with transaction.boundary=connector."""
        return False

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Sequence[tuple[Place, Place | None]]
    ) -> bool:
        """Offsets are about to be set by a person (KIP-875): raise ConfigError if one is wrong.

        True says that the offsets are understood, which the answer says.
        """
        return False


class SinkConnector(Connector):
    """Takes data out of topics. Define `put`."""

    kind: ClassVar[str] = "sink"
    context: SinkTaskContext

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Write records. After a TryAgainError the same records come again.

        A record that can never be written goes to `context.report`, so that others are.
        """

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Make sure that the records put before `offsets` are kept: they are committed next."""

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The offsets that may be committed, of those put so far; nothing commits nothing."""
        self.flush(offsets)
        return offsets

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are read from now on."""

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are no longer read; their records are committed already."""

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Change offsets as for a source; None takes that of a partition away."""
        return False
