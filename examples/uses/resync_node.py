"""A node of a distributed store that failed, brought back from a compacted topic.

    python examples/uses/resync_node.py --bootstrap-server localhost:9092

The topic is the store's commit log. Nodes apply it in its order, so nodes
that are at the same offset are equal; one that lost everything reads the last value of each key.
"""

from __future__ import annotations

import argparse
import random
import time

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition

TOPIC = "store-log"
LOG = TopicPartition(TOPIC, 0)
# Small segments, as only closed ones are compacted.
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "16384",
    "min.cleanable.dirty.ratio": "0.01",
}


class Node:
    """One copy of the store: keys and values, and the offset up to which they are applied."""

    def __init__(self, servers: str, name: str) -> None:
        self.name = name
        self.values: dict[bytes, bytes] = {}
        self.read = 0
        self.consumer = Consumer(servers)
        self.consumer.assign([LOG])
        self.consumer.seek_to_beginning([LOG])

    def catch_up(self) -> int:
        """Apply the log up to its end; returns the number of records that this took."""
        end = self.consumer.end_offsets([LOG])[LOG]
        before = self.read
        while self.consumer.position(LOG) < end:
            for record in self.consumer.poll(timeout_ms=500):
                self.read += 1
                if record.value is None:
                    self.values.pop(record.key, None)
                else:
                    self.values[record.key] = record.value
        return self.read - before

    def close(self) -> None:
        self.consumer.close()


def write(servers: str, count: int, seed: int) -> dict[bytes, bytes]:
    """Change keys at random, delete some; returns the last value of each key that is left."""
    chance = random.Random(seed)
    last: dict[bytes, bytes] = {}
    with Producer(servers, acks="all", linger_ms=5) as producer:
        for number in range(count):
            key = f"key {chance.randrange(100)}".encode()
            if chance.random() < 0.05:
                producer.send(TOPIC, None, key=key)
                last.pop(key, None)
            else:
                value = f"value {number}".encode()
                producer.send(TOPIC, value, key=key)
                last[key] = value
    return last


def run(servers: str, count: int = 5000, patience_s: float = 60.0) -> dict[str, object]:
    """Fail a node, write on, bring it back; returns how many records each way back took."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, configs=SETTINGS)])
    nodes = [Node(servers, f"node-{number}") for number in (1, 2, 3)]
    write(servers, count // 2, seed=1)
    for node in nodes:
        node.catch_up()
    print(f"three nodes have applied {nodes[0].read} changes and are equal: {equal(nodes)}")

    failed = nodes.pop()
    write(servers, count // 2, seed=2)
    late = failed.catch_up()
    print(f"{failed.name} was away for a while: it applied the {late} changes that it had missed")
    failed.close()

    for node in nodes:
        node.catch_up()
    give_up = time.monotonic() + patience_s
    while True:
        new = Node(servers, "node-4")
        took = new.catch_up()
        if took < count or time.monotonic() > give_up:
            break
        new.close()  # the cleaner has not come by yet; the node would be right, and slower
    nodes.append(new)
    print(f"node-4 began with nothing: {took} records brought it {len(new.values)} keys")
    same = equal(nodes)
    print(f"of {count} changes; it equals the others: {same}")
    for node in nodes:
        node.close()
    return {"changes": count, "late": late, "took": took, "keys": len(new.values), "equal": same}


def equal(nodes: list[Node]) -> bool:
    """Whether all nodes hold the same."""
    return all(node.values == nodes[0].values for node in nodes)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--bootstrap-server", default="localhost:9092")
    try:
        run(arguments.parse_args().bootstrap_server)
    except KafkaError as error:
        raise SystemExit(error.message) from None  # as at a second run, while the topic is there
