"""A client with one request before the authorizer: changes of its answer go in slices."""

from types import SimpleNamespace

from ottla.extensions.rights.asking import NAMES_IN_A_SLICE, Asking
from ottla.runtime.scheduler import at_once
from ottla.security.acls import AclOperation, ResourceType

COUNT = 3 * NAMES_IN_A_SLICE + 1


def asking() -> Asking:
    """Everything with an even number is seen."""
    authorizer = SimpleNamespace(
        shows=lambda context, resource, operation: int(resource.name) % 2 == 0
    )
    return Asking(authorizer, SimpleNamespace(amend=None))


def test_entries_of_a_long_list_are_looked_at_some_at_a_time():
    """Each is a decision or more."""
    entries = [SimpleNamespace(name=str(number)) for number in range(COUNT)]
    work = asking().seen(AclOperation.DESCRIBE, ResourceType.TOPIC, entries, "name")
    for _ in range(3):
        next(work)

    assert at_once(work) == entries[::2]


def test_changes_of_an_answer_are_made_in_their_order():
    """At once, or with pauses."""
    asked, done = asking(), []

    def slowly(response):
        done.append("slowly begins")
        yield
        done.append(response)

    asked.amend(slowly)
    asked.amend(done.append)
    work = asked.context.amend("answer")
    next(work)
    assert done == ["slowly begins"]
    at_once(work)

    assert done == ["slowly begins", "answer", "answer"]
