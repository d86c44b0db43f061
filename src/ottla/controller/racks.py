"""Replicas on different racks, as long as there are racks: a lost rack takes one replica at most.

Brokers go round in an order in which neighbours are of different racks, so that leaders are
spread over racks as well as over brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Assignment = dict[int, tuple[int, ...]]


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """The brokers: the first of each rack, then the second of each, and so on."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    rows = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, rows))
    return [row[place] for place in range(longest) for row in rows if place < len(row)]


def assign_over_racks(
    racks: Mapping[int, str],
    partitions: range,
    replication_factor: int,
    start_index: int,
    shift: int,
) -> Assignment:
    """Replicas for the partitions, the preferred leader first."""
    brokers = alternate_racks(racks)
    assignment = {}
    for partition in partitions:
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        first = (partition + start_index) % len(brokers)
        assignment[partition] = _replicas(brokers, racks, first, shift, replication_factor)
    return assignment


def _replicas(
    brokers: Sequence[int], racks: Mapping[int, str], first: int, shift: int, count: int
) -> tuple[int, ...]:
    """The broker at `first`, then others: of new racks before those of racks that have one."""
    rack_count = len(set(racks.values()))
    others = len(brokers) - 1
    distances = [1 + (shift * rack_count + step) % others for step in range(others)]
    candidates = [brokers[(first + distance) % len(brokers)] for distance in distances]
    chosen = [brokers[first]]
    while len(chosen) < count:
        used = {racks[broker_id] for broker_id in chosen}
        free = [broker_id for broker_id in candidates if broker_id not in chosen]
        fresh = [broker_id for broker_id in free if racks[broker_id] not in used]
        chosen.append((fresh or free)[0])
    return tuple(chosen)
