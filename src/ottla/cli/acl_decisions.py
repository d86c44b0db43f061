"""Decisions that follow from the ACLs: `ottla acls explain`, `who-can` and `test`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cli.acl_source import AclSource, named_resources, parsed
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.text_files import read_text
from ottla.clients.admin.descriptions import ConfigResource
from ottla.errors import KafkaError
from ottla.protocol.configs import ConfigResourceType
from ottla.security import acls
from ottla.security.acls import (
    CLUSTER,
    WILDCARD_PRINCIPAL,
    AclOperation,
    AclTable,
    Resource,
    ResourceType,
    table_of,
)
from ottla.security.principal import KafkaPrincipal

if TYPE_CHECKING:
    from argparse import Namespace

    from ottla import Admin
    from ottla.cli.terminal import Terminal

VERDICTS: Final = {"allow": True, "deny": False}


def explain(source: AclSource, arguments: Namespace, terminal: Terminal) -> int:
    """Say for each operation whether it is allowed, and which ACL decided; 1 if one is not."""
    table = load_table(source, terminal)
    resource, host = asked_resource(arguments), arguments.host or "*"
    status = 0
    for who in arguments.principal:
        for operation in asked_operations(arguments):
            decision = table.decide(principal(who), host, operation, resource)
            verdict = "ALLOWED" if decision.is_allowed else "DENIED"
            status = status if decision.is_allowed else 1
            terminal.print(
                f"{who} {verdict} {operation.title} on {resource.type.title}:{resource.name}"
                + (f" from {arguments.host}" if arguments.host else "")
            )
            terminal.print(f"  because {decision.reason}")
            if decision.binding is not None:
                terminal.print(f"  {decision.binding.pattern} {decision.binding.entry}")
    return status


def who_can(source: AclSource, arguments: Namespace, terminal: Terminal) -> int:
    """List the principals that may do all the operations: those that ACLs name, and super users."""
    table = load_table(source, terminal)
    host, operations = arguments.host or "*", asked_operations(arguments)
    for who, decision in acls.who_can(table, host, operations, asked_resource(arguments)):
        binding = decision.binding
        why = decision.reason if binding is None else f"{binding.pattern} {binding.entry}"
        others = " (everybody else)" if who == WILDCARD_PRINCIPAL else ""
        terminal.print(f"{who}{others}: {why}")
    return 0


def test(source: AclSource, arguments: Namespace, terminal: Terminal) -> int:
    """Check the expectations of a file; a line for each that fails, and 1 if there is one."""
    lines = read_text(arguments.file).splitlines()
    table = load_table(source, terminal)
    count = failed = 0
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        place = f"{arguments.file}:{number}"
        expected, who, host, operation, resource = expectation(place, words)
        decision = table.decide(principal(who), host, operation, resource)
        count += 1
        if decision.is_allowed is not expected:
            failed += 1
            why = decision.reason if decision.binding is None else str(decision.binding)
            terminal.print(f"{place}: not so: {' '.join(words)}: {why}")
    terminal.print(f"{count} expectations, {failed} not met")
    return 1 if failed else 0


def expectation(place: str, words: list[str]) -> tuple[bool, str, str, AclOperation, Resource]:
    """A line of the file: verdict, principal, host, operation and resource."""
    host = "*"
    if len(words) > 2 and words[-2] == "from":
        *words, _, host = words
    if len(words) == 4 and words[3].lower() == "cluster":
        words = [*words, "kafka-cluster"]
    if len(words) != 5 or words[0].lower() not in VERDICTS:
        raise CommandError(
            f"{place}: a line is `allow|deny PRINCIPAL OPERATION TYPE NAME [from HOST]`, not "
            f"`{' '.join(words)}`"
        )
    verdict, who, operation, type_, name = words
    return (
        VERDICTS[verdict.lower()],
        who,
        host,
        parsed(AclOperation, operation, place),
        Resource(parsed(ResourceType, type_, place), name),
    )


def principal(text: str) -> KafkaPrincipal:
    try:
        return KafkaPrincipal.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def asked_operations(arguments: Namespace) -> list[AclOperation]:
    return [parsed(AclOperation, word, "--operation") for word in arguments.operation]


def asked_resource(arguments: Namespace) -> Resource:
    if arguments.cluster:
        return CLUSTER
    ((type_, name),) = named_resources(arguments)
    return Resource(ResourceType[type_], name)


def load_table(source: AclSource, terminal: Terminal) -> AclTable:
    """All ACLs, with the brokers' settings of super users and of resources without an ACL."""
    settings = broker_settings(source)
    if settings is None:
        terminal.note(
            "super.users and allow.everyone.if.no.acl.found are not known here: it is assumed "
            "that there are no super users, and that what has no ACL is denied"
        )
        settings = {}
    table = table_of(settings)
    table.add(source.describe_acls())
    return table


def broker_settings(source: AclSource) -> dict[str, str | None] | None:
    """The settings of a broker; None where they cannot be read."""
    describe = getattr(source, "describe_configs", None)
    if describe is None:
        return None

    admin: Admin = source  # type: ignore[assignment]  # it has an admin client's methods
    try:
        broker = str(admin.describe_cluster().nodes[0].id)
        resource = ConfigResource(ConfigResourceType.BROKER, broker)
        entries = admin.describe_configs([resource])[resource]
    except KafkaError:
        return None
    return {name: entry.value for name, entry in entries.items()}
