"""A cluster with an authorizer: users with rights, one whose right comes and goes, one without any.

Each client's principal is the name of its host. The responses to the stranger, and their effects,
are an invariant: it reads nothing, changes nothing and learns nothing, whichever broker it asks,
and whichever events that broker has missed. A client with a right is never refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.clients.admin.acls import AclAdmin
from ottla.config.authorizer_config import AUTHORIZERS
from ottla.errors import KafkaError
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclTable,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from ottla.testing.simulation.administrator import API_TIMEOUT_MS, RETRY_MS, Administrator
from ottla.testing.simulation.story import PEACE_LIMIT_MS, START_LIMIT_MS, TOPIC, Story
from ottla.testing.simulation.stranger import GUEST, KEEPER, STRANGER, Guest, Stranger

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from ottla.testing.simulation.cluster import SimulatedCluster
    from ottla.testing.simulation.invariants import History

IN_FLIGHT_MS: Final = 2_000
"""Longer than a fetch waits and travels when the network is whole."""
RECORDS_UNSEEN: Final = 10
"""How many records are written, at least, while the guest may not read."""
CHANGE_WEIGHT: Final = 4
"""How much likelier a change of the guest's right is than another fault."""


class GuardedStory(Story):
    """Writers and readers with rights; a guest, which has one at times; a stranger, which has none.

    At the end the guest is denied while it reads: once all brokers know of that, it reads nothing
    more. Then it may read again, and gets all that it has missed.
    """

    settings: ClassVar[Mapping[str, str | int]] = {
        # A broker that has not heard of the topic yet would say that nobody may create it.
        "auto.create.topics.enable": "false",
        "authorizer.class.name": AUTHORIZERS[0],
        "super.users": ";".join(
            f"User:{name}" for name in ("broker-1", "broker-2", "broker-3", "maker", KEEPER)
        ),
    }

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._keeper = AclKeeper(self.cluster, KEEPER, self.history)
        self._guest = Guest(self.cluster, GUEST, self.history)
        self._stranger = Stranger(self.cluster, STRANGER, self.history)

    def _begin(self) -> None:
        self._keeper.process.spawn(self._keeper.run(), "keep the ACLs")
        self._wait(self._keeper.is_done_everywhere, START_LIMIT_MS, "the ACLs are not in force")
        super()._begin()
        self._guest.process.spawn(self._guest.run(self.partitions), "read as a guest")
        self._stranger.process.spawn(self._stranger.run(), "try everything")

    def _more_faults(self) -> list[Callable[[random.Random], str]]:
        return [*super()._more_faults(), *[self._change_right] * CHANGE_WEIGHT]

    def _change_right(self, chance: random.Random) -> str:
        """Deny the guest to read, or allow it again."""
        self._keeper.is_guest_denied = is_denied = not self._keeper.is_guest_denied
        return f"the guest may {'not read' if is_denied else 'read again'}"

    def _end(self) -> None:
        self._deny_guest()
        if self.history.violations:
            return
        self._keeper.is_guest_denied = False
        super()._end()
        ends = {tp: self._end_of(tp) for tp in self.partitions}
        self._wait(
            lambda: all(self._guest.next_offsets.get(tp, 0) >= end for tp, end in ends.items()),
            PEACE_LIMIT_MS,
            f"the guest, which may read again, has not read to {list(ends.values())}",
        )
        self._wait(self._keeper.is_done_everywhere, PEACE_LIMIT_MS, "the denial is in force")
        self._keeper.is_told_to_stop = self._stranger.is_told_to_stop = True
        self._wait(
            lambda: self._keeper.is_done and self._stranger.is_done,
            API_TIMEOUT_MS,
            "the clients have not stopped",
        )

    def _deny_guest(self) -> None:
        """Once all brokers know of its denial, the guest reads nothing that is written."""
        self._keeper.is_guest_denied = True
        is_known = self._keeper.is_done_everywhere
        self._wait(is_known, PEACE_LIMIT_MS, "the denial is not in force")
        self.world.run(IN_FLIGHT_MS)
        before = self._guest.read_count
        written = self._acknowledged_count() + RECORDS_UNSEEN
        self._wait(
            lambda: self._acknowledged_count() >= written, PEACE_LIMIT_MS, "nothing is written"
        )
        self.world.run(IN_FLIGHT_MS)
        if self._guest.read_count > before:
            self.history.violations.append(
                f"a guest has read {self._guest.read_count - before} records that it may not read"
            )

    def _acknowledged_count(self) -> int:
        return sum(map(len, self.history.acknowledged.values()))

    def _wait(self, condition: Callable[[], bool], limit_ms: int, complaint: str) -> None:
        if self.history.violations:
            return
        violations = self.history.violations
        if not self._is_reached(lambda: bool(violations) or condition(), limit_ms):
            violations.append(f"{complaint} after {limit_ms} ms: {self._state()}")


def rule(
    user: str,
    operation: AclOperation,
    pattern_type: PatternType = PatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    """An ACL of a user about the story's topic, or about all that begin as it does."""
    name = TOPIC if pattern_type is PatternType.LITERAL else TOPIC[:3]
    entry = AccessControlEntry(f"User:{user}", "*", operation, permission)
    return AclBinding(ResourcePattern(ResourceType.TOPIC, name, pattern_type), entry)


RULES: Final = (
    rule("writer0", AclOperation.WRITE),
    rule("writer1", AclOperation.WRITE, PatternType.PREFIXED),
    rule("reader", AclOperation.READ),
    rule("last-reader", AclOperation.READ, PatternType.PREFIXED),
    rule(GUEST, AclOperation.READ, PatternType.PREFIXED),
)
DENIALS: Final = (
    rule(GUEST, AclOperation.READ, permission=AclPermissionType.DENY),
    rule(GUEST, AclOperation.ALL, permission=AclPermissionType.DENY),
)
"""Either takes the guest's right: it may read nothing, or not even know of the topic."""


class AclKeeper(Administrator):
    """Puts the ACLs, and from then on keeps the guest's denial as it is wanted."""

    def __init__(self, cluster: SimulatedCluster, name: str, history: History) -> None:
        super().__init__(cluster, name, history)
        self._acls = AclAdmin(self._admin)
        self.denial = self.process.runtime.random.choice(DENIALS)
        self.is_guest_denied = False

    @property
    def wanted(self) -> frozenset[AclBinding]:
        """The ACLs that every broker is to have."""
        return frozenset((*RULES, self.denial) if self.is_guest_denied else RULES)

    @property
    def in_force(self) -> list[frozenset[AclBinding]]:
        """The ACLs by which each broker decides that runs."""
        return [
            frozenset(table) for table in map(table_of, self.cluster.hosts) if table is not None
        ]

    def is_done_everywhere(self) -> bool:
        """Whether every broker serves, and decides by the ACLs that are wanted."""
        found = self.in_force
        return (
            self.cluster.is_serving
            and len(found) == len(self.cluster.hosts)
            and all(each == self.wanted for each in found)
        )

    async def run(self) -> None:
        """Ask brokers for the wanted rule, as long as one of them does not have it."""
        while not self.is_told_to_stop:
            if any(each != self.wanted for each in self.in_force):
                try:
                    await self._ask()
                except KafkaError:
                    pass  # it may have been done, or not
            await self.pause(RETRY_MS)
        self._admin.close()
        self.is_done = True

    async def _ask(self) -> None:
        await self._acls.create_acls(sorted(self.wanted))
        if not self.is_guest_denied:
            pattern, entry = self.denial
            await self._acls.delete_acls([AclBindingFilter(*(pattern + entry))])


def table_of(host: Any) -> AclTable | None:
    """The ACLs by which a broker decides; None if it does not run, or has not read them yet."""
    if not (host.is_running and host.is_serving):
        return None
    rights: Any = host.broker.extensions["authorizer.class.name"]
    table: AclTable = rights.authorizer.table
    return table
