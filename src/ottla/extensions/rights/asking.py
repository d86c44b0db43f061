"""One client with one request, before the authorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.rights import denials
from ottla.runtime.scheduler import Work
from ottla.security.acls import CLUSTER, AclOperation, Resource, ResourceType

if TYPE_CHECKING:
    from ottla.extensions.rights.authorizer import Authorizer
    from ottla.network.request_context import RequestContext

ERRORS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
NAMES_IN_A_SLICE: Final = 500
"""A list of everything may have a hundred thousand, each with decisions of its own."""

E = TypeVar("E")
Change = Callable[[Any], Work[None] | None]
"""Changes an answer, at once or in slices."""


class Asking:
    """One client with one request, before the authorizer."""

    __slots__ = ("authorizer", "context")

    def __init__(self, authorizer: Authorizer, context: RequestContext) -> None:
        self.authorizer = authorizer
        self.context = context

    def may(self, operation: AclOperation, type_: ResourceType, name: str) -> bool:
        return self.authorizer.authorize(self.context, operation, Resource(type_, name))

    def may_to_cluster(self, operation: AclOperation) -> bool:
        return self.authorizer.authorize(self.context, operation, CLUSTER)

    def has(self, operation: AclOperation, type_: ResourceType, name: str) -> bool:
        """Whether the client has a right where others are enough, too: no denial is logged."""
        return self.authorizer.has(self.context, operation, Resource(type_, name))

    def sees(self, operation: AclOperation, type_: ResourceType, name: str) -> bool:
        """Whether a list of everything names the resource; nothing is logged."""
        return self.authorizer.shows(self.context, Resource(type_, name), operation)

    def need(self, operation: AclOperation, type_: ResourceType, name: str) -> None:
        """KafkaError with the type's error unless the client may do this."""
        if not self.may(operation, type_, name):
            raise KafkaError.of(ERRORS[type_], denials.MESSAGE)

    def seen(
        self, operation: AclOperation, type_: ResourceType, entries: Iterable[E], name: str
    ) -> Work[list[E]]:
        """The entries of a list of everything that may be shown; the attribute has their names."""
        found = []
        for number, entry in enumerate(entries, 1):
            if self.sees(operation, type_, getattr(entry, name)):
                found.append(entry)
            if not number % NAMES_IN_A_SLICE:
                yield
        return found

    def leave_seen(
        self,
        operation: AclOperation,
        type_: ResourceType,
        owners: Iterable[Any],
        entries: str,
        name: str,
    ) -> Work[None]:
        """Leave in the lists of these, each in this attribute, what lists of everything name."""
        left = NAMES_IN_A_SLICE
        for owner in owners:
            found = getattr(owner, entries)
            left -= 1 + len(found)
            setattr(owner, entries, (yield from self.seen(operation, type_, found, name)))
            if left <= 0:
                left = NAMES_IN_A_SLICE
                yield

    def amend(self, change: Change) -> None:
        """Have the answer changed before it is sent, after earlier changes."""
        earlier = self.context.amend

        def amend(response: Any) -> Work[None]:
            if earlier is not None:
                yield from earlier(response)
            work = change(response)
            if work is not None:
                yield from work

        self.context.amend = amend
