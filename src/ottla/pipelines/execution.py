"""Runs a pipeline: one streaming query for each output, and the tables of the report.

Each query has its own checkpoint below `state`; a restarted run continues where it
ended. All that is written, to topics and to tables, is there exactly once; topics are read as
`read_committed`. `Tally` adds up the work of the queries, from the progress that Spark reports.
"""

from __future__ import annotations

import json
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.pipelines.patient_query import PatientQuery
from ottla.pipelines.pipeline import Frames, Input, Output, Parameters, Pipeline
from ottla.pipelines.records import (
    DELETED,
    TABLE_ORDER,
    merged,
    observed,
    records_of,
    result_of,
    rows_of,
    table_of,
    unusable,
)
from ottla.pipelines.tables import ResultTable
from ottla.pipelines.topics import Pace, check_outputs, create_topics, sample_files
from ottla.spark.exactly_once import into_topics
from ottla.spark.offsets import Offsets, OffsetsError, Reach, parse_offsets, to_json_object
from ottla.warehouse.delta import read_table
from ottla.warehouse.sinks import AppendSink, MergeSink
from ottla.warehouse.table_location import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Execution:
    """A pipeline on the brokers of `servers`, with its state in a folder."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        servers: str,
        state: Path,
        options: RunOptions,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._servers = servers
        self._state = state
        self._options = options
        self.parameters = pipeline.with_parameters(options.parameters)
        self._outputs = pipeline.built(self._streams(), self.parameters)
        self.tally = Tally()
        self._seen: dict[str, int] = {}
        self._noted: dict[str, str] = {}  # when the last batch that Spark has reported began
        self._started_s = time.monotonic()

    def run_once(self, on_batch: BatchDone) -> None:
        """Read the present records of the topics, stage by stage; returns when all is written."""
        for outputs in self._pipeline.stages:
            writers = [self._query(each).trigger(availableNow=True) for each in outputs]
            self._follow([PatientQuery(each) for each in writers], on_batch, lambda: False)

    def run_continuously(self, on_batch: BatchDone, is_over: Callable[[], bool]) -> None:
        """Run until `is_over`, or until a query fails."""
        queries = []
        for output in self._pipeline.outputs:
            query = self._query(output)
            if self._options.trigger is not None:
                query = query.trigger(processingTime=self._options.trigger)
            queries.append(PatientQuery(query))
        self._follow(queries, on_batch, is_over)

    def write_tables(self, folder: Path) -> dict[str, ResultTable]:
        """The tables of the report as they are now, each also as a folder of Parquet.

        Raises OutputGoneError rather than have them say that nothing was there before.
        """
        check_outputs(self._servers, self._pipeline, self._state / CHECKPOINTS)
        topics = self.topics()
        self.tally.malformed_in_tables = sum(
            unusable(self._read(each.topic), each).count()
            for each in self._pipeline.inputs
            if each.is_table
        )
        tables = {}
        # Several sections read the same outputs: these are read and parsed once for all of them.
        shared = self._pipeline.outputs if len(self._pipeline.sections) > 1 else ()
        kept = [topics[each.topic].persist() for each in shared]
        try:
            for section in self._pipeline.sections:
                path = folder / section.name
                table = section.table(topics, self.parameters)
                table.coalesce(1).write.mode("overwrite").parquet(str(path))
                tables[section.name] = ResultTable.read(path)
        finally:
            for each in kept:
                each.unpersist()
        return tables

    def topics(self) -> Frames:
        """Every topic of the pipeline as a batch of rows."""
        inputs = {each.topic: self._batch(each) for each in self._pipeline.inputs}
        outputs = {
            each.topic: self._table(each) if each.is_table else self._topic(each)
            for each in self._pipeline.outputs
        }
        return {**inputs, **outputs}

    def _topic(self, output: Output) -> DataFrame:
        return result_of(self._read(output.topic), output, self._outputs[output.topic].schema)

    def _table(self, output: Output) -> DataFrame:
        """The table as it is; before the first batch there is none."""
        place = self._state / TABLES / output.topic
        if place.exists():
            return read_table(self._spark, place)
        schema = merged(self._outputs[output.topic], output).schema
        return self._spark.createDataFrame([], schema)

    def _streams(self) -> dict[str, DataFrame]:
        return {
            each.topic: self._batch(each) if each.is_table else self._stream(each)
            for each in self._pipeline.inputs
        }

    def _batch(self, source: Input) -> DataFrame:
        records = self._read(source.topic)
        return table_of(records, source) if source.is_table else rows_of(records, source)

    def _read(self, topic: str) -> DataFrame:
        reader = self._spark.read.format("ottla").options(**self._source_options(topic))
        return reader.load()

    def _stream(self, source: Input) -> DataFrame:
        reader = self._spark.readStream.format("ottla").options(
            **self._source_options(source.topic), **self._options.start.of(source.topic)
        )
        if self._options.max_offsets_per_trigger is not None:
            reader = reader.option("maxOffsetsPerTrigger", self._options.max_offsets_per_trigger)
        return rows_of(observed(reader.load(), source), source)

    def _source_options(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._servers,
            "kafka.isolation.level": "read_committed",
            "subscribe": topic,
        }

    def _query(self, output: Output) -> DataStreamWriter:
        rows = self._outputs[output.topic]
        records = rows if output.is_table else records_of(rows, output)
        checkpoint = self._state / CHECKPOINTS / output.topic
        return (
            self._written(records.writeStream, output)
            .option("checkpointLocation", str(checkpoint))
            .outputMode(output.mode)
            .queryName(f"{self._pipeline.name}: {output.topic}")
        )

    def _written(self, stream: DataStreamWriter, output: Output) -> DataStreamWriter:
        if output.is_table:
            return stream.foreachBatch(self._sink(output))
        options = {"kafka.bootstrap.servers": self._servers, "topic": output.topic}
        return into_topics(stream, output.mode, options)

    def _sink(self, output: Output) -> AppendSink | MergeSink:
        place = Place.of(self._state / TABLES / output.topic)
        if output.identity:
            return MergeSink(place, output.identity, TABLE_ORDER, DELETED)
        return AppendSink(place)

    def _follow(
        self,
        queries: Sequence[PatientQuery],
        on_batch: BatchDone,
        is_over: Callable[[], bool],
    ) -> None:
        """Report the batches until all queries have ended, or it is over; a failed one raises."""
        try:
            running = list(queries)
            while running and not is_over():
                time.sleep(POLL_S)
                self._report(queries, on_batch)
                running = [query for query in running if not query.has_ended()]
        finally:
            for query in queries:
                query.stop()
            self._report(queries, on_batch)

    def _report(self, queries: Sequence[PatientQuery], on_batch: BatchDone) -> None:
        for query in queries:
            for batch in self._new_batches(query.current):
                at_s = time.monotonic() - self._started_s
                self.tally.add(at_s, batch)
                on_batch(at_s, batch)

    def _new_batches(self, query: StreamingQuery) -> Iterator[Batch]:
        """The batches not reported yet; Spark also reports, now and then, that nothing came in.

        Spark's list of the last hundred takes long to read: it is for those that were missed.
        """
        newest = query.lastProgress
        name = "" if newest is None else str(newest.name)
        if newest is None or self._noted.get(name) == newest.timestamp:
            return
        self._noted[name] = newest.timestamp
        is_next = newest.batchId <= self._seen.get(name, -1) + 1
        for progress in [newest] if is_next else query.recentProgress:
            report = json.loads(progress.json)
            if "addBatch" not in report["durationMs"]:
                continue
            batch = batch_of(report)
            if batch.number > self._seen.get(batch.query, -1):
                self._seen[batch.query] = batch.number
                yield batch


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of one query: rows in, duration, and how many records are still waiting.

    `late` are the rows that came after the watermark had passed their time, as the operators that
    keep state count them: rows of one group that arrive together count as one. `observed` are the
    counts of each input: "rows" read, those that are "malformed", and these by their reasons.
    """

    query: str
    number: int
    rows: int
    seconds: float
    lag: int
    late: int
    state_rows: int
    observed: Mapping[str, Mapping[str, int]]

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


def batch_of(report: Mapping[str, Any]) -> Batch:
    """A batch from the JSON of Spark's StreamingQueryProgress."""
    operators = report.get("stateOperators", ())
    return Batch(
        query=report["name"],
        number=report["batchId"],
        rows=report["numInputRows"],
        seconds=report["batchDuration"] / 1000,
        lag=sum(_lag(source) for source in report["sources"]),
        late=sum(each["numRowsDroppedByWatermark"] for each in operators),
        state_rows=sum(each["numRowsTotal"] for each in operators),
        observed=report.get("observedMetrics", {}),
    )


def _lag(source: Mapping[str, Any]) -> int:
    """The number of records in the topics that were not read yet."""
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    return sum(max(0, latest[where] - end.get(where, 0)) for where in latest)


def _offsets(value: Any) -> Offsets:
    """The source's offsets, which come as JSON or as text that is JSON."""
    found = json.loads(value) if isinstance(value, str) else value
    return Reach.from_json_object(found or {}).offsets


@dataclass(slots=True)
class Tally:
    """The batches of a run, the newest last, and the sums over all of them."""

    batches: list[tuple[float, Batch]] = field(default_factory=list)
    _last: dict[str, Batch] = field(default_factory=dict)
    _counts: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    late: int = 0
    malformed_in_tables: int = 0

    def add(self, at_s: float, batch: Batch) -> None:
        """Add a batch that ended `at_s` seconds after the start."""
        self.batches.append((at_s, batch))
        self._last[batch.query] = batch
        self.late += batch.late
        for topic, counts in batch.observed.items():
            of_queries = self._counts.setdefault(topic, {})
            of_queries.setdefault(batch.query, Counter()).update(counts)

    @property
    def rows(self) -> int:
        """Records that were read; of queries that read the same topic, the one that read most."""
        return self._most("rows")

    @property
    def malformed(self) -> int:
        """Records that were no object of their topic's schema."""
        return self._most("malformed") + self.malformed_in_tables

    def _most(self, name: str) -> int:
        return sum(
            max(counts[name] for counts in of_queries.values())
            for of_queries in self._counts.values()
        )

    def ledger(self) -> list[dict[str, Any]]:
        """The fate of the records of each input in this run: used + left out = read."""
        found = []
        for topic, of_queries in sorted(self._counts.items()):
            counts = max(of_queries.values(), key=lambda each: each["rows"])
            reasons = {
                name: count
                for name, count in counts.items()
                if count and name not in ("rows", "malformed")
            }
            if counts["malformed"] > sum(reasons.values()):
                reasons[BY_PIPELINE] = counts["malformed"] - sum(reasons.values())
            outcomes = {"used": counts["rows"] - counts["malformed"], **reasons}
            outcomes["records read"] = counts["rows"]
            found += [
                {"topic": topic, "outcome": name, "records": count}
                for name, count in outcomes.items()
            ]
        return found

    @property
    def lag(self) -> int:
        """Records that wait for the query that is furthest behind."""
        return max((batch.lag for batch in self._last.values()), default=0)

    @property
    def state_rows(self) -> int:
        return sum(batch.state_rows for batch in self._last.values())

    def seconds_per_batch(self) -> float:
        return _mean(batch.seconds for _, batch in self.batches)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


BY_PIPELINE = "left out by the pipeline's own rules"
CHECKPOINTS = "checkpoints"
TABLES = "tables"
POLL_S = 0.1

BatchDone = Callable[[float, Batch], object]


@dataclass(frozen=True, slots=True)
class Start:
    """Where a query without a checkpoint begins, as options of the source."""

    options: Mapping[str, str]
    offsets: Offsets | None = None
    """Offsets that were given, of any topics."""

    @classmethod
    def parse(cls, text: str) -> Start:
        """earliest, latest, a time (ISO 8601 or ms since 1970), or offsets as JSON."""
        if text in ("earliest", "latest"):
            return cls({"startingOffsets": text})
        if text.startswith("{"):
            try:
                return cls({"startingOffsets": text}, parse_offsets(text))
            except OffsetsError as error:
                raise ValueError(f"'{text}' is no {error}") from None
        try:
            ms = int(text) if text.isdigit() else _ms(datetime.fromisoformat(text))
        except ValueError:
            raise ValueError(
                f"'{text}' is none of: earliest, latest, a time such as 2026-03-02T08:00:00Z, "
                "milliseconds since 1970, offsets as JSON"
            ) from None
        strategy = {"startingOffsetsByTimestampStrategy": "latest"}
        return cls({"startingTimestamp": str(ms), **strategy})

    def of(self, topic: str) -> Mapping[str, str]:
        """The options of a source that reads one topic; one without offsets begins with earliest.

        A source takes offsets of the topics that it reads, and of no others.
        """
        if self.offsets is None:
            return self.options
        own = {each: offset for each, offset in self.offsets.items() if each.topic == topic}
        return {"startingOffsets": json.dumps(to_json_object(own)) if own else "earliest"}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How the queries of a run read; None where Spark and the source decide."""

    start: Start = field(default_factory=lambda: Start.parse("earliest"))
    parameters: Parameters = field(default_factory=dict)
    max_offsets_per_trigger: int | None = None
    trigger: str | None = None


def run_samples(
    pipeline: Pipeline, spark: SparkSession, servers: str, folder: Path
) -> dict[str, ResultTable]:
    """Publish the samples of a pipeline, run it once, and return the tables of its report."""
    create_topics(servers, pipeline)
    for each in sample_files(pipeline):
        each.publish(servers, Pace())
    send_modules(spark, pipeline, folder)
    execution = Execution(spark, pipeline, servers, folder, RunOptions())
    execution.run_once(lambda at_s, batch: None)
    return execution.write_tables(folder)


MODULES = "modules.zip"


def send_modules(spark: SparkSession, pipeline: Pipeline, folder: Path) -> None:
    """Have Spark's workers import the files beside that of a pipeline: modules and packages."""
    if pipeline.file is None or pipeline.is_installed:
        return  # workers have the same packages
    home = pipeline.file.parent
    packages = [each.parent for each in sorted(home.glob("*/__init__.py"))]
    files = [
        *(each for each in sorted(home.glob("*.py")) if each != pipeline.file),
        *(each for package in packages for each in sorted(package.rglob("*.py"))),
    ]
    modules = [each for each in files if not each.name.startswith("test_")]
    if modules:
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / MODULES, "w") as archive:
            for each in modules:
                archive.write(each, each.relative_to(home))
        spark.sparkContext.addPyFile(str(folder / MODULES))


def _ms(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise ValueError("a time needs its zone")
    return int(moment.timestamp() * 1000)
