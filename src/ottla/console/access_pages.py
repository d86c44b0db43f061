"""The page of access: ACLs, who can do what by them, users and quotas."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.admin.acls import AclAdmin
from ottla.clients.admin.client_quotas import ENTITY_TYPES, ClientQuotaAdmin
from ottla.clients.admin.descriptions import ConfigResource
from ottla.clients.admin.scram_users import ScramUserAdmin
from ottla.console.page import ConsolePage, Data, Visit
from ottla.console.refusals import Refused
from ottla.console.row_window import WINDOW, RowWindow
from ottla.errors import ErrorCode, KafkaError
from ottla.security.acls import (
    CLUSTER,
    OPERATIONS,
    WILDCARD_PRINCIPAL,
    AclOperation,
    AclTable,
    Decision,
    Resource,
    ResourceType,
    table_of,
    who_can,
)
from ottla.security.principal import KafkaPrincipal
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.security.acls import AclBinding

MOST_ROWS: Final = 200
ANY_HOST: Final = "*"
RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
"""The kinds of resources by their names in the address."""
NO_ACLS: Final = {
    ErrorCode.SECURITY_DISABLED: "These brokers have no authorizer: everybody may do everything.",
    ErrorCode.UNSUPPORTED_VERSION: "These brokers have no ACLs.",
}


class AclLine(NamedTuple):
    """An ACL in words, as `ottla acls` has them."""

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


class CanLine(NamedTuple):
    """A principal with the decision about it, and the ACL that decides, if one does."""

    principal: str
    is_allowed: bool
    reason: str
    acl: AclLine | None


class Question(NamedTuple):
    """An operation on a resource; `principal` is empty for all principals."""

    kind: str
    name: str
    operation: str
    principal: str
    host: str


SORTS: Final[dict[str, Callable[[AclLine], tuple[Any, ...]]]] = {
    "resource": tuple,
    "principal": lambda each: (each.principal, *each),
}


async def access(visit: Visit) -> Data:
    """A window of the ACLs, the answer to a question, users and quotas."""
    window = RowWindow(visit, SORTS, "resource")
    question = question_of(visit)
    admin = visit.cluster.admin
    (acls, missing), (users, no_users), (quotas, no_quotas) = await asyncio.gather(
        _or_reason(AclAdmin(admin).describe_acls(None), NO_ACLS),
        _or_reason(ScramUserAdmin(admin).describe(None), {}),
        _or_reason(ClientQuotaAdmin(admin).describe_client_quotas({}, False), {}),
    )
    lines = [acl_line(each) for each in acls or ()]
    found = [each for each in lines if any(window.has(part) for part in each)]
    found.sort(key=SORTS[window.sort])
    answer: list[CanLine] = []
    if question is not None and acls is not None:
        answer = answers(await acl_table(visit, acls), question)
    return {
        **window.data(len(found), len(lines)),
        "rows": found[window.first : window.first + WINDOW],
        "missing": missing,
        "resources": list(RESOURCES),
        "operations": [each.title for each in AclOperation if each > AclOperation.ALL],
        "question": question,
        "answer": answer[:MOST_ROWS],
        "command": command_of(question) if question else "",
        "users": [
            {"user": name, "mechanisms": {} if isinstance(each, KafkaError) else each}
            for name, each in sorted((users or {}).items())[:MOST_ROWS]
        ],
        "no_users": no_users,
        "quotas": [
            {"entity": entity_text(entity), "limits": limits}
            for entity, limits in sorted((quotas or {}).items(), key=str)[:MOST_ROWS]
        ],
        "no_quotas": no_quotas,
    }


async def _or_reason(call: Any, reasons: dict[ErrorCode, str]) -> tuple[Any, str]:
    """The result of a call, or None and the sentence why there is none."""
    try:
        return await call, ""
    except KafkaError as error:
        return None, reasons.get(error.error, error.message)


def question_of(visit: Visit) -> Question | None:
    """The question in the address; None where there is none, Refused for one with mistakes."""
    kind, operation = visit.query.get("kind", ""), visit.query.get("operation", "")
    if not kind:
        return None
    if kind not in RESOURCES:
        raise Refused(f"kind={kind}: must be one of {', '.join(RESOURCES)}")
    known = {each.title: each for each in OPERATIONS[RESOURCES[kind]]}
    if operation not in known:
        raise Refused(
            f"operation={operation}: on a {kind} it must be one of {', '.join(sorted(known))}"
        )
    principal = visit.query.get("principal", "").strip()
    host = visit.query.get("host", "").strip() or ANY_HOST
    return Question(kind, visit.query.get("name", "").strip(), operation, principal, host)


async def acl_table(visit: Visit, acls: Sequence[AclBinding]) -> AclTable:
    """The ACLs as brokers decide by them: with super users, and the rule for what has no ACL."""
    known = await visit.cluster.snapshot()
    resource = ConfigResource.broker(min(known.nodes, default=0))
    found = (await visit.cluster.configs.describe_configs([resource], False, False))[resource]
    settings = {} if isinstance(found, KafkaError) else {n: e.value for n, e in found.items()}
    table = table_of(settings)
    table.add(acls)
    return table


def answers(table: AclTable, question: Question) -> list[CanLine]:
    """All principals that may do it, or the decision about the one that was asked about."""
    kind = RESOURCES[question.kind]
    resource = CLUSTER if kind is ResourceType.CLUSTER else Resource(kind, question.name)
    operation = next(each for each in AclOperation if each.title == question.operation)
    if not question.principal:
        found = who_can(table, question.host, [operation], resource)
        return [can_line(who, decision) for who, decision in found]
    try:
        principal = KafkaPrincipal.parse(question.principal)
    except ValueError as error:
        raise Refused(f"principal={question.principal}: {error}") from None
    return [
        can_line(question.principal, table.decide(principal, question.host, operation, resource))
    ]


def can_line(principal: str, decision: Decision) -> CanLine:
    """A decision in words."""
    binding = decision.binding
    who = "everybody else" if principal == WILDCARD_PRINCIPAL else principal
    acl = None if binding is None else acl_line(binding)
    return CanLine(who, decision.is_allowed, decision.reason, acl)


def acl_line(binding: AclBinding) -> AclLine:
    """An ACL in words."""
    (kind, name, pattern), entry = binding
    return AclLine(
        kind.title,
        name,
        pattern.title,
        entry.principal,
        entry.host,
        entry.operation.title,
        entry.permission.title,
    )


def command_of(question: Question) -> str:
    """The command that answers the question."""
    words = ["ottla", "acls", "explain" if question.principal else "who-can"]
    if question.principal:
        words += ["--principal", question.principal]
    words += ["--operation", question.operation]
    option = f"--{question.kind}{'-principal' * (question.kind == 'user')}"
    words += [option] if question.kind == "cluster" else [option, question.name]
    if question.host != ANY_HOST:
        words += ["--host", question.host]
    return shlex.join(words)


def entity_text(entity: Any) -> str:
    """`user alice, client-id app`; the default of a part is told so."""
    parts = [(kind, getattr(entity, name)) for kind, name in ENTITY_TYPES.items()]
    return ", ".join(f"{kind} {name or '(default)'}" for kind, name in parts if name is not None)


ACCESS_PAGES: Final = (
    ConsolePage(
        "/access",
        access,
        "access.html",
        "Access",
        rail="Access",
        command="ottla acls --list",
        home=True,
        table="rows",
    ),
)
