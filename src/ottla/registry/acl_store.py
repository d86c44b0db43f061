"""ACLs in the registry, at Kafka's paths and in Kafka's JSON, so that Kafka's tools share them.

    /kafka-acl/<Type>/<name>                     the ACLs of one resource
    /kafka-acl-extended/prefixed/<Type>/<name>   the ACLs of all resources whose names begin so
    /kafka-acl-changes, /kafka-acl-extended-changes   the nodes that brokers are to read again

Writes are conditional on the version that was read. While the registry cannot be reached, the ACLs
that were read last stay in force: nothing is newly denied, and nothing newly allowed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Sequence, Set
from functools import partial
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.registry.change_notifications import ChangeNotifications
from ottla.registry.tree import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    Registry,
    RegistryFailedError,
    ensure_path,
)
from ottla.registry.znodes import unreadable
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work, gather_each, pause
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

logger = logging.getLogger(__name__)

Entries = frozenset[AccessControlEntry]

TYPES: Final = tuple(
    type_ for type_ in ResourceType if type_ not in (ResourceType.UNKNOWN, ResourceType.ANY)
)
ROOTS: Final = {
    PatternType.LITERAL: "/kafka-acl",
    PatternType.PREFIXED: "/kafka-acl-extended/prefixed",
}
CHANGES: Final = {
    PatternType.LITERAL: "/kafka-acl-changes",
    PatternType.PREFIXED: "/kafka-acl-extended-changes",
}
CHANGE_NAME: Final = "acl_changes_"
VERSION: Final = 1

SLICE_BINDINGS: Final = 2000
MAX_TRIES: Final = 10
RETRY_MS: Final = 100
RETRY_JITTER_MS: Final = 50

UNREADABLE: Final = frozenset(
    {AccessControlEntry("User:*", "*", AclOperation.ALL, AclPermissionType.DENY)}
)
"""In force for a resource whose node cannot be read: who may use it is not known."""


def acl_path(pattern: ResourcePattern) -> str:
    """Where the ACLs of a pattern are."""
    return f"{ROOTS[pattern.pattern_type]}/{pattern.type.title}/{pattern.name}"


def encode_acls(entries: Iterable[AccessControlEntry]) -> Work[bytes]:
    """The node of one pattern, as Kafka writes it; there may be thousands of principals."""
    acls: list[dict[str, str]] = []
    for entry in sorted(entries):
        acls.append(
            {
                "principal": entry.principal,
                "permissionType": entry.permission.title,
                "host": entry.host,
                "operation": entry.operation.title,
            }
        )
        if not len(acls) % SLICE_BINDINGS:
            yield
    return _json({"acls": acls, "version": VERSION})


def decode_acls(path: str, data: bytes) -> Work[Entries]:
    """The ACLs of a node, in slices; an empty node has none.

    Raises:
        KafkaError: the node is no JSON of ACLs, or of a version that is not known.
    """
    if not data:
        return frozenset()
    try:
        values = json.loads(data)
        if values["version"] != VERSION:
            raise ValueError(f"version {values['version']}")
        entries: list[AccessControlEntry] = []
        for each in values["acls"]:
            entries.append(_decode_entry(each))
            if not len(entries) % SLICE_BINDINGS:
                yield
        return frozenset(entries)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise unreadable(path, data) from None


def _decode_entry(values: dict[str, str]) -> AccessControlEntry:
    return AccessControlEntry(
        values["principal"],
        values.get("host", values.get("hosts", "*")),
        AclOperation.parse(values["operation"]),
        AclPermissionType.parse(values["permissionType"]),
    )


def encode_acl_change(pattern: ResourcePattern) -> bytes:
    """A notification that the ACLs of a pattern have changed."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.type.name}:{pattern.name}".encode()
    return _json(
        {
            "version": VERSION,
            "resourceType": pattern.type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_acl_change(path: str, data: bytes) -> ResourcePattern:
    """The pattern whose ACLs have changed; Kafka 2.3 writes `Topic:t`, later ones `TOPIC:t`."""
    try:
        text = data.decode()
        if not text.startswith("{"):
            word, _, name = text.partition(":")
            return ResourcePattern(ResourceType.parse(word), name)
        values = json.loads(text)
        return ResourcePattern(
            ResourceType.parse(values["resourceType"]),
            values["name"],
            PatternType.parse(values["patternType"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise unreadable(path, data) from None


def _json(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


class AclStore:
    """Reads and writes ACLs; keeps `table` as the registry has it between `start` and `stop`."""

    def __init__(self, runtime: Runtime, registry: Registry, table: AclTable) -> None:
        self.runtime = runtime
        self.registry = registry
        self.table = table
        self._turn = asyncio.Lock()
        """Nodes are read and written in slices, and the table follows them in their order."""
        self._changes = [
            ChangeNotifications(
                runtime,
                registry,
                CHANGES[pattern_type],
                self._read_change,
                partial(self._read_all, pattern_type),
            )
            for pattern_type in ROOTS
        ]

    async def start(self) -> None:
        """Read all ACLs, and from here on every change of them."""
        await self.ensure_paths()
        for changes in self._changes:
            await changes.start()

    def stop(self) -> None:
        """Read no more changes."""
        for changes in self._changes:
            changes.stop()

    async def ensure_paths(self) -> None:
        """Make the nodes that Kafka's tools expect to find."""
        for pattern_type, root in ROOTS.items():
            await ensure_path(self.registry, CHANGES[pattern_type])
            for type_ in TYPES:
                await ensure_path(self.registry, f"{root}/{type_.title}")

    async def load(self) -> None:
        """Read all ACLs once."""
        for pattern_type in ROOTS:
            await self._read_all(pattern_type)

    async def add(self, bindings: Sequence[AclBinding]) -> dict[AclBinding, KafkaError | None]:
        """Add ACLs; returns the outcome of each. One that is there already is no error."""
        outcomes: dict[AclBinding, KafkaError | None] = {}
        wanted: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for pattern, entry in bindings:
            wanted.setdefault(pattern, set()).add(entry)
        for pattern, entries in wanted.items():
            error = await self._change(pattern, added=entries)
            outcomes.update((AclBinding(pattern, entry), error) for entry in entries)
        return outcomes

    async def remove(
        self, filters: Sequence[AclBindingFilter]
    ) -> list[dict[AclBinding, KafkaError | None]]:
        """Remove the ACLs that each filter matches; returns, for each, their outcomes."""
        found = [await self._matching(each) for each in filters]
        doomed: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for bindings in found:
            for pattern, entry in bindings:
                doomed.setdefault(pattern, set()).add(entry)
        errors = {
            pattern: await self._change(pattern, removed=entries)
            for pattern, entries in doomed.items()
        }
        return [{binding: errors[binding.pattern] for binding in bindings} for bindings in found]

    async def _matching(self, wanted: AclBindingFilter) -> list[AclBinding]:
        bindings = self.runtime.slices.over(self.table, SLICE_BINDINGS)
        return [binding async for binding in bindings if wanted.matches(binding)]

    async def _change(
        self,
        pattern: ResourcePattern,
        added: Set[AccessControlEntry] = frozenset(),
        removed: Set[AccessControlEntry] = frozenset(),
    ) -> KafkaError | None:
        """Add and remove ACLs of a pattern, and tell the other brokers; returns the error."""
        try:
            for _ in range(MAX_TRIES):
                async with self._turn:
                    if await self._try_to_write(pattern, added, removed):
                        return None
                jitter = self.runtime.random.randrange(RETRY_JITTER_MS)
                await pause(self.runtime.scheduler, RETRY_MS + jitter)
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"others changed the ACLs of {pattern} each of {MAX_TRIES} times",
            )
        except KafkaError as error:
            logger.error("the ACLs of %s were not changed: %s", pattern, error)
            return error

    async def _try_to_write(
        self,
        pattern: ResourcePattern,
        added: Set[AccessControlEntry],
        removed: Set[AccessControlEntry],
    ) -> bool:
        """Whether nobody else wrote meanwhile; an unchanged node is not written."""
        path, slices = acl_path(pattern), self.runtime.slices
        try:
            data, stat = await self.registry.get(path)
            before, version = await slices.do(decode_acls(path, data)), stat.version
        except NoNodeError:
            before, version = frozenset(), None
        if len(before) >= SLICE_BINDINGS:
            await slices.pause()
        after = (before | added) - removed
        try:
            if version is not None and not after:
                await self.registry.delete(path, version)
            elif after != before:
                data = await slices.do(encode_acls(after))
                if version is None:
                    await self.registry.create(path, data)
                else:
                    await self.registry.set(path, data, version)
        except (BadVersionError, NodeExistsError, NoNodeError):
            return False
        self.table.put(pattern, after)
        if after != before:
            change_path = f"{CHANGES[pattern.pattern_type]}/{CHANGE_NAME}"
            data = encode_acl_change(pattern)
            await self.registry.create(change_path, data, sequential=True)
        return True

    async def _read_change(self, path: str, data: bytes) -> None:
        pattern = decode_acl_change(path, data)
        async with self._turn:
            self.table.put(pattern, await self._read(pattern))

    async def _read_all(self, pattern_type: PatternType) -> None:
        """Replace all ACLs of a pattern type at once, when the last of them is read."""
        async with self._turn:
            patterns = [
                ResourcePattern(type_, name, pattern_type)
                for type_ in TYPES
                for name in await self._names(pattern_type, type_)
            ]
            # There may be thousands: one after the other they would keep the start waiting.
            found = await gather_each(self._read, patterns)
            others = {
                pattern: self.table.entries(pattern)
                for pattern in self.table.patterns
                if pattern.pattern_type is not pattern_type
            }
            self.table.replace(others | dict(zip(patterns, found, strict=True)))

    async def _names(self, pattern_type: PatternType, type_: ResourceType) -> list[str]:
        try:
            return await self.registry.children(f"{ROOTS[pattern_type]}/{type_.title}")
        except NoNodeError:
            return []  # an older Kafka made the tree, and has no such type

    async def _read(self, pattern: ResourcePattern) -> Entries:
        """The ACLs of a pattern; where they cannot be read, those known before, or a denial."""
        path = acl_path(pattern)
        try:
            data, _ = await self.registry.get(path)
            return await self.runtime.slices.do(decode_acls(path, data))
        except NoNodeError:
            return frozenset()
        except RegistryFailedError:
            raise
        except KafkaError as error:
            known = self.table.entries(pattern)
            held = "those of before stay in force" if known else "everybody is denied"
            logger.error("the ACLs of %s are not followed, %s: %s", pattern, held, error)
            return known or UNREADABLE
