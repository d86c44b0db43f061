"""Decisions by ACLs: Ottla's table beside a scan of all ACLs, and a bare look-up in a dict.

The scan does what the rules say, one ACL after the other; the look-up is the limit of the machine
for an answer that is known. A broker asks once for each topic of a request, and the answers repeat.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from ottla.security.acls import (
    IMPLIED_BY,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclTable,
    PatternType,
    Resource,
    ResourcePattern,
    ResourceType,
    covers_host,
)
from ottla.security.principal import KafkaPrincipal

RUNS = int(os.environ.get("BENCH_RUNS", "3"))
DECISIONS = 100_000
FRESH_DECISIONS = 5_000
HOST = "10.0.0.1"
READ = AclOperation.READ

Question = tuple[KafkaPrincipal, Resource]


def acls(count: int) -> list[AclBinding]:
    """Topics of their own for many principals, every tenth as a prefix."""
    return [
        AclBinding(
            ResourcePattern(
                ResourceType.TOPIC,
                f"topic-{index}",
                PatternType.PREFIXED if index % 10 == 0 else PatternType.LITERAL,
            ),
            AccessControlEntry(f"User:user-{index}", "*", READ, AclPermissionType.ALLOW),
        )
        for index in range(count)
    ]


def scan(bindings: list[AclBinding], principal: KafkaPrincipal, resource: Resource) -> bool:
    """The peer: every ACL is looked at."""
    name, allowed = str(principal), False
    for pattern, entry in bindings:
        is_about = entry.principal in (name, "User:*") and covers_host(entry.host, HOST)
        if is_about and pattern.covers(resource):
            if entry.permission is AclPermissionType.DENY:
                return False
            allowed |= entry.operation in IMPLIED_BY.get(READ, {READ})
    return allowed


def best(count: int, decide: Callable[[Question], object], questions: list[Question]) -> float:
    """Microseconds for one decision, in the best of the runs."""
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        for index in range(count):
            decide(questions[index % len(questions)])
        times.append((time.perf_counter() - began) / count * 1e6)
    return min(times)


def measure(count: int) -> tuple[float, ...]:
    """Known and new decisions, the scan, and the dict, by as many ACLs."""
    bindings = acls(count)
    table = AclTable()
    table.add(bindings)
    questions = [
        (KafkaPrincipal.user(f"user-{index}"), Resource(ResourceType.TOPIC, f"topic-{index}"))
        for index in range(min(count, 1_000))
    ]
    known: dict[tuple[object, ...], bool] = {
        (principal, None, READ, resource): True for principal, resource in questions
    }
    scans = max(20, 200_000 // count)
    return (
        best(DECISIONS, lambda q: table.is_allowed(q[0], HOST, READ, q[1]), questions),
        best(FRESH_DECISIONS, lambda q: table.decide(q[0], HOST, READ, q[1]), questions),
        best(scans, lambda q: scan(bindings, *q), questions),
        best(DECISIONS, lambda q: known[q[0], None, READ, q[1]], questions),
    )


def main() -> None:
    print("microseconds for a decision     known     new    scan   bare dict")
    for count in (10, 1_000, 10_000):
        columns = "".join(f"{each:>8.2f}" for each in measure(count))
        print(f"{count:>7} ACLs               {columns}")


if __name__ == "__main__":
    main()
