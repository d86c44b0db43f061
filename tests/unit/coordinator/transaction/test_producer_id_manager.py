"""Blocks of producer ids in the registry."""

import asyncio
import json

import pytest

from ottla.coordinator.transaction.producer_id_manager import ProducerIdManager
from ottla.errors import ErrorCode, KafkaError
from ottla.registry.paths import PRODUCER_ID_BLOCK
from ottla.registry.tree import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    SessionEndedError,
    Stat,
)
from ottla.registry.znodes import ProducerIdBlock


class OneNode:
    """A registry with room for the block; `before_write` is what another broker does meanwhile."""

    def __init__(self):
        self.data = None
        self.version = 0
        self.before_write = None

    async def get(self, path):
        assert path == PRODUCER_ID_BLOCK
        await asyncio.sleep(0)
        if self.data is None:
            raise NoNodeError(path)
        return self.data, Stat(self.version, 0, 0, 0, 0, 0, False, len(self.data), 0)

    async def set(self, path, data, version):
        self._meanwhile()
        if version != self.version:
            raise BadVersionError(path)
        self.data, self.version = data, self.version + 1

    async def create(self, path, data):
        self._meanwhile()
        if self.data is not None:
            raise NodeExistsError(path)
        self.data = data

    def _meanwhile(self):
        if self.before_write is not None:
            self.before_write()

    def claim(self, broker_id):
        """What another broker's claim leaves behind."""
        start = 0 if self.data is None else int(json.loads(self.data)["block_end"]) + 1
        block = {"version": 1, "broker": broker_id}
        block |= {"block_start": str(start), "block_end": str(start + 999)}
        self.data, self.version = json.dumps(block).encode(), self.version + 1


def take(manager, count):
    """So many ids, asked for at the same time."""

    async def take_all():
        return await asyncio.gather(*[manager.generate_producer_id() for _ in range(count)])

    return asyncio.run(take_all())


def test_ids_are_counted_from_zero_and_claimed_in_blocks_of_1000():
    """The registry has the block in Kafka's words."""
    registry = OneNode()

    assert take(ProducerIdManager(registry, broker_id=3), 1_001) == list(range(1_001))
    assert json.loads(registry.data) == {
        "version": 1,
        "broker": 3,
        "block_start": "1000",
        "block_end": "1999",
    }
    assert registry.version == 1, "waiting callers share one claim"


def test_restarted_broker_begins_a_new_block():
    """Ids that may have been given out before are not given out again."""
    registry = OneNode()
    take(ProducerIdManager(registry, 1), 5)

    assert take(ProducerIdManager(registry, 1), 1) == [1_000]


@pytest.mark.parametrize("exists", [False, True])
def test_block_that_another_broker_claims_first_is_passed_over(exists):
    """The write is conditional, so that no block has two owners."""
    registry = OneNode()
    if exists:
        registry.claim(9)

    def once():
        registry.before_write = None
        registry.claim(2)

    registry.before_write = once

    assert take(ProducerIdManager(registry, 1), 1) == [2_000 if exists else 1_000]


def test_claim_that_never_succeeds_is_given_up():
    """The producer is told to try again later."""
    registry = OneNode()
    registry.before_write = lambda: registry.claim(2)
    with pytest.raises(KafkaError) as refused:
        take(ProducerIdManager(registry, 1), 1)

    assert refused.value.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_session_that_ends_is_no_end_of_a_producer():
    """It heard UNKNOWN_SERVER_ERROR, which Java's producers take for the end."""
    registry = OneNode()

    def end_once():
        registry.before_write = None
        raise SessionEndedError("over")

    registry.before_write = end_once
    assert take(ProducerIdManager(registry, 1), 1) == [0]


def test_last_block_of_all_is_not_passed():
    """An id beyond the largest int64 has no place in a record."""
    node = OneNode()
    last = 2**63 - 1
    for block_end, is_left in ((last - 1000, True), (last - 999, False), (last, False)):
        node.data = ProducerIdBlock(1, 0, block_end).encode()
        ids = ProducerIdManager(node, 2)
        if is_left:
            assert asyncio.run(ids.generate_producer_id()) == last - 999
        else:
            with pytest.raises(KafkaError, match="used up"):
                asyncio.run(ids.generate_producer_id())


def test_unreadable_block_is_an_error():
    """Beginning at zero again would give ids out twice."""
    registry = OneNode()
    registry.data = b"{"

    with pytest.raises(KafkaError):
        take(ProducerIdManager(registry, 1), 1)
