"""Which partition a record goes to: by the hash of its key, or sticky when it has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

from ottla.record.murmur import TO_POSITIVE, murmur2

KEYS_REMEMBERED = 1 << 16


class Partitioner(Protocol):
    """What the setting `partitioner.class` takes: any callable of this shape.

    It sees the serialized record; `partitions` are all partitions of the topic, `available` those
    that have a leader just now. What it returns must be one of `partitions`.
    """

    def __call__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> int: ...


@lru_cache(maxsize=KEYS_REMEMBERED)
def key_hash(key: bytes) -> int:
    """The hash of a key made positive; keys repeat, so the newest are remembered."""
    return murmur2(key) & TO_POSITIVE


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key: equal keys share one as long as the count stays the same."""
    return key_hash(key) % partition_count


class StickyPartition:
    """The partition that records without a key go to, until a batch's worth went there (KIP-480).

    Staying makes fuller batches; moving on after each full one keeps the load even (KIP-794).
    `randrange(n)` gives a number below n.
    """

    __slots__ = ("_randrange", "current")

    def __init__(self, randrange: Callable[[int], int]) -> None:
        self._randrange = randrange
        self.current = -1

    def move(self, partitions: Sequence[int], available: Sequence[int]) -> int:
        """Choose the next partition, another one than now where there is another."""
        choices = available or partitions
        others = [partition for partition in choices if partition != self.current] or choices
        self.current = others[self._randrange(len(others))]
        return self.current
