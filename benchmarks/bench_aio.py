"""`ottla.aio` beside the blocking clients and aiokafka: records a second, and CPU time of each.

All run in turns against one broker, on one partition. `held up` is the longest time that a task
which sleeps for a millisecond was late while the loop sent, or read: what others have to wait.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioTopicPartition

import ottla
from benchmarks import machine
from ottla import NewTopic, TopicPartition, aio
from ottla.testing.processes import BrokerProcess

RUNS = int(os.environ.get("BENCH_RUNS", "5"))
COUNT = int(os.environ.get("BENCH_RECORDS", "200000"))
CODEC = os.environ.get("BENCH_CODEC", "none")
VALUE = b'{"user": 1234567, "page": "/articles/the-log", "referrer": "/index", "ms": 17}'
PARTITION = 0
NAP_S = 0.001
LINGER_MS = 5


class Outcome(NamedTuple):
    """Of one run: records a second, microseconds of CPU a record, milliseconds held up."""

    rate: float
    cpu_us: float
    held_up_ms: float


async def napping(late: list[float]) -> None:
    """Sleep again and again, and note the longest delay."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(NAP_S)
        late[0] = max(late[0], time.perf_counter() - began - NAP_S)


async def timed(work: Awaitable[int]) -> Outcome:
    late = [0.0]
    nap = asyncio.ensure_future(napping(late))
    await asyncio.sleep(0)
    cpu, began = time.process_time(), time.perf_counter()
    count = await work
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    nap.cancel()
    return Outcome(count / seconds, cpu / count * 1e6, late[0] * 1000)


def timed_blocking(work: Callable[[], int]) -> Outcome:
    cpu, began = time.process_time(), time.perf_counter()
    count = work()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Outcome(count / seconds, cpu / count * 1e6, 0.0)


async def send_by_aio(servers: str, topic: str) -> Outcome:
    async with aio.Producer(servers, linger_ms=LINGER_MS, compression_type=CODEC) as producer:
        await producer.send_and_wait(topic, VALUE)

        async def send() -> int:
            for _ in range(COUNT):
                await producer.send(topic, VALUE)
            await producer.flush()
            return COUNT

        return await timed(send())


def send_by_ottla(servers: str, topic: str) -> Outcome:
    with ottla.Producer(servers, linger_ms=LINGER_MS, compression_type=CODEC) as producer:
        producer.send(topic, VALUE).result(10)

        def send() -> int:
            for _ in range(COUNT):
                producer.send(topic, VALUE)
            producer.flush()
            return COUNT

        return timed_blocking(send)


async def send_by_aiokafka(servers: str, topic: str) -> Outcome:
    codec = None if CODEC == "none" else CODEC
    settings = {"enable_idempotence": True, "linger_ms": LINGER_MS, "compression_type": codec}
    async with AIOKafkaProducer(bootstrap_servers=servers, **settings) as producer:
        await producer.send_and_wait(topic, VALUE)

        async def send() -> int:
            for _ in range(COUNT):
                await producer.send(topic, VALUE)
            await producer.flush()
            return COUNT

        return await timed(send())


async def read_by_aio(servers: str, topic: str) -> Outcome:
    async with aio.Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, PARTITION)])

        async def read() -> int:
            seen = 0
            while seen < COUNT:
                seen += len(await consumer.poll(10_000))
            return seen

        return await timed(read())


def read_by_ottla(servers: str, topic: str) -> Outcome:
    with ottla.Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, PARTITION)])

        def read() -> int:
            seen = 0
            while seen < COUNT:
                seen += len(consumer.poll(10_000))
            return seen

        return timed_blocking(read)


async def read_by_aiokafka(servers: str, topic: str) -> Outcome:
    async with AIOKafkaConsumer(bootstrap_servers=servers, max_poll_records=500) as consumer:
        consumer.assign([AioTopicPartition(topic, PARTITION)])
        await consumer.seek_to_beginning()

        async def read() -> int:
            seen = 0
            while seen < COUNT:
                seen += sum(map(len, (await consumer.getmany(timeout_ms=10_000)).values()))
            return seen

        return await timed(read())


def outcome_of(case: Callable[[str, str], Any], servers: str, topic: str) -> Outcome:
    found = case(servers, topic)
    return asyncio.run(found) if isinstance(found, Coroutine) else found


CASES: dict[str, tuple[Callable[[str, str], Any], ...]] = {
    "send": (send_by_aio, send_by_ottla, send_by_aiokafka),
    "poll": (read_by_aio, read_by_ottla, read_by_aiokafka),
}


def measure(servers: str) -> dict[str, list[Outcome]]:
    """All cases in turns, so that each has the machine as the others have it."""
    found: dict[str, list[Outcome]] = {
        f"{what} {case.__name__.rpartition('_')[2]}": [] for what in CASES for case in CASES[what]
    }
    for run in range(RUNS):
        topic = f"aio-{run}"
        with ottla.Admin(servers) as admin:
            admin.create_topics([NewTopic(topic, 1)])
        for what, cases in CASES.items():
            for case in cases:
                name = f"{what} {case.__name__.rpartition('_')[2]}"
                found[name].append(outcome_of(case, servers, topic))
    return found


def main() -> None:
    print(machine.describe())
    print(f"medians of {RUNS} runs of {COUNT:,} records of {len(VALUE)} B, codec {CODEC}")
    print(f"{'':<15} {'records/s':>11} {'CPU us':>8} {'held up ms':>11}")
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data").start()
        try:
            for name, outcomes in measure(broker.bootstrap_servers).items():
                rate, cpu_us, held_up_ms = (
                    statistics.median(each[field] for each in outcomes) for field in range(3)
                )
                held = f"{held_up_ms:>11.1f}" if held_up_ms else f"{'':>11}"
                print(f"{name:<15} {rate:>11,.0f} {cpu_us:>8.2f} {held}", flush=True)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
