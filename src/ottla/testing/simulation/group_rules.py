"""Rules that a group keeps in the memory of its coordinator, at each moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.coordinator.group.classic_group import ClassicGroup
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup

if TYPE_CHECKING:
    from ottla.coordinator.group.group import Group
    from ottla.testing.simulation.cluster import Host


def groups_of(host: Host) -> list[Group]:
    """The groups that the broker of a host coordinates, if it runs."""
    coordinators = getattr(host.broker, "coordinators", None) if host.is_running else None
    if coordinators is None or "groups" not in vars(coordinators):
        return []
    found: list[Group] = coordinators.groups.manager.groups()
    return found


def broken_rules(group: Group, max_size: int) -> Iterator[str]:
    """The rules that a group breaks at the moment."""
    if isinstance(group, ConsumerGroup):
        yield from _of_consumers(group, max_size)
    elif isinstance(group, ClassicGroup):
        yield from _of_classic_members(group)


def _of_consumers(group: ConsumerGroup, max_size: int) -> Iterator[str]:
    members = group.members.values()
    if len(members) > max_size:
        yield f"it has {len(members)} members; {max_size} are allowed"
    classic = [each.details.classic for each in members if each.details.classic is not None]
    if classic and not frozenset.intersection(
        *(frozenset(each.protocol_names) for each in classic)
    ):
        yield f"its classic members have no protocol in common: {classic}"
    if group.target.keys() != group.members.keys():
        yield f"it has targets of {sorted(group.target)} and members {sorted(group.members)}"
    owners = Counter(
        (topic_id, number)
        for each in members
        for topic_id, numbers in each.current.owned.topics.items()
        for number in numbers
    )
    if shared := [partition for partition, count in owners.items() if count > 1]:
        yield f"partitions {shared} have two owners"
    yield from _of_instances(
        group.static_members, {each.member_id: each.details.instance_id for each in members}
    )


def _of_classic_members(group: ClassicGroup) -> Iterator[str]:
    members = group.members.values()
    if members and not group.candidate_protocols():
        yield "its members have no protocol in common"
    if members and group.leader_id not in group.members:
        yield f"its leader {group.leader_id} is no member"
    yield from _of_instances(
        group.static_members, {each.member_id: each.group_instance_id for each in members}
    )
    waiting = [each.member_id for each in members if each.awaiting_join is not None]
    if len(waiting) != group.awaiting_join_count:
        yield f"{group.awaiting_join_count} members wait to join, as it counts; they are {waiting}"


def _of_instances(known: Mapping[str, str], instances: Mapping[str, str | None]) -> Iterator[str]:
    expected = {instance: member_id for member_id, instance in instances.items() if instance}
    if dict(known) != expected:
        yield f"its instances are {dict(known)}, those of its members {expected}"
