"""Members of a group share a topic: classic ones, those of KIP-848, or both in one group."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.config.client_config import CONSUMER_PROTOCOL
from ottla.protocol.message import encode_versioned
from ottla.protocol.offsets_topic import ConsumerGroupMetadataKey, GroupMetadataKey
from ottla.replication.partition import Partition
from ottla.structs import OFFSETS_TOPIC, TopicPartition
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.group_ledger import GROUP, GroupLedger, GroupReader, RecordOwner
from ottla.testing.simulation.invariants import batches_of, partitions_of
from ottla.testing.simulation.story import TOPIC, Story


class GroupStory(Story):
    """Members are killed, paused and shut down cleanly, and others join for a while."""

    def __init__(self, seed: int) -> None:
        self._members: list[GroupReader] = []
        self._awaits_work = False
        self._unaware: GroupReader | None = None
        """A member that is paused at work until another is given records of its partitions."""
        self._owners: list[RecordOwner] = []
        """The owners of these partitions when it was paused."""
        super().__init__(seed)
        self._protocols = self.world.random.choice(PROTOCOLS)
        self._ledger = GroupLedger(self.history, partial(count_removals, self.cluster, GROUP))
        self._ledger.ends.update(self.cluster.first_offsets)

    def _begin(self) -> None:
        self._make_topic(TOPIC)
        self._start_writer("writer0", interval_ms=400)
        self._members += [self._start_member(f"member{number}") for number in range(MEMBERS)]

    def _start_member(self, name: str) -> GroupReader:
        protocol = self.world.random.choice(self._protocols)
        member = GroupReader(self.cluster, name, self._ledger, TOPIC, protocol)
        member.process.spawn(member.run(), "read in a group")
        return member

    def _more_faults(self) -> list[Callable[[random.Random], str]]:
        return [
            self._kill_member,
            self._pause_member,
            self._stop_member,
            self._add_member,
            *[self._pause_member_at_work] * PAUSE_AT_WORK_WEIGHT,
        ]

    def _kill_member(self, chance: random.Random) -> str:
        index = chance.randrange(MEMBERS)
        name = self._members[index].name
        self._members[index].process.kill()
        self._members[index] = self._start_member(name)
        return f"kill {name} and start it again"

    def _pause_member(self, chance: random.Random) -> str:
        member, delay_ms = chance.choice(self._members), chance.randint(1_000, 12_000)
        member.process.pause()
        self.world.loop.add_timer(delay_ms, member.process.resume)
        return f"pause {member.name} for {delay_ms} ms"

    def _stop_member(self, chance: random.Random) -> str:
        """Stop a member cleanly; another replaces it."""
        index = chance.randrange(MEMBERS)
        name = self._members[index].name
        self._members[index].is_told_to_stop = True
        self._members[index] = self._start_member(name)
        return f"stop {name} and start it again"

    def _add_member(self, chance: random.Random) -> str:
        delay_ms = chance.randint(1_000, 10_000)
        guest = self._start_member("guest")

        def leave() -> None:
            guest.is_told_to_stop = True

        self.world.loop.add_timer(delay_ms, leave)
        return f"one more member for {delay_ms} ms"

    def _pause_member_at_work(self, chance: random.Random) -> str:
        """Pause the next member between records and their commit, until it has a successor."""
        self._awaits_work = True
        return "wait for a member that works on records, to pause it"

    def _look(self) -> None:
        super()._look()
        if self._awaits_work and not self.nemesis.is_stopped:
            busy = (each for each in self._members if each.at_work and each.process.is_running)
            member = next(busy, None)
            if member is not None:
                self._awaits_work = False
                self._unaware = member
                self._owners = self._owners_of_work(member)
                member.process.pause()
                self.world.loop.add_timer(MAX_PAUSE_AT_WORK_MS, member.process.resume)
        elif self._unaware is not None and self._owners != self._owners_of_work(self._unaware):
            self._unaware.process.resume()
            self._unaware = None

    def _owners_of_work(self, member: GroupReader) -> list[RecordOwner]:
        return [self._ledger.owner_of(partition) for partition in member.at_work]

    def _end(self) -> None:
        super()._end()
        if self.history.violations:
            return
        if not self._is_reached(self._has_got_everything):
            self.history.violations.append(
                f"the group has got {self._ledger.ends} only: {self._state()}"
            )

    def _has_got_everything(self) -> bool:
        return all(self._ledger.ends.get(tp, 0) >= self._end_of(tp) for tp in self.partitions)


def count_removals(cluster: SimulatedCluster, group_id: str) -> int:
    """Count the committed batches that remove the last records of the group.

    A group that migrates to the consumer protocol loses the record of one kind as well, but gets
    one of the other kind in the same batch. One that returns to the classic protocol is counted:
    if its coordinator dies before it has members again, its generations start from scratch.
    """
    kinds = GroupMetadataKey(group=group_id), ConsumerGroupMetadataKey(group=group_id)
    keys = {encode_versioned(key, key.max_version) for key in kinds}
    logs: dict[TopicPartition, Partition] = {}
    for host in cluster.hosts:
        for partition in partitions_of(host) if host.is_running else ():
            name = partition.topic_partition
            if name.topic == OFFSETS_TOPIC:
                known = logs.setdefault(name, partition)
                logs[name] = max(known, partition, key=lambda each: each.high_watermark)
    count = 0
    for partition in logs.values():
        start, end = partition.log.log_start_offset, partition.high_watermark
        for batch in batches_of(partition, start, end):
            values = [record.value for record in batch.records() if record.key in keys]
            count += bool(values) and not any(values)
    return count


MEMBERS: Final = 2
PAUSE_AT_WORK_WEIGHT: Final = 3
"""How much likelier than another fault it is that a member does not notice its successor."""
MAX_PAUSE_AT_WORK_MS: Final = 15_000
CLASSIC: Final = "classic"
PROTOCOLS: Final[tuple[tuple[str, ...], ...]] = (
    (CONSUMER_PROTOCOL,),
    (CONSUMER_PROTOCOL,),
    (CLASSIC,),
    (CLASSIC, CONSUMER_PROTOCOL),
)
"""The protocols in a story; each process of a member speaks one of them."""
