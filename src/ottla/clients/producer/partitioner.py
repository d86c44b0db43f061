"""The partition that a record goes to: by the hash of its key, or sticky when it has none."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.record.murmur import TO_POSITIVE, murmur2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.clients.metadata import Cluster

KEYS_REMEMBERED = 1 << 16


class Partitioner(Protocol):
    """Kafka's interface, for the setting `partitioner.class`.

    The class may also have `configure(settings)`, which gets the producer's settings under Kafka's
    names before the first record, and `close()`. `partition` returns a partition number.
    """

    def partition(
        self,
        topic: str,
        key: Any,
        key_bytes: bytes | None,
        value: Any,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int: ...


class PartitionFunction(Protocol):
    """The short form of a partitioner: any callable of this shape.

    It sees the serialized record; `partitions` are all partitions of the topic, `available` those
    that have a leader just now. The result must be one of `partitions`.
    """

    def __call__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> int: ...


class CustomPartitioner:
    """The partitioner of `partitioner.class`, configured and checked; ConfigError if it is none."""

    def __init__(self, setting: Any, settings: Mapping[str, Any]) -> None:
        self._name = f"partitioner.class={getattr(setting, '__qualname__', repr(setting))}"
        self._partitioner = self._made(setting)
        method = getattr(self._partitioner, "partition", None)
        if method is not None:
            self._check(method, Partitioner.partition, "partition")
        elif callable(self._partitioner):
            self._check(self._partitioner, PartitionFunction.__call__, "the function")
        else:
            raise ConfigError(f"{self._name}: must be a callable or have partition()")
        self._method: Callable[..., Any] | None = method
        configure = getattr(self._partitioner, "configure", None)
        if configure is not None:
            configure(dict(settings))

    def choose(
        self, record: tuple[str, Any, bytes | None, Any, bytes | None], cluster: Cluster
    ) -> int:
        """The partition of a record: (topic, key, key bytes, value, value bytes)."""
        if self._method is not None:
            chosen = self._method(*record, cluster)
        else:
            topic, _, key_bytes, _, value_bytes = record
            info = cluster.topics[topic]
            partitions = list(info.partitions)
            chosen = self._partitioner(topic, key_bytes, value_bytes, partitions, info.available)
        if not isinstance(chosen, int):
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"{self._name} gave {chosen!r} for a record of topic {record[0]}: "
                "it must give the number of a partition",
            )
        return chosen

    def close(self) -> None:
        """Close the partitioner if it has a `close` method."""
        close = getattr(self._partitioner, "close", None)
        if close is not None:
            close()

    def _made(self, setting: Any) -> Any:
        if not isinstance(setting, type):
            return setting
        try:
            return setting()
        except TypeError as error:
            raise ConfigError(f"{self._name}: must be made without arguments: {error}") from error

    def _check(self, function: Callable[..., Any], shape: Callable[..., Any], what: str) -> None:
        wanted = list(inspect.signature(shape).parameters)[1:]
        try:
            inspect.signature(function).bind(*wanted)
        except ValueError:
            pass  # a C function without a signature
        except TypeError as error:
            raise ConfigError(
                f"{self._name}: {what} must take ({', '.join(wanted)}): {error}"
            ) from error


@lru_cache(maxsize=KEYS_REMEMBERED)
def key_hash(key: bytes) -> int:
    """The hash of a key made positive; keys repeat, so the most recent ones are cached."""
    return murmur2(key) & TO_POSITIVE


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key: equal keys share one as long as the count stays the same."""
    return key_hash(key) % partition_count


class StickyPartition:
    """The current partition for records without a key, until it has got a full batch (KIP-480).

    Staying makes fuller batches; moving after each full one keeps the load even (KIP-794).
    `randrange(n)` gives a number below n.
    """

    __slots__ = ("_randrange", "current")

    def __init__(self, randrange: Callable[[int], int]) -> None:
        self._randrange = randrange
        self.current = -1

    def move(self, partitions: Sequence[int], available: Sequence[int]) -> int:
        """Choose the next partition: a different one if there is one."""
        choices = available or partitions
        others = [partition for partition in choices if partition != self.current] or choices
        self.current = others[self._randrange(len(others))]
        return self.current
