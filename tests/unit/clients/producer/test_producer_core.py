"""What a producer's parts take from its settings, and what it learns of partitions."""

from __future__ import annotations

import pytest
from producer_world import ProducerWorld

from ottla.clients.producer.producer_core import GROWN_BATCH_SIZE, grown_batch_size
from ottla.config.client_config import ProducerConfig
from ottla.protocol.metadata import MetadataRequest


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({}, GROWN_BATCH_SIZE),
        ({"batch.size": 16_384}, 16_384),
        ({"batch.size": 1_000_000}, 1_000_000),
        ({"batch.size": 0}, 0),
        ({"max.request.size": 50_000}, 50_000),
        ({"max.request.size": 10_000}, 16_384),
    ],
)
def test_batch_grows_beyond_its_size_where_that_was_not_set(settings, size):
    """A size that somebody has set is kept, as with Kafka's own producer."""
    config = ProducerConfig.parse({"bootstrap.servers": "localhost:1", **settings})

    assert grown_batch_size(config) == size


@pytest.mark.parametrize(
    ("partition", "count", "asks"), [(None, 1, False), (0, 1, False), (1, 3, True), (7, 3, True)]
)
def test_partition_that_is_not_known_is_asked_about_again(runtime, cluster, partition, count, asks):
    """The topic may have more of them now; those that are known are told without a request."""
    cluster.topics["pages"] = 1
    world = ProducerWorld(runtime, cluster)

    def requests():
        return sum(len(each.sent(MetadataRequest)) for each in cluster.brokers.values())

    before = requests()
    cluster.topics["pages"] = 3
    found = runtime.scheduler.run(world.core.partitions_for("pages", partition, 1_000))

    assert [each.partition for each in found] == list(range(count))
    assert (requests() > before) is asks
