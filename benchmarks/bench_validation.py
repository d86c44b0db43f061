"""What looking through every record of a produced batch costs, by codec and by kernel.

First batches that were built before go over one socket, several in the air, to a broker that looks
through the records and to one that does not, in turn. This is the limit of a broker's core: no
producer is that fast. The CPU time of the broker is what counts on a machine that has other things
to do.

Then a librdkafka producer at work sends to a broker of each kernel, and to one that does not look.
This is what a user sees.

Last come the loops over the records alone. A loop in Python that only goes from one length to the
next takes nearly as long as all that a broker does for a record of 100 bytes in a large batch, so
that no check of records of uneven size in Python keeps half of the limit there. kafka-python's
loop, which checks less, is asked about the same batches.
"""

from __future__ import annotations

import os
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import kafka.record.default_records as kafka_python_records
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.bench_records import million_per_second
from ottla.protocol.header import encode_request
from ottla.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.record import kernel
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.plain_survey import survey_records
from ottla.record.record import NewRecord
from ottla.record.record_batch import BATCH_OVERHEAD, RecordBatch
from ottla.testing.processes import BrokerProcess

DEPTH = 4
ROUNDS = 7
ROUND_BYTES = 40_000_000
MOST_REQUESTS = 4_000
PRODUCED = 400_000
TOPIC = "validation"
# A record alone, what fits into 16 KiB (batch.size where it is not set), and nearly a megabyte.
SIZES = (1, 150, 8_000)
KEPT = {"segment.bytes": "67108864", "retention.bytes": "67108864", "file.delete.delay.ms": "0"}


def equal_rows(count: int) -> list[NewRecord]:
    """Values of 100 bytes, fifty in a millisecond."""
    now = int(time.time() * 1000)
    return [
        (now + n // 50, None, (b'{"id": %d, "page": "/p/%d"}' % (n, n * n % 997)).ljust(100), ())
        for n in range(count)
    ]


def uneven_rows(count: int) -> list[NewRecord]:
    """Keys, and values of 60 to 139 bytes."""
    rows = equal_rows(count)
    return [
        (time_ms, b"key-%d" % n, (value or b"").ljust(140)[: 60 + n * 37 % 80], ())
        for n, (time_ms, _, value, _) in enumerate(rows)
    ]


def frame(batch: bytes) -> bytes:
    data = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    body = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
    return encode_request(9, 1, "bench", body)


class Kind(NamedTuple):
    """A broker's program, and whether it uses the plain loops."""

    module: str
    is_pure: bool


def looking(*, is_pure: bool) -> Kind:
    return Kind("ottla", is_pure)


def believing(*, is_pure: bool) -> Kind:
    return Kind("benchmarks.broker_without_validation", is_pure)


@contextmanager
def brokers(*kinds: Kind) -> Iterator[list[BrokerProcess]]:
    """A broker of each kind, with the topic."""
    before = os.environ.get("OTTLA_PURE")
    started = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for number, kind in enumerate(kinds):
                os.environ["OTTLA_PURE"] = "1" if kind.is_pure else "0"
                broker = BrokerProcess(
                    Path(folder) / str(number), log_retention_check_interval_ms=500
                )
                broker.module = kind.module
                started.append(broker.start())
                admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
                admin.create_topics([NewTopic(TOPIC, 1, 1, config=KEPT)])[TOPIC].result(30)
            yield started
        finally:
            for broker in started:
                broker.stop()
            if before is None:
                os.environ.pop("OTTLA_PURE", None)
            else:
                os.environ["OTTLA_PURE"] = before


def cpu_seconds(pid: int) -> float:
    """What the threads of a process have used."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def load(broker: BrokerProcess, request: bytes, count: int) -> tuple[float, float]:
    """Seconds for each request: on the clock, and of the broker's CPU."""
    with socket.create_connection(("127.0.0.1", broker.port)) as connection:
        answers = connection.makefile("rb")
        cpu, start = cpu_seconds(broker.pid), time.perf_counter()
        for number in range(count + DEPTH):
            if number < count:
                connection.sendall(request)
            if number >= DEPTH:
                (size,) = struct.unpack(">i", answers.read(4))
                answers.read(size)
        elapsed = time.perf_counter() - start
        return elapsed / count, (cpu_seconds(broker.pid) - cpu) / count


def compare(pair: list[BrokerProcess], name: str, batch: bytes, record_count: int) -> None:
    request = frame(batch)
    count = max(40, min(MOST_REQUESTS, ROUND_BYTES // len(request)))
    times: list[list[tuple[float, float]]] = [[], []]
    for turn in range(ROUNDS):
        for which in (0, 1) if turn % 2 else (1, 0):
            times[which].append(load(pair[which], request, count))
    with_s, with_cpu = (statistics.median(each) for each in zip(*times[0], strict=True))
    without_s, without_cpu = (statistics.median(each) for each in zip(*times[1], strict=True))
    print(
        f"{name:<26}{record_count:>6}{len(batch):>9}"
        f"{record_count / without_s:>14,.0f}{record_count / with_s:>14,.0f}"
        f"{without_cpu * 1e6:>11.1f}{with_cpu * 1e6:>11.1f}"
        f"{without_cpu / with_cpu:>9.0%}",
        flush=True,
    )


def compare_all(pair: list[BrokerProcess]) -> None:
    print(
        f"{'':<26}{'':>6}{'':>9}{'records/s':>14}{'records/s':>14}{'us CPU':>11}{'us CPU':>11}\n"
        f"{'batches':<26}{'of':>6}{'bytes':>9}{'without':>14}{'with':>14}"
        f"{'without':>11}{'with':>11}{'keeps':>9}"
    )
    for size in SIZES:
        compare(pair, "none, of equal size", build_batch(equal_rows(size)), size)
    for size in SIZES[1:]:
        compare(pair, "none, of uneven size", build_batch(uneven_rows(size)), size)
    for codec in list(CompressionType)[1:]:
        for size in SIZES[1:]:
            compare(pair, codec.label, build_batch(equal_rows(size), codec), size)


def produce(broker: BrokerProcess, rows: list[NewRecord], codec: str) -> float:
    """Records a second of a librdkafka producer with its own settings."""
    servers = broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "compression.type": codec})
    start = time.perf_counter()
    for _ in range(PRODUCED // len(rows)):
        for _, key, value, _ in rows:
            producer.produce(TOPIC, value, key)
        producer.poll(0)
        while len(producer) > 50_000:
            producer.poll(0.001)
    producer.flush()
    return PRODUCED / (time.perf_counter() - start)


def compare_producers() -> None:
    kernels = ["compiled", "plain"] if kernel.COMPILED else ["plain"]
    kinds = [looking(is_pure=name == "plain") for name in kernels]
    print(f"\na librdkafka producer, records/s, medians of {ROUNDS} rounds each in turn")
    print(f"{'':<32}{'without':>12}" + "".join(f"{name:>12}{'keeps':>7}" for name in kernels))
    with brokers(believing(is_pure=True), *kinds) as started:
        for name, rows, codec in (
            ("100 bytes", equal_rows(1000), "none"),
            ("keys, and 60 to 139 bytes", uneven_rows(1000), "none"),
            ("keys, and 60 to 139 bytes, lz4", uneven_rows(1000), "lz4"),
        ):
            rates: list[list[float]] = [[] for _ in started]
            for turn in range(ROUNDS):
                for which in range(len(started))[:: 1 if turn % 2 else -1]:
                    rates[which].append(produce(started[which], rows, codec))
            without, *others = (statistics.median(each) for each in rates)
            cells = "".join(f"{rate:>12,.0f}{rate / without:>7.0%}" for rate in others)
            print(f"{name:<32}{without:>12,.0f}{cells}", flush=True)


def read_lengths(data: bytes) -> int:
    """Go from one length of a batch's records to the next; returns how many there are."""
    position, size, count = BATCH_OVERHEAD, len(data), 0
    while position < size:
        length = data[position]
        if length < 128:
            position += 1 + (length >> 1)
        else:
            position += (length >> 1) + (data[position + 1] << 6) - 62
        count += 1
    return count


def read_with_kafka_python(data: bytes) -> int:
    return sum(1 for _ in kafka_python_records.DefaultRecordBatch(data))


def compare_loops() -> None:
    """The loops alone, in nanoseconds a record."""
    print(f"\n{'ns a record, batches of':<32}" + "".join(f"{size:>10}" for size in SIZES))
    for kind in (equal_rows, uneven_rows):
        data = {size: build_batch(kind(size)) for size in SIZES}
        loops = {
            "compiled": lambda raw, batch: kernel.survey_records(batch, raw, BATCH_OVERHEAD),
            "plain": lambda raw, batch: survey_records(batch, raw, BATCH_OVERHEAD),
            "lengths only": lambda raw, _: read_lengths(raw),
            "kafka-python": lambda raw, _: read_with_kafka_python(raw),
        }
        for name, loop in loops.items():
            cells = []
            for size, raw in data.items():
                batch = RecordBatch(raw)
                rate = million_per_second(lambda f=loop, r=raw, b=batch: f(r, b), size)
                cells.append(f"{1e3 / rate:>10.1f}")
            print(f"{name + ', ' + kind.__name__.replace('_', ' '):<32}" + "".join(cells))


def main() -> None:
    print(f"produce over one socket, {DEPTH} in the air, medians of {ROUNDS} rounds each in turn")
    for name, is_pure in (("compiled", False), ("plain", True)):
        if is_pure or kernel.COMPILED:
            print(f"\n{name} kernel")
            with brokers(looking(is_pure=is_pure), believing(is_pure=is_pure)) as pair:
                compare_all(pair)
    compare_producers()
    compare_loops()


if __name__ == "__main__":
    main()
