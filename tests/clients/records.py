"""What every client carries: a thousand keyed records with headers, and how to check them."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

COUNT = 1000
KEYS = 17
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Sent(NamedTuple):
    """A record as the test sent it, or as a consumer got it."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def records(tag: str, count: int = COUNT) -> list[Sent]:
    """Records whose values say the order in which their key was used."""
    return [
        Sent(
            f"key-{number % KEYS}".encode(),
            f"{tag} {number:06d} ".encode() + b"x" * (number % 50),
            (("number", str(number).encode()), ("empty", b"")),
        )
        for number in range(count)
    ]


def shared_out(shares: list) -> bool:
    """Whether each member has some of the partitions, and none has any from before."""
    return all(shares) and sum(map(len, shares)) == PARTITIONS


def assert_same(expected: list[Sent], received: list[Sent]) -> None:
    """Every record once, whole, and in the order of its key."""
    assert len(expected) == len(received)
    assert sorted(expected) == sorted(received)
    by_key: dict[bytes, list[bytes]] = defaultdict(list)
    for record in received:
        by_key[record.key].append(record.value)
    for key, values in by_key.items():
        assert values == [record.value for record in expected if record.key == key]
