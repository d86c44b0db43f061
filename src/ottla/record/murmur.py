"""The hash by which Kafka's clients choose the partition of a key."""

from __future__ import annotations

from struct import unpack_from

MURMUR_SEED = 0x9747B28C
MURMUR_M = 0x5BD1E995
MASK_32 = 0xFFFFFFFF
TO_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 that Kafka's Java client applies to keys, as an unsigned number."""
    length = len(data)
    words = length >> 2
    h = MURMUR_SEED ^ length
    for k in unpack_from(f"<{words}I", data):
        k = (k * MURMUR_M) & MASK_32
        h = (h * MURMUR_M ^ (k ^ k >> 24) * MURMUR_M) & MASK_32
    if length & 3:
        h = ((h ^ int.from_bytes(data[words << 2 :], "little")) * MURMUR_M) & MASK_32
    h = ((h ^ h >> 13) * MURMUR_M) & MASK_32
    return h ^ h >> 15
