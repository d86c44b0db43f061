"""Which segments are put together, and how large the map of a round is."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.log.cleaning import OffsetMap, SourceSegment, group_segments
from ottla.record.batch_builder import build_batch
from ottla.record.record_batch import RecordBatch

SECRET = bytes(16)


def source(
    base_offset: int, end_offset: int, size: int, index_bytes: int = 0, time_index_bytes: int = 0
) -> SourceSegment:
    return SourceSegment(base_offset, end_offset, size, index_bytes, time_index_bytes, 0)


@pytest.mark.parametrize(
    ("sources", "groups"),
    [
        ([source(0, 10, 40), source(10, 20, 60), source(20, 30, 1)], [[0, 10], [20]]),
        ([source(0, 10, 500), source(10, 20, 1)], [[0], [10]]),
        ([source(0, 10, 1, 80), source(10, 20, 1, 30)], [[0], [10]]),
        ([source(0, 10, 1, 80), source(10, 20, 1, 20)], [[0, 10]]),
        ([source(0, 10, 1, 0, 80), source(10, 20, 1, 0, 30)], [[0], [10]]),
        ([source(0, 10, 1, 0, 80), source(10, 20, 1, 0, 20)], [[0, 10]]),
        ([source(0, 10, 1), source(10, 2**31 + 1, 1)], [[0], [10]]),
        ([source(0, 10, 1), source(10, 2**31, 1)], [[0, 10]]),
        ([source(0, 10, 1), source(10, 2**32, 0), source(2**32, 2**33, 1)], [[0, 10], [2**32]]),
        ([], []),
    ],
)
def test_neighbours_are_put_together_up_to_the_limits(sources, groups):
    """segment.bytes, segment.index.bytes, and offsets of batches that fit into 31 bits."""
    config = TopicConfig.of(
        BrokerConfig.parse({}), {"segment.bytes": "100", "segment.index.bytes": "100"}
    )
    found = group_segments(sources, config)

    assert [[one.base_offset for one in group] for group in found] == groups


def test_map_takes_24_bytes_a_key():
    """No more memory than there is, and no more than is wanted (K13)."""
    full = OffsetMap.within(24_000, 0.9, 10**9, SECRET, 0)
    small = OffsetMap.within(24_000, 0.9, 9, SECRET, 0)

    assert full.capacity == 900
    assert len(full._table) <= 24_000 + 48
    assert small.capacity == 9
    assert len(small._table) < 400


@pytest.mark.parametrize("load_factor", [0.01, 0.5, 1.0])
def test_map_ends_where_the_next_key_does_not_fit(load_factor):
    """It goes on in the next round from there."""
    batch = RecordBatch(build_batch([(0, b"%d" % key, b"v", ()) for key in (1, 1, 2, 3, 1)]))
    offsets = OffsetMap.within(24 * 300, load_factor, 2, SECRET, 0)

    assert not offsets.note(batch)
    assert (offsets.count, offsets.end_offset) == (2, 3)
    assert [offsets.last_offset(b"%d" % key) for key in (1, 2, 3)] == [1, 2, -1]
