"""Hot data in a partition of its own, by a partitioner of one's own.

    python examples/uses/hot_data.py --bootstrap-server localhost:9092

Keys with `hot_data` in them go to the last partition, all others at random
to the rest. `ottla get-offsets` shows it.
"""

from __future__ import annotations

import argparse
import random

from ottla import Admin, KafkaError, NewTopic, Producer

TOPIC = "readings"
PARTITIONS = 4


class HotDataPartitioner:
    """A partitioner with the methods of Kafka's interface."""

    def __init__(self) -> None:
        self._chance = random.Random()

    def configure(self, settings: dict[str, object]) -> None:
        """The producer's settings; `hot.data.seed` makes the choice repeatable."""
        self._chance.seed(settings.get("hot.data.seed"))

    def partition(self, topic, key, key_bytes, value, value_bytes, cluster):  # type: ignore[no-untyped-def]
        """The last partition for hot data, else any but the last."""
        last = cluster.partition_count_for_topic(topic) - 1
        if b"hot_data" in (key_bytes or b""):
            return last
        return self._chance.randrange(last)

    def close(self) -> None:
        """Nothing is kept."""


def run(servers: str, count: int = 1000) -> int:
    """Send readings, every tenth of them hot; returns the number of hot ones."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])
    with Producer(servers, partitioner_class=HotDataPartitioner, linger_ms=5) as producer:
        for number in range(count):
            kind = "hot_data" if number % 10 == 0 else "data"
            producer.send(TOPIC, f"reading {number}", key=f"{kind} {number}")
    hot = len(range(0, count, 10))
    print(f"sent {count} readings, {hot} of them hot")
    return hot


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--bootstrap-server", default="localhost:9092")
    try:
        run(arguments.parse_args().bootstrap_server)
    except KafkaError as error:
        raise SystemExit(error.message) from None  # as at a second run, while the topic is there
