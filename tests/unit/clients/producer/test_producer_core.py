"""The limits that a producer's parts take from its settings."""

from __future__ import annotations

import pytest

from ottla.clients.producer.producer_core import GROWN_BATCH_SIZE, grown_batch_size
from ottla.config.client_config import ProducerConfig


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
