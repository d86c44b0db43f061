"""What writes numbered rows, messages, lines and records, some of them odd, until it is stopped.

Each writer survives a server that is away. A number is never used again, so that a ledger can tell
what is lost and what is double.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections import deque
from pathlib import Path
from random import Random
from threading import Event

import psycopg
import pymysql
from paho.mqtt import client as mqtt

from ottla import Producer

ODD = 0.02
"""So many of a hundred rows, messages, lines and records are odd."""
PAUSE_S = 0.05
ROTATION = 150
"""A log is rotated after about so many steps."""
LONG = 1_200_000

EVENTS = """
CREATE TABLE events (
    id int8 PRIMARY KEY, name text, price numeric(10, 2), body bytea, day date, at timestamptz
)
"""
ORDERS = """
CREATE TABLE orders (
    id bigint PRIMARY KEY, version int NOT NULL, amount decimal(10, 2), day date, lasting time,
    big bigint unsigned, body varbinary(100), name varchar(100),
    updated_at timestamp(3) NOT NULL
        DEFAULT current_timestamp(3) ON UPDATE current_timestamp(3)
)
"""


def write_events(stop: Event, connection: str, random: Random) -> None:
    """Rows of PostgreSQL, some in one transaction; NaN is odd, as infinity is."""
    number = 0
    statement = "INSERT INTO events VALUES (%s, %s, %s::numeric, %s, %s::date, %s::timestamptz)"
    while not stop.wait(PAUSE_S):
        try:
            with psycopg.connect(connection, autocommit=True) as session:
                while not stop.wait(PAUSE_S):
                    with session.transaction():
                        for _ in range(random.randint(1, 12)):
                            number += 1
                            is_odd = random.random() < ODD
                            price = "NaN" if is_odd else f"{number}.25"
                            day = random.choice(["2026-02-03", "0001-01-01", "9999-12-31", None])
                            at = random.choice(["now", "2026-03-29 01:30+02", None])
                            body = random.randbytes(20)
                            row = [number, f"Zoë 😀 {number}", price, body, day, at]
                            session.execute(statement, row)
        except psycopg.OperationalError:
            continue  # the server is away


def write_orders(stop: Event, port: int, random: Random) -> None:
    """Rows of MariaDB, some of them changed later; zero dates and long times are odd."""
    number = 0
    statement = (
        "INSERT INTO orders (id, version, amount, day, lasting, big, body, name) "
        "VALUES (%s, 0, %s, %s, %s, %s, %s, %s)"
    )
    changed = "UPDATE orders SET version = version + 1 WHERE id = %s"
    address = {"host": "127.0.0.1", "port": port, "user": "root", "database": "shop"}
    while not stop.wait(PAUSE_S):
        try:
            with (
                pymysql.connect(**address, autocommit=True, charset="utf8mb4") as session,
                session.cursor() as cursor,
            ):
                cursor.execute("SET sql_mode = '', time_zone = '+05:30'")
                while not stop.wait(PAUSE_S):
                    number += 1
                    is_odd = random.random() < ODD
                    day, lasting = "2026-02-03", "04:05:06"
                    if is_odd:
                        day, lasting = random.choice(
                            [("0000-00-00", lasting), (day, "838:59:59"), ("2026-02-00", lasting)]
                        )
                    row = [number, "1.50", day, lasting, 2**64 - 1, random.randbytes(20), "Zoë 😀"]
                    cursor.execute(statement, row)
                    if random.random() < 0.1:
                        cursor.execute(changed, [random.randint(1, number)])
        except (pymysql.err.OperationalError, pymysql.err.InterfaceError):
            continue  # the server is away


class MessageWriter:
    """Messages of one client that keeps its session; `acknowledged` has what the broker took."""

    def __init__(self, port: int) -> None:
        self.acknowledged: set[int] = set()
        self._sent: dict[int, int] = {}
        self._taken: deque[int] = deque()
        """Packets that the broker has acknowledged, told by the client's thread."""
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "numbers", clean_session=False)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_publish = lambda _client, _user, packet, *_: self._taken.append(packet)
        self._port = port

    def write(self, stop: Event, random: Random) -> None:
        """Until it is stopped; texts that are no UTF-8 are odd."""
        number = 0
        self._client.connect("127.0.0.1", self._port)
        self._client.loop_start()
        while not stop.wait(PAUSE_S):
            for _ in range(random.randint(1, 8)):
                if not self.is_done() and len(self._sent) > 40:
                    break
                number += 1
                odd = b"\xff\xfe " if random.random() < ODD else "Zoë ".encode()
                sent = self._client.publish(f"m/{number}", odd + str(number).encode(), 1)
                self._sent[sent.mid] = number

    def close(self) -> None:
        self._client.loop_stop()
        self._client.disconnect()
        self._client.on_publish = None

    def is_done(self) -> bool:
        """Whether the broker has acknowledged all that was sent; for the writer's thread."""
        while self._taken:
            number = self._sent.pop(self._taken.popleft(), None)
            if number is not None:
                self.acknowledged.add(number)
        return not self._sent


class LogWriter:
    """The logs of some hosts, which are rotated as logrotate does it, each in its own way."""

    def __init__(self, folder: Path, hosts: int = 3) -> None:
        self.written: set[str] = set()
        self.compressed: set[str] = set()
        """Lines that are compressed by now: those that were not read before are reported."""
        self.rotations = 0
        self._lines: dict[Path, set[str]] = {}
        self._logs = [folder / f"host{number}" / "app.log" for number in range(hosts)]
        for log in self._logs:
            log.parent.mkdir(parents=True)

    def write(self, stop: Event, random: Random) -> None:
        numbers = dict.fromkeys(self._logs, 0)
        while not stop.wait(PAUSE_S):
            log = random.choice(self._logs)
            with log.open("ab") as file:
                for _ in range(random.randint(1, 20)):
                    numbers[log] += 1
                    name = f"{log.parent.name}:{numbers[log]}"
                    file.write(_line(name, random))
                    self.written.add(name)
                    self._lines.setdefault(log, set()).add(name)
            if random.random() < 1 / ROTATION:
                self._rotate(log, is_copied=random.random() < 0.3)

    def _rotate(self, log: Path, is_copied: bool) -> None:
        """By a new name, or by a copy of which the rest is cut off; compressed the next time."""
        self.rotations += 1
        first, second, packed = (log.with_name(f"app.log.{end}") for end in ("1", "2", "2.gz"))
        if first.exists():
            first.rename(second)
            with second.open("rb") as plain, gzip.open(packed, "wb") as file:
                shutil.copyfileobj(plain, file)
            second.unlink()
            self.compressed |= self._lines.pop(first)
        self._lines[first] = self._lines.pop(log)
        if is_copied:
            shutil.copyfile(log, first)
            with log.open("r+b") as file:
                file.truncate(0)
        else:
            log.rename(first)
            log.touch()


def _line(name: str, random: Random) -> bytes:
    """A line that begins with its name."""
    text = name.encode()
    if random.random() >= ODD:
        return text + b" GET / Zo\xc3\xab\n"
    odd = random.choice(["bytes", "return", "surrogate", "windows", "long"])
    if odd == "long" and random.random() < 0.1:
        return text + b" " + b"x" * LONG + b"\n"
    ends = {
        "bytes": b" \xff\x80\x00\n",
        "return": b" 10%\r 20%\n",
        "surrogate": b" \xed\xa0\xbd\n",
        "windows": b" GET\r\n",
        "long": b" " + b"y" * 10_000 + b"\n",
    }
    return text + ends[odd]


def write_records(stop: Event, servers: str, topic: str, random: Random) -> None:
    """Records as applications write them, without a schema: what comes to sinks alone."""
    number = 0
    with Producer(servers, {"delivery.timeout.ms": "600000", "max.block.ms": "600000"}) as producer:
        while not stop.wait(4 * PAUSE_S):
            for _ in range(random.randint(1, 12)):
                number += 1
                value = _value(number, random)
                producer.send(topic, value, partition=random.randrange(3))


def _value(number: int, random: Random) -> bytes | None:
    row = {"n": number, "text": f"Zoë 😀 {number}", "num": number / 4, "flag": number % 2 == 0}
    if random.random() >= 2 * ODD:
        return json.dumps(row).encode()
    odd = random.choice(["half", "huge", "text", "nan", "nested", "none", "cut", "nul", "bytes"])
    changes = {
        "half": {"text": "cut \ud83d"},
        "huge": {"num": 10**400},
        "text": {"num": "no number"},
        "nan": {"num": float("nan")},
        "nested": {"text": {"a": [number]}},
        "nul": {"text": "a\0b"},
    }
    match odd:
        case "none":
            return None
        case "cut":
            return json.dumps(row).encode()[:-5]
        case "bytes":
            return random.randbytes(30)
    return json.dumps(row | changes[odd]).encode()
