"""How long a topic cannot be written after a broker dies or stops, with few and many partitions.

A third of the partitions has the broker as their leader. One record is written to each partition at
the moment; the time is until the last of them is acknowledged by two brokers. A broker that was
killed is missed when its session, two seconds here, has expired at ZooKeeper. One that is to stop
has others lead first; `exited` is when its process is gone, with all logs on disk. `whole` is the
same time while nothing has befallen the cluster: what the client and the copies take by themselves.
`cpu` is what the three brokers have used meanwhile: it depends less on who else uses the machine.

The producer (librdkafka) sends one request for each partition, and so 1,000 of them: `whole` has
what that takes, and is part of every other time. A client that puts all partitions of a leader into
one request, as Kafka's own does, sees less.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.processes import ClusterProcess

PARTITIONS = [int(text) for text in os.environ.get("BENCH_PARTITIONS", "100,1000").split(",")]
SESSION_S = 2.0
LIMIT_S = 120


class Trial:
    """A topic of so many partitions, each on all three brokers."""

    def __init__(self, cluster: ClusterProcess, partitions: int) -> None:
        self.cluster = cluster
        self.topic = f"failover-{partitions}"
        self.partitions = partitions
        servers = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        self.admin = AdminClient(servers)
        self.producer = Producer(
            {
                **servers,
                "acks": "all",
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "reconnect.backoff.max.ms": 200,
                # It sends 1,000 requests before the first is answered: they are late, not lost.
                "request.timeout.ms": 1000 * LIMIT_S,
            }
        )

    def create(self) -> float:
        """Seconds until every partition takes records."""
        start = time.perf_counter()
        new = NewTopic(self.topic, self.partitions, 3, config={"min.insync.replicas": "2"})
        self.admin.create_topics([new], operation_timeout=60)[self.topic].result(LIMIT_S)
        self.write()
        return time.perf_counter() - start

    def write(self) -> None:
        """One record to each partition, acknowledged."""
        errors: list[object] = []

        def on_delivery(error: object, _: object) -> None:
            if error is not None:
                errors.append(error)

        for partition in range(self.partitions):
            self.producer.produce(self.topic, b"x", partition=partition, on_delivery=on_delivery)
        left = self.producer.flush(LIMIT_S)
        assert left == 0, f"{left} records were not delivered"
        assert not errors, f"{len(errors)} records failed: {errors[0]}"

    def leads(self, broker_id: int) -> int:
        """How many partitions a broker leads."""
        found = self.admin.list_topics(self.topic, timeout=30).topics[self.topic].partitions
        return sum(each.leader == broker_id for each in found.values())

    def gap(self, end: Callable[[], object]) -> tuple[float, float]:
        """From the end of a broker until every partition has taken a record, and CPU meanwhile."""
        start, used = time.perf_counter(), self.cpu()
        end()
        self.write()
        return time.perf_counter() - start, self.cpu() - used

    def cpu(self) -> float:
        """Seconds of CPU that the brokers that run have used so far."""
        used = 0
        for broker in self.cluster.brokers.values():
            if broker.process is not None:
                stat = Path(f"/proc/{broker.process.pid}/stat").read_text()
                used += sum(map(int, stat.rpartition(")")[2].split()[11:13]))
        return used / os.sysconf("SC_CLK_TCK")

    def until_in_sync(self) -> float:
        """Seconds until all replicas of all partitions are in sync."""
        start = time.perf_counter()
        while time.perf_counter() - start < LIMIT_S:
            found = self.admin.list_topics(self.topic, timeout=30).topics[self.topic].partitions
            if all(len(each.isrs) == 3 for each in found.values()):
                return time.perf_counter() - start
            time.sleep(0.05)
        raise AssertionError("the replicas do not get in sync")


def measure(partitions: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cluster = ClusterProcess(
            Path(folder), zookeeper_session_timeout_ms=int(SESSION_S * 1000)
        ).start()
        try:
            trial = Trial(cluster, partitions)
            created = trial.create()
            whole, whole_cpu = trial.gap(lambda: None)
            led = trial.leads(1)
            cluster.kill_broker(1)  # its own CPU time is not to be missed in the sum
            killed, killed_cpu = trial.gap(lambda: None)
            start = time.perf_counter()
            cluster.start_broker(1)
            started = time.perf_counter() - start
            in_sync = trial.until_in_sync()
            led_again = trial.leads(2)
            start = time.perf_counter()
            stopped, _ = trial.gap(lambda: cluster.brokers[2].running.send_signal(signal.SIGTERM))
            cluster.stop_broker(2)
            exited = time.perf_counter() - start
        finally:
            cluster.stop()
    print(
        f"{partitions:>10} {created:>8.2f} {whole:>7.2f} {whole_cpu:>6.2f} {led:>6} {killed:>7.2f} "
        f"{killed_cpu:>6.2f} {killed - SESSION_S:>13.2f} {started:>8.2f} {in_sync:>8.2f} "
        f"{led_again:>6} {stopped:>8.2f} {exited:>7.2f}",
        flush=True,
    )


def main() -> None:
    print(f"seconds; 3 brokers and ZooKeeper on {os.cpu_count()} cores; session {SESSION_S} s")
    print(
        f"{'partitions':>10} {'created':>8} {'whole':>7} {'cpu':>6} {'led':>6} {'killed':>7} "
        f"{'cpu':>6} {'past session':>13} {'restart':>8} {'in sync':>8} "
        f"{'led':>6} {'stopped':>8} {'exited':>7}"
    )
    for partitions in PARTITIONS:
        measure(partitions)


if __name__ == "__main__":
    main()
