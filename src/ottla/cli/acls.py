"""`ottla acls`: list, add and remove ACLs, and show the decisions that follow from them.

--add, --remove and --list print the lines of Kafka's `kafka-acls`. `explain`, `who-can` and `test`
are Ottla's own: they read all ACLs, and decide by them as a broker does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cli.acl_decisions import explain, test, who_can
from ottla.cli.acl_source import AclSource, named_resources, open_source, parsed
from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_flag,
    add_repeated,
    forbid_with,
    given,
    only_with,
    require,
)
from ottla.cli.output import one_line
from ottla.cli.property_files import add_zookeeper_security
from ottla.config.authorizer_config import AUTHORIZERS
from ottla.errors import KafkaError
from ottla.security.acls import (
    CLUSTER,
    CLUSTER_NAME,
    OPERATIONS,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    check_binding,
    check_host,
)
from ottla.security.principal import USER_TYPE, KafkaPrincipal

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Mapping

    from ottla.cli.terminal import Terminal


ACTIONS: Final = ("explain", "who-can", "test")
CHANGES: Final = ("--add", "--remove", "--list")
ANY_RESOURCE: Final = "--topic <topic> or --cluster or --group <group> or --transactional-id <id>"
PRINCIPALS_AND_HOSTS: Final = (
    "--allow-principal",
    "--allow-host",
    "--deny-principal",
    "--deny-host",
)


class AclsCommand(Command):
    """Shows and changes ACLs, and decides by them."""

    name = "acls"
    examples = (
        "ottla acls --bootstrap-server localhost:9092 --list --topic orders",
        "ottla acls --add --allow-principal User:alice --producer --topic orders",
        "ottla acls explain --principal User:alice --operation Read --topic orders",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action",
            metavar="ACTION",
            nargs="?",
            choices=ACTIONS,
            help="explain names the ACL that decides, who-can lists principals, test checks the "
            "expectations in a file. Left out with --add, --remove and --list.",
        )
        parser.add_argument(
            "file",
            metavar="FILE",
            nargs="?",
            help="test: lines as `allow User:alice Read topic orders` or "
            "`deny User:bob Write group g from 10.0.0.1`; # begins a comment.",
        )
        add_bootstrap_server(parser, ())
        add_command_config(parser)
        parser.add_argument(
            "--authorizer",
            metavar="CLASS",
            help="With --authorizer-properties, as older tools have it: one of the classes that "
            "authorizer.class.name may be.",
        )
        add_repeated(
            parser,
            "--authorizer-properties",
            "KEY=VALUE",
            "In the place of --bootstrap-server: zookeeper.connect=HOST:PORT/PATH, to read and "
            "write the ACLs there, as before the first broker runs.",
        )
        add_zookeeper_security(parser)
        add_flag(parser, "--add", "Add ACLs.")
        add_flag(parser, "--remove", "Remove ACLs, after a question.")
        add_flag(parser, "--list", "List the ACLs of the resources, or all of them.")
        self._add_resources(parser)
        self._add_entries(parser)
        add_flag(parser, "--force", "Ask no question.")

    def _add_resources(self, parser: ArgumentParser) -> None:
        add_repeated(parser, "--topic", "TOPIC", "A topic; * is every topic. May be repeated.")
        add_repeated(parser, "--group", "GROUP", "A group; * is every group. May be repeated.")
        add_flag(parser, "--cluster", "The cluster.")
        add_repeated(
            parser, "--transactional-id", "ID", "A transactional id; * is every id. Repeatable."
        )
        add_repeated(parser, "--delegation-token", "ID", "A delegation token. May be repeated.")
        add_repeated(parser, "--user-principal", "TYPE:NAME", "A user as a resource. Repeatable.")
        parser.add_argument(
            "--resource-pattern-type",
            metavar="TYPE",
            default="literal",
            help="How names are meant: literal (the default) or prefixed; with --list and "
            "--remove also match (all that count for the name) and any.",
        )

    def _add_entries(self, parser: ArgumentParser) -> None:
        add_repeated(
            parser, "--operation", "OPERATION", "As Read; All is the default. May be repeated."
        )
        add_repeated(parser, "--allow-principal", "TYPE:NAME", "Who may do it: User:alice, User:*.")
        add_repeated(parser, "--deny-principal", "TYPE:NAME", "Who may not do it.")
        add_repeated(
            parser, "--allow-host", "HOST", "Where from it may: an address, a network, or *."
        )
        add_repeated(parser, "--deny-host", "HOST", "Where from it may not.")
        add_repeated(
            parser, "--principal", "TYPE:NAME", "--list: whose ACLs are listed; explain: who asks."
        )
        parser.add_argument(
            "--host", metavar="HOST", help="explain, who-can: the address that somebody asks from."
        )
        add_flag(parser, "--producer", "Shorthand: Write, Describe and Create on the topics.")
        add_flag(parser, "--consumer", "Shorthand: Read and Describe on topics, Read on groups.")
        add_flag(parser, "--idempotent", "With --producer: IdempotentWrite on the cluster.")

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        check(arguments)
        with open_source(arguments, terminal) as source:
            if arguments.action == "explain":
                return explain(source, arguments, terminal)
            if arguments.action == "who-can":
                return who_can(source, arguments, terminal)
            if arguments.action == "test":
                return test(source, arguments, terminal)
            try:
                return change(source, arguments, terminal)
            except KafkaError as error:
                raise CommandError(f"Error while executing ACL command: {error}") from error


def check(arguments: Namespace) -> None:
    """UsageError where options do not fit together, in the words of Kafka's tool."""
    if given(arguments, "--authorizer-properties") and given(arguments, "--bootstrap-server"):
        raise UsageError(
            "The --authorizer-properties option can only be used without --bootstrap-server"
        )
    only_with(arguments, ("--authorizer", "--zk-tls-config-file"), "--authorizer-properties")
    if arguments.authorizer not in (None, *AUTHORIZERS):
        raise UsageError(f"--authorizer may be {' or '.join(AUTHORIZERS)}")
    if arguments.action is not None:
        check_question(arguments)
        return
    if sum(given(arguments, option) for option in CHANGES) != 1:
        raise UsageError("Command must include exactly one action: --list, --add, --remove. ")
    only_with(arguments, ("--principal",), "--list")
    forbid_with(
        arguments,
        "--list",
        ("--producer", "--consumer", "--operation", *PRINCIPALS_AND_HOSTS),
    )
    for shorthand in ("--producer", "--consumer"):
        forbid_with(arguments, shorthand, ("--operation", "--deny-principal", "--deny-host"))
    if arguments.producer and not arguments.topic:
        raise UsageError("With --producer you must specify a --topic")
    only_with(arguments, ("--idempotent",), "--producer")
    only_with(arguments, ("--allow-host",), "--allow-principal")
    only_with(arguments, ("--deny-host",), "--deny-principal")
    if arguments.add:
        check_who(arguments)
    if arguments.consumer and not (
        arguments.topic
        and arguments.group
        and (arguments.producer or not (arguments.cluster or arguments.transactional_id))
    ):
        raise UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or "
            "--transactional-id option should be specified."
        )


def check_who(arguments: Namespace) -> None:
    """UsageError for a principal or a host that nobody has: such an ACL would do nothing."""
    for option, principals_or_hosts, parse in (
        ("--allow-principal", arguments.allow_principal, KafkaPrincipal.parse),
        ("--deny-principal", arguments.deny_principal, KafkaPrincipal.parse),
        ("--allow-host", arguments.allow_host, check_host),
        ("--deny-host", arguments.deny_host, check_host),
    ):
        for text in principals_or_hosts:
            try:
                found = parse(text.strip())
            except ValueError as error:
                raise UsageError(f"{option}: {error}") from None
            if isinstance(found, KafkaPrincipal) and found.type != USER_TYPE:
                raise UsageError(
                    f"{option}: the type of a principal is {USER_TYPE}, and not {found.type!r}"
                )


def check_question(arguments: Namespace) -> None:
    """Check the options of the actions `explain`, `who-can` and `test`."""
    for option in (*CHANGES, "--producer", "--consumer", "--allow-principal", "--deny-principal"):
        if given(arguments, option):
            raise UsageError(f"option {option} cannot be used with {arguments.action}")
    if arguments.action == "test":
        if arguments.file is None:
            raise UsageError("test needs a FILE of expectations")
        return
    require(arguments, "--operation")
    if arguments.action == "explain":
        require(arguments, "--principal")
    if len(named_resources(arguments)) + arguments.cluster != 1:
        raise UsageError(f"{arguments.action} needs exactly one resource: {ANY_RESOURCE}")


def change(source: AclSource, arguments: Namespace, terminal: Terminal) -> int:
    """Do as the option says, and list the ACLs afterwards."""
    if arguments.add:
        add(source, arguments, terminal)
    elif arguments.remove:
        remove(source, arguments, terminal)
    show(source, arguments, terminal)
    return 0


def add(source: AclSource, arguments: Namespace, terminal: Terminal) -> None:
    """Add the ACLs that the options describe."""
    pattern_type = parse_pattern_type(arguments)
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise UsageError(
            f"A '--resource-pattern-type' value of '{pattern_type.name}' is not valid when adding "
            "acls."
        )
    wanted = wanted_acls(arguments)
    if not all(wanted.values()):
        raise UsageError(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    for pattern, entries in wanted.items():
        bindings = checked_bindings(pattern, entries)
        print_acls(terminal, f"Adding ACLs for resource `{pattern}`: ", entries)
        source.create_acls(bindings)


def checked_bindings(
    pattern: ResourcePattern, entries: Iterable[AccessControlEntry]
) -> list[AclBinding]:
    """One binding for each entry; UsageError for one that can apply to nothing."""
    bindings = [AclBinding(pattern, entry) for entry in entries]
    try:
        for binding in bindings:
            check_binding(binding)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return bindings


def remove(source: AclSource, arguments: Namespace, terminal: Terminal) -> None:
    """Remove ACLs of the resources: those that the options describe, or all of them."""
    wanted = wanted_acls(arguments)
    for pattern, entries in wanted.items():
        of_pattern = AclBindingFilter(pattern.type, pattern.name, pattern.pattern_type)
        if not entries:
            question = (
                f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
            )
            filters = [of_pattern]
        else:
            lines = "\n".join(f"\t{one_line(str(entry))}" for entry in entries)
            question = (
                f"Are you sure you want to remove ACLs: \n {lines} \n"
                f" from resource filter `{pattern}`? (y/n)"
            )
            filters = [
                of_pattern._replace(
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission=entry.permission,
                )
                for entry in entries
            ]
        if arguments.force or is_confirmed(terminal, question):
            source.delete_acls(filters)


def is_confirmed(terminal: Terminal, question: str) -> bool:
    terminal.print(question)
    return terminal.ask("").lower() == "y"


def show(source: AclSource, arguments: Namespace, terminal: Terminal) -> None:
    """List the ACLs of the resources that the options name, or all."""
    filters = [
        AclBindingFilter(pattern.type, pattern.name, pattern.pattern_type)
        for pattern in resource_patterns(arguments)
    ]
    found: dict[ResourcePattern, list[AccessControlEntry]] = {}
    for each in filters or [AclBindingFilter()]:
        for pattern, entry in source.describe_acls(each):
            if entry not in found.setdefault(pattern, []):
                found[pattern].append(entry)
    if not arguments.principal:
        show_patterns(terminal, found)
    for principal in arguments.principal:
        terminal.print(f"ACLs for principal `{principal}`")
        of_principal = {
            pattern: [entry for entry in entries if entry.principal == principal]
            for pattern, entries in found.items()
        }
        show_patterns(terminal, {key: value for key, value in of_principal.items() if value})


def show_patterns(
    terminal: Terminal, found: Mapping[ResourcePattern, list[AccessControlEntry]]
) -> None:
    for pattern, entries in found.items():
        print_acls(terminal, f"Current ACLs for resource `{one_line(str(pattern))}`: ", entries)


def print_acls(terminal: Terminal, title: str, entries: Iterable[AccessControlEntry]) -> None:
    """The title, a line for each ACL and an empty one: with the blanks of Kafka's tool."""
    lines = "\n".join(f"\t{one_line(str(entry))}" for entry in entries)
    terminal.print(f"{title}\n {lines} \n")


def parse_pattern_type(arguments: Namespace) -> PatternType:
    return parsed(PatternType, arguments.resource_pattern_type, "--resource-pattern-type")


def resource_patterns(arguments: Namespace) -> list[ResourcePattern]:
    """The patterns of the resources that the options name."""
    pattern_type = parse_pattern_type(arguments)
    found = [
        ResourcePattern(ResourceType[type_], name, pattern_type)
        for type_, name in named_resources(arguments)
    ]
    if arguments.cluster:
        found.append(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
    return found


def wanted_acls(arguments: Namespace) -> dict[ResourcePattern, list[AccessControlEntry]]:
    """The ACLs that the options describe, by resource; none where they name no principal."""
    op = AclOperation
    patterns = resource_patterns(arguments)
    wanted: dict[ResourcePattern, list[AccessControlEntry]] = {}

    def note(types: Iterable[ResourceType], *operations: AclOperation) -> None:
        for pattern in patterns:
            if pattern.type in types:
                wanted.setdefault(pattern, []).extend(
                    each for each in entries(arguments, operations) if each not in wanted[pattern]
                )

    if arguments.producer:
        note({ResourceType.TOPIC}, op.WRITE, op.DESCRIBE, op.CREATE)
        note({ResourceType.TRANSACTIONAL_ID}, op.WRITE, op.DESCRIBE)
        if arguments.idempotent:
            cluster = ResourcePattern(*CLUSTER)
            wanted[cluster] = entries(arguments, (op.IDEMPOTENT_WRITE,))
    if arguments.consumer:
        note({ResourceType.TOPIC}, op.READ, op.DESCRIBE)
        note({ResourceType.GROUP}, op.READ)
    if not (arguments.producer or arguments.consumer):
        words = arguments.operation or ["All"]
        note(ResourceType, *(parsed(op, word, "--operation") for word in words))
    if not wanted:
        raise UsageError(f"You must provide at least one resource: {ANY_RESOURCE}")
    for pattern, found in wanted.items():
        known = OPERATIONS[pattern.type] | {op.ALL}
        if any(entry.operation not in known for entry in found):
            names = ",".join(operation.name for operation in sorted(known))
            raise UsageError(f"ResourceType {pattern.type.name} only supports operations {names}")
    return wanted


def entries(arguments: Namespace, operations: Iterable[AclOperation]) -> list[AccessControlEntry]:
    """One ACL for each principal, host and operation; hosts are `*` where none is named."""
    return [
        AccessControlEntry(principal.strip(), host.strip(), operation, permission)
        for permission, principals, hosts in (
            (AclPermissionType.ALLOW, arguments.allow_principal, arguments.allow_host),
            (AclPermissionType.DENY, arguments.deny_principal, arguments.deny_host),
        )
        for principal in principals
        for host in hosts or ["*"]
        for operation in operations
    ]
