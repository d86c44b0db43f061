"""A reader that keeps its offset in a znode of its own, as Storm's spout for Kafka did.

    python examples/uses/offset_in_znode.py --zookeeper localhost:2181 --root /storm --id word-spout

A low-level consumer, no group. It emits messages with their offsets; they
are acknowledged or failed in any order; the offset in the znode is the first one that is still
open, so that a restart emits again what was under way, and nothing else.
"""

from __future__ import annotations

import argparse
import json

from kazoo.client import KazooClient

from ottla import Producer
from ottla.clients.legacy import FetchRequest, SimpleConsumer

TOPIC = "sentences"
SENTENCES = ("the quick brown fox", "jumps over", "the lazy dog")
FETCH_BYTES = 100_000


class Spout:
    """Reads one partition, and knows which of its messages are under way."""

    def __init__(self, zookeeper: KazooClient, root: str, name: str, partition: int = 0) -> None:
        self.zookeeper = zookeeper
        self.path = f"{root}/{name}/partition_{partition}"
        self.partition = partition
        self.broker = self._leader()
        self.consumer = SimpleConsumer(self.broker["host"], self.broker["port"])
        self.next_offset = self._saved_offset()
        self.under_way: set[int] = set()
        self.again: list[tuple[int, bytes]] = []

    def _leader(self) -> dict[str, object]:
        """Where the partition's leader listens, from the znodes that brokers keep."""
        path = f"/brokers/topics/{TOPIC}/partitions/{self.partition}/state"
        leader = json.loads(self.zookeeper.get(path)[0])["leader"]
        broker = json.loads(self.zookeeper.get(f"/brokers/ids/{leader}")[0])
        return {"host": broker["host"], "port": broker["port"]}

    def _saved_offset(self) -> int:
        """Where this reader was, or the beginning."""
        if self.zookeeper.exists(self.path) is None:
            return 0
        return int(json.loads(self.zookeeper.get(self.path)[0])["offset"])

    def emit(self) -> list[tuple[int, bytes]]:
        """The messages that failed before, and the next ones of the partition, with offsets."""
        messages, self.again = self.again, []
        request = FetchRequest(TOPIC, self.partition, self.next_offset, FETCH_BYTES)
        for message, offset in self.consumer.fetch(request):
            messages.append((offset, message.payload))
            self.next_offset = offset + 1
        self.under_way.update(offset for offset, _ in messages)
        return messages

    def ack(self, offset: int) -> None:
        """This message is done."""
        self.under_way.discard(offset)

    def fail(self, offset: int, payload: bytes) -> None:
        """This message is to be emitted again."""
        self.again.append((offset, payload))

    def commit(self) -> int:
        """Write the first offset that is still open to the znode, with the fields of Storm's."""
        offset = min(self.under_way, default=self.next_offset)
        state = {
            "topology": {"id": self.path, "name": self.path.split("/")[-2]},
            "offset": offset,
            "partition": self.partition,
            "broker": self.broker,
            "topic": TOPIC,
        }
        self.zookeeper.ensure_path(self.path)
        self.zookeeper.set(self.path, json.dumps(state).encode())
        return offset

    def close(self) -> None:
        self.consumer.close()


def publish(zookeeper: KazooClient) -> None:
    """Have something to read: the topic, with three sentences, if there is none."""
    if zookeeper.exists(f"/brokers/topics/{TOPIC}") is not None:
        return
    broker = json.loads(
        zookeeper.get(f"/brokers/ids/{zookeeper.get_children('/brokers/ids')[0]}")[0]
    )
    with Producer(f"{broker['host']}:{broker['port']}") as producer:
        for sentence in SENTENCES:
            producer.send(TOPIC, sentence)


def run(zookeeper_hosts: str, root: str, name: str) -> dict[str, int]:
    """Emit what is new, acknowledge all of it, and save the offset; returns both offsets."""
    zookeeper = KazooClient(zookeeper_hosts)
    zookeeper.start()
    try:
        publish(zookeeper)
        spout = Spout(zookeeper, root, name)
        begin = spout.next_offset
        while messages := spout.emit():
            for offset, payload in messages:
                print(f"{offset}: {payload.decode()}")
                spout.ack(offset)
        saved = spout.commit()
        print(f"emitted {saved - begin} messages; {spout.path} says offset {saved}")
        spout.close()
    finally:
        zookeeper.stop()
        zookeeper.close()
    return {"begin": begin, "saved": saved}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--zookeeper", default="localhost:2181")
    arguments.add_argument("--root", default="/storm")
    arguments.add_argument("--id", default="word-spout")
    given = arguments.parse_args()
    run(given.zookeeper, given.root, given.id)
