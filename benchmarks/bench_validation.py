"""What looking through every record of a produced batch costs, by codec and by kernel.

Batches that were built before go over one socket, several in the air, to a broker that looks
through the records and to one that does not, in turn: so this is the limit of a broker's core, and
a producer at work spends more on each record than both. The CPU time of the broker is what counts
on a machine that has other things to do. The last table asks kafka-python's loop over the records,
which checks less, about the same batches.
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

import kafka.record.default_records as kafka_python_records
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.bench_records import million_per_second
from ottla.protocol.header import encode_request
from ottla.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.record import kernel, plain_kernel
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.record_batch import BATCH_OVERHEAD, RecordBatch
from ottla.testing.broker_process import BrokerProcess

DEPTH = 4
ROUNDS = 7
ROUND_BYTES = 40_000_000
MOST_REQUESTS = 4_000
PRODUCED = 200_000
TOPIC = "validation"
# A record alone, what fits into 16 KiB (batch.size where it is not set), and nearly a megabyte.
SIZES = (1, 150, 8_000)
KEPT = {"segment.bytes": "67108864", "retention.bytes": "67108864", "file.delete.delay.ms": "0"}


def equal_rows(count: int) -> list[plain_kernel.NewRecord]:
    """Values of 100 bytes, fifty in a millisecond."""
    now = int(time.time() * 1000)
    return [
        (now + n // 50, None, (b'{"id": %d, "page": "/p/%d"}' % (n, n * n % 997)).ljust(100), ())
        for n in range(count)
    ]


def uneven_rows(count: int) -> list[plain_kernel.NewRecord]:
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


@contextmanager
def brokers(*, is_pure: bool) -> Iterator[list[BrokerProcess]]:
    """One that looks through the records, and one that does not."""
    before = os.environ.get("OTTLA_PURE")
    os.environ["OTTLA_PURE"] = "1" if is_pure else "0"
    started = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for module in ("ottla", "benchmarks.broker_without_validation"):
                data_dir = Path(folder) / module
                broker = BrokerProcess(data_dir, log_retention_check_interval_ms=500)
                broker.module = module
                started.append(broker.start())
                admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
                admin.create_topics([NewTopic(TOPIC, 1, 1, config=KEPT)])[TOPIC].result(30)
            yield started
        finally:
            for broker in started:
                broker.stop()
            if before is None:
                del os.environ["OTTLA_PURE"]
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


def produce(broker: BrokerProcess, rows: list[plain_kernel.NewRecord]) -> float:
    """Records a second of a librdkafka producer with its own settings."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
    values = [value for _, _, value, _ in rows]
    start = time.perf_counter()
    for _ in range(PRODUCED // len(values)):
        for value in values:
            producer.produce(TOPIC, value)
        producer.poll(0)
        while len(producer) > 50_000:
            producer.poll(0.001)
    producer.flush()
    return PRODUCED / (time.perf_counter() - start)


def compare_producer(
    pair: list[BrokerProcess], name: str, rows: list[plain_kernel.NewRecord]
) -> None:
    rates: list[list[float]] = [[], []]
    for turn in range(ROUNDS):
        for which in (0, 1) if turn % 2 else (1, 0):
            rates[which].append(produce(pair[which], rows))
    looking, believing = (statistics.median(each) for each in rates)
    print(
        f"a librdkafka producer, {name}: {believing:,.0f} records/s without, "
        f"{looking:,.0f} with: keeps {looking / believing:.0%}",
        flush=True,
    )


def read_with_kafka_python(data: bytes) -> int:
    return sum(1 for _ in kafka_python_records.DefaultRecordBatch(data))


def compare_loops() -> None:
    """The loops alone, in nanoseconds a record."""
    print(f"\n{'ns a record, batches of':<32}" + "".join(f"{size:>10}" for size in SIZES))
    for kind in (equal_rows, uneven_rows):
        data = {size: build_batch(kind(size)) for size in SIZES}
        loops = {
            "compiled": lambda raw, batch: kernel.survey_records(batch, raw, BATCH_OVERHEAD),
            "plain": lambda raw, batch: plain_kernel.survey_records(batch, raw, BATCH_OVERHEAD),
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
            with brokers(is_pure=is_pure) as pair:
                compare_all(pair)
                compare_producer(pair, "100 bytes", equal_rows(1000))
                compare_producer(pair, "60 to 139 bytes", uneven_rows(1000))
    compare_loops()


if __name__ == "__main__":
    main()
