"""PostgresSource: every change of tables in PostgreSQL, from its own log.

    connector.class=PostgresSource
    connection=host=db dbname=shop user=me
    tables=public.orders,public.customers
    topic.prefix=shop

First all rows of the tables (a snapshot), then all that is committed, in its order: rows that are
created, updated and deleted, also between two starts. Nothing is asked of the tables themselves;
the database needs `wal_level=logical`, the user the right to replicate. A replication slot keeps
the log until its changes are in their topics: drop it (`DELETE .../offsets` does) when the
connector is gone.

The topic is `<prefix>.<schema>.<table>`. The key is the replica identity, which is the primary
key. The value is an envelope as Debezium has it: `before`, `after`, `op` (r of the snapshot, c, u,
d, t), `source`, `ts_ms`; after a deletion comes a tombstone. With `value.format=row` the value is
the row alone, and a deletion the tombstone. Of a value that is too large to stand in its row
(TOAST) and was not changed, PostgreSQL sends nothing: `__debezium_unavailable_value` stands for
it.

Offset: `lsn`, behind the last transaction that is complete, and how many events of the next (`tx`)
are done; a restart repeats none of them. A snapshot that did not come to its end begins again.
Needs the extra `connect-postgres`.
"""

from __future__ import annotations

import logging
import select
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.rule import Rule, at_least, not_empty, one_of
from ottla.connect.connector import Place, SourceConnector
from ottla.connect.connectors import needed
from ottla.connect.connectors.databases import (
    AS_DOUBLE,
    AS_STRING,
    ISO,
    POSTGRES_SESSION,
    PRECISE,
    Handling,
)
from ottla.connect.connectors.pgoutput import (
    POSTGRES_EPOCH_S,
    Begin,
    Change,
    Commit,
    PgoutputDecoder,
    Relation,
)
from ottla.connect.connectors.postgres_types import Column, columns_of
from ottla.connect.data import INT64, DataError, Schema, SourceRecord, struct_of
from ottla.connect.data import STRING as STRING_SCHEMA
from ottla.errors import ConfigError
from ottla.runtime import SystemClock
from ottla.runtime.timing import Deadline

logger = logging.getLogger(__name__)

ENVELOPE: Final = "envelope"
ROW: Final = "row"
SLOT: Final = "slot"
LSN: Final = "lsn"
TRANSACTION: Final = "tx"
EVENTS: Final = "events"
SNAPSHOT: Final = "snapshot"
STATUS_INTERVAL_S: Final = 10.0
COPY_BOTH: Final = 8
"""libpq's status of a connection on which both sides send copied data."""
RECONNECT_S: Final = 1.0
LOOK_MS: Final = 10_000
"""So often it looks for tables that were dropped, or made again."""
SQLSTATE: Final = ord("C")
IN_USE: Final = b"55006"
UNDEFINED: Final = b"42704"
"""The code of an error; of a slot which another connection reads, of a publication that is gone."""
SESSION: Final = " ".join(f"-c {name}={value}" for name, value in POSTGRES_SESSION)
"""How values are to be written, in the snapshot and in the stream alike."""
ADAPTIVE: Final = "adaptive"
PARTITION_ROOT_VERSION: Final = 130_000
"""From PostgreSQL 13 on, changes of partitions can be those of their table."""
SOURCE_SCHEMA: Final = struct_of(
    "ottla.postgres.Source",
    connector=STRING_SCHEMA,
    name=STRING_SCHEMA,
    schema=STRING_SCHEMA,
    table=STRING_SCHEMA,
    lsn=INT64.as_optional(),
    txId=INT64.as_optional(),
    ts_ms=INT64.as_optional(),
    snapshot=STRING_SCHEMA,
)


def _is_name(text: str) -> bool:
    return text.replace("_", "").isalnum() and text == text.lower() and len(text) <= 63


class PostgresSettings(ConfigTable):
    """The settings of PostgresSource."""

    connection: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The database, as libpq has it: host=db dbname=shop user=me, or a URL.",
    )
    tables: tuple[str, ...] = config_key(
        default=REQUIRED,
        rule=Rule(
            "be names as schema.table",
            lambda names: bool(names) and all(len(name.split(".")) == 2 for name in names),
        ),
        importance=HIGH,
        doc="The tables, as schema.table.",
    )
    topic_prefix: str = config_key(
        default=REQUIRED, rule=not_empty(), importance=HIGH, doc="Begins all topics."
    )
    slot_name: str = config_key(
        default="ottla",
        rule=Rule("be of lower-case letters, digits and _", _is_name),
        doc="The replication slot, which is made; each connector needs its own.",
    )
    publication_name: str = config_key(
        default="ottla",
        rule=Rule("be of lower-case letters, digits and _", _is_name),
        doc="The publication that names the tables; it is made and kept to `tables`.",
    )
    snapshot: bool = config_key(default=True, doc="Begin with all rows that there are.")
    value_format: str = config_key(
        default=ENVELOPE,
        rule=one_of(ENVELOPE, ROW),
        doc="The value: an envelope of before and after, or the row alone.",
    )
    tombstones_on_delete: bool = config_key(
        default=True, doc="After the envelope of a deletion, a null for its key."
    )
    decimal_handling_mode: str = config_key(
        default=PRECISE,
        rule=one_of(PRECISE, AS_STRING, AS_DOUBLE),
        doc="Columns of type numeric: as decimals (text without a scale), as text, which also "
        "holds NaN and Infinity, or as floats.",
    )
    time_precision_mode: str = config_key(
        default=ADAPTIVE,
        rule=one_of(ADAPTIVE, ISO),
        doc="Dates and times: as Connect's Date, microseconds, and text with a zone, or all of "
        "them as text, which has every year.",
    )
    batch_events: int = config_key(
        default=2000, rule=at_least(1), importance=LOW, doc="How many are taken at once."
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        """A table that is named twice is in the snapshot once."""
        values["tables"] = tuple(dict.fromkeys(values["tables"]))


class PostgresSource(SourceConnector):
    """Captures the changes of tables: a snapshot, then the log."""

    Settings = PostgresSettings
    settings: PostgresSettings
    no_preview = "it would make a replication slot, which holds the database's log"

    _stream: ReplicationStream | None = None
    _snapshot: Iterator[SourceRecord] | None = None

    @classmethod
    def topics(cls, settings: ConfigTable) -> Mapping[str, str]:
        given: Any = settings
        return {f"{given.topic_prefix}.{name}": f"tables={name}" for name in given.tables}

    def start(self) -> None:
        self._handling = Handling(
            self.settings.decimal_handling_mode, self.settings.time_precision_mode
        )
        self._untold: set[str] = set()
        """Tables that have changes without a record, which was logged."""
        self._other_names: set[str] = set()
        """Tables that are captured and are not among `tables`, which was logged."""
        self._psycopg = needed("psycopg", "connect-postgres", PostgresSource)
        self._partition: Place = {SLOT: self.settings.slot_name}
        self._offset: dict[str, Any] = dict(self.context.offset(self._partition) or {})
        self._envelopes: dict[Relation, Schema] = {}
        self._transaction: Begin | None = None
        self._events = 0
        """Of the transaction that is being read."""
        self._emitted: SourceRecord | None = None
        self._delivered = True
        self._stored = True
        self._gone: set[str] = set()
        """Tables that are not in the database, which was logged."""
        self._next_look: Deadline | None = None
        try:
            self._look()
        except self._psycopg.OperationalError as error:
            if not self._offset:
                raise  # the settings were never right
            logger.warning("slot %s: %s; connecting again", self.settings.slot_name, error)

    def stop(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()  # type: ignore[attr-defined] # it is a generator
        if self._stream is not None:
            self._stream.close()

    def poll(self) -> Sequence[SourceRecord]:
        """The next rows of the snapshot, then the next changes; after a wait, if there are none.

        Those that were read when the connection was lost are returned: it continues behind them.
        """
        found: list[SourceRecord] = []
        try:
            if self._next_look is None or self._next_look.has_passed:
                self._look()
            if self._stream is None and self._snapshot is None:
                self._begin()
            if self._snapshot is not None:
                self._next_rows(found)
            else:
                self._next_changes(found)
        except self._psycopg.OperationalError as error:
            logger.warning("slot %s: %s; connecting again", self.settings.slot_name, error)
            self._disconnect()
            if not found:
                self.context.wait(RECONNECT_S)
        if found:
            self._emitted, self._delivered, self._stored = found[-1], False, False
        return found

    def commit_record(self, record: Any, metadata: Any) -> None:
        """Deliveries come in order: with the last record all are there."""
        self._delivered = self._delivered or record is self._emitted

    def commit(self) -> None:
        """The database need not keep the log up to the stored offset any longer."""
        self._stored = self._delivered
        if self._stream is not None:
            self._report(self._stream)

    @classmethod
    def is_exactly_once(cls, settings: ConfigTable) -> bool:
        """The log has places, and events within a transaction are counted."""
        return True

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Sequence[tuple[Place, Place | None]]
    ) -> bool:
        """Without an offset there is no use for the slot: it is dropped."""
        psycopg = needed("psycopg", "connect-postgres", PostgresSource)
        given: Any = settings
        for partition, offset in offsets:
            if dict(partition) != {SLOT: given.slot_name} or offset is not None:
                raise ConfigError(
                    f"offsets of slot {given.slot_name}: can be deleted only; the snapshot is "
                    "then made again"
                )
            with psycopg.connect(given.connection, autocommit=True) as connection:
                drop_slot(connection, given.slot_name)
        return True

    # Connections

    def _connect(self, **more: str) -> Any:
        return self._psycopg.connect(
            self.settings.connection, autocommit=True, options=SESSION, **more
        )

    def _look(self) -> None:
        """See which tables there are, and publish them; those that were made again once more."""
        settings = self.settings
        with self._connect() as connection:
            check_server(connection)
            there = published(connection, settings.publication_name, settings.tables)
            new = [name for name, is_published in there.items() if not is_published]
            if not self._offset and self._next_look is None:
                publish(connection, settings.publication_name, settings.tables)
            elif new or (there and self._next_look is None):
                publish(connection, settings.publication_name, list(there))
                for name in new:
                    text = (
                        "%s is captured from here on; delete the offsets to have its rows of before"
                    )
                    logger.warning(text, name)
        gone = set(settings.tables) - there.keys()
        for name in sorted(gone - self._gone):
            logger.warning("%s is not in the database; the other tables are captured", name)
        self._gone, self._next_look = gone, Deadline(SystemClock(), LOOK_MS)

    def _begin(self) -> None:
        """Continue where the offset is; without a whole snapshot, make slot and snapshot.

        A slot that is there already stays: its log has the fate of rows that an earlier snapshot
        has delivered.
        """
        if LSN in self._offset and not self._offset.get(SNAPSHOT):
            self._start_stream()
            return
        with self._connect() as connection:
            lsn = slot_lsn(connection, self.settings.slot_name)
        stream, name = None, None
        if lsn is None:
            stream = ReplicationStream(self._connect(replication="database"))
            try:
                lsn, name = stream.create_slot(self.settings.slot_name)
            except BaseException:
                stream.close()
                raise
        if self.settings.snapshot:
            self._snapshot = self._rows(stream, lsn, name)
            return
        if stream is not None:
            stream.close()
        self._offset = {LSN: lsn}
        self._start_stream()

    def _start_stream(self) -> None:
        self._decoder = PgoutputDecoder(self._columns_now, self._handling)
        self._transaction, self._events = None, 0
        stream = ReplicationStream(self._connect(replication="database"))
        settings = self.settings
        try:
            stream.start(settings.slot_name, settings.publication_name, self._offset[LSN])
        except BaseException:
            stream.close()
            raise
        self._stream = stream

    def _disconnect(self) -> None:
        """Read on later, behind the last event that was returned."""
        self.stop()
        self._stream = self._snapshot = None

    def _columns_now(self, namespace: str, table: str) -> tuple[Column, ...]:
        """None of a table that is gone by now."""
        with self._connect() as connection:
            return columns_of(connection, namespace, table, self._handling)

    # The snapshot

    def _rows(
        self, stream: ReplicationStream | None, lsn: int, name: str | None
    ) -> Iterator[SourceRecord]:
        """All rows, as they were when the slot was made where that is known.

        The last one has the place of the slot as its offset, from which the log is read.
        """
        try:
            before: SourceRecord | None = None
            with self._connect() as connection:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                if name is not None:
                    connection.execute(f"SET TRANSACTION SNAPSHOT '{name}'")
                for table in (each for each in self.settings.tables if each not in self._gone):
                    for row in self._rows_of(connection, table, lsn):
                        if before is not None:
                            yield before
                        before = row
        finally:
            if stream is not None:
                stream.close()
        self._offset = {LSN: lsn}
        if before is not None:
            yield before.replace(source_offset=self._offset)

    def _rows_of(self, connection: Any, table: str, lsn: int) -> Iterator[SourceRecord]:
        namespace, name = table.split(".")
        columns = columns_of(connection, namespace, name, self._handling)
        if not columns:
            raise ConfigError(f"tables: {table} must be a table of the database")
        relation = Relation.of(namespace, name, columns)
        names = ", ".join(quoted(column.name) for column in relation.columns)
        query = f"COPY (SELECT {names} FROM {quoted(namespace)}.{quoted(name)}) TO STDOUT"
        with connection.cursor().copy(query) as rows:
            for texts in rows.rows():
                change = Change("r", relation, None, list(texts))
                yield from self._records(change, None, {SNAPSHOT: True, LSN: lsn})

    def _next_rows(self, found: list[SourceRecord]) -> None:
        assert self._snapshot is not None, "called while there is one"
        for record in self._snapshot:
            found.append(record)
            if len(found) >= self.settings.batch_events:
                return
        self._snapshot = None
        self._start_stream()

    # The log

    def _next_changes(self, found: list[SourceRecord]) -> None:
        assert self._stream is not None, "called while there is one"
        while len(found) < self.settings.batch_events:
            message = self._stream.next_message(wait=not found)
            if message is None:
                break
            for event in self._decoder.read(message):
                found += self._follow(event)
        if not found:
            self._report(self._stream)

    def _follow(self, event: Change | Begin | Commit) -> list[SourceRecord]:
        """The records of an event that was not returned before."""
        if isinstance(event, Begin):
            self._transaction, self._events = event, 0
            return []
        if isinstance(event, Commit):
            self._transaction = None
            self._offset = {LSN: max(event.end_lsn, self._offset[LSN])}
            return []
        assert self._transaction is not None, "changes stand in transactions"
        self._events += 1
        done = self._offset
        begin = self._transaction.final_lsn
        if begin < done.get(TRANSACTION, done[LSN]):
            return []
        if begin == done.get(TRANSACTION) and self._events <= done[EVENTS]:
            return []
        self._offset = {LSN: done[LSN], TRANSACTION: begin, EVENTS: self._events}
        records = list(self._records(event, self._transaction, self._offset))
        for record in records[:-1]:  # the event is done with its last record
            record.source_offset = self._offset | {EVENTS: self._events - 1}
        return records

    def _report(self, stream: ReplicationStream) -> None:
        """Tell the database how far its log is done with: all of it, while nothing is under way."""
        if self._stored and self._transaction is None:
            stream.report(max(self._offset[LSN], stream.end_lsn))
        else:
            stream.report(stream.reported_lsn)

    # Records

    def _records(
        self, change: Change, transaction: Begin | None, offset: Mapping[str, Any]
    ) -> Iterator[SourceRecord]:
        """The records of a change; one with its error, if it has a value that has no place."""
        relation = change.relation
        topic = f"{self.settings.topic_prefix}.{relation.namespace}.{relation.table}"
        self._note_name(f"{relation.namespace}.{relation.table}", topic)
        record = SourceRecord(topic=topic, source_partition=self._partition, source_offset=offset)
        try:
            yield from list(self._made_of(change, transaction, record))
        except DataError as error:
            place = f"{relation.namespace}.{relation.table}, {relation.place(change)}"
            yield record.replace(error=DataError(f"{place}: {error.message}"))

    def _made_of(
        self, change: Change, transaction: Begin | None, bare: SourceRecord
    ) -> Iterator[SourceRecord]:
        relation, key = change.relation, self._key(change)
        record = bare.replace(key=key, key_schema=relation.key if key is not None else None)
        after = None if change.after is None else relation.read(change.after)
        moved = self._old_key(change, key)
        if self.settings.value_format == ROW:
            self._note_untold(change, key)
            if moved is not None:
                yield record.replace(key=moved)
            if change.operation != "t":
                schema = None if after is None else relation.row
                yield record.replace(value=after, value_schema=schema)
            return
        yield record.replace(
            value=self._envelope(change, after, transaction), value_schema=self._schema(relation)
        )
        if change.operation == "d" and self.settings.tombstones_on_delete:
            yield record
        elif moved is not None and self.settings.tombstones_on_delete:
            yield record.replace(key=moved)

    def _note_name(self, name: str, topic: str) -> None:
        """Say once that a table has another name than `tables` has for it."""
        if name not in self.settings.tables and name not in self._other_names:
            self._other_names.add(name)
            logger.warning(
                "%s is in publication %s and not among tables: it was renamed or moved, or is a "
                "partition; its changes go to the topic %s until the next start, unless tables "
                "names it",
                *(name, self.settings.publication_name, topic),
            )

    def _note_untold(self, change: Change, key: dict[str, Any] | None) -> None:
        """Log the changes that rows cannot show: all are gone, or one without a key is."""
        table = f"{change.relation.namespace}.{change.relation.table}"
        if change.operation == "t":
            logger.warning("%s was emptied: value.format=row has no record of it", table)
        elif change.operation == "d" and key is None and table not in self._untold:
            self._untold.add(table)
            logger.warning(
                "%s has no key: value.format=row does not say which of its rows are deleted, "
                "value.format=envelope does",
                table,
            )

    def _key(self, change: Change) -> dict[str, Any] | None:
        texts = change.after if change.after is not None else change.before
        return None if texts is None else change.relation.read_key(texts)

    def _old_key(self, change: Change, key: dict[str, Any] | None) -> dict[str, Any] | None:
        """The key that a row had before an update, if that changed it."""
        if change.operation != "u" or change.before is None:
            return None
        old = change.relation.read_key(change.before)
        return None if old == key else old

    def _envelope(
        self, change: Change, after: dict[str, Any] | None, transaction: Begin | None
    ) -> dict[str, Any]:
        before = None
        if change.before is not None and not change.before_is_key:
            before = change.relation.read(change.before)
        return {
            "before": before,
            "after": after,
            "op": change.operation,
            "source": {
                "connector": "postgresql",
                "name": self.settings.topic_prefix,
                "schema": change.relation.namespace,
                "table": change.relation.table,
                "lsn": transaction and transaction.final_lsn,
                "txId": transaction and transaction.xid,
                "ts_ms": transaction and transaction.committed_ms,
                "snapshot": "true" if transaction is None else "false",
            },
            "ts_ms": transaction and transaction.committed_ms,
        }

    def _schema(self, relation: Relation) -> Schema:
        found = self._envelopes.get(relation)
        if found is None:
            row = relation.row.as_optional()
            found = self._envelopes[relation] = struct_of(
                f"{relation.namespace}.{relation.table}.Envelope",
                before=row,
                after=row,
                op=STRING_SCHEMA,
                source=SOURCE_SCHEMA,
                ts_ms=INT64.as_optional(),
            )
        return found


class ReplicationStream:
    """A connection over which a slot sends the log, and gets the positions that are done with."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._pq: Any = connection.pgconn
        self.end_lsn = 0
        """How far the log went when the database was heard of last, all before it was read."""
        self.reported_lsn = 0
        self._reported_at = 0.0

    def close(self) -> None:
        """End the connection; the slot stays."""
        self._connection.close()

    def create_slot(self, name: str) -> tuple[int, str]:
        """The place where its log begins, and the snapshot as which the tables are there."""
        found = self._connection.execute(
            f"CREATE_REPLICATION_SLOT {quoted(name)} LOGICAL pgoutput"
        ).fetchone()
        return lsn_of(found[1]), found[2]

    def start(self, slot: str, publication: str, lsn: int) -> None:
        """Ask for the log behind a place."""
        place = f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
        self.reported_lsn = lsn
        result = self._pq.exec_(
            f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {place} "
            f"(proto_version '1', publication_names '{publication}')".encode()
        )
        if result.status != COPY_BOTH:
            if result.error_field(SQLSTATE) == IN_USE:
                raise _operational_error(self._pq)  # its last reader is not gone yet
            message = self._pq.error_message.decode(errors="replace").strip()
            raise ConfigError(f"slot.name={slot}: {message}")

    def next_message(self, wait: bool) -> bytes | None:
        """The next message of the output plug-in; None if there is none now, after a second."""
        while True:
            length, frame = self._pq.get_copy_data(1)
            if length == 0:
                if not wait:
                    return None
                wait = False
                if not select.select([self._pq.socket], [], [], 1.0)[0]:
                    return None
                self._pq.consume_input()
                continue
            if length < 0:
                raise self._ending()
            data = bytes(frame)
            if data[:1] == b"w":
                self.end_lsn = max(self.end_lsn, struct.unpack_from(">q", data, 1)[0])
                return data[25:]
            self.end_lsn, _, is_asked = struct.unpack_from(">qqb", data, 1)
            if is_asked:
                self._reported_at = 0.0
                self.report(self.reported_lsn)

    def _ending(self) -> Exception:
        """Why the log has ended: the connection is lost, or it can never be read on."""
        result = self._pq.get_result()
        error = _operational_error(self._pq)
        if result is None or result.error_field(SQLSTATE) != UNDEFINED:
            return error
        first = str(error).partition("\n")[0]
        return ConfigError(f"{first}: delete the offsets, which drops the slot, to begin again")

    def report(self, lsn: int) -> None:
        """Say how far all is stored; the log up to there may be thrown away."""
        now = datetime.now(UTC).timestamp()
        if lsn == self.reported_lsn and now - self._reported_at < STATUS_INTERVAL_S:
            return
        self.reported_lsn, self._reported_at = max(lsn, self.reported_lsn), now
        micros = int((now - POSTGRES_EPOCH_S) * 1_000_000)
        self._pq.put_copy_data(struct.pack(">cqqqqb", b"r", *(self.reported_lsn,) * 3, micros, 0))
        self._pq.flush()


def _operational_error(pq: Any) -> Exception:
    psycopg = needed("psycopg", "connect-postgres", PostgresSource)
    text = pq.error_message.decode(errors="replace").strip()
    error: Exception = psycopg.OperationalError(text or "the log ended")
    return error


def lsn_of(text: str) -> int:
    """A place in the log, which is written `16/B374D848`."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def quoted(name: str) -> str:
    """A name in a statement."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def check_server(connection: Any) -> None:
    """ConfigError if the database keeps no log of changes."""
    level = connection.execute("SHOW wal_level").fetchone()[0]
    if level != "logical":
        raise ConfigError(f"wal_level={level} of the database: must be logical")


def published(connection: Any, name: str, tables: Sequence[str]) -> dict[str, bool]:
    """Those of the tables that there are, and whether the publication has them."""
    rows = connection.execute(
        """
        SELECT n.nspname || '.' || c.relname, r.oid IS NOT NULL
        FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace
        LEFT JOIN pg_publication p ON p.pubname = %s
        LEFT JOIN pg_publication_rel r ON r.prrelid = c.oid AND r.prpubid = p.oid
        WHERE c.relkind IN ('r', 'p') AND n.nspname || '.' || c.relname = ANY (%s)
        """,
        [name, list(tables)],
    ).fetchall()
    found = dict(rows)
    return {table: found[table] for table in tables if table in found}


def publish(connection: Any, name: str, tables: Sequence[str]) -> None:
    """Make the publication, or set its tables.

    Changes of partitions are those of their table, as in the snapshot. A publication that is there
    already and does otherwise stays as it is: others may read it.
    """
    listed = ", ".join(".".join(map(quoted, table.split("."))) for table in tables)
    has_root = connection.info.server_version >= PARTITION_ROOT_VERSION
    root = "pubviaroot" if has_root else "false"
    there = connection.execute(
        f"SELECT {root} FROM pg_publication WHERE pubname = %s", [name]
    ).fetchone()
    taken_out = connection.execute(
        "SELECT n.nspname || '.' || c.relname FROM pg_publication p "
        "JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN pg_class c ON c.oid = r.prrelid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE p.pubname = %s AND NOT n.nspname || '.' || c.relname = ANY (%s)",
        [name, list(tables)],
    ).fetchall()
    for (table,) in taken_out:
        logger.warning(
            "publication %s: %s is not among tables, and not captured from here on", name, table
        )
    verb = "ALTER PUBLICATION {} SET TABLE {}" if there else "CREATE PUBLICATION {} FOR TABLE {}"
    ending = " WITH (publish_via_partition_root = true)" if has_root and not there else ""
    connection.execute(verb.format(quoted(name), listed) + ending)
    if (there and not there[0]) or not has_root:
        for table in tables:
            _warn_of_partitions(connection, name, table)


def _warn_of_partitions(connection: Any, name: str, table: str) -> None:
    kind = connection.execute(
        "SELECT c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s",
        table.split("."),
    ).fetchone()
    if kind == ("p",):
        logger.warning(
            "publication %s has no publish_via_partition_root: changes of %s go to topics of its "
            "partitions, and its snapshot does not; ALTER PUBLICATION %s SET "
            "(publish_via_partition_root = true) changes that",
            *(name, table, quoted(name)),
        )


def slot_lsn(connection: Any, name: str) -> int | None:
    """The place from which a slot keeps the log; None if there is no such slot."""
    row = connection.execute(
        "SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots "
        "WHERE slot_name = %s AND plugin = 'pgoutput'",
        [name],
    ).fetchone()
    return None if row is None else row[0]


def drop_slot(connection: Any, name: str) -> None:
    """Drop a slot that nobody reads; the log that it kept may go."""
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
        "WHERE slot_name = %s AND plugin = 'pgoutput'",
        [name],
    )
