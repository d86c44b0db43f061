"""An application: the queries of a topology, which run in this process and its Spark workers.

Each topic that is written is one query, with its checkpoint and state in
`<state_dir>/<application_id>/<topic>`. A restarted application continues where it ended. With
changelogs it does so on any machine, and its instances share the queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary, finalize

from ottla.clients.admin.admin import Admin
from ottla.clients.admin.descriptions import NewTopic
from ottla.clients.admin.missing_topics import create_missing_topics
from ottla.config.client_config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from ottla.pipelines.execution import Start
from ottla.pipelines.patient_query import PatientQuery
from ottla.pipelines.runner import spark_session
from ottla.spark.checkpoint_topic import (
    CheckpointCopy,
    CheckpointedBatches,
    create_topic,
    retaining_few_batches,
)
from ottla.spark.exactly_once import into_topics
from ottla.spark.sink_options import SinkOptions
from ottla.streams.builder import Sink, StreamsBuilder
from ottla.streams.instance import StreamsInstance
from ottla.streams.naming import STATE_DIR, changelog_topic, lock_folder
from ottla.streams.records import written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.runtime.local_disk import LocalDiskLock

EXACTLY_ONCE = "exactly_once_v2"
AT_LEAST_ONCE = "at_least_once"
POLL_S = 1
STARTED: WeakValueDictionary[Path, Streams] = WeakValueDictionary()
"""The applications that were started in this process last, by their folders."""


@dataclass
class Streams(StreamsBuilder):
    """A topology with the brokers, the Spark session and the folder it runs with.

    `offset_reset` says where an application without a checkpoint begins: earliest, latest, or a
    time; without `fail_on_data_loss` one goes on behind records that were gone before it came
    to them, as when it was down for longer than a topic keeps them. `client` has settings of
    all its clients under Kafka's names, `spark_settings` those of the session, which is the
    active one if any. `trigger` is how often a micro-batch begins; without it, as soon as the
    one before has ended.
    """

    bootstrap_servers: str
    master: str = field(default="local[2]", kw_only=True)
    state_dir: str | Path = field(default=STATE_DIR, kw_only=True)
    offset_reset: str = field(default="earliest", kw_only=True)
    fail_on_data_loss: bool = field(default=True, kw_only=True)
    processing_guarantee: str = field(default=EXACTLY_ONCE, kw_only=True)
    trigger: str | None = field(default=None, kw_only=True)
    client: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    spark_settings: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    changelog: bool = field(default=False, kw_only=True)
    group_instance_id: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.processing_guarantee not in (EXACTLY_ONCE, AT_LEAST_ONCE):
            raise ValueError(
                f"processing_guarantee {self.processing_guarantee}: must be {EXACTLY_ONCE} or "
                f"{AT_LEAST_ONCE}"
            )
        if self.changelog and self.processing_guarantee != EXACTLY_ONCE:
            raise ValueError(f"changelog=True needs processing_guarantee={EXACTLY_ONCE}")
        if self.group_instance_id is not None and not self.changelog:
            raise ValueError(
                f"group_instance_id={self.group_instance_id} needs changelog=True: without it "
                "an application has no group"
            )
        self._start = Start.parse(self.offset_reset)
        self._queries: list[PatientQuery] = []
        self._instance: StreamsInstance | None = None
        self._lock: LocalDiskLock | None = None
        self._session: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        """The session; columns such as `F.col("value")` need one."""
        if self._session is not None:
            return self._session  # the one of the thread that has started the instance
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None:
            return active
        return spark_session(self.application_id, master=self.master, settings=self.spark_settings)

    @property
    def folder(self) -> Path:
        """Where the state is; absolute, as the JVM need not be in the folder that Python is in."""
        return Path(self.state_dir).absolute() / self.application_id

    def run(self) -> None:
        """Run until Ctrl-C or `stop`; raises the exception of a query that fails."""
        self.start()
        try:
            self.await_termination()
        except KeyboardInterrupt:
            pass  # Ctrl-C is how such a run ends
        finally:
            self.stop()

    def run_once(self) -> None:
        """Process the records in the topics now, stage after stage; returns when all is written."""
        self._hold_folder()
        try:
            self._prepare()
            for stage in self._stages():
                self._queries = []
                for sink in stage:
                    self._queries.append(self._begun(sink, {"availableNow": True}))
                try:
                    self.await_termination()
                finally:
                    self._stop_queries()
        finally:
            self.stop()

    def start(self) -> None:
        """Start the queries, and return."""
        if self._is_active():
            raise ValueError(f"{self.application_id} is running")
        self._hold_folder()
        STARTED[self.folder] = self
        try:
            self._begin()
        except BaseException:
            self.stop()
            raise

    def _hold_folder(self) -> None:
        """Keep other instances out of the folder until `stop`.

        One of this process whose queries have ended holds it no longer, though nobody stopped it.
        """
        before = STARTED.get(self.folder)
        if before is not None and not before._is_active():
            before.stop()
        if self._lock is None:
            self._lock = lock_folder(self.folder)
            if self._lock is not None:
                finalize(self, self._lock.release)

    def _begin(self) -> None:
        self._prepare()
        self._queries = []
        if self.changelog:
            self._session = self.spark
            self._instance = self._member()
            self._instance.start()
            return
        for sink in self.sinks:
            self._queries.append(self._begun(sink, self._trigger()))

    def await_termination(self, timeout_s: int | None = None) -> bool:
        """Wait until all queries have ended, or one has failed: it raises, and others continue.

        Returns whether they have ended within the time.
        """
        left_s = timeout_s
        if self._instance is not None:
            while not self._instance.wait(POLL_S):
                left_s = None if left_s is None else left_s - POLL_S
                if left_s is not None and left_s <= 0:
                    return False
            return True
        while True:
            running = [query for query in self._queries if not query.has_ended()]
            if not running or (left_s is not None and left_s <= 0):
                return not running
            running[0].wait(POLL_S)
            left_s = None if left_s is None else left_s - POLL_S

    def stop(self) -> None:
        """End the queries between two micro-batches. Stopping twice does nothing."""
        instance, self._instance = self._instance, None
        try:
            if instance is not None:
                instance.stop()
                self._session = None
            self._stop_queries()
        finally:
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.release()

    def _stop_queries(self) -> None:
        for query in self._queries:
            query.stop()

    @property
    def queries(self) -> list[PatientQuery]:
        """The queries that run in this instance now."""
        if self._instance is not None:
            return self._instance.queries
        return [query for query in self._queries if query.is_active]

    def _is_active(self) -> bool:
        is_member = self._instance is not None and self._instance.is_active
        return is_member or any(query.is_active for query in self._queries)

    def _member(self) -> StreamsInstance:
        sinks = {self._changelog_of(sink): sink for sink in self.sinks}
        client = {"bootstrap.servers": self.bootstrap_servers, **self.client}

        def follow(topic: str) -> CheckpointCopy:
            create_topic(topic, client)  # the group gives no query to anybody without it
            return CheckpointCopy(topic, self.folder / sinks[topic].name, client)

        for topic in sinks:
            create_topic(topic, client)
        return StreamsInstance(
            self.application_id,
            self.group_instance_id,
            client,
            list(sinks),
            lambda topic, copy: self._begun(sinks[topic], self._trigger(), copy),
            follow,
        )

    def _changelog_of(self, sink: Sink) -> str:
        return changelog_topic(self.application_id, sink.name)

    def _trigger(self) -> Mapping[str, Any]:
        return {} if self.trigger is None else {"processingTime": self.trigger}

    def _prepare(self) -> None:
        """Create the topics that are written and do not exist, with the broker's defaults.

        Another instance may start at the same time.
        """
        if not self.sinks:
            raise ValueError(f"{self.application_id} writes no topic: end a stream with to(topic)")
        with Admin(self._settings_of(AdminConfig)) as admin:
            topics = dict.fromkeys(each.topic for each in self.sinks)
            create_missing_topics(admin, map(NewTopic, topics))

    def _stages(self) -> list[list[Sink]]:
        """The sinks in stages: none reads a topic that its own or a later stage writes."""
        reads = {sink.name: self._topics_read(sink) for sink in self.sinks}
        stages, left = [], list(self.sinks)
        while left:
            to_come = {each.topic for each in left}
            stage = [each for each in left if not reads[each.name] & to_come]
            stage = stage or left  # a cycle has no first sink: all that are left run together
            stages.append(stage)
            left = [each for each in left if each not in stage]
        return stages

    def _topics_read(self, sink: Sink) -> set[str]:
        inputs = TopicInputs(self)
        sink.build(inputs)
        return inputs.topics

    def _begun(
        self, sink: Sink, trigger: Mapping[str, Any], copy: CheckpointCopy | None = None
    ) -> PatientQuery:
        """Start the query of a sink; with changelogs from the records of its topic."""
        records = sink.build(TopicInputs(self))
        folder = self.folder / sink.name
        query = (
            written(records)
            .writeStream.option("checkpointLocation", str(folder))
            .queryName(f"{self.application_id}: {sink.name}")
            .outputMode(records.mode)
        )
        if trigger:
            query = query.trigger(**trigger)
        is_exact = self.processing_guarantee == EXACTLY_ONCE
        options = {
            **self._options_of(ProducerConfig),
            "topic": sink.topic,
            "transactionalIdPrefix": self.application_id,
            "exactlyOnce": str(is_exact).lower(),
        }
        if not self.changelog:
            return PatientQuery(into_topics(query, records.mode, options))
        sink_options = SinkOptions.for_stream(options)
        batches = CheckpointedBatches.opened(sink_options, self._changelog_of(sink), folder, copy)
        with retaining_few_batches(self.spark):
            return PatientQuery(query.foreachBatch(batches.write))

    def _settings_of(self, table: type[ClientConfig]) -> dict[str, str]:
        """The settings of one kind of client: those of other kinds are no mistake, and left out."""
        known = {
            name for each in (AdminConfig, ConsumerConfig, ProducerConfig) for name in each.keys
        }
        return {
            "bootstrap.servers": self.bootstrap_servers,
            **{k: v for k, v in self.client.items() if k in table.keys or k not in known},
        }

    def _options_of(self, table: type[ClientConfig]) -> dict[str, str]:
        """The same as options of the source and the sink."""
        return {f"kafka.{key}": value for key, value in self._settings_of(table).items()}

    @property
    def source_options(self) -> dict[str, str]:
        """The settings of consumers, as options of the source."""
        return self._options_of(ConsumerConfig)

    def start_options(self, topic: str) -> Mapping[str, str]:
        """Where a query without a checkpoint begins in a topic, as options of the source."""
        return self._start.of(topic)


class TopicInputs:
    """The topics on the brokers; `topics` are those that were asked for."""

    is_streaming = True

    def __init__(self, application: Streams) -> None:
        self._application = application
        self.topics: set[str] = set()

    def stream(self, topic: str) -> DataFrame:
        """The committed records of a topic, as they come in."""
        self.topics.add(topic)
        reader = self._application.spark.readStream.format("ottla")
        options = {**self._options(topic), **self._application.start_options(topic)}
        return reader.options(**options).load()

    def table(self, topic: str) -> DataFrame:
        """The records of a topic that were committed when a micro-batch begins."""
        self.topics.add(topic)
        reader = self._application.spark.read.format("ottla")
        return reader.options(**self._options(topic)).load()

    def _options(self, topic: str) -> dict[str, str]:
        own = {
            "kafka.isolation.level": "read_committed",
            "failOnDataLoss": str(self._application.fail_on_data_loss).lower(),
            "subscribe": topic,
        }
        return {**self._application.source_options, **own}
