"""The kinds of checks: of a right to the cluster, to a group, to each topic of a request.

A check that finds no right to one entry of a list takes it out of the request, and puts its error
into the answer; the others are served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.rights import denials
from ottla.extensions.rights.asking import ERRORS, NAMES_IN_A_SLICE, Asking, Change
from ottla.protocol.configs import ConfigResourceType
from ottla.protocol.message import Request, Response
from ottla.runtime.scheduler import Work, at_once
from ottla.security.acls import CLUSTER, AclOperation, Resource, ResourceType
from ottla.server.handlers.named_topics import UNRESOLVED

READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DELETE, ALTER, DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

E = TypeVar("E")
Outcome = Response | None | Work[Response | None]
"""The answer to a request that goes no further, at once or in slices; None: it is served."""
Check = Callable[[Asking, Any], Outcome]
"""Changes the request, and the answer by `Asking.amend`."""


def free(asking: Asking, body: Request) -> None:
    """No right is needed."""


def of_cluster(*operations: AclOperation) -> Check:
    """One of these rights to the cluster, or the whole request fails."""

    def check(asking: Asking, body: Request) -> None:
        *others, last = operations
        if not any(asking.has(each, *CLUSTER) for each in others):
            asking.need(last, *CLUSTER)

    return check


def to_cluster(operation: AclOperation, refused: Callable[[Any], Response]) -> Check:
    """A right to the cluster, or each entry of the request has the error."""
    return lambda asking, body: None if asking.may_to_cluster(operation) else refused(body)


def of_brokers(asking: Asking, body: Request) -> None:
    """The right to act as a broker, or the whole request fails."""
    if not asking.authorizer.authorize_broker(asking.context):
        raise KafkaError.of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, denials.MESSAGE)


def of_group(operation: AclOperation) -> Check:
    """A right to the group of the request, or the whole request fails."""

    def check(asking: Asking, body: Any) -> None:
        asking.need(operation, GROUP, body.group_id)

    return check


def of_groups(
    operation: AclOperation, entries: str, results: str, refused: Callable[[str], object]
) -> Check:
    """A right to each group whose name is an entry of the request."""

    def check(asking: Asking, body: Any) -> Outcome:
        may = partial(asking.may, operation, GROUP)
        return keep(asking, body, entries, results, may, refused)

    return check


def of_topics(
    operation: AclOperation, refused: Callable[[Any], object], results: str = "topics"
) -> Check:
    """A right to each topic of the request."""

    def check(asking: Asking, body: Any) -> Outcome:
        return keep(asking, body, "topics", results, may_on_topic(asking, operation), refused)

    return check


def may_on_topic(asking: Asking, operation: AclOperation) -> Callable[[Any], bool]:
    return lambda topic: asking.may(operation, TOPIC, topic.name)


def may_by_id(asking: Asking, operation: AclOperation) -> Callable[[Any], bool]:
    """The same where topics may be given by ids: the handler refuses those that are unknown."""
    return lambda topic: topic.name == UNRESOLVED or asking.may(operation, TOPIC, topic.name)


CONFIG_OWNERS: Final = {
    ConfigResourceType.TOPIC: TOPIC,
    ConfigResourceType.GROUP: GROUP,
}


def of_configs(operation: AclOperation, results: str, refused: type[Any]) -> Check:
    """A right to each resource whose settings are shown or changed."""

    def owner(resource: Any) -> Resource:
        type_ = CONFIG_OWNERS.get(resource.resource_type)
        return CLUSTER if type_ is None else Resource(type_, resource.resource_name)

    def check(asking: Asking, body: Any) -> Outcome:
        return keep(
            asking,
            body,
            "resources",
            results,
            lambda resource: asking.may(operation, *owner(resource)),
            lambda resource: refused(
                error_code=int(ERRORS[owner(resource).type]),
                error_message=denials.MESSAGE,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            ),
        )

    return check


def shown(
    operation: AclOperation, type_: ResourceType, results: str, name: str, whole: bool = False
) -> Check:
    """Leave the entries that the client may see in a list; `whole`: DESCRIBE Cluster sees all."""

    def check(asking: Asking, body: Any) -> None:
        if whole and asking.sees(DESCRIBE, *CLUSTER):
            return

        def change(response: Any) -> Work[None]:
            return asking.leave_seen(operation, type_, [response], results, name)

        asking.amend(change)

    return check


def keep(
    asking: Asking,
    body: Any,
    entries: str,
    results: str,
    is_allowed: Callable[[Any], bool],
    refused: Callable[[Any], object],
) -> Outcome:
    """Leave the allowed entries in the request; the whole answer where there are none."""
    rows = getattr(body, entries)

    def work() -> Work[Response | None]:
        left, denied = yield from split_in_slices(rows, is_allowed)
        if not denied:
            return None
        lines = list(map(refused, denied))
        setattr(body, entries, left)
        if not left:
            response: Response = body.response_class()
            getattr(response, results).extend(lines)
            return response
        asking.amend(adding(results, lines))
        return None

    return work() if len(rows) > NAMES_IN_A_SLICE else at_once(work())


def adding(results: str, lines: Iterable[object]) -> Change:
    """Puts lines about denied entries behind those of the answer."""

    def change(response: Any) -> None:
        getattr(response, results).extend(lines)

    return change


def split(entries: Iterable[E], is_allowed: Callable[[E], bool]) -> tuple[list[E], list[E]]:
    """The allowed entries, and the denied ones; each is asked about once."""
    return at_once(split_in_slices(entries, is_allowed))


def split_in_slices(
    entries: Iterable[E], is_allowed: Callable[[E], bool]
) -> Work[tuple[list[E], list[E]]]:
    """The same of very many entries."""
    allowed: list[E] = []
    denied: list[E] = []
    for number, entry in enumerate(entries, 1):
        (allowed if is_allowed(entry) else denied).append(entry)
        if not number % NAMES_IN_A_SLICE:
            yield
    return allowed, denied
