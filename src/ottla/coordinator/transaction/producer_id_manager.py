"""Producer ids, given one by one out of blocks that this broker has claimed in the registry."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.registry.paths import PRODUCER_ID_BLOCK
from ottla.registry.tree import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    Registry,
    RegistryFailedError,
)
from ottla.registry.znodes import ProducerIdBlock

BLOCK_SIZE: Final = 1000
MAX_CLAIMS: Final = 20
LAST_PRODUCER_ID: Final = 2**63 - 1


class ProducerIdManager:
    """Gives out the ids of one block after the other, each id once."""

    def __init__(self, registry: Registry, broker_id: int) -> None:
        self._registry = registry
        self._broker_id = broker_id
        self._block = ProducerIdBlock(broker_id, 0, -1)
        self._next_id = 0
        # Waiting for the registry lets other requests in; they must not claim a block as well.
        self._turn = asyncio.Lock()

    async def generate_producer_id(self) -> int:
        """An id that no producer has had."""
        async with self._turn:
            if self._next_id > self._block.last_id:
                self._block = await self._claim_block()
                self._next_id = self._block.first_id
            producer_id = self._next_id
            self._next_id += 1
            return producer_id

    async def _claim_block(self) -> ProducerIdBlock:
        """The next block; if another broker is faster, the one after that.

        A claim whose session ended may have been written: then that block is never used.
        """
        for _ in range(MAX_CLAIMS):
            try:
                return await self._write_next_block()
            except (BadVersionError, NodeExistsError, RegistryFailedError) as error:
                reason = error
        raise KafkaError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"{MAX_CLAIMS} attempts to claim a block of producer ids failed ({reason})",
        )

    async def _write_next_block(self) -> ProducerIdBlock:
        try:
            data, stat = await self._registry.get(PRODUCER_ID_BLOCK)
        except NoNodeError:
            block = self._block_from(0)
            await self._registry.create(PRODUCER_ID_BLOCK, block.encode())
            return block
        block = self._block_from(ProducerIdBlock.decode(data).last_id + 1)
        if block.last_id > LAST_PRODUCER_ID:
            raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
        await self._registry.set(PRODUCER_ID_BLOCK, block.encode(), stat.version)
        return block

    def _block_from(self, first_id: int) -> ProducerIdBlock:
        return ProducerIdBlock(self._broker_id, first_id, first_id + BLOCK_SIZE - 1)
