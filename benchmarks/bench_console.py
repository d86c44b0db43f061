"""The console beside a broker: SQL over a million records, and the produces of others meanwhile.

A statement is timed by the browser's side, with the start of its process. Produces of one record
each are timed in turns: while somebody looks at a page that refreshes itself, and while the console
is stopped (SIGSTOP); their p99 should not tell the turns apart.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import ottla
from ottla.testing.processes import BrokerProcess

RUNS = int(os.environ.get("BENCH_RUNS", "3"))
PAIRS = int(os.environ.get("BENCH_PAIRS", "10"))
RECORDS = 1_000_000
PRODUCES = 2_000
"""Of one turn."""
PAGES = ("/", "/topics", "/groups")
LOOK_EVERY_S = 5.0
STATEMENTS = {
    "count(*)": "SELECT count(*) FROM orders",
    "two fields of JSON": (
        "SELECT value.user, count(*), sum(value.amount) FROM orders GROUP BY 1 ORDER BY 2 DESC"
    ),
    "a condition on one": "SELECT count(*) FROM orders WHERE value.status = 'error'",
}


def values() -> list[bytes]:
    """Orders of about 130 bytes."""
    return [
        json.dumps(
            {
                "id": number,
                "user": f"u{number % 1000}",
                "amount": number % 9973 / 7,
                "status": "error" if number % 100 == 0 else "ok",
                "note": "x" * 40,
            }
        ).encode()
        for number in range(RECORDS)
    ]


def page(address: str, path: str) -> bytes:
    """A page of the console."""
    with urlopen(address + path, timeout=60) as answer:
        found: bytes = answer.read()
    return found


def measure_sql(address: str) -> None:
    """The best times of each statement."""
    for name, statement in STATEMENTS.items():
        times, read = [], 0
        for _ in range(RUNS):
            began = time.perf_counter()
            found = json.loads(page(address, f"/sql.json?q={quote(statement)}"))["result"]
            times.append(time.perf_counter() - began)
            read = found["topics"][0]["read"]
        print(f"{name:<22}{read:>12,} records {min(times):8.2f} s", flush=True)


def p99_ms(producer: ottla.Producer) -> float:
    """Of produces of one record each."""
    times = []
    for _ in range(PRODUCES):
        began = time.perf_counter()
        producer.send("small", b"x" * 100).result()
        times.append(time.perf_counter() - began)
    return statistics.quantiles(times, n=100)[98] * 1000


def look(address: str, is_over: threading.Event) -> None:
    """A browser with a page that refreshes itself."""
    number = 0
    while not is_over.is_set():
        page(address, PAGES[number % len(PAGES)])
        number += 1
        is_over.wait(LOOK_EVERY_S / len(PAGES))


def measure_produces(servers: str, address: str, console: subprocess.Popen[str]) -> None:
    """The p99 of turns with and without somebody who looks, and the ratio of each pair."""
    looked, alone = [], []
    with ottla.Producer(servers, linger_ms=0) as producer:
        p99_ms(producer)
        for _ in range(PAIRS):
            console.send_signal(signal.SIGSTOP)
            alone.append(p99_ms(producer))
            console.send_signal(signal.SIGCONT)
            is_over = threading.Event()
            looking = threading.Thread(target=look, args=(address, is_over))
            looking.start()
            looked.append(p99_ms(producer))
            is_over.set()
            looking.join()
    ratios = [one / two for one, two in zip(looked, alone, strict=True)]
    print(f"p99 of a produce, alone    {statistics.median(alone):8.2f} ms")
    print(f"p99 of a produce, looked at{statistics.median(looked):8.2f} ms")
    print(f"ratio of a pair, median    {statistics.median(ratios):8.2f}", flush=True)


def fill(servers: str) -> None:
    """A million orders, and a topic for the produces."""
    with ottla.Admin(servers) as admin:
        admin.create_topics([ottla.NewTopic("orders", 3, 1), ottla.NewTopic("small", 1, 1)])
    with ottla.Producer(servers, linger_ms=5) as producer:
        producer.send_values("orders", values())
        producer.flush()


def measure(servers: str) -> None:
    """Everything, with a console in a process of its own."""
    words = [sys.executable, "-m", "ottla", "console", "-b", servers, "--no-token"]
    words += ["--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as console:
        try:
            assert console.stdout is not None, "it is a pipe"
            found = re.search(r"http://[\w.:]+", console.stdout.readline())
            assert found is not None, "the console is not ready"
            measure_sql(found[0])
            measure_produces(servers, found[0], console)
        finally:
            console.send_signal(signal.SIGCONT)
            console.terminate()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data").start()
        try:
            fill(broker.bootstrap_servers)
            measure(broker.bootstrap_servers)
        finally:
            broker.kill()


if __name__ == "__main__":
    main()
