"""The throttle of a reassignment: settings of brokers and topics."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.cli.command_error import CommandError
from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource
from ottla.protocol.configs import ConfigOperation
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla import Admin


RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"

LIMIT_S = 10.0
PAUSE_S = 0.02

ReplicasOf = Mapping[TopicPartition, Iterable[int]]


class ReassignmentThrottle:
    """Throttles the replicas that are read and those that are new; all brokers get the rate."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin

    def limit(self, bytes_per_s: int, before: ReplicasOf, after: ReplicasOf) -> None:
        """Limit the moves from `before` to `after` to this rate.

        The limit is in force on all brokers when this returns. Each applies changes in their
        order, so one that has the rate has the throttled replicas, too.
        """
        changes: dict[ConfigResource, list[AlterConfigOp]] = {}
        for topic in sorted({partition.topic for partition in after}):
            mine = [partition for partition in sorted(after) if partition.topic == topic]
            new = {
                each: [broker for broker in after[each] if broker not in set(before[each])]
                for each in mine
            }
            changes[ConfigResource.topic(topic)] = [
                AlterConfigOp(LEADERS, _replica_list(mine, before)),
                AlterConfigOp(FOLLOWERS, _replica_list(mine, new)),
            ]
        self.admin.incremental_alter_configs(changes)
        self.change_rate(bytes_per_s)

    def change_rate(self, bytes_per_s: int) -> None:
        """Set the rate of the throttled replicas; it is in force when this returns."""
        rates = [AlterConfigOp(rate, str(bytes_per_s)) for rate in RATES]
        self.admin.incremental_alter_configs(dict.fromkeys(self._brokers(), rates))
        self._wait_for(str(bytes_per_s))

    def limit_log_dirs(self, bytes_per_s: int, brokers: Iterable[int]) -> None:
        """Limit the rate at which these brokers copy between their log directories."""
        change = [AlterConfigOp(LOG_DIR_RATE, str(bytes_per_s))]
        changes = {ConfigResource.broker(broker): change for broker in brokers}
        if changes:
            self.admin.incremental_alter_configs(changes)

    def _wait_for(self, rate: str) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while True:
            described = self.admin.describe_configs(self._brokers())
            late = [
                broker.name
                for broker, entries in described.items()
                if any(entries[key].value != rate for key in RATES)
            ]
            if not late:
                return
            if time.monotonic() > deadline_s:
                raise CommandError(f"brokers {', '.join(late)} do not know of the throttle yet")
            time.sleep(PAUSE_S)

    def remove(self, topics: Iterable[str]) -> bool:
        """Remove the limit from these topics and all brokers; returns whether there was one."""
        existing = self.admin.list_topics()
        keys_of_brokers = (*RATES, LOG_DIR_RATE)
        names: dict[ConfigResource, tuple[str, ...]]
        names = dict.fromkeys(self._brokers(), keys_of_brokers)
        for topic in topics:
            if topic in existing:
                names[ConfigResource.topic(topic)] = (LEADERS, FOLLOWERS)
        described = self.admin.describe_configs(names)
        changes = {}
        for resource, keys in names.items():
            known = described[resource]
            own = [key for key in keys if key in known and not known[key].is_default]
            if own:
                removal = ConfigOperation.DELETE
                changes[resource] = [AlterConfigOp(key, None, removal) for key in own]
        if changes:
            self.admin.incremental_alter_configs(changes)
        return bool(changes)

    def _brokers(self) -> list[ConfigResource]:
        return [ConfigResource.broker(node.id) for node in self.admin.describe_cluster().nodes]


def _replica_list(partitions: Iterable[TopicPartition], replicas: ReplicasOf) -> str:
    """Replicas as the settings of throttled ones list them, partition:broker."""
    return ",".join(
        f"{each.partition}:{broker}" for each in partitions for broker in replicas[each]
    )
