"""WarehouseSink: topics into a Delta table, by a Spark driver that a task starts and watches.

    connector.class=WarehouseSink
    bootstrap.servers=localhost:9092
    topics=pages
    table=lake/pages

Bulk loads divide among many cores, so no record passes through the worker: the task runs
`ottla warehouse load --continuous` as a process, writes its lines into the log, and starts it again
when it dies. Where the load has come to stands in the table, in the same commit as the rows. The
task reads it there and commits it for its group, so that offsets and lag show the progress as of
any sink. A driver ends with the worker that has started it, also with one that is killed. Needs the
extra `spark`.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import LONG
from ottla.config.connect_config import SPARK_CONF
from ottla.config.rule import at_least, not_empty, one_of
from ottla.connect.connector import SinkConnector, TryAgainError
from ottla.connect.connectors import needed
from ottla.connect.data import SinkRecord
from ottla.errors import ConfigError
from ottla.runtime import Chance
from ottla.runtime.child_process import ending_with_parent
from ottla.runtime.io_thread import run_in_thread
from ottla.runtime.timing import Backoff
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

EXTRA: Final = "spark"
STOP_S: Final = 3.0
"""Less than task.shutdown.graceful.timeout.ms; then it is killed, which loses nothing."""
LINES_KEPT: Final = 20
LONGEST_PAUSE_MS: Final = 60_000
COMMIT: Final = "version "
"""In the line that a driver prints for each commit of the table."""


class WarehouseSinkSettings(ConfigTable):
    """The settings of WarehouseSink; most are options of `ottla warehouse load`."""

    bootstrap_servers: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The brokers, as Spark's executors reach them.",
    )
    table: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The folder or URL of the Delta table, which is made if it is not there.",
    )
    load_name: str = config_key(
        default="warehouse",
        rule=not_empty(),
        doc="Under which name the table has the offsets of this load.",
    )
    fields: str = config_key(
        default="", doc="Columns to read from values that are JSON, as in DDL."
    )
    partition_by: str = config_key(
        default="none",
        rule=one_of("none", "day", "hour"),
        doc="Whether the table has a folder for each day or hour.",
    )
    time_column: str = config_key(default="timestamp", doc="The column that gives day and hour.")
    with_headers: bool = config_key(
        default=False, doc="Whether a column keeps the headers of records."
    )
    every_s: int = config_key(
        default=10, rule=at_least(1), doc="How often it looks for new records."
    )
    max_records: int = config_key(
        default=0,
        type=LONG,
        rule=at_least(0),
        doc="How many records a commit has, at most; 0: all there are.",
    )
    accept_new_topic: bool = config_key(
        default=False,
        doc="Whether a topic that was deleted and created again is added to the table, from its "
        "beginning; without this the load ends, and says so.",
    )
    spark_master: str = config_key(default="local[2]", doc="Spark's master.")
    spark_conf: tuple[str, ...] = config_key(default=(), doc="Settings of Spark, as key=value.")
    spark_log: str = config_key(
        default="warehouse-spark.log", importance=LOW, doc="Where Spark logs to."
    )
    restart_backoff_ms: int = config_key(
        default=1000,
        type=LONG,
        rule=at_least(1),
        importance=LOW,
        doc="The first pause before a driver that died is started again; it doubles.",
    )
    max_restarts: int = config_key(
        default=5,
        rule=at_least(0),
        doc="After so many starts in a row without a commit the task fails.",
    )


class LoadProcess:
    """A driver in a process group of its own, which ends with the thread that has started it."""

    def __init__(self, words: Sequence[str], spark_conf: Sequence[str]) -> None:
        """`spark_conf` may have keys of object stores, which no other user may see in a list of
        processes: it is handed on by the environment.
        """
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=os.environ | {"PYTHONUNBUFFERED": "1", SPARK_CONF: "\n".join(spark_conf)},
            start_new_session=True,
            preexec_fn=ending_with_parent(),  # noqa: PLW1509 - it takes no lock
        )

    def lines(self) -> Iterator[str]:
        """Its output, until it ends."""
        assert self._process.stdout is not None, "a pipe"
        with self._process.stdout as lines:
            for line in lines:
                yield line.rstrip()

    def wait(self) -> int:
        """Wait for its end; returns its exit status."""
        return self._process.wait()

    def stop(self) -> None:
        """Have it end after the commit that it makes; kill it if that takes too long."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class WarehouseSink(SinkConnector):
    """Keeps a load running, and shows in its group's offsets how far it has come.

    Its partitions are paused, so that `put` is given nothing.
    """

    Settings = WarehouseSinkSettings
    settings: WarehouseSinkSettings

    _process: LoadProcess | None = None
    _watch: Future[None] | None = None

    def start(self) -> None:
        self._deltalake = needed("deltalake", EXTRA, WarehouseSink)
        words = self.command()
        self._is_stopping = False
        self._watch = run_in_thread(lambda: self._supervise(words), f"load-{self.context.name}")

    def stop(self) -> None:
        self._is_stopping = True
        if self._process is not None:
            self._process.stop()
        if self._watch is not None:
            self._watch.result(STOP_S)

    def command(self) -> list[str]:
        """The command line of the driver."""
        settings = self.settings
        topics = self.context.properties.get("topics", "").replace(" ", "")
        if not topics:
            raise ConfigError("topics: must be set; topics.regex is not loaded by a WarehouseSink")
        words = [sys.executable, "-P", "-m", "ottla", "warehouse", "load", "--continuous"]
        options: dict[str, Any] = {
            "--bootstrap-server": settings.bootstrap_servers,
            "--topic": topics,
            "--table": settings.table,
            "--name": settings.load_name,
            "--partition-by": settings.partition_by,
            "--time-column": settings.time_column,
            "--every": settings.every_s,
            "--master": settings.spark_master,
            "--spark-log": settings.spark_log,
        }
        if settings.fields:
            options["--fields"] = settings.fields
        if settings.max_records:
            options["--max-records"] = settings.max_records
        words += [str(word) for pair in options.items() for word in pair]
        flags = {
            "--headers": settings.with_headers,
            "--accept-new-topic": settings.accept_new_topic,
        }
        return [*words, *(flag for flag, is_set in flags.items() if is_set)]

    def _supervise(self, words: Sequence[str]) -> None:
        """Run drivers in a thread, one after the other, until the task stops or none comes far."""
        backoff = Backoff(self.settings.restart_backoff_ms, LONGEST_PAUSE_MS, Chance().random)
        failures = 0
        last: deque[str] = deque(maxlen=LINES_KEPT)
        while not self._is_over():
            self._process = process = LoadProcess(words, self.settings.spark_conf)
            if self._is_over():
                process.stop()
            for line in process.lines():
                logger.info("%s: %s", self.context.name, line)
                last.append(line)
                if COMMIT in line:
                    failures = 0
                    self.context.request_commit()
            status = process.wait()
            if self._is_over():
                return
            failures += 1
            said = "\n".join(last)
            if failures > self.settings.max_restarts:
                self.context.fail(
                    ConfigError(f"the load ended {failures} times, with {status}, saying:\n{said}")
                )
                return
            delay_ms = backoff.delay_ms(failures)
            logger.warning("%s: the load ended with %s", self.context.name, status)
            self.context.wait(delay_ms / 1000)

    def _is_over(self) -> bool:
        """Whether no other driver is started; a method, as that changes while one runs."""
        return self._is_stopping or self.context.is_stopping

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Read nothing of them: that is the driver's work."""
        self.context.pause(partitions)

    def put(self, records: Sequence[SinkRecord]) -> None:
        """The driver reads records that were fetched before the pause as well."""

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The offsets in the table; those beyond the consumer are committed the next time."""
        loaded = self._loaded(offsets)
        elsewhere = {place: end for place, end in loaded.items() if end != offsets[place]}
        if elsewhere:
            self.context.rewind(elsewhere)
            self.context.request_commit()
        return {place: end for place, end in loaded.items() if end <= offsets[place]}

    def _loaded(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offset of each partition that the table has rows of.

        Offsets of a topic that was deleted and created again do not count: they are of the former.
        """
        errors = self._deltalake.exceptions
        try:
            version = self._deltalake.DeltaTable(self.settings.table).transaction_version
            name = self.settings.load_name
            found = {
                place: version(f"{name}/{place[0]}/{place[1]}")
                for place in partitions
                if not self._is_other_topic(version, place[0])
            }
        except errors.TableNotFoundError:
            return {}
        except errors.DeltaError as error:
            raise TryAgainError(f"table {self.settings.table}: {error}") from error
        return {place: end for place, end in found.items() if end is not None}

    def _is_other_topic(self, version: Callable[[str], int | None], topic: str) -> bool:
        """Whether the table knows the topic of this name by its id, and not the one there is."""
        start, topic_id = f"{self.settings.load_name}/{topic}@", self.context.topic_id(topic)
        return (
            bool(topic_id)
            and version(f"{start}ids") is not None
            and (version(f"{start}{topic_id}") is None)
        )

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Refuse: the offsets are in the table."""
        raise ConfigError(
            "the offsets of a WarehouseSink are in its table: to go back, use "
            "`ottla warehouse rewind`"
        )
