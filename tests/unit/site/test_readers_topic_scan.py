"""A reader whose offsets are its caller's."""

from __future__ import annotations

import pytest

from ottla import Producer
from ottla.site.readers import TopicScan
from ottla.testing import wait_until


@pytest.fixture
def servers(ottla_fresh_broker):
    """Ten records in two partitions."""
    ottla_fresh_broker.create_topic("lines", partitions=2)
    with Producer(ottla_fresh_broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send("lines", str(number), partition=number % 2)
    return ottla_fresh_broker.bootstrap_servers


def test_partitions_are_read_from_their_offsets(servers):
    """A partition that is not named begins at its beginning."""
    reader = TopicScan(servers, "lines", {0: 3})
    found = []
    wait_until(lambda: len(found) >= 7, "records", meanwhile=lambda: found.extend(reader.poll()))
    reader.close()

    assert sorted((each.partition, each.offset) for each in found) == [
        *((0, offset) for offset in (3, 4)),
        *((1, offset) for offset in range(5)),
    ]


def test_rest_is_all_up_to_the_end(servers):
    """Partition by partition, each in order."""
    reader = TopicScan(servers, "lines", {})
    values = [record.value.decode() for record in reader.rest()]
    reader.close()

    assert values == ["0", "2", "4", "6", "8", "1", "3", "5", "7", "9"]
