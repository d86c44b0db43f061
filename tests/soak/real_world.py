"""A broker, a worker and real servers, the connectors between them, and what hurts them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Event

import psycopg
import pymysql
from connect_group import WorkerProcess, group_properties
from mariadb import MariaDb
from mosquitto import Mosquitto
from postgres import Postgres

from ottla import Admin, NewTopic
from ottla.testing import wait_until
from ottla.testing.processes import BrokerProcess

JSON = "org.apache.kafka.connect.json.JsonConverter"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
EVENTS, ORDERS = "pg.public.events", "maria-orders"
MESSAGES, LINES, RAW = "messages", "lines", "raw"
IN_A_FILE = 20
DEAD = "dead-letters-of-"
OF_COLUMNS = {"int": "7", "text": "'x'", "numeric(5, 2)": "1.25", "date": "'2026-01-02'"}
QUIET_S = 400


class RealWorld:
    """Everything runs until `stop`; each method that hurts leaves all running again."""

    def __init__(self, folder: Path, open_folder: Path, is_exactly_once: bool) -> None:
        """`open_folder` can be reached by the user of PostgreSQL."""
        self.folder = folder
        places = {name: open_folder / name for name in ("postgres", "mariadb", "mosquitto")}
        for place in places.values():
            place.mkdir()
        self.mosquitto = Mosquitto(
            places["mosquitto"], "allow_anonymous true", "max_queued_messages 0"
        )
        self.mariadb = MariaDb(places["mariadb"])
        self.postgres = Postgres(places["postgres"])
        self.broker = BrokerProcess(folder / "data").start()
        with Admin(self.servers) as admin:
            names = (ORDERS, MESSAGES, LINES, RAW)
            admin.create_topics([NewTopic(name, 3, 1) for name in names])
        support = "enabled" if is_exactly_once else "disabled"
        properties = group_properties(
            self.servers,
            exactly_once_source_support=support,
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
            offset_flush_interval_ms=1000,
            consumer_session_timeout_ms=6000,
            consumer_heartbeat_interval_ms=500,
            key_converter=JSON,
            value_converter=JSON,
        )
        self.worker = WorkerProcess(folder, properties)
        self.did: Counter[str] = Counter()
        self._columns: dict[str, list[str]] = {"events": [], "orders": []}
        self._made = 0

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def log(self) -> str:
        """All that the worker has logged, over all its lives."""
        return self.worker.file.with_suffix(".log").read_text(errors="replace")

    def stop(self) -> None:
        self.worker.kill()
        self.mosquitto.stop()
        self.mariadb.stop()
        self.postgres.stop()
        self.broker.kill()

    # Connectors

    @property
    def sql(self) -> dict[str, str]:
        """Where the databases are, for SqlSource and SqlSink."""
        return {
            "mariadb": self.mariadb.url,
            "postgres": f"postgresql+psycopg://ottla@127.0.0.1:{self.postgres.port}/postgres",
        }

    def connectors(self) -> dict[str, dict[str, str]]:
        return self._sources() | self._sinks()

    def _sources(self) -> dict[str, dict[str, str]]:
        return {
            "events": {
                "connector.class": "PostgresSource",
                "connection": self.postgres.connection,
                "tables": "public.events",
                "topic.prefix": "pg",
                "value.format": "row",
            },
            "orders": {
                "connector.class": "SqlSource",
                "url": self.sql["mariadb"],
                "tables": "orders",
                "topic.prefix": "maria-",
                "mode": "timestamp+incrementing",
                "poll.interval.ms": "200",
                "delay.ms": "500",
            },
            "messages": {
                "connector.class": "MqttSource",
                "host": "127.0.0.1",
                "port": str(self.mosquitto.port),
                "filters": "m/#",
                "topic": MESSAGES,
                "value.format": "text",
            },
            "lines": {
                "connector.class": "LogFolderSource",
                "path": f"{self.folder}/logs/*/app.log",
                "topic": LINES,
                "scan.interval.ms": "200",
            },
        }

    def _sinks(self) -> dict[str, dict[str, str]]:
        plain = {"value.converter": JSON, "value.converter.schemas.enable": "false"}
        upsert = {"connector.class": "SqlSink", "insert.mode": "upsert"}
        files = {"connector.class": "FilesSink", "records.per.file": str(IN_A_FILE)}
        files |= {"with.metadata": "true"}
        copied = upsert | {"primary.key": "id", "auto.create": "true"}
        raw = upsert | {"primary.key": "n", "topics": RAW} | plain
        lake = f"file://{self.folder}"
        return {
            "events-copy": copied
            | {"url": self.sql["mariadb"], "topics": EVENTS}
            | {"table": "events_copy"},
            "orders-copy": copied
            | {"url": self.sql["postgres"], "topics": ORDERS}
            | {"table": "orders_copy"},
            "raw-postgres": raw | {"url": self.sql["postgres"]},
            "raw-mariadb": raw | {"url": self.sql["mariadb"]},
            "rows-parquet": files
            | {"format": "parquet", "url": f"{lake}/rows", "topics": f"{EVENTS},{ORDERS}"},
            "raw-parquet": files
            | {"format": "parquet", "url": f"{lake}/raw", "topics": RAW}
            | plain,
            "raw-json": files
            | {"format": "jsonl", "url": f"{lake}/raw-json", "topics": RAW}
            | plain,
            "texts-json": files
            | {"format": "jsonl", "url": f"{lake}/texts", "topics": f"{MESSAGES},{LINES}"},
        }

    def start_connectors(self) -> None:
        self.worker.start()
        for name, config in self.connectors().items():
            given = {"errors.tolerance": "all", "errors.log.enable": "true"} | config
            if "topics" in config:
                given |= {
                    "errors.deadletterqueue.topic.name": DEAD + name,
                    "errors.deadletterqueue.topic.replication.factor": "1",
                    "errors.deadletterqueue.context.headers.enable": "true",
                    "consumer.override.auto.offset.reset": "earliest",
                }
            status, answer = self.worker.ask("PUT", f"/connectors/{name}/config", given)
            assert status == 201, answer

    def failed(self) -> dict[str, str]:
        """Tasks and connectors that have FAILED, with the end of what they say."""
        found = {}
        _, all_of_them = self.worker.ask("GET", "/connectors?expand=status")
        for name, each in all_of_them.items():
            for part in [each["status"]["connector"], *each["status"]["tasks"]]:
                if part["state"] == "FAILED":
                    found[name] = part.get("trace", "")[-1500:]
        return found

    # Harm

    def hurt(self, stop: Event, random: Random) -> None:
        """Until it is stopped: all kinds in a random order, then in another one."""
        kinds: list[Callable[[Random], None]] = [
            *[self._kill_worker] * 3,
            self._restart_postgres,
            self._restart_mariadb,
            self._restart_mosquitto,
            self._kill_broker,
            *[self._change_columns] * 6,
        ]
        left: list[Callable[[Random], None]] = []
        while not stop.wait(random.uniform(0.5, 5)):
            left = left or random.sample(kinds, len(kinds))
            kind = left.pop()
            kind(random)
            self.did[kind.__name__.lstrip("_")] += 1

    def _kill_worker(self, random: Random) -> None:
        self.worker.kill()
        Event().wait(random.uniform(0, 3))
        self.worker.start()

    def _kill_broker(self, random: Random) -> None:
        self.broker.kill()
        Event().wait(random.uniform(0, 2))
        self.broker.start()

    def _restart_postgres(self, random: Random) -> None:
        self.postgres.stop(random.choice(["immediate", "fast"]))
        Event().wait(random.uniform(0, 3))
        self.postgres.start()

    def _restart_mariadb(self, random: Random) -> None:
        self.mariadb.stop()
        Event().wait(random.uniform(0, 3))
        self.mariadb.start()

    def _restart_mosquitto(self, random: Random) -> None:
        self.mosquitto.stop()
        Event().wait(random.uniform(0, 3))
        self.mosquitto.start()

    def _change_columns(self, random: Random) -> None:
        """A column comes or goes at a source; the copy has it before, or only later."""
        table = random.choice(["events", "orders"])
        if not self._has_copy(table):
            return  # it would never have the column: it is made of the records before
        there = self._columns[table]
        if there and random.random() < 0.5:
            self._alter(table, f"DROP COLUMN {there.pop()}")
            return
        name, kind = f"c{self._made}", random.choice(list(OF_COLUMNS))
        self._made += 1
        added = f"ADD COLUMN {name} {kind}"
        changes = [(f"{table}_copy", added), (table, f"{added} DEFAULT {OF_COLUMNS[kind]}")]
        if random.random() < 0.1:
            changes.reverse()  # the first rows have no column to go to
        for each in changes:
            self._alter(*each)
        there.append(name)

    def _has_copy(self, table: str) -> bool:
        try:
            self._executor(f"{table}_copy")(f"SELECT 1 FROM {table}_copy LIMIT 1")
        except (psycopg.Error, pymysql.err.Error):
            return False
        return True

    def _alter(self, table: str, change: str) -> None:
        self._executor(table)(f"ALTER TABLE {table} {change}")

    def _executor(self, table: str) -> Callable[[str], object]:
        is_postgres = table in ("events", "orders_copy")
        return self.postgres.execute if is_postgres else self.mariadb.execute

    def settle(self) -> None:
        """Wait until no task has failed, and all have told their state."""

        def runs() -> bool:
            _, found = self.worker.ask("GET", "/connectors?expand=status")
            parts = [
                part
                for each in found.values()
                for part in [each["status"]["connector"], *each["status"]["tasks"]]
            ]
            return len(parts) == 2 * len(self.connectors()) and all(
                part["state"] == "RUNNING" for part in parts
            )

        wait_until(runs, "all to run", QUIET_S, seen=lambda: json.dumps(self.failed(), indent=1))
