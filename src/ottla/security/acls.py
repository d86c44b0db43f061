"""Access control lists: the rights of principals on resources, and a table that decides by them.

A decision for a principal, a host, an operation and a resource: super users may do everything.
Else the ACLs of the resource's own name, of `*`, and of every prefix of the name count. If there
are none, `allow.everyone.if.no.acl.found` decides. A DENY that matches wins; then an ALLOW; without
either the operation is denied. Values and their numbers are those of Kafka's protocol (KIP-290).
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache, cached_property, lru_cache
from typing import Any, Final, Self

from ottla.security.principal import KafkaPrincipal
from ottla.structs import MAX_TOPIC_NAME_LENGTH, NamedTuple

WILDCARD: Final = "*"
"""As the name of a literal pattern: every resource of the type; as a host: every host."""
WILDCARD_PRINCIPAL: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of type CLUSTER."""

MAX_CACHED_DECISIONS: Final = 100_000
FEW_ENTRIES: Final = 20
"""So many ACLs of a pattern are quicker read than looked up."""


@cache
def _members_by_title(cls: type[Named]) -> dict[str, Any]:
    """Those that a word may stand for: nodes with thousands of ACLs have two words in each."""
    return {member.title: member for member in cls if member}


class Named(IntEnum):
    """An enum of the protocol, whose members are read and written as words too."""

    @cached_property
    def title(self) -> str:
        """The word in ZooKeeper and in Kafka's log: IdempotentWrite."""
        return self.name.title().replace("_", "")

    @classmethod
    def of(cls, number: int) -> Self:
        """The member of a number in a request; UNKNOWN for one that has none."""
        return next((member for member in cls if member == number), cls(0))

    @classmethod
    def parse(cls, word: str) -> Self:
        """The member of a word, in any case, with or without `_` or `-`.

        Raises:
            ValueError: there is none.
        """
        members: dict[str, Self] = _members_by_title(cls)
        found = members.get(word)
        if found is not None:
            return found
        plain = word.strip().replace("_", "").replace("-", "").lower()
        for title, member in members.items():
            if title.lower() == plain:
                return member
        known = ", ".join(member.title for member in cls if member)
        raise ValueError(f"{word!r} is not one of {known}")


class ResourceType(Named):
    """The kind of thing that an ACL guards."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(Named):
    """How the name of a pattern is compared; ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(Named):
    """An operation on a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermissionType(Named):
    """The permission of an ACL; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_Op = AclOperation
OPERATIONS: Final[Mapping[ResourceType, frozenset[AclOperation]]] = {
    ResourceType.TOPIC: frozenset(
        {_Op.READ, _Op.WRITE, _Op.CREATE, _Op.DELETE, _Op.ALTER, _Op.DESCRIBE}
        | {_Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS}
    ),
    ResourceType.GROUP: frozenset(
        {_Op.READ, _Op.DELETE, _Op.DESCRIBE, _Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS}
    ),
    ResourceType.CLUSTER: frozenset(
        {_Op.CREATE, _Op.ALTER, _Op.DESCRIBE, _Op.CLUSTER_ACTION, _Op.IDEMPOTENT_WRITE}
        | {_Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS}
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({_Op.DESCRIBE, _Op.WRITE}),
    ResourceType.DELEGATION_TOKEN: frozenset({_Op.DESCRIBE}),
    ResourceType.USER: frozenset({_Op.CREATE_TOKENS, _Op.DESCRIBE_TOKENS}),
}
"""The operations of each type of resource, beside ALL."""


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """Operations as responses have them: the bit of each one's number (KIP-430)."""
    return sum(1 << operation for operation in operations)


TOLD_OPERATIONS: Final = {
    ResourceType.TOPIC: OPERATIONS[ResourceType.TOPIC],
    ResourceType.GROUP: frozenset({_Op.READ, _Op.DELETE, _Op.DESCRIBE}),
    ResourceType.CLUSTER: OPERATIONS[ResourceType.CLUSTER],
}
"""Operations of which a client may ask; of groups Kafka 3.9 leaves out those of settings."""
TOPIC_OPERATIONS: Final = operation_bits(TOLD_OPERATIONS[ResourceType.TOPIC])
GROUP_OPERATIONS: Final = operation_bits(TOLD_OPERATIONS[ResourceType.GROUP])
CLUSTER_OPERATIONS: Final = operation_bits(TOLD_OPERATIONS[ResourceType.CLUSTER])

IMPLIED_BY: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    _Op.DESCRIBE: frozenset({_Op.DESCRIBE, _Op.READ, _Op.WRITE, _Op.DELETE, _Op.ALTER}),
    _Op.DESCRIBE_CONFIGS: frozenset({_Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS}),
}
"""An ALLOW for any of these allows the operation; a DENY denies only its own."""


class Resource(NamedTuple):
    """A thing that a client asks to use: one topic, one group, the cluster."""

    type: ResourceType
    name: str


CLUSTER: Final = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


class ResourcePattern(NamedTuple):
    """The resources that an ACL is about."""

    type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={self.type.name}, name={self.name}, "
            f"patternType={self.pattern_type.name})"
        )

    def covers(self, resource: Resource) -> bool:
        """Whether the pattern is about the resource."""
        if self.type is not resource.type:
            return False
        if self.pattern_type is PatternType.PREFIXED:
            return resource.name.startswith(self.name)
        return self.name in (resource.name, WILDCARD)


class AccessControlEntry(NamedTuple):
    """A principal that may, or may not, do an operation. `host` is an address, a network or `*`."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, "
            f"operation={self.operation.name}, permissionType={self.permission.name})"
        )


class AclBinding(NamedTuple):
    """An ACL: a pattern of resources, and its entry."""

    pattern: ResourcePattern
    entry: AccessControlEntry

    def __str__(self) -> str:
        return f"{self.entry.permission.name} {self.entry} of {self.pattern}"


class AclBindingFilter(NamedTuple):
    """Which ACLs are meant; None and ANY match everything.

    Pattern type MATCH matches every pattern that covers a resource of the name.
    """

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermissionType = AclPermissionType.ANY

    def matches(self, binding: AclBinding) -> bool:
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.type not in (ResourceType.ANY, pattern.type):
            return False
        if self.pattern_type is PatternType.MATCH:
            return self.name is None or pattern.covers(Resource(pattern.type, self.name))
        if self.pattern_type not in (PatternType.ANY, pattern.pattern_type):
            return False
        return self.name in (None, pattern.name)

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermissionType.ANY, entry.permission)
        )


class Decision(NamedTuple):
    """A decision of a table of ACLs, and its reason: the ACL that decided, or the rule in words."""

    is_allowed: bool
    reason: str
    binding: AclBinding | None = None


@lru_cache(maxsize=10_000)
def covers_host(wanted: str, host: str) -> bool:
    """Whether a host is the one, or in the network (10.0.0.0/8), that an ACL names."""
    if wanted in (WILDCARD, host):
        return True
    try:
        address = ipaddress.ip_address(host)
        network = ipaddress.ip_network(wanted, strict=False)
    except ValueError:  # no address: Kafka compares texts, and knows no names of hosts
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address in network or (mapped is not None and mapped in network)


def check_host(text: str) -> None:
    """Refuse a text that no client has for an address, as the name of a host.

    Raises:
        ValueError: it is neither an address, nor a network, nor `*`.
    """
    if text == WILDCARD:
        return
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(
            f"{text!r} matches no client: a host is an address (10.0.0.1), a network (10.0.0.0/8) "
            "or *; names of hosts are not looked up"
        ) from None


def parse_super_users(text: str) -> frozenset[KafkaPrincipal]:
    """The principals of super.users: separated by `;`, as names may hold commas.

    Raises:
        ValueError: one of them is not type:name.
    """
    return frozenset(KafkaPrincipal.parse(part.strip()) for part in text.split(";") if part.strip())


def check_binding(binding: AclBinding) -> None:
    """Refuse an ACL that guards nothing.

    Raises:
        ValueError: the fault of the ACL; Kafka answers INVALID_REQUEST for the same.
    """
    (type_, name, pattern_type), entry = binding
    if type_ in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise ValueError(f"an ACL needs a type of resource, not {type_.name}")
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise ValueError(f"an ACL's pattern is LITERAL or PREFIXED, not {pattern_type.name}")
    if not name:
        raise ValueError("an ACL needs the name of a resource")
    if "/" in name or "\0" in name or name in (".", ".."):
        raise ValueError(f"the name {name!r} of a resource holds a slash or NUL, or is all dots")
    if type_ is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise ValueError(f"the cluster's name as a resource is {CLUSTER_NAME}, not {name!r}")
    if entry.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise ValueError(f"an ACL needs an operation, not {entry.operation.name}")
    if entry.permission in (AclPermissionType.UNKNOWN, AclPermissionType.ANY):
        raise ValueError(f"an ACL's permission is ALLOW or DENY, not {entry.permission.name}")
    KafkaPrincipal.parse(entry.principal)
    if not entry.host:
        raise ValueError("an ACL needs a host, or * for every host")
    if "/" in entry.host:
        check_host(entry.host)


def starts_with_any(prefixes: Iterable[str]) -> Callable[[str], bool]:
    """Whether a name begins with one of these: a search for each name, not a look at each prefix.

    None of those that are kept begins with another: so the last one that is not behind a name is
    the only one that it may begin with.
    """
    kept: list[str] = []
    for prefix in sorted(prefixes):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)

    def starts(name: str) -> bool:
        place = bisect_right(kept, name)
        return place > 0 and name.startswith(kept[place - 1])

    return starts


class AclTable:
    """All ACLs of a cluster, and its super users. Pure: nothing waits, nothing is read.

    Decisions are kept until an ACL changes: the second time a question is asked it costs a look-up.
    """

    def __init__(
        self,
        super_users: Collection[KafkaPrincipal] = (),
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        self.super_users = frozenset(super_users)
        self.allow_everyone_if_no_acl_found = allow_everyone_if_no_acl_found
        self._entries: dict[ResourcePattern, frozenset[AccessControlEntry]] = {}
        self._order: list[ResourcePattern] = []
        self._patterns_of: dict[str, set[ResourcePattern]] = {}
        """The patterns with an ACL that names a principal, by the principal."""
        self._by_principal: dict[ResourcePattern, dict[str, list[AccessControlEntry]]] = {}
        """The ACLs of patterns that have many, once they were asked for."""
        self._prefix_counts: dict[ResourceType, Counter[int]] = {}
        self._prefix_lengths: dict[ResourceType, tuple[int, ...]] = {}
        """Those that count, in order."""
        self._host_count = 0
        """ACLs that name a host."""
        self._decided: dict[object, bool] = {}

    def __iter__(self) -> Iterator[AclBinding]:
        """Every ACL, by type, name and pattern type of its resource; the table may change."""
        for pattern in tuple(self._order):
            for entry in sorted(self.entries(pattern)):
                yield AclBinding(pattern, entry)

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    @property
    def patterns(self) -> Collection[ResourcePattern]:
        """The patterns that have an ACL."""
        return self._entries.keys()

    def entries(self, pattern: ResourcePattern) -> frozenset[AccessControlEntry]:
        """The ACLs of one pattern."""
        return self._entries.get(pattern, frozenset())

    def put(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> None:
        """Replace the ACLs of one pattern; an empty set takes the pattern away."""
        found, before = frozenset(entries), self.entries(pattern)
        if found == before:
            return
        self._put(pattern, before, found)
        if not before:
            insort(self._order, pattern)
        elif not found:
            del self._order[bisect_left(self._order, pattern)]
        self._decided.clear()

    def replace(self, of: Mapping[ResourcePattern, frozenset[AccessControlEntry]]) -> None:
        """Replace all ACLs at once: no decision is made by half of them."""
        self._entries, self._patterns_of, self._by_principal = {}, {}, {}
        self._prefix_counts, self._prefix_lengths, self._host_count = {}, {}, 0
        for pattern, entries in of.items():
            if entries:
                self._put(pattern, frozenset(), entries)
        self._order = sorted(self._entries)
        self._decided.clear()

    def add(self, bindings: Iterable[AclBinding]) -> None:
        """Add ACLs; those of a pattern, and there may be thousands, all at a time."""
        added: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for pattern, entry in bindings:
            added.setdefault(pattern, set()).add(entry)
        for pattern, entries in added.items():
            self.put(pattern, self.entries(pattern) | entries)

    def _put(
        self,
        pattern: ResourcePattern,
        before: frozenset[AccessControlEntry],
        after: frozenset[AccessControlEntry],
    ) -> None:
        """Change the ACLs of one pattern, and the indexes over them."""
        had, has = ({entry.principal for entry in entries} for entries in (before, after))
        for principal in had - has:
            self._patterns_of[principal].discard(pattern)
            if not self._patterns_of[principal]:
                del self._patterns_of[principal]
        for principal in has - had:
            self._patterns_of.setdefault(principal, set()).add(pattern)
        self._host_count += sum(entry.host != WILDCARD for entry in after)
        self._host_count -= sum(entry.host != WILDCARD for entry in before)
        self._by_principal.pop(pattern, None)
        if pattern.pattern_type is PatternType.PREFIXED:
            self._count_prefix(pattern, bool(after) - bool(before))
        if after:
            self._entries[pattern] = after
        else:
            self._entries.pop(pattern, None)

    def _count_prefix(self, pattern: ResourcePattern, change: int) -> None:
        counts = self._prefix_counts.setdefault(pattern.type, Counter())
        counts[len(pattern.name)] += change
        self._prefix_lengths[pattern.type] = tuple(sorted(+counts))

    def _about_principal(self, pattern: ResourcePattern, name: str) -> list[AccessControlEntry]:
        """The ACLs of a pattern that name the principal or all, in order."""
        entries = self._entries[pattern]
        if len(entries) <= FEW_ENTRIES:
            return sorted(each for each in entries if each.principal in (name, WILDCARD_PRINCIPAL))
        found = self._by_principal.get(pattern)
        if found is None:
            found = self._by_principal[pattern] = {}
            for entry in sorted(entries):
                found.setdefault(entry.principal, []).append(entry)
        return [
            entry
            for principal in sorted({name, WILDCARD_PRINCIPAL})
            for entry in found.get(principal, ())
        ]

    def is_allowed(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource: Resource
    ) -> bool:
        """Whether the principal may do the operation with the resource."""
        key = (principal, host if self._host_count else None, operation, resource)
        decided = self._decided.get(key)
        if decided is None:
            decided = self.decide(principal, host, operation, resource).is_allowed
            if len(resource.name) <= MAX_TOPIC_NAME_LENGTH:  # longer ones are made up
                self._keep(key, decided)
        return decided

    def is_allowed_on_any(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, type_: ResourceType
    ) -> bool:
        """Whether there is a resource of the type that the principal may use so (KIP-679)."""
        key = (principal, host if self._host_count else None, operation, type_)
        decided = self._decided.get(key)
        if decided is None:
            decided = self._decide_on_any(principal, host, operation, type_)
            self._keep(key, decided)
        return decided

    def _keep(self, key: object, decided: bool) -> None:
        if len(self._decided) >= MAX_CACHED_DECISIONS:
            self._decided.clear()
        self._decided[key] = decided

    def decide(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource: Resource
    ) -> Decision:
        """The decision with its reason; `is_allowed` says the same faster."""
        if principal in self.super_users:
            return Decision(True, f"{principal} is a super user")
        found = self._about(resource)
        if not found:
            return Decision(
                self.allow_everyone_if_no_acl_found,
                "there is no ACL for it, and allow.everyone.if.no.acl.found is "
                + str(self.allow_everyone_if_no_acl_found).lower(),
            )
        name = str(principal)
        allowing: AclBinding | None = None
        implying = IMPLIED_BY.get(operation, frozenset({operation}))
        for pattern in found:
            for entry in self._about_principal(pattern, name):
                if not covers_host(entry.host, host):
                    continue
                if entry.permission is AclPermissionType.DENY:
                    if entry.operation in (operation, AclOperation.ALL):
                        return Decision(False, "an ACL denies it", AclBinding(pattern, entry))
                elif entry.operation in implying or entry.operation is AclOperation.ALL:
                    allowing = allowing or AclBinding(pattern, entry)
        if allowing is not None:
            return Decision(True, "an ACL allows it", allowing)
        return Decision(False, "there are ACLs for it, and none allows it")

    def _about(self, resource: Resource) -> list[ResourcePattern]:
        """The patterns that have ACLs and cover the resource: its own name, `*`, its prefixes."""
        type_, name = resource
        candidates = [ResourcePattern(type_, name)]
        if name != WILDCARD:
            candidates.append(ResourcePattern(type_, WILDCARD))
        for length in self._prefix_lengths.get(type_, ()):
            if length > len(name):
                break
            candidates.append(ResourcePattern(type_, name[:length], PatternType.PREFIXED))
        return [pattern for pattern in candidates if pattern in self._entries]

    def _decide_on_any(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, type_: ResourceType
    ) -> bool:
        if principal in self.super_users:
            return True
        denied = self._named(principal, host, operation, type_, AclPermissionType.DENY)
        if ResourcePattern(type_, WILDCARD) in denied:
            return False
        if self.allow_everyone_if_no_acl_found:
            return True
        is_denied = starts_with_any(
            pattern.name for pattern in denied if pattern.pattern_type is PatternType.PREFIXED
        )
        return any(
            pattern == ResourcePattern(type_, WILDCARD)
            or not (
                is_denied(pattern.name)
                or (pattern.pattern_type is PatternType.LITERAL and pattern in denied)
            )
            for pattern in self._named(principal, host, operation, type_, AclPermissionType.ALLOW)
        )

    def _named(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        type_: ResourceType,
        permission: AclPermissionType,
    ) -> set[ResourcePattern]:
        """The patterns of a type for which an ACL gives the principal this permission."""
        name, nobody = str(principal), set[ResourcePattern]()
        patterns = self._patterns_of.get(name, nobody)
        return {
            pattern
            for pattern in patterns | self._patterns_of.get(WILDCARD_PRINCIPAL, nobody)
            if pattern.type is type_
            and any(
                entry.permission is permission
                and entry.operation in (operation, AclOperation.ALL)
                and covers_host(entry.host, host)
                for entry in self._about_principal(pattern, name)
            )
        }


def table_of(settings: Mapping[str, str | None]) -> AclTable:
    """A table without an ACL, as a broker with these settings begins."""
    allows = (settings.get("allow.everyone.if.no.acl.found") or "false").lower()
    return AclTable(parse_super_users(settings.get("super.users") or ""), allows == "true")


def who_can(
    table: AclTable, host: str, operations: Sequence[AclOperation], resource: Resource
) -> list[tuple[str, Decision]]:
    """The principals that may do all the operations, with the decision about the first of these.

    They are those that ACLs name and super users; the wildcard stands for everybody else.
    """
    known = {entry.principal for _, entry in table} | {str(each) for each in table.super_users}
    found = []
    for who in sorted(known | {WILDCARD_PRINCIPAL}):
        principal = KafkaPrincipal.parse(who)
        decisions = [table.decide(principal, host, each, resource) for each in operations]
        if all(decision.is_allowed for decision in decisions):
            found.append((who, decisions[0]))
    return found
