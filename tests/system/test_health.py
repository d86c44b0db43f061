"""A broker that is told to stop while clients write to it, as a rolling restart does."""

from __future__ import annotations

import asyncio
import threading

from http_pages import get, metrics_of

import ottla
from ottla.testing import InProcessCluster, wait_until


class Load:
    """A producer with acks=all that does not stop until the test does."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.failures: list[Exception] = []
        self.count = 0
        self.is_over = threading.Event()
        self._servers = bootstrap_servers
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with ottla.Producer(self._servers, acks="all", linger_ms=0) as producer:
            while not self.is_over.is_set():
                try:
                    producer.send("t", b"%d" % self.count).result(60)
                except ottla.KafkaError as error:
                    self.failures.append(error)
                    return
                self.count += 1

    def stop(self) -> None:
        self.is_over.set()
        self._thread.join()


def test_broker_is_not_ready_before_its_leaders_move():
    """/readyz says 503 while it still leads, and no acks=all produce fails."""
    settings = {"metrics_listener": "http://127.0.0.1:0", "min_insync_replicas": "2"}
    with InProcessCluster(3, **settings) as cluster:
        cluster.create_topic("t", partitions=1, replication_factor=3)
        leader = cluster.leader("t")
        broker = cluster.broker(leader)
        url = str(metrics_of(broker).end_point)
        seen = []
        hand_over = broker.link.controlled_shutdown

        async def ask_before() -> None:
            """What a prober gets at the moment at which the handing over begins."""
            answer = await asyncio.to_thread(get, f"{url}/readyz")
            partition = next(
                each for tp, each in broker.replica_manager.partitions.items() if tp.topic == "t"
            )
            seen.append((answer, partition.is_leader))
            await hand_over()

        broker.link.controlled_shutdown = ask_before
        load = Load(cluster.bootstrap_servers)
        try:
            wait_until(lambda: load.count > 20, "records")
            assert get(f"{url}/readyz") == (200, "ready\n")
            cluster.stop_broker(leader)
            after = load.count
            wait_until(lambda: load.count > after + 20, "records at another leader")
        finally:
            load.stop()
        written = [record.value for record in cluster.records("t")]

    (((status, why), leads),) = seen
    assert status == 503
    assert "PENDING_CONTROLLED_SHUTDOWN" in why
    assert leads
    assert load.failures == []
    assert written == [b"%d" % number for number in range(load.count)]
