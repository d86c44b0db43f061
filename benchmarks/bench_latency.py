"""Latency: one synchronous send, and end to end at a steady 1000 records a second.

The peer is the bare round trip of 100 bytes between two processes over loopback TCP; of a broker
that spins (`ottla.network.spin.us`) it is one that does not, in turns.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing.processes import BrokerProcess

SENDS = 5_000
STEADY_RECORDS = int(os.environ.get("BENCH_LATENCY_RECORDS", "20000"))
STEADY_RATE = 1_000
SPIN_US, SPIN_ROUNDS = 200, 5


def percentiles(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    marks = ((50, "p50"), (99, "p99"), (99.9, "p99.9"))
    return ", ".join(
        f"{name} {ordered[min(len(ordered) - 1, int(len(ordered) * mark / 100))] * 1e6:,.0f} us"
        for mark, name in marks
    )


def echo(listener: socket.socket) -> None:
    """Send back what comes, in a process of its own as the broker is."""
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(4096):
        connection.sendall(data)


def bare_round_trips(count: int) -> list[float]:
    """100 bytes there and back over loopback TCP, between two processes with blocking sockets."""
    listener = socket.create_server(("127.0.0.1", 0))
    process = multiprocessing.get_context("fork").Process(target=echo, args=(listener,))
    process.start()
    message = bytes(100)
    times = []
    with socket.create_connection(listener.getsockname()) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            start = time.perf_counter()
            connection.sendall(message)
            connection.recv(4096)
            times.append(time.perf_counter() - start)
    process.join()
    listener.close()
    return times


def synchronous_sends(bootstrap: str, count: int) -> list[float]:
    """One record, wait for its acknowledgement, the next: acks=1, no linger."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
    times = []
    for number in range(count + 500):
        start = time.perf_counter()
        producer.produce("latency-sync", bytes(100), partition=0)
        producer.flush()
        if number >= 500:
            times.append(time.perf_counter() - start)
    return times


def end_to_end(bootstrap: str, count: int) -> list[float]:
    """From produce() to the record in the consumer's hand, both in this process."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "latency", "fetch.wait.max.ms": 500}
    )
    consumer.assign([TopicPartition("latency-steady", 0, 0)])
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
    warm_up = 1_000
    times: list[float] = []

    def send() -> None:
        begin = time.perf_counter()
        for number in range(count + warm_up):
            due = begin + number / STEADY_RATE
            while (wait := due - time.perf_counter()) > 0:
                time.sleep(wait)
            producer.produce("latency-steady", repr(time.perf_counter()).encode(), partition=0)
            producer.poll(0)
        producer.flush()

    producer.produce("latency-steady", repr(time.perf_counter()).encode(), partition=0)
    producer.flush()
    sender = threading.Thread(target=send)
    sender.start()
    while len(times) < count + warm_up:
        message = consumer.poll(10)
        assert message is not None, "the steady stream stopped"
        times.append(time.perf_counter() - float(message.value()))
    sender.join()
    consumer.close()
    return times[warm_up:]


def compare_spinning(folder: Path) -> None:
    """The p50 of a synchronous send to a broker that spins beside one that does not."""
    sleeping = BrokerProcess(folder / "sleeping").start()
    spinning = BrokerProcess(folder / "spinning", ottla_network_spin_us=SPIN_US).start()
    try:
        rounds = [
            [
                statistics.median(synchronous_sends(broker.bootstrap_servers, SENDS))
                for broker in (sleeping, spinning)
            ]
            for _ in range(SPIN_ROUNDS)
        ]
    finally:
        sleeping.stop()
        spinning.stop()
    usual, spun = (statistics.median(each) * 1e6 for each in zip(*rounds, strict=True))
    ratio = statistics.median(spun / usual for usual, spun in rounds)
    print(f"the same, {SPIN_ROUNDS} rounds in turns            p50 {usual:,.0f} us")
    print(f"spinning for {SPIN_US} us                  p50 {spun:,.0f} us, x{ratio:.2f}")


def main() -> None:
    print(f"machine: bare round trip of 100 B    {percentiles(bare_round_trips(20_000))}")
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data").start()
        try:
            sends = synchronous_sends(broker.bootstrap_servers, SENDS)
            print(f"synchronous send, 100 B, acks=1      {percentiles(sends)}", flush=True)
            steady = end_to_end(broker.bootstrap_servers, STEADY_RECORDS)
            print(f"end to end at {STEADY_RATE} records/s        {percentiles(steady)}")
        finally:
            broker.stop()
        compare_spinning(Path(folder))


if __name__ == "__main__":
    main()
