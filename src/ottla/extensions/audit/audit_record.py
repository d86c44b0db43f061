"""One record of the audit topic, and the resources that each administrative request names.

    {"time": 1700000000000, "broker": 0, "principal": "User:eve", "client_id": "app",
     "host": "10.0.0.1", "listener": "SASL_SSL", "api": "DeleteTopics",
     "resources": ["Topic:orders"], "decision": "denied",
     "denied": ["Delete Topic:orders"], "errors": []}

`decision` is allowed, denied, or logged: denied by ACLs, and served (authorizer.mode=log). `errors`
are those of the answer. No value of a setting, no password and no record of a client is in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.acls import AclFilter
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.configs import ConfigResourceType
from ottla.protocol.message import Struct
from ottla.security.acls import (
    CLUSTER,
    AclOperation,
    AclPermissionType,
    PatternType,
    Resource,
    ResourceType,
)

ALLOWED: Final = "allowed"
DENIED: Final = "denied"
LOGGED: Final = "logged"

MAX_LISTED: Final = 100
"""Resources listed in a record; beyond it only their number."""
MAX_TEXT: Final = 500
"""Characters kept of texts that clients supply: ids, names, bytes that are no request."""
MAX_LETTERS: Final = 5_000
"""Characters of the resources that are listed, and of the denials."""


@dataclass(slots=True)
class AuditRecord:
    """One request; it may still change until it is written."""

    time: int
    broker: int
    principal: str
    client_id: str
    host: str
    listener: str
    api: str
    resources: list[str] = field(default_factory=list)
    decision: str = ALLOWED
    denied: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def encode(self) -> bytes:
        """The record as JSON."""
        return encode(asdict(self))


def encode(values: Mapping[str, Any]) -> bytes:
    """Values as JSON without blanks."""
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def shortened(text: str) -> str:
    """A text that a client supplied, cut to MAX_TEXT."""
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."


def listed(names: Iterable[str]) -> list[str]:
    """The names, as far as they fit in a record."""
    all_names = list(names)
    shown: list[str] = []
    for name in all_names[:MAX_LISTED]:
        if not has_room(shown):
            break
        shown.append(shortened(name))
    if len(shown) == len(all_names):
        return shown
    return [*shown, f"and {len(all_names)} in all"]


def has_room(texts: Sequence[str]) -> bool:
    """Whether a list of a record may have one more."""
    return len(texts) < MAX_LISTED and sum(map(len, texts)) < MAX_LETTERS


def _topics(entries: Iterable[Any]) -> Iterator[str]:
    return (f"Topic:{each.name}" for each in entries)


def _deleted_topics(body: Any) -> Iterator[str]:
    yield from (f"Topic:{name}" for name in body.topic_names or ())
    for each in body.topics or ():
        yield f"Topic:{each.topic_id if each.name is None else each.name}"


def _with_configs(body: Any) -> Iterator[str]:
    """Resources with the names of their settings; the values may be secrets."""
    for each in body.resources:
        try:
            type_ = ConfigResourceType(each.resource_type).name.title().replace("_", "")
        except ValueError:
            type_ = str(each.resource_type)
        keys = ", ".join(config.name for config in each.configs)
        yield f"{type_}:{each.resource_name} ({keys})"


def _acl(type_: int, name: str | None, pattern: int, principal: Any, acl: Any) -> str:
    resource = f"{ResourceType.of(type_).title}:{PatternType.of(pattern).title}:{name or '*'}"
    permission = AclPermissionType.of(acl.permission_type).title
    operation = AclOperation.of(acl.operation).title
    return f"{resource} ({permission} {operation} to {principal or 'anybody'})"


def _created_acls(body: Any) -> Iterator[str]:
    for acl in body.creations:
        pattern = acl.resource_pattern_type
        yield _acl(acl.resource_type, acl.resource_name, pattern, acl.principal, acl)


def _deleted_acls(body: Any) -> Iterator[str]:
    acl: AclFilter
    for acl in body.filters:
        name, pattern = acl.resource_name_filter, acl.pattern_type_filter
        yield _acl(acl.resource_type_filter, name, pattern, acl.principal_filter, acl)


def _quotas(body: Any) -> Iterator[str]:
    for entry in body.entries:
        yield ",".join(f"{each.entity_type}={each.entity_name}" for each in entry.entity)


def _scram_users(body: Any) -> Iterator[str]:
    names = [each.name for each in (*body.deletions, *body.upsertions)]
    return (f"User:{name}" for name in dict.fromkeys(names))


def _elected(body: Any) -> Iterator[str]:
    if body.topic_partitions is None:
        return iter([text_of(CLUSTER)])
    return (f"Topic:{each.topic}" for each in body.topic_partitions)


def _owner(body: Any) -> Iterator[str]:
    name = body.owner_principal_name
    return iter([f"{body.owner_principal_type}:{name}"] if name else ())


ADMINISTRATIVE: Final[Mapping[ApiKey, Callable[[Any], Iterator[str]]]] = {
    ApiKey.CREATE_TOPICS: lambda body: _topics(body.topics),
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.DELETE_RECORDS: lambda body: _topics(body.topics),
    ApiKey.CREATE_PARTITIONS: lambda body: _topics(body.topics),
    ApiKey.CREATE_ACLS: _created_acls,
    ApiKey.DELETE_ACLS: _deleted_acls,
    ApiKey.ALTER_CONFIGS: _with_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _with_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda body: _topics(t for d in body.dirs for t in d.topics),
    ApiKey.ELECT_LEADERS: _elected,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda body: _topics(body.topics),
    ApiKey.DELETE_GROUPS: lambda body: (f"Group:{name}" for name in body.groups_names),
    ApiKey.OFFSET_DELETE: lambda body: iter([f"Group:{body.group_id}"]),
    ApiKey.ALTER_CLIENT_QUOTAS: _quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _scram_users,
    ApiKey.UPDATE_FEATURES: lambda body: (
        f"Feature:{each.feature}" for each in body.feature_updates
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: _owner,
    ApiKey.RENEW_DELEGATION_TOKEN: lambda body: iter(()),
    ApiKey.EXPIRE_DELEGATION_TOKEN: lambda body: iter(()),
}
"""The APIs whose requests are audited though they are allowed, and what each names."""


def text_of(resource: Resource) -> str:
    """A resource as records name it."""
    return f"{resource.type.title}:{resource.name}"


def error_names(message: Any) -> set[str]:
    """The errors of an answer, wherever they stand."""
    found: set[str] = set()
    for each in type(message).fields:
        value = getattr(message, each.name)
        if each.name.endswith("error_code"):
            found |= {ErrorCode.of(value).name} if value else set()
        elif isinstance(value, list):
            for entry in value:
                found |= error_names(entry) if isinstance(entry, Struct) else set()
    return found
